//! Measured rates of this machine: its kernels and its communicator, timed one by one on the threads that runs use.
//!
//! Kernels are timed on all cores at once, since the devices of a run share the caches and memory bandwidth that cores
//! share. Calls are short, and each kernel's rate is the lower quartile of its times. Load from other programs therefore
//! does not affect a rate as long as a core is free for a quarter of the time.

mod attention;
mod collectives;
mod pointwise;
mod products;

use device::at_once::at_once;
use device::cores::check_threads;
use kernels::cpu::narrow::Narrow;
use std::fmt;
use std::time::{Duration, Instant};

pub use device::measured::{AttentionTime, Product, Sum};

/// How long each kernel is timed.
const TRY: Duration = Duration::from_millis(120);

/// Bytes of the tensors that calls of a kernel take in turn on a core, more than its caches hold. Ranks that share a core go
/// through the parameters and saved activations of all of them before they reuse a tensor.
const TURNED: usize = 64 << 20;

/// Measurements of this machine. All seconds are those of one core.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Processor cores that this process may use.
    pub cores: u64,
    /// Kernels that compute on f32.
    pub f32: Computing,
    /// Kernels that compute on bf16.
    pub bf16: Computing,
    /// Bytes per second that a sum of two tensors reads and writes.
    pub sum_bandwidth: f64,
    /// Seconds of a kernel that has next to nothing to do.
    pub start: f64,
    /// Sums over ranks.
    pub sums: Vec<Sum>,
    /// Messages from one rank to another: bytes, seconds of the two together.
    pub messages: Vec<(u64, f64)>,
}

/// Kernels that compute on operands of one format. Results have that format too, but weight gradients are added in f32.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Computing {
    /// Matrix products.
    pub products: Vec<Product>,
    /// Attention and its gradient.
    pub attention: Vec<AttentionTime>,
    /// Bytes per second that the pointwise kernels of a layer read and write, forward and backward.
    pub pointwise_bandwidth: f64,
}

/// Failure of a measurement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MeasureError {
    /// The system gives too little memory, or too few threads.
    TooLittle {
        /// Message of the system.
        why: String,
    },
    /// A kernel or a rank has failed.
    Failed {
        /// Name of the measurement.
        what: String,
        /// Message of the failure.
        why: String,
    },
}

impl fmt::Display for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeasureError::TooLittle { why } => f.write_str(why),
            MeasureError::Failed { what, why } => write!(f, "the measurement of {what} has failed: {why}"),
        }
    }
}

impl std::error::Error for MeasureError {}

/// Takes all measurements, in about fifteen seconds; `tell` receives the name of each.
///
/// # Errors
/// There is no memory for it, there are too few threads, or a kernel fails.
pub fn measure(tell: &mut dyn FnMut(&str)) -> Result<Measured, MeasureError> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    check_threads(cores).map_err(|why| MeasureError::TooLittle { why })?;
    let start = named("the start of a kernel", products::least(cores))?;
    let f32 = computing(cores, None, "f32", tell)?;
    let bf16 = computing(cores, Some(Narrow::Bf16), "bf16", tell)?;
    let sum_bandwidth = named("memory", pointwise::sum_bandwidth(cores))?;
    tell("communication");
    let sums = collectives::sums()?;
    let messages = collectives::messages()?;
    Ok(Measured { cores: cores as u64, f32, bf16, sum_bandwidth, start, sums, messages })
}

/// Kernels that compute on operands of a format, f32 without one.
fn computing(
    cores: usize,
    format: Option<Narrow>,
    name: &str,
    tell: &mut dyn FnMut(&str),
) -> Result<Computing, MeasureError> {
    let what = ["matrix products", "attention", "memory"].map(|what| format!("{what} in {name}"));
    tell(&what[0]);
    let products = named(&what[0], products::all(cores, format))?;
    tell(&what[1]);
    let attention = named(&what[1], attention::all(cores, format))?;
    tell(&what[2]);
    let pointwise_bandwidth = named(&what[2], pointwise::layer_bandwidth(cores, format))?;
    Ok(Computing { products, attention, pointwise_bandwidth })
}

/// The error with the name of the measurement.
fn named<T>(what: &str, result: Result<T, String>) -> Result<T, MeasureError> {
    result.map_err(|why| MeasureError::Failed { what: what.to_string(), why })
}

/// Seconds of a call of what `work` makes, on all cores at the same time.
///
/// # Errors
/// A call fails on one of them.
fn seconds<W: FnMut()>(cores: usize, work: impl Fn() -> W + Sync) -> Result<f64, String> {
    let times = at_once(
        cores,
        || {
            let mut work = work();
            work();
            work
        },
        typical_seconds,
    );
    times.map(quartile)
}

/// The lower quartile of the seconds of repeated calls.
fn typical_seconds(mut work: impl FnMut()) -> f64 {
    let (began, mut calls) = (Instant::now(), Vec::new());
    while began.elapsed() < TRY || calls.is_empty() {
        let call = Instant::now();
        work();
        calls.push(call.elapsed().as_secs_f64());
    }
    quartile(calls)
}

/// Number of sets of tensors that calls use in turn, by the bytes of a set.
fn turns(bytes: usize) -> usize {
    (TURNED / bytes).max(1)
}

/// First quartile; infinity without samples.
fn quartile(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 4).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_fails_has_no_time() {
        let fails = || || panic!("no kernel");
        let found = named("attention in bf16", seconds(2, fails));
        let why = found.unwrap_err().to_string();
        assert_eq!(why, "the measurement of attention in bf16 has failed: no kernel");
    }

    #[test]
    fn a_kernel_has_a_time_in_every_format() {
        for format in [None, Some(Narrow::Bf16)] {
            let time = attention::time(1, attention::Size { heads: 1, length: 128, head: 32 }, format).unwrap();
            let seconds = [time.forward_s, time.backward_s];
            assert!(seconds.iter().all(|seconds| *seconds > 0.0 && seconds.is_finite()), "{format:?}: {time:?}");
        }
    }
}
