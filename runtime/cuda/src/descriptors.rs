//! Descriptors of cuBLASLt: a product, the layouts of its matrices, and what an algorithm may do.

use super::error::{Error, Tried};
use super::matmul::{Arithmetic, Formats};
use cudarc::cublaslt::result;
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasLtMatmulDescAttributes_t as Setting,
    cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cublasLtMatrixLayoutAttribute_t as Place,
    cublasLtReductionScheme_t as Reduction, cudaDataType_t as Data,
};
use kernels::cuda::gemm::{Gemm, Matrix};
use kernels::scalar::Element;

/// The descriptors of a product.
pub(super) struct Descriptors {
    pub(super) operation: Operation,
    pub(super) layouts: [Layout; 3],
}

impl Descriptors {
    pub(super) fn new(gemm: &Gemm, formats: Formats) -> Result<Descriptors, Error> {
        let [a, b] = gemm.ordered(formats.operands()).map(data);
        let layouts = [
            Layout::new(a, &gemm.a, gemm.batch)?,
            Layout::new(b, &gemm.b, gemm.batch)?,
            Layout::new(data(formats.result), &gemm.d, gemm.batch)?,
        ];
        Ok(Descriptors { operation: Operation::new(formats.arithmetic, gemm)?, layouts })
    }

    /// The handles of the layouts.
    pub(super) fn matrices(&self) -> [sys::cublasLtMatrixLayout_t; 3] {
        self.layouts.each_ref().map(|layout| layout.0)
    }

    /// The best algorithms that the library proposes, at least one, and at most a number of them; the best first.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn proposals(
        &self,
        handle: sys::cublasLtHandle_t,
        preference: &Preference,
        most: usize,
    ) -> Result<Vec<sys::cublasLtMatmulAlgo_t>, Error> {
        const WHAT: &str = "choosing an algorithm for a matrix product";
        let none = sys::cublasLtMatmulHeuristicResult_t {
            algo: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
            workspaceSize: 0,
            state: sys::cublasStatus_t::CUBLAS_STATUS_NOT_INITIALIZED,
            wavesCount: 0.0,
            reserved: [0; 4],
        };
        let ([a, b, d], mut found, mut count) = (self.matrices(), vec![none; most], 0);
        // SAFETY: all descriptors are alive, and the list has as many places as are asked for.
        unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle,
                self.operation.0,
                a,
                b,
                d,
                d,
                preference.0,
                most as i32,
                found.as_mut_ptr(),
                &raw mut count,
            )
        }
        .result()
        .tried(WHAT)?;
        let is_right = |found: &&sys::cublasLtMatmulHeuristicResult_t| found.state.result().is_ok();
        let right: Vec<_> = found.iter().take(count as usize).filter(is_right).map(|found| found.algo).collect();
        match right.is_empty() {
            true => Err(Error::Blas { what: WHAT, why: "none that computes it".to_string() }),
            false => Ok(right),
        }
    }
}

