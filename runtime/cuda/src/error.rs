//! Errors of a GPU, or of the search for one.

use super::library::Library;
use cudarc::cublaslt::result::CublasError;
use cudarc::driver::DriverError;

/// Why something on a GPU did not work.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Error {
    /// Libraries cannot be loaded.
    #[error("{}", missing(.0))]
    Missing(Vec<Library>),
    /// The driver is there and shows no such device.
    #[error("there is no device {ordinal}: {}", found(.count))]
    NoDevice {
        /// The device asked for, from 0.
        ordinal: usize,
        /// How many there are, or why that is not known.
        count: Result<usize, String>,
    },
    /// The device has not enough memory.
    #[error("{asked} bytes of device memory were asked for, and {free} of {total} are free")]
    Memory {
        /// Bytes asked for.
        asked: usize,
        /// Bytes free.
        free: usize,
        /// Bytes in all.
        total: usize,
    },
    /// NVRTC refused a source.
    #[error("NVRTC does not compile a kernel for {arch}: {why}\n{log}")]
    Compile {
        /// The architecture: `sm_90`.
        arch: String,
        /// Its status.
        why: String,
        /// The output of the compiler.
        log: String,
    },
    /// A call of the driver failed.
    #[error("{what}: the CUDA driver reports {why}")]
    Driver {
        /// The call that failed.
        what: &'static str,
        /// The driver's status.
        why: String,
    },
    /// A call of cuBLASLt failed.
    #[error("{what}: cuBLASLt reports {why}")]
    Blas {
        /// The call that failed.
        what: &'static str,
        /// Its status.
        why: String,
    },
    /// A call of NCCL failed.
    #[error("{what}: NCCL reports {why}")]
    Nccl {
        /// The call that failed.
        what: &'static str,
        /// Its status.
        why: String,
    },
    /// Another process has no GPU.
    #[error("process {process} on {host}: {why}")]
    Elsewhere {
        /// The process.
        process: usize,
        /// Its host.
        host: String,
        /// The cause.
        why: String,
    },
    /// Two processes have one GPU.
    #[error("processes {} and {} on {host} have the same GPU", .processes[0], .processes[1])]
    Shared {
        /// The processes.
        processes: [usize; 2],
        /// Their host.
        host: String,
    },
    /// A scalar program or a contraction is broken.
    #[error("{0}")]
    Program(String),
}

/// Text that names the missing libraries, each with the file names tried.
fn missing(libraries: &[Library]) -> String {
    let name = |library: &Library| {
        let names = library.file_names().join(", ");
        format!("the library of {} is not there, by none of the names {names}", library.name())
    };
    libraries.iter().map(name).collect::<Vec<_>>().join("; ")
}

fn found(count: &Result<usize, String>) -> String {
    match count {
        Ok(0) => "the CUDA driver shows none (CUDA_VISIBLE_DEVICES may hide them)".into(),
        Ok(count) => format!("the CUDA driver shows {count}, numbered from 0"),
        Err(why) => format!("the CUDA driver reports {why}"),
    }
}

/// Names what was tried when a call fails.
pub(super) trait Tried<T> {
    /// The value, or an error that names the call.
    fn tried(self, what: &'static str) -> Result<T, Error>;
}

impl<T> Tried<T> for Result<T, DriverError> {
    fn tried(self, what: &'static str) -> Result<T, Error> {
        self.map_err(|why| Error::Driver { what, why: status(why) })
    }
}

impl<T> Tried<T> for Result<T, CublasError> {
    fn tried(self, what: &'static str) -> Result<T, Error> {
        self.map_err(|why| Error::Blas { what, why: format!("{:?}", why.0) })
    }
}

/// The outcome of a call in a step. A failure ends the rank: work that was given before has failed.
pub(super) fn must<T>(outcome: Result<T, Error>) -> T {
    outcome.unwrap_or_else(|why| panic!("{why}"))
}

/// `CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)`.
pub(super) fn status(error: DriverError) -> String {
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    text.map_or_else(|_| format!("{:?}", error.0), |text| format!("{:?} ({text})", error.0))
}
