//! Measured rates of a GPU: the kernels of its backend, timed by the device's clock on random numbers.
//!
//! A time is the median of several rounds after a warm-up. Launches of a round take tensors in turn, so that operands come from memory,
//! as in a step, not from a cache.

mod attention;
mod bench;
mod exchange;
mod memory;
mod peak;
mod products;

use crate::Error;
use crate::device::{Device, Properties};
use bench::Bench;
use device::measured::{AttentionTime, Product, Sum};
use ir::types::DType;
use std::sync::Arc;

pub use peak::gpu_peak;

/// Measurements of a GPU. All seconds are those of the entire device.
#[derive(Clone, PartialEq, Debug)]
pub struct GpuMeasured {
    /// The device.
    pub device: Properties,
    /// Bytes of its memory that are free.
    pub free_memory: u64,
    /// Matrix products.
    pub products: Vec<GpuProduct>,
    /// Attention and its gradient in bf16.
    pub attention: Vec<AttentionTime>,
    /// The same in f32, of some of these shapes.
    pub attention_f32: Vec<AttentionTime>,
    /// Bytes per second that a copy on the device reads and writes.
    pub copy_bandwidth: f64,
    /// Memory-bound groups of a layer: name, bytes read and written, seconds.
    pub groups: Vec<(&'static str, u64, f64)>,
    /// Seconds from one kernel that has next to nothing to do to the next.
    pub start: f64,
    /// Seconds of the host for each of these launches.
    pub launch: f64,
    /// Bytes per second from pinned host memory, and to it.
    pub host_bandwidth: [f64; 2],
    /// Sums over ranks that take turns on the device.
    pub sums: Vec<Sum>,
    /// Messages from one rank to another: bytes, seconds.
    pub messages: Vec<(u64, f64)>,
}

/// A batch of matrix products.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GpuProduct {
    /// Type of the operands: f32, bf16, or E4M3 with one scale each.
    pub dtype: DType,
    /// Number of products.
    pub batch: usize,
    /// Sizes of each, and seconds of all.
    pub product: Product,
    /// True if the results, in f32, are added to others, as gradients are.
    pub adds: bool,
}

/// Takes all measurements in less than a minute; `tell` receives the name of each. With `quick` all sizes are small, and no rate is
/// meaningful.
///
/// # Errors
/// There is no memory for it, or a kernel cannot be had.
pub fn measure_gpu(device: &Arc<Device>, quick: bool, tell: &mut dyn FnMut(&str)) -> Result<GpuMeasured, Error> {
    let free_memory = device.memory()?.0 as u64;
    let mut bench = Bench::new(device, quick)?;
    tell("matrix products");
    let products = products::all(&mut bench)?;
    tell("attention");
    let [attention, attention_f32] = [DType::BF16, DType::F32].map(|dtype| attention::all(&mut bench, dtype));
    tell("memory");
    let copy_bandwidth = memory::copy_bandwidth(&mut bench)?;
    let groups = memory::groups(&mut bench)?;
    let [start, launch] = memory::launches(&mut bench)?;
    let host_bandwidth = memory::host_bandwidth(&bench)?;
    tell("communication");
    Ok(GpuMeasured {
        device: device.properties().clone(),
        free_memory,
        products,
        attention: attention?,
        attention_f32: attention_f32?,
        copy_bandwidth,
        groups,
        start,
        launch,
        host_bandwidth,
        sums: exchange::sums(&bench)?,
        messages: exchange::messages(&bench)?,
    })
}

/// Median; infinity without samples.
fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::INFINITY)
}
