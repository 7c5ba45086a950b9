//! The machine: what a device does per second, and what joins devices.

use ir::mesh::{Axes, Mesh};
use ir::types::DType;
use serde::Serialize;

/// One device.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Device {
    /// Peak floating-point operations per second on f32 operands; also of integers, and of types that it widens.
    pub flops_f32: f64,
    /// The same on bf16 operands.
    pub flops_bf16: f64,
    /// Bytes per second between its memory and its cores.
    pub memory_bandwidth: f64,
    /// Bytes of memory.
    pub memory: u64,
}

/// A level of the network.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Link {
    /// How many consecutive ranks it joins; the last level joins all.
    pub joins: u64,
    /// Bytes per second that a device sends while it receives as many.
    pub bandwidth: f64,
    /// Seconds of one hop of no bytes.
    pub latency: f64,
}

/// Equal devices and the levels of links between them, innermost first.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Cluster {
    /// Its name, as `--cluster` says it.
    pub name: &'static str,
    /// Each of its devices.
    pub device: Device,
    /// The levels, innermost first; at least one.
    pub links: &'static [Link],
}

/// Virtual devices in one process, one core each. Constants, so that no answer depends on the machine it is computed on.
///
/// Measured on one core of an AMD EPYC of family 26 (Zen 5) at 2.6 GHz nominal: 259 GFLOP/s with f32 AVX-512 FMA,
/// 510 GFLOP/s with bf16 `VDPBF16PS`, 40 GB/s streaming. An in-process all-reduce of 64 MiB between two threads takes
/// 5.4 ms, which is 12.4 GB/s by the ring formula; two threads meet at a barrier in 11 us. Memory: 4 GiB a device.
pub const CPU: Cluster = Cluster {
    name: "cpu",
    device: Device { flops_f32: 259e9, flops_bf16: 510e9, memory_bandwidth: 40e9, memory: 4 << 30 },
    links: &[Link { joins: u64::MAX, bandwidth: 12.4e9, latency: 11e-6 }],
};

impl Device {
    /// Peak operations per second on operands of a type.
    pub fn flops(&self, dtype: DType) -> f64 {
        match dtype {
            DType::BF16 => self.flops_bf16,
            DType::F32 | DType::F16 | DType::F8E4M3 | DType::F8E5M2 | DType::I32 => self.flops_f32,
        }
    }
}

impl Cluster {
    /// The innermost level that joins all ranks of a group over these axes.
    pub fn link(&self, mesh: &Mesh, axes: &Axes) -> &Link {
        let span = |axis| mesh.axes.keys().filter(|&inner| inner >= axis).map(|inner| mesh.axes[inner].size).product();
        let reach: u64 = axes.iter().map(span).max().unwrap_or(1);
        self.links.iter().find(|link| link.joins >= reach).unwrap_or(&self.links[self.links.len() - 1])
    }
}
