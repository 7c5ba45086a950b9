//! Cluster file of this machine: the times from [`runtime::measure`] as constants of a device and a link.
//!
//! ```no_run
//! use meshwright::calibrate::cluster;
//! use meshwright::runtime::measure::measure;
//!
//! // About ten seconds, with 8 GiB for each device.
//! let machine = cluster(&measure(&mut |_| ())?, 8 << 30);
//! let plan = meshwright::plan("tiny-llama").on(machine, 2).stack("meshwright-threads").precision("f32").batch(16, 128);
//! println!("{}", plan.run()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod fit;

use cost::{Attention, Cluster, Device, Kernel, Link, Matmul, Passes, Table, TablePoint};
use fit::{attention, line, products, sums};
use runtime::measure::Measured;
use std::collections::BTreeMap;

/// Builds the cluster whose devices are threads on the measured cores, each with `memory` bytes.
pub fn cluster(measured: &Measured, memory: u64) -> Cluster {
    let product = products(measured);
    let best =
        measured.products.iter().map(|one| 2.0 * (one.m * one.n * one.k) as f64 / one.seconds).fold(0.0, f64::max);
    let peak = best.max(product.rate);
    let moved = measured.sum_bandwidth.max(measured.pointwise_bandwidth);
    Cluster {
        host: None,
        name: "this-platform".into(),
        aliases: Vec::new(),
        about: format!("threads on {} cores, measured by `meshwright calibrate`", measured.cores),
        cores: Some(measured.cores),
        device: Device {
            name: "one core".into(),
            flops_f32: rounded(peak),
            // Kernels widen narrower types to f32.
            flops_bf16: rounded(peak),
            flops_f8: None,
            flops_f4: None,
            memory_bandwidth: rounded(moved),
            memory_share: rounded(measured.pointwise_bandwidth / moved),
            memory,
            host_bandwidth: 0.0,
            start: rounded(measured.start),
            sms: 1,
            matmul: Matmul {
                f32: rounded(product.rate / peak),
                half: rounded(product.rate / peak),
                depth: rounded(product.depth),
                ..Matmul::default()
            },
            attention: BTreeMap::from([(Kernel::Flash2, attention_of(measured, peak))]),
        },
        links: vec![link(measured)],
    }
}

fn attention_of(measured: &Measured, peak: f64) -> Attention {
    let [forward, backward] = [false, true].map(|backward| attention(measured, peak, backward));
    Attention {
        forward: table(&forward.shares),
        backward: table(&backward.shares),
        half: Passes { forward: rounded(forward.half), backward: rounded(backward.half) },
    }
}

fn table(points: &[TablePoint]) -> Table {
    Table(points.iter().map(|point| TablePoint { value: rounded(point.value), ..*point }).collect())
}

/// Builds the link of the memory between cores. Times are those of a core's work, since ranks wait for cores, not for
/// links.
fn link(measured: &Measured) -> Link {
    let sums = sums(measured);
    // Of two threads one copies while the other waits. A message therefore takes the time of one core.
    let message = line(measured.messages.iter().map(|&(bytes, seconds)| (bytes as f64, seconds)));
    Link {
        name: "memory".into(),
        start: rounded(sums.start),
        share: table(&sums.shares),
        pair: Some(rounded(1.0 / message.slope)),
        ..Link::plain(rounded(sums.bandwidth), rounded(sums.latency))
    }
}

/// Rounds to four digits, the precision of the measurement.
fn rounded(figure: f64) -> f64 {
    format!("{figure:.3e}").parse().unwrap_or(figure)
}

#[cfg(test)]
mod tests;
