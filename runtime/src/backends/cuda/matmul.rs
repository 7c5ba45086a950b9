//! Matrix products by cuBLASLt.
//!
//! In f32 every product is a product of 24-bit mantissas: TF32 is used only on request. The library picks an algorithm once
//! per shape and alignment of its matrices; the choice is cached.

use super::device::Device;
use super::error::{Error, Tried};
use super::memory::Arena;
use super::stream::Stream;
use cudarc::cublaslt::result;
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasLtMatmulDescAttributes_t as Setting,
    cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cublasLtMatrixLayoutAttribute_t as Place,
    cudaDataType_t as Data,
};
use kernels::cuda::gemm::{Gemm, Matrix};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::sync::Arc;

/// In which arithmetic products are computed. Results are f32, and sums are accumulated in f32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arithmetic {
    /// Operands f32.
    F32,
    /// Operands f32; the tensor cores read 11 bits of mantissa.
    Tf32,
    /// Operands bf16.
    Bf16,
}

/// Device memory that an algorithm may use: what the cuBLAS documentation recommends for Hopper and later, and before
/// (section "cublasSetWorkspace").
const WORKSPACE: [usize; 2] = [32 << 20, 4 << 20];

/// The alignment beyond which no algorithm asks for more, that of a piece of device memory.
const ALIGNED: u64 = 256;

/// A handle of cuBLASLt, for one stream.
pub struct Matmul {
    handle: sys::cublasLtHandle_t,
    workspace: Arena,
    ready: HashMap<AlgorithmKey, Ready>,
}

// SAFETY: the handle and the descriptors are used by one thread at a time, and belong to none.
unsafe impl Send for Matmul {}

/// Key by which an algorithm is chosen: the matmul, and the alignment of A, B and D in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct AlgorithmKey {
    gemm: Gemm,
    arithmetic: Arithmetic,
    alignment: [u32; 3],
}

/// A product that can be launched.
struct Ready {
    operation: Operation,
    layouts: [Layout; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

impl Matmul {
    /// A handle with its workspace.
    ///
    /// # Errors
    /// The library or the device's memory fails.
    pub fn new(device: &Arc<Device>) -> Result<Matmul, Error> {
        device.bind()?;
        let bytes = WORKSPACE[usize::from(device.properties().capability.0 < 9)];
        let workspace = Arena::new(device, bytes)?;
        let handle = result::create_handle().tried("starting cuBLASLt")?;
        Ok(Matmul { handle, workspace, ready: HashMap::new() })
    }

    /// Launches `D = op(A) op(B)`, or `D += op(A) op(B)`, for matrices at these addresses. All launches go to one stream,
    /// since they share the workspace.
    ///
    /// # Errors
    /// No algorithm does it, or the launch fails.
    ///
    /// # Safety
    /// The matrices are in live arenas, aligned to their elements; `D` overlaps no other; no other stream works on them.
    pub unsafe fn launch(
        &mut self,
        stream: &Stream,
        gemm: &Gemm,
        arithmetic: Arithmetic,
        [a, b, d]: [u64; 3],
        accumulate: bool,
    ) -> Result<(), Error> {
        if gemm.batch * gemm.m * gemm.n == 0 {
            return Ok(());
        }
        stream.bind()?;
        if gemm.k == 0 {
            // SAFETY: as the caller promises. Without terms the sum is zero; the result is dense.
            return if accumulate { Ok(()) } else { unsafe { stream.zero(d, 4 * gemm.batch * gemm.m * gemm.n) } };
        }
        let alignment = [a, b, d].map(|address| (address & address.wrapping_neg()).min(ALIGNED) as u32);
        let limit = self.workspace.bytes();
        let ready = match self.ready.entry(AlgorithmKey { gemm: *gemm, arithmetic, alignment }) {
            Entry::Occupied(ready) => ready.into_mut(),
            Entry::Vacant(place) => {
                let ready = Ready::new(self.handle, place.key(), limit)?;
                place.insert(ready)
            }
        };
        let (alpha, beta) = (1f32, if accumulate { 1f32 } else { 0f32 });
        let [a_layout, b_layout, d_layout] = ready.layouts.each_ref().map(|layout| layout.0);
        // SAFETY: handle, descriptors and workspace are alive; the scalars are read before the call returns, as the default
        // pointer mode says; the matrices are as the caller promises.
        unsafe {
            result::matmul(
                self.handle,
                ready.operation.0,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                a as *const c_void,
                a_layout,
                b as *const c_void,
                b_layout,
                d as *const c_void,
                d_layout,
                d as *mut c_void,
                d_layout,
                &raw const ready.algorithm,
                self.workspace.address(0, limit) as *mut c_void,
                limit,
                stream.stream().cu_stream().cast(),
            )
        }
        .tried("launching a matrix product")
    }
}

impl Drop for Matmul {
    fn drop(&mut self) {
        self.ready.clear();
        // SAFETY: made by `create_handle`, destroyed once. Nobody could handle a failure.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

impl Ready {
    /// Describes a product and lets the library choose an algorithm within a limit of workspace.
    fn new(handle: sys::cublasLtHandle_t, key: &AlgorithmKey, limit: usize) -> Result<Ready, Error> {
        let operands = if key.arithmetic == Arithmetic::Bf16 { Data::CUDA_R_16BF } else { Data::CUDA_R_32F };
        let gemm = &key.gemm;
        let operation = Operation::new(key.arithmetic, gemm)?;
        let layouts = [
            Layout::new(operands, &gemm.a, gemm.batch)?,
            Layout::new(operands, &gemm.b, gemm.batch)?,
            Layout::new(Data::CUDA_R_32F, &gemm.d, gemm.batch)?,
        ];
        let preference = Preference::new(limit, key.alignment)?;
        let [a, b, d] = layouts.each_ref().map(|layout| layout.0);
        // SAFETY: all descriptors are alive.
        let chosen = unsafe { result::get_matmul_algo_heuristic(handle, operation.0, a, b, d, d, preference.0) };
        let algorithm = chosen.tried("choosing an algorithm for a matrix product")?.algo;
        Ok(Ready { operation, layouts, algorithm })
    }
}

/// The bytes of a setting's value: an integer, which has no padding.
fn bytes<T: Copy + Into<i128>>(value: &T) -> &[u8] {
    // SAFETY: every byte of an integer is one.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Descriptor of a matmul, destroyed when dropped.
struct Operation(sys::cublasLtMatmulDesc_t);

impl Operation {
    fn new(arithmetic: Arithmetic, gemm: &Gemm) -> Result<Operation, Error> {
        let compute = match arithmetic {
            Arithmetic::F32 | Arithmetic::Bf16 => Compute::CUBLAS_COMPUTE_32F,
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
            let value = bytes(&op);
            // SAFETY: the descriptor is alive, and the value is of the setting's type, an int32.
            unsafe { result::set_matmul_desc_attribute(operation.0, setting, value.as_ptr().cast(), value.len()) }
                .tried("describing a matrix product")?;
        }
        Ok(operation)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: made by `create_matmul_desc`, destroyed once.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// Layout of a matrix, destroyed when dropped.
struct Layout(sys::cublasLtMatrixLayout_t);

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
struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn new(workspace: usize, [a, b, d]: [u32; 3]) -> Result<Preference, Error> {
        let workspace = workspace as u64;
        const WHAT: &str = "describing what an algorithm may use";
        let preference = Preference(result::create_matmul_pref().tried(WHAT)?);
        let attributes = [
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes(&workspace)),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes(&a)),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes(&b)),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes(&d)),
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
