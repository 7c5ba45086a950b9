//! Selection of the compute backend: CPU or GPU.

use super::gpu::{self, Gpu};
use super::request::TrainRequest;
use crate::error::Error;
use cpu::peak;
use ir::catalogue::Code;
use ir::types::DType;
use trace::Peak;

/// The devices of a run, and their memory.
pub(super) struct Place {
    /// In words.
    pub(super) text: String,
    /// Ranks on this host, if some are on others.
    pub(super) near: Option<u64>,
    /// Free bytes of the memory that tensors have apart from this process.
    pub(super) free: Option<u64>,
    /// The GPU that all ranks share; none for threads.
    gpu: Option<Gpu>,
}

/// Peak rates of what a run computes on, as measured.
pub(super) struct Reached {
    pub(super) peak: Peak,
    /// The operations that were measured: `matmul and sum on all cores`.
    pub(super) by: &'static str,
    /// The number of ranks that compute at the same time, each with an equal share of the rates.
    pub(super) at_once: u64,
}

impl Place {
    /// Threads of this process, in words; `near`: the ranks on this host, if some are on others.
    pub(super) fn threads(text: String, near: Option<u64>) -> Place {
        Place { text, near, free: None, gpu: None }
    }

    /// Shares of a GPU with this much free memory, in words; `near` as for threads.
    #[cfg(feature = "cuda")]
    pub(super) fn gpu(gpu: Gpu, text: String, near: Option<u64>, free: u64) -> Place {
        Place { text, near, free: Some(free), gpu: Some(gpu) }
    }

    /// Measures the peak rates for products of a type: of a GPU, or of `threads` threads of the ranks.
    ///
    /// # Errors
    /// There is no memory for it, or there are too few threads.
    pub(super) fn peak(&self, threads: usize, ranks: u64, dtype: DType) -> Result<Reached, Error> {
        let (peak, by, at_once) = match &self.gpu {
            Some(gpu) => (gpu.peak(dtype), "matmul and copy on the GPU", 1),
            None => {
                (peak(threads, dtype), "matmul and sum on all cores", self.near.unwrap_or(ranks).min(threads as u64))
            }
        };
        let help = match &self.gpu {
            Some(_) => "leave out --profile, or stop the processes that use the GPU's memory",
            None => "leave out --profile, or raise the limit (ulimit -u)",
        };
        let mut peak = peak.map_err(|why| {
            Error::input(Code::TooLittleMemory, format!("this machine cannot be measured: {why}")).help(help)
        })?;
        // Other hosts are taken to be like this one.
        let hosts = self.near.map_or(1.0, |near| ranks as f64 / near as f64);
        (peak.flops, peak.bandwidth) = (peak.flops * hosts, peak.bandwidth * hosts);
        let at_once = at_once * hosts as u64;
        Ok(Reached { peak, by, at_once })
    }
}

/// The names of the backends.
pub(super) const BACKENDS: [&str; 2] = ["cpu", "cuda"];

/// Checks that the backend of a run can be used on this machine. Of several processes each opens its own device alone, once it knows the
/// others.
///
/// # Errors
/// The machine has no usable GPU, or a library is missing.
pub(super) fn check_device(request: &TrainRequest) -> Result<(), Error> {
    match request.backend.as_str() {
        "cuda" if request.comm != "nccl" => gpu::check(),
        _ => Ok(()),
    }
}
