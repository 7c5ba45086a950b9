//! CUDA's shared libraries. The program builds and starts without them; each library is loaded at first use.

use super::nccl;
use cudarc::{cublaslt, driver, nvrtc};

/// A library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    /// The driver, which comes with the GPU's kernel module.
    Driver,
    /// The run-time compiler of the CUDA toolkit.
    Nvrtc,
    /// The matrix products of the CUDA toolkit.
    CublasLt,
    /// The collectives of GPUs in several processes.
    Nccl,
}

impl Library {
    /// All that every GPU needs, in the order in which they are looked for.
    pub const ALL: [Library; 3] = [Library::Driver, Library::Nvrtc, Library::CublasLt];

    /// The name of the library.
    pub fn name(self) -> &'static str {
        match self {
            Library::Driver => "the CUDA driver",
            Library::Nvrtc => "NVRTC",
            Library::CublasLt => "cuBLASLt",
            Library::Nccl => "NCCL",
        }
    }

    /// True if it can be loaded. `cudarc` panics at the first call into a library that cannot.
    pub fn is_there(self) -> bool {
        // SAFETY: loading a library runs its initialisers; those of CUDA have no conditions.
        unsafe {
            match self {
                Library::Driver => driver::sys::is_culib_present(),
                Library::Nvrtc => nvrtc::sys::is_culib_present(),
                Library::CublasLt => cublaslt::sys::is_culib_present(),
                Library::Nccl => nccl::is_there(),
            }
        }
    }

    /// The file names that are tried, first to last, wherever the system's loader looks for libraries.
    pub fn file_names(self) -> Vec<String> {
        let stem = match self {
            Library::Driver if cfg!(windows) => "nvcuda",
            Library::Driver => "cuda",
            Library::Nvrtc => "nvrtc",
            Library::CublasLt => "cublasLt",
            Library::Nccl => return nccl::file_names(),
        };
        cudarc::get_lib_name_candidates(stem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_cuda_13_are_tried() {
        let names = |library: Library| library.file_names().join(" ");
        if cfg!(target_os = "linux") {
            assert!(names(Library::Driver).contains("libcuda.so.1"));
            assert!(names(Library::Nvrtc).contains("libnvrtc.so.13"));
            assert!(names(Library::CublasLt).contains("libcublasLt.so.13"));
        }
    }
}