/// The description of an algorithm, for messages: `algorithm 66, tile 13, 48 parts of sums, reduction 2`.
pub(super) fn described(algorithm: &sys::cublasLtMatmulAlgo_t) -> String {
    use sys::cublasLtMatmulAlgoConfigAttributes_t as Config;
    let number = |attribute: Config| {
        let (mut value, mut written) = (0i32, 0);
        // SAFETY: the attributes are of 32 bits, and as many are given to write to.
        let read = unsafe {
            let to = (&raw mut value).cast();
            sys::cublasLtMatmulAlgoConfigGetAttribute(algorithm, attribute, to, size_of::<i32>(), &raw mut written)
        };
        read.result().map_or_else(|_| "unknown".to_string(), |()| value.to_string())
    };
    format!(
        "algorithm {}, tile {}, {} parts of sums, reduction {}",
        number(Config::CUBLASLT_ALGO_CONFIG_ID),
        number(Config::CUBLASLT_ALGO_CONFIG_TILE_ID),
        number(Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
        number(Config::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
    )
}

/// The library's name of an element type.
fn data(element: Element) -> Data {
    match element {
        Element::F32 => Data::CUDA_R_32F,
        Element::Bf16 => Data::CUDA_R_16BF,
        Element::F16 => Data::CUDA_R_16F,
        Element::I32 => Data::CUDA_R_32I,
        Element::F8E4M3 => Data::CUDA_R_8F_E4M3,
        Element::F8E5M2 => Data::CUDA_R_8F_E5M2,
    }
}

/// The bytes of a setting's value: an integer, which has no padding.
fn bytes<T: Copy + Into<i128>>(value: &T) -> &[u8] {
    // SAFETY: every byte of an integer is one.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Descriptor of a matmul, destroyed when dropped.
pub(super) struct Operation(pub(super) sys::cublasLtMatmulDesc_t);

impl Operation {
    fn new(arithmetic: Arithmetic, gemm: &Gemm) -> Result<Operation, Error> {
        let compute = match arithmetic {
            Arithmetic::F32 | Arithmetic::Bf16 | Arithmetic::F16 | Arithmetic::F8(_) => Compute::CUBLAS_COMPUTE_32F,
            Arithmetic::Tf32 => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
        };
        let made = result::create_matmul_desc(compute, Data::CUDA_R_32F).tried("describing a matrix product")?;
        let operation = Operation(made);
        let transposed = [
            (Setting::CUBLASLT_MATMUL_DESC_TRANSA, gemm.a.transposed),
            (Setting::CUBLASLT_MATMUL_DESC_TRANSB, gemm.b.transposed),
        ];
        for (setting, transposed) in transposed {
            // CUBLAS_OP_N is 0, CUBLAS_OP_T is 1.
            let op = i32::from(transposed);
            // SAFETY: an int32 is of the setting's type.
            unsafe { operation.set(setting, bytes(&op))? };
        }
        Ok(operation)
    }

    /// Names the scales of A and B: numbers in f32 on the device, which a launch reads when it runs.
    pub(super) fn scale(&self, [a, b]: [u64; 2]) -> Result<(), Error> {
        // SAFETY: an address is of the settings' type.
        unsafe {
            self.set(Setting::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, bytes(&a))?;
            self.set(Setting::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, bytes(&b))
        }
    }

    /// Adds a number to each row of D: a list on the device, in the format of D, which a launch reads when it runs.
    pub(super) fn add_rows(&self, bias: u64) -> Result<(), Error> {
        let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as u32;
        // SAFETY: an epilogue is a uint32, and an address is of the other setting's type.
        unsafe {
            self.set(Setting::CUBLASLT_MATMUL_DESC_EPILOGUE, bytes(&epilogue))?;
            self.set(Setting::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bytes(&bias))
        }
    }

    /// Gives a setting its value.
    ///
    /// # Safety
    /// The value is of the setting's type.
    unsafe fn set(&self, setting: Setting, value: &[u8]) -> Result<(), Error> {
        // SAFETY: the descriptor is alive; the value is as the caller promises.
        unsafe { result::set_matmul_desc_attribute(self.0, setting, value.as_ptr().cast(), value.len()) }
            .tried("describing a matrix product")
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: made by `create_matmul_desc`, destroyed once.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// Layout of a matrix, destroyed when dropped.
pub(super) struct Layout(sys::cublasLtMatrixLayout_t);

impl Layout {
    fn new(data: Data, matrix: &Matrix, batch: usize) -> Result<Layout, Error> {
        const WHAT: &str = "describing a matrix";
        let made = result::create_matrix_layout(data, matrix.rows as u64, matrix.columns as u64, matrix.leading as i64);
        let layout = Layout(made.tried(WHAT)?);
        if batch > 1 {
            let count = i32::try_from(batch).map_err(|_| Error::Program(format!("{batch} matrices in a batch")))?;
            let stride = matrix.batch_stride as i64;
            let settings = [
                (Place::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, bytes(&count)),
                (Place::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, bytes(&stride)),
            ];
            for (setting, value) in settings {
                // SAFETY: the layout is alive, and the values are of the settings' types, an int32 and an int64.
                unsafe { result::set_matrix_layout_attribute(layout.0, setting, value.as_ptr().cast(), value.len()) }
                    .tried(WHAT)?;
            }
        }
        Ok(layout)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: made by `create_matrix_layout`, destroyed once.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

/// Constraints on the algorithm, destroyed when dropped.
pub(super) struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    pub(super) fn new(workspace: usize, [a, b, c, d]: [u32; 4]) -> Result<Preference, Error> {
        // Parts of a sum are added in f32, each at its own place in the workspace: no atomic addition, and no rounding before the last.
        let (workspace, reduction) = (workspace as u64, Reduction::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32);
        const WHAT: &str = "describing what an algorithm may use";
        let preference = Preference(result::create_matmul_pref().tried(WHAT)?);
        let attributes = [
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes(&workspace)),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, bytes(&reduction)),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes(&a)),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes(&b)),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes(&c)),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes(&d)),
        ];
        for (attribute, value) in attributes {
            // SAFETY: the preference is alive, and the values are of the attributes' types, a size_t and uint32s.
            unsafe { result::set_matmul_pref_attribute(preference.0, attribute, value.as_ptr().cast(), value.len()) }
                .tried(WHAT)?;
        }
        Ok(preference)
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: made by `create_matmul_pref`, destroyed once.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}
