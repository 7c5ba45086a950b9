//! Selection of the compute backend: CPU or GPU.

use crate::error::Error;
use ir::catalogue::Code;
use runtime::backends::cuda;
use runtime::backends::cuda::device::Device;

/// The devices of a run, and their memory.
pub(super) struct Place {
    /// In words.
    pub(super) text: String,
    /// Free bytes of the memory that tensors have apart from this process.
    pub(super) free: Option<u64>,
}

impl Place {
    /// Threads of this process.
    pub(super) fn threads() -> Place {
        Place { text: "threads of this process".to_string(), free: None }
    }

    /// Shares of a GPU.
    ///
    /// # Errors
    /// The driver failed.
    pub(super) fn gpu(device: &Device) -> Result<Place, Error> {
        let (free, _) = device.memory().map_err(|why| no_gpu(&why))?;
        Ok(Place { text: format!("one GPU, {}", device.properties().name), free: Some(free as u64) })
    }
}

/// The names of the backends.
pub(super) const BACKENDS: [&str; 2] = ["cpu", "cuda"];

/// Checks that the named backend can be used on this machine.
///
/// # Errors
/// The machine has no usable GPU, or a library is missing.
pub(super) fn check_device(backend: &str) -> Result<(), Error> {
    match backend {
        "cuda" => Device::open(0).map(drop).map_err(|why| no_gpu(&why)),
        _ => Ok(()),
    }
}

/// Returns the error for a missing GPU or library, with its fix.
pub fn no_gpu(why: &cuda::Error) -> Error {
    Error::input(Code::NoGpu, format!("no GPU can be used: {why}")).help(
        "install the NVIDIA driver, and NVRTC and cuBLASLt of the CUDA 13 toolkit; LD_LIBRARY_PATH adds folders to search. \
         --backend cpu needs none of them",
    )
}
