//! Matrix products by cuBLASLt.
//!
//! In f32 every product is a product of 24-bit mantissas: TF32 is used only on request. The algorithm of a product is chosen
//! once per shape: the first that the library proposes, or, on request, the fastest of several on the device. No algorithm adds
//! parts of a sum in the order in which threads come, so that equal operands give equal bits.

use super::addend::Addend;
use super::descriptors::{Descriptors, Preference, described};
use super::device::Device;
use super::error::{Error, Tried};
use super::memory::Arena;
use super::stream::{Event, Stream};
use super::trial::{Trial, fastest};
use cudarc::cublaslt::result;
use cudarc::cublaslt::sys;
use kernels::cuda::gemm::Gemm;
use kernels::scalar::Element;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::sync::{Arc, PoisonError};

/// In which arithmetic products are computed. Sums are accumulated in f32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arithmetic {
    /// Operands f32.
    F32,
    /// Operands f32; the tensor cores read 11 bits of mantissa.
    Tf32,
    /// Operands bf16.
    Bf16,
    /// Operands f16.
    F16,
    /// Operands of 8 bits, in the formats of the contraction's first and second; the sum is multiplied by a scale of each.
    F8([Element; 2]),
}

impl Arithmetic {
    /// The format of each operand of a contraction.
    pub fn operands(self) -> [Element; 2] {
        match self {
            Arithmetic::F32 | Arithmetic::Tf32 => [Element::F32; 2],
            Arithmetic::Bf16 => [Element::Bf16; 2],
            Arithmetic::F16 => [Element::F16; 2],
            Arithmetic::F8(formats) => formats,
        }
    }

    /// True if the library rounds sums to a format: that of the operands, or one of 16 bits if theirs have 8.
    pub fn rounds_to(self, format: Element) -> bool {
        match self {
            Arithmetic::F8(_) => matches!(format, Element::Bf16 | Element::F16),
            _ => self.operands() == [format; 2],
        }
    }
}

/// The formats of a product. A narrow result is rounded from the sum in f32; measured on an H100, most algorithms round it before they add
/// a matrix to it, and round again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Formats {
    /// The arithmetic, and with it the format of the operands.
    pub arithmetic: Arithmetic,
    /// The format of the result: f32, or one that the arithmetic rounds to.
    pub result: Element,
}

impl Formats {
    /// Operands and result in f32.
    pub const F32: Formats = Formats { arithmetic: Arithmetic::F32, result: Element::F32 };

    /// The format of each operand of the contraction.
    pub fn operands(self) -> [Element; 2] {
        self.arithmetic.operands()
    }
}

/// Addresses of a product.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Those of A, B and D.
    pub matrices: [u64; 3],
    /// Those of the scales of A and B, which operands of 8 bits have.
    pub scales: Option<[u64; 2]>,
    /// That of what is added.
    pub added: Option<(Addend, u64)>,
}

impl Addresses {
    /// The matrix that the library scales by beta and adds: D itself where no other is added.
    fn c(&self) -> u64 {
        match self.added {
            Some((Addend::Same, c)) => c,
            _ => self.matrices[2],
        }
    }
}

impl From<[u64; 3]> for Addresses {
    fn from(matrices: [u64; 3]) -> Addresses {
        Addresses { matrices, scales: None, added: None }
    }
}

/// Device memory that an algorithm may use: what the cuBLAS documentation recommends for Hopper and later, and before
/// (section "cublasSetWorkspace").
const WORKSPACE: [usize; 2] = [32 << 20, 4 << 20];

/// The alignment that algorithms may count on, that of tensors in an arena, unless an address has a lower one.
const ALIGNED: u32 = ir::arena::ALIGNMENT as u32;

/// The most algorithms that are timed for a product.
const TIMED: usize = 8;

/// A handle of cuBLASLt and its workspace, for one stream.
pub struct Matmul {
    device: Arc<Device>,
    handle: sys::cublasLtHandle_t,
    workspace: Arena,
    ready: HashMap<AlgorithmKey, Ready>,
    is_timing: bool,
}

// SAFETY: the handle and the descriptors are used by one thread at a time, and belong to none.
unsafe impl Send for Matmul {}

