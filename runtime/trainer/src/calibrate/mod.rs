//! Cluster file of this machine: the times from [`crate::measure`] as constants of a device and a link.
//! With the feature `cuda`, `gpu_cluster` makes that of a GPU.
//!
//! ```no_run
//! use meshwright_trainer::calibrate::cluster;
//! use meshwright_trainer::measure::measure;
//!
//! // About fifteen seconds, with 8 GiB for each device.
//! let machine = cluster(&measure(&mut |_| ())?, 8 << 30);
//! println!("{:.1} GFLOP/s", machine.device.flops(ir::types::DType::F32) / 1e9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod fit;
#[cfg(feature = "cuda")]
mod gpu;

use crate::error::Error;
use crate::measure::{AttentionTime, Computing, Measured};
use cost::{Attention, Cluster, Device, Kernel, Link, Matmul, Passes, Stack, Table, TablePoint};
use fit::{Products, Sums, attention, line, products, sums};
#[cfg(feature = "cuda")]
pub use gpu::gpu_cluster;
use ir::catalogue::Code;
use std::collections::BTreeMap;

/// A Python program that measures a cluster with PyTorch and writes its file.
pub const TORCH_SCRIPT: &str = include_str!("torch_script.py");

/// Builds the cluster whose devices are threads on the measured cores. They share the memory of all cores, each of which has `memory` bytes.
pub fn cluster(measured: &Measured, memory: u64) -> Cluster {
    let [(wide, peak), (half, peak_half)] =
        [&measured.f32, &measured.bf16].map(|computing| rates(computing, measured.start));
    let moved = measured.sum_bandwidth.max(measured.f32.pointwise_bandwidth).max(measured.bf16.pointwise_bandwidth);
    let mut device = Device {
        name: "one core".into(),
        vendor: None,
        capability: None,
        flops_f32: rounded(peak),
        flops_bf16: rounded(peak_half),
        widens_f16: true,
        // Products widen 8-bit operands to f32.
        flops_f8: Some(rounded(peak)),
        flops_f4: None,
        memory_bandwidth: rounded(moved),
        memory_share: rounded(measured.f32.pointwise_bandwidth / moved),
        memory_share_half: Some(rounded(measured.bf16.pointwise_bandwidth / moved)),
        memory,
        host_bandwidth: 0.0,
        attention_like: None,
        precisions: None,
        start: rounded(measured.start),
        sms: 1,
        matmul: Matmul {
            f32: rounded(wide.rate / peak),
            half: rounded(half.rate / peak_half),
            f8: rounded(wide.rate / peak),
            depth: rounded(half.depth),
            depth_f32: Some(rounded(wide.depth)),
            ..Matmul::default()
        },
        attention: BTreeMap::new(),
        attention_f32: BTreeMap::new(),
    };
    device.attention.insert(Kernel::Flash2, attention_of(&measured.bf16.attention, &device, device.flops_bf16));
    device.attention_f32.insert(Kernel::Flash2, attention_of(&measured.f32.attention, &device, device.flops_f32));
    Cluster {
        host: None,
        name: "this-platform".into(),
        aliases: Vec::new(),
        about: format!("threads on {} cores, measured by `meshwright calibrate`", measured.cores),
        cores: Some(measured.cores),
        shared_memory: Some(memory.saturating_mul(measured.cores)),
        device,
        links: vec![link("memory", sums(&measured.sums, measured.cores), &measured.messages)],
    }
}

/// The text of a measured cluster's file.
///
/// # Errors
/// The cluster would not be read: a figure is infinite, no number, or not one of any hardware.
pub fn cluster_file(cluster: &Cluster) -> Result<String, Error> {
    let text = toml::to_string(cluster).map_err(|why| Error::fault("calibrate", why))?;
    match Cluster::parse(&text) {
        Ok(_) => Ok(text),
        Err(why) => Err(Error::input(Code::BadCluster, format!("no machine has the measured figures: {why}"))
            .help("measure again while no other program works on this machine")),
    }
}

/// The text of a fitted stack's file.
///
/// # Errors
/// The stack would not be read: a figure is infinite, no number, or not one of any software.
pub fn stack_file(stack: &Stack) -> Result<String, Error> {
    let text = toml::to_string(stack).map_err(|why| Error::fault("calibrate", why))?;
    match Stack::parse(&text) {
        Ok(_) => Ok(text),
        Err(why) => Err(Error::input(Code::BadStack, format!("no stack has the fitted figures: {why}"))
            .help("look at the measured times of the runs: each must be that of one step, in seconds")),
    }
}

/// The constants of products, and the peak: the best rate of one, or that of endless ones.
fn rates(computing: &Computing, start: f64) -> (Products, f64) {
    let product = products(&computing.products, start);
    let reached = computing.products.iter().map(|one| 2.0 * (one.m * one.n * one.k) as f64 / one.seconds);
    let peak = reached.fold(product.rate, f64::max);
    (product, peak)
}

/// Attention in fractions of a peak.
fn attention_of(times: &[AttentionTime], device: &Device, peak: f64) -> Attention {
    let [forward, backward] = [false, true].map(|backward| attention(times, device, peak, backward));
    Attention {
        forward: table(&forward.shares),
        backward: table(&backward.shares),
        half: Passes { forward: rounded(forward.half), backward: rounded(backward.half) },
        f32: None,
    }
}

fn table(points: &[TablePoint]) -> Table {
    Table(points.iter().map(|point| TablePoint { value: rounded(point.value), ..*point }).collect())
}

/// Bytes per second of the fastest link that a cluster may state.
const FASTEST: f64 = 1e14;

/// Builds the link of the memory between ranks. Times are those of a device's work, since ranks wait for cores, or for the GPU that they
/// share, not for links.
fn link(name: &str, sums: Sums, messages: &[(u64, f64)]) -> Link {
    // Of two threads one copies while the other waits. A message therefore takes the time of one core.
    let message = line(messages.iter().map(|&(bytes, seconds)| (bytes as f64, seconds)));
    Link {
        name: name.into(),
        start: rounded(sums.start),
        share: table(&sums.shares),
        pair: Some(rounded((1.0 / message.slope).min(FASTEST))),
        ..Link::plain(rounded(sums.bandwidth.min(FASTEST)), rounded(sums.latency))
    }
}

/// Rounds to four digits, the precision of the measurement.
fn rounded(figure: f64) -> f64 {
    format!("{figure:.3e}").parse().unwrap_or(figure)
}

#[cfg(test)]
mod tests;