/// Key by which an algorithm is chosen: the matmul, what it adds, and the alignment of A, B, C and D in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct AlgorithmKey {
    gemm: Gemm,
    formats: Formats,
    added: Option<Addend>,
    alignment: [u32; 4],
}

/// A product that can be launched.
struct Ready {
    descriptors: Descriptors,
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
        Ok(Matmul { device: device.clone(), handle, workspace, ready: HashMap::new(), is_timing: false })
    }

    /// Says whether [`Matmul::prepare`] times algorithms. The fastest one may be another in another run, and so may the last bits.
    pub fn set_timing(&mut self, is_timing: bool) {
        self.is_timing = is_timing;
    }

    /// True if [`Matmul::prepare`] times algorithms.
    pub fn is_timing(&self) -> bool {
        self.is_timing
    }

    /// Chooses the algorithm for matrices that are aligned as tensors in an arena are; all threads of a device share the choice. With timing
    /// it is the fastest of several, each launched a few times on operands of its own; without memory for them, the first one.
    ///
    /// # Errors
    /// No algorithm does it, or a launch fails.
    pub fn prepare(
        &mut self,
        stream: &Stream,
        gemm: &Gemm,
        formats: Formats,
        added: Option<Addend>,
    ) -> Result<(), Error> {
        if gemm.batch * gemm.m * gemm.n * gemm.k == 0 {
            return Ok(());
        }
        let key = AlgorithmKey { gemm: *gemm, formats, added, alignment: [ALIGNED; 4] };
        if self.is_timing && !self.ready.contains_key(&key) {
            let device = self.device.clone();
            // Nobody else on the device times at the same time.
            let mut choices = device.choices().lock().unwrap_or_else(PoisonError::into_inner);
            if let Entry::Vacant(place) = choices.entry(key) {
                place.insert(self.timed(stream, &key)?);
            }
            let ready = Ready { descriptors: describe(&key, &self.workspace)?, algorithm: choices[&key] };
            self.ready.insert(key, ready);
        }
        self.ready(&key).map(drop)
    }

    /// The fastest algorithm of those that the library proposes.
    fn timed(&self, stream: &Stream, key: &AlgorithmKey) -> Result<sys::cublasLtMatmulAlgo_t, Error> {
        let descriptors = describe(key, &self.workspace)?;
        let preference = Preference::new(self.workspace.bytes(), key.alignment)?;
        let proposals = descriptors.proposals(self.handle, &preference, TIMED)?;
        let trial = match Trial::new(&self.device, stream, &key.gemm, key.formats) {
            Ok(trial) => trial,
            Err(Error::Memory { .. }) => return Ok(proposals[0]),
            Err(why) => return Err(why),
        };
        let mut addresses = trial.addresses();
        addresses.added = key.added.map(|addend| (addend, addresses.matrices[2]));
        let (start, end) = (Event::timed(&self.device)?, Event::timed(&self.device)?);
        let best = fastest(&proposals, |algorithm| {
            // SAFETY: the matrices are the trial's own.
            let launch = || unsafe { self.multiply(stream, &descriptors, algorithm, addresses, false) };
            trial.seconds(stream, [&start, &end], launch)
        })?;
        Ok(proposals[best])
    }

    /// The product of a key, with the first algorithm unless another has been chosen.
    fn ready(&mut self, key: &AlgorithmKey) -> Result<&Ready, Error> {
        Ok(match self.ready.entry(*key) {
            Entry::Occupied(ready) => ready.into_mut(),
            Entry::Vacant(place) => {
                let descriptors = describe(key, &self.workspace)?;
                let preference = Preference::new(self.workspace.bytes(), key.alignment)?;
                let algorithm = descriptors.proposals(self.handle, &preference, 1)?[0];
                place.insert(Ready { descriptors, algorithm })
            }
        })
    }

    /// The algorithms that have been chosen for a product.
    pub fn algorithms(&self, gemm: &Gemm, formats: Formats) -> Vec<String> {
        let of_product = |(key, _): &(&AlgorithmKey, &Ready)| key.gemm == *gemm && key.formats == formats;
        self.ready.iter().filter(of_product).map(|(_, ready)| described(&ready.algorithm)).collect()
    }

    /// Launches `D = op(A) op(B)`, or `D += op(A) op(B)`, for matrices at these addresses. All launches go to one stream,
    /// since they share the workspace.
    ///
    /// # Errors
    /// No algorithm does it, or the launch fails.
    ///
    /// # Safety
    /// The matrices are in live arenas, aligned to their elements; `D` overlaps no other, but may be the matrix that is added; no other
    /// stream works on them. What is added has terms, and nothing accumulates with it.
    pub unsafe fn launch(
        &mut self,
        stream: &Stream,
        gemm: &Gemm,
        formats: Formats,
        addresses: impl Into<Addresses>,
        accumulate: bool,
    ) -> Result<(), Error> {
        let addresses = addresses.into();
        if gemm.batch * gemm.m * gemm.n == 0 {
            return Ok(());
        }
        stream.bind()?;
        if gemm.k == 0 {
            let bytes = formats.result.bytes() * gemm.batch * gemm.m * gemm.n;
            // SAFETY: as the caller promises. Without terms the sum is zero; the result is dense.
            return if accumulate { Ok(()) } else { unsafe { stream.fill(addresses.matrices[2], 0, bytes) } };
        }
        let aligned = |address: u64| (address & address.wrapping_neg()).min(u64::from(ALIGNED)) as u32;
        let [a, b, d] = addresses.matrices;
        let alignment = [a, b, addresses.c(), d].map(aligned);
        let added = addresses.added.map(|(addend, _)| addend);
        let key = AlgorithmKey { gemm: *gemm, formats, added, alignment };
        self.ready(&key)?;
        let Ready { descriptors, algorithm } = &self.ready[&key];
        // SAFETY: as the caller promises.
        unsafe { self.multiply(stream, descriptors, algorithm, addresses, accumulate) }
    }

    /// As [`Matmul::launch`], by an algorithm.
    unsafe fn multiply(
        &self,
        stream: &Stream,
        descriptors: &Descriptors,
        algorithm: &sys::cublasLtMatmulAlgo_t,
        addresses: Addresses,
        accumulate: bool,
    ) -> Result<(), Error> {
        let ([a, b, d], c) = (addresses.matrices, addresses.c());
        if let Some(scales) = addresses.scales {
            descriptors.operation.scale(scales)?;
        }
        if let Some((Addend::Row, bias)) = addresses.added {
            descriptors.operation.add_rows(bias)?;
        }
        let has_c = accumulate || matches!(addresses.added, Some((Addend::Same, _)));
        let (alpha, beta) = (1f32, if has_c { 1f32 } else { 0f32 });
        let ([a_layout, b_layout, d_layout], limit) = (descriptors.matrices(), self.workspace.bytes());
        // SAFETY: handle, descriptors and workspace are alive; the scalars are read before the call returns, as the default
        // pointer mode says; the matrices are as the caller promises.
        unsafe {
            result::matmul(
                self.handle,
                descriptors.operation.0,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                a as *const c_void,
                a_layout,
                b as *const c_void,
                b_layout,
                c as *const c_void,
                d_layout,
                d as *mut c_void,
                d_layout,
                std::ptr::from_ref(algorithm),
                self.workspace.address(0, limit) as *mut c_void,
                limit,
                stream.stream().cu_stream().cast(),
            )
        }
        .tried("launching a matrix product")
    }
}

/// The descriptors of a product. The scales and the bias that they name until its launch are memory of the workspace: the library sees
/// that there are some.
fn describe(key: &AlgorithmKey, workspace: &Arena) -> Result<Descriptors, Error> {
    let descriptors = Descriptors::new(&key.gemm, key.formats)?;
    if let Arithmetic::F8(_) = key.formats.arithmetic {
        descriptors.operation.scale([workspace.address(0, size_of::<f32>()); 2])?;
    }
    if key.added == Some(Addend::Row) {
        descriptors.operation.add_rows(workspace.address(0, size_of::<f32>()))?;
    }
    Ok(descriptors)
}

impl Drop for Matmul {
    fn drop(&mut self) {
        self.ready.clear();
        // SAFETY: made by `create_handle`, destroyed once. Nobody could handle a failure.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}
