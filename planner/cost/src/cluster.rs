//! Hardware description: device throughput and links. A file of `planner/cost/clusters/`.

use crate::interpolation::Table;
use crate::kernel::Kernel;
use crate::platform::Format;
use crate::quantities::Passes;
use crate::whole;
use ir::entity::EntityRef;
use ir::mesh::{Axes, Mesh};
use ir::types::DType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// One device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Name given by its manufacturer.
    #[serde(default)]
    pub name: String,
    /// Maker, as stacks name those whose devices they run on; omitted if unknown.
    pub vendor: Option<String>,
    /// Major number of CUDA's compute capability; omitted of other devices.
    pub capability: Option<u64>,
    /// Peak floating-point operations per second on f32 operands; also used for integers and for widened types.
    pub flops_f32: f64,
    /// Peak operations per second on bf16 operands, and on fp16 unless `widens_f16`.
    pub flops_bf16: f64,
    /// True if kernels widen fp16 to f32 and have its rates, as on processors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub widens_f16: bool,
    /// Peak operations per second on 8-bit operands; omitted if unsupported.
    pub flops_f8: Option<f64>,
    /// Peak operations per second on 4-bit operands; omitted if unsupported.
    pub flops_f4: Option<f64>,
    /// Memory bandwidth in bytes per second.
    pub memory_bandwidth: f64,
    /// Fraction of the memory bandwidth that a long kernel reaches.
    #[serde(default = "most")]
    pub memory_share: f64,
    /// Fraction that a pointwise kernel reaches on bf16 and fp16, which processors widen and round; omitted if equal.
    pub memory_share_half: Option<f64>,
    /// Usable memory in bytes.
    #[serde(deserialize_with = "whole::number")]
    pub memory: u64,
    /// Bandwidth to host memory in bytes per second, per direction; 0 if unknown.
    #[serde(default)]
    pub host_bandwidth: f64,
    /// Seconds of ramp-up and ramp-down of a kernel: from its start until all cores are busy, and from the first idle
    /// core to its end.
    #[serde(default)]
    pub start: f64,
    /// Number of streaming multiprocessors, or other parts with tiles of their own.
    #[serde(default = "one", deserialize_with = "whole::number")]
    pub sms: u64,
    /// Preset cluster whose attention kernels stand for those of the device, of which none is measured; `none` if the device has no
    /// such kernels.
    pub attention_like: Option<String>,
    /// Number formats that the device computes in, by the beginnings of precision recipes: `bf16`, `fp8`, `mxfp8`. Omitted if
    /// nothing is excluded.
    pub precisions: Option<Vec<String>>,
    /// Matrix multiplication parameters.
    #[serde(default)]
    pub matmul: Matmul,
    /// Speeds of its attention kernels.
    #[serde(default)]
    pub attention: BTreeMap<Kernel, Attention>,
    /// Speeds on f32 operands, as fractions of the f32 peak. A kernel that is not listed has [`Attention::f32`] of its speed in half
    /// precision.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attention_f32: BTreeMap<Kernel, Attention>,
}

/// Matrix multiplication parameters of a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Matmul {
    /// Fraction of the peak that large products sustain, with full tiles on all parts, on f32 operands.
    pub f32: f64,
    /// Fraction of the peak on bf16 and fp16 operands.
    pub half: f64,
    /// Fraction of the peak on 8-bit operands.
    pub f8: f64,
    /// Fraction of the peak on 4-bit operands.
    pub f4: f64,
    /// True if 8-bit products read both operands along the dimension that they sum over, so that weight gradients read transposed
    /// copies.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub transposes_f8: bool,
    /// Fraction of that rate that remains after seconds of computing, once the power limit lowers the clock.
    pub power: f64,
    /// Cost of filling and draining a tile, in steps of k.
    pub depth: f64,
    /// Cost of filling and draining a tile on f32 operands; omitted if equal.
    pub depth_f32: Option<f64>,
    /// Tiles that a part computes with.
    pub tiles: Vec<Tile>,
}

/// Tile of a matrix product on one part of a device; in files `[rows, columns, share]`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(from = "[f64; 3]", into = "[f64; 3]")]
pub struct Tile {
    /// Number of rows.
    pub rows: f64,
    /// Number of columns.
    pub columns: f64,
    /// Fraction of the full rate that the tile reaches.
    pub share: f64,
}

impl Tile {
    /// Tile with rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Tile {
        Tile { rows: self.columns, columns: self.rows, ..self }
    }
}

impl From<[f64; 3]> for Tile {
    fn from(tile: [f64; 3]) -> Tile {
        let [rows, columns, share] = tile;
        Tile { rows, columns, share }
    }
}

impl From<Tile> for [f64; 3] {
    fn from(Tile { rows, columns, share }: Tile) -> [f64; 3] {
        [rows, columns, share]
    }
}

/// Speed of an attention kernel on a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Forward fraction of the bf16 peak in the limit of long sequences, by head size.
    pub forward: Table,
    /// Backward fraction of the bf16 peak, by head size.
    pub backward: Table,
    /// Number of keys per query at which half of that fraction is reached.
    pub half: Passes,
    /// Rate on f32 operands relative to half precision; omitted if equal.
    pub f32: Option<f64>,
}

/// Level of the network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Name of the interconnect.
    #[serde(default)]
    pub name: String,
    /// Number of consecutive ranks joined; omitted for all ranks, as on the last level.
    #[serde(default = "all", skip_serializing_if = "is_all", deserialize_with = "whole::number")]
    pub joins: u64,
    /// Bytes per second that a device sends while it receives at the same rate.
    pub bandwidth: f64,
    /// Seconds of an empty one-hop message.
    pub latency: f64,
    /// Seconds until a collective begins.
    #[serde(default)]
    pub start: f64,
    /// Extra seconds per peer for a sender with many peers.
    #[serde(default)]
    pub message: f64,
    /// Fraction of the bandwidth by message size in bytes.
    #[serde(default)]
    pub share: Table,
    /// Bytes per second to a single peer; omitted if equal to the full bandwidth.
    pub pair: Option<f64>,
    /// Bytes per second of an in-switch reduction; omitted if unsupported.
    pub switch: Option<f64>,
    /// Fraction of the bandwidth that long tree reductions reach; omitted if trees are not used.
    pub tree: Option<f64>,
    /// Seconds that each rank adds to an isolated ring over this level, in addition to its bytes; omitted if the hops
    /// of the ring's first part determine the time.
    pub step: Option<f64>,
}

/// Equal devices and the link levels between them, innermost first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Name, as given to `--cluster`.
    pub name: String,
    /// Aliases.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// One-line description.
    #[serde(default)]
    pub about: String,
    /// Processor cores that the devices share, each core with one device's compute; 1 for devices that share one GPU. Omitted if
    /// each device has its own.
    #[serde(default, deserialize_with = "whole::optional")]
    pub cores: Option<u64>,
    /// Bytes of memory that all devices share evenly, as ranks on one GPU do; none has more than `device.memory`. Omitted if each device
    /// has its own.
    #[serde(default, deserialize_with = "whole::optional")]
    pub shared_memory: Option<u64>,
    /// Parameters of each device.
    pub device: Device,
    /// Host memory of a node; omitted if unknown.
    pub host: Option<Host>,
    /// Link levels, innermost first; at least one.
    pub links: Vec<Link>,
}

/// Host memory of a node, the target of activation offload.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Capacity in bytes.
    pub memory: f64,
    /// Number of devices that share the memory.
    #[serde(deserialize_with = "whole::number")]
    pub devices: u64,
    /// Bandwidth in bytes per second, which the devices share; omitted if unknown.
    pub bandwidth: Option<f64>,
}

/// Virtual devices in one process, one core each. The constants are fixed, so that no answer depends on the machine
/// that computes it.
pub static CPU: LazyLock<Cluster> =
    LazyLock::new(|| toml::from_str(include_str!("../clusters/cpu.toml")).expect("a test reads every preset"));

impl Default for Matmul {
    /// Values for large products on the accelerators of the presets, without tiles.
    fn default() -> Matmul {
        let tiles = vec![Tile { rows: 1.0, columns: 1.0, share: 1.0 }];
        Matmul {
            f32: 0.8,
            half: 0.8,
            f8: 0.7,
            f4: 0.6,
            transposes_f8: false,
            power: 1.0,
            depth: 0.0,
            depth_f32: None,
            tiles,
        }
    }
}

impl Device {
    /// Peak operations per second on operands of a dtype.
    pub fn flops(&self, dtype: DType) -> f64 {
        match dtype {
            DType::BF16 | DType::F16 => self.flops_bf16,
            DType::F8E4M3 | DType::F8E5M2 => self.flops_f8.unwrap_or(self.flops_bf16),
            DType::F32 | DType::I32 => self.flops_f32,
        }
    }

    /// Returns whether the device computes in a precision recipe: one of [`Device::precisions`], or a variant of one.
    pub fn computes_in(&self, recipe: &str) -> bool {
        let Some(known) = &self.precisions else { return true };
        let mut variants = known.iter().filter_map(|known| recipe.strip_prefix(known.as_str()));
        variants.any(|variant| variant.is_empty() || variant.starts_with('-'))
    }

    /// Peak operations per second on operands of a format; `None` if unsupported.
    pub fn peak(&self, format: Format) -> Option<f64> {
        match format {
            Format::F32 => Some(self.flops_f32),
            Format::Half => Some(self.flops_bf16),
            Format::F8 => self.flops_f8,
            Format::F4 => self.flops_f4,
        }
    }

    /// Cost of filling and draining a tile of a product, in steps of its depth.
    pub fn depth(&self, format: Format) -> f64 {
        self.matmul.depth_f32.filter(|_| format == Format::F32).unwrap_or(self.matmul.depth)
    }

    /// Operations per second that large products sustain in a long step. Unsupported formats are widened to half
    /// precision.
    pub fn sustained(&self, format: Format) -> f64 {
        let share = match format {
            Format::F32 => self.matmul.f32,
            Format::Half => self.matmul.half,
            Format::F8 => self.matmul.f8,
            Format::F4 => self.matmul.f4,
        };
        self.peak(format).map_or(self.flops_bf16 * self.matmul.half, |peak| peak * share) * self.matmul.power
    }
}

impl Cluster {
    /// Devices of a node: those that share a host, or that the innermost links join where no host is known.
    pub fn devices_of_node(&self) -> u64 {
        self.host.as_ref().map_or(self.links[0].joins, |host| host.devices)
    }

    /// Cores per device for a number of devices: 1 if there are at most as many cores as devices, or if no cores are
    /// shared.
    pub fn cores_each(&self, devices: u64) -> u64 {
        self.cores.map_or(1, |cores| (cores / devices.max(1)).max(1))
    }

    /// Bytes of memory of each of a number of devices.
    pub fn memory_each(&self, devices: u64) -> u64 {
        let share = self.shared_memory.map(|shared| shared / devices.max(1));
        share.map_or(self.device.memory, |share| share.min(self.device.memory))
    }

    /// Cluster of a number of devices: they combine several cores each, if there are more cores than devices, and have a share of memory
    /// that they share.
    #[must_use]
    pub fn for_devices(&self, devices: u64) -> Cluster {
        let mut dealt = self.with_cores_each(self.cores_each(devices));
        dealt.device.memory = self.memory_each(devices);
        dealt
    }

    /// The cluster with the rates that kernels have in a precision recipe.
    #[must_use]
    pub fn computing_in(mut self, recipe: &str) -> Cluster {
        let device = &mut self.device;
        if device.widens_f16 && recipe.starts_with("fp16") {
            device.flops_bf16 = device.flops_f32;
            device.matmul.half = device.matmul.f32;
            device.matmul.depth = device.depth(Format::F32);
            let wide = std::mem::take(&mut device.attention_f32);
            device.attention.extend(wide);
        }
        self
    }

    /// Cluster whose devices combine this number of cores each; only the rates of devices that are cores change.
    #[must_use]
    pub fn with_cores_each(&self, each: u64) -> Cluster {
        let mut dealt = self.clone();
        let device = &mut dealt.device;
        let rates = [&mut device.flops_f32, &mut device.flops_bf16, &mut device.memory_bandwidth];
        for rate in rates.into_iter().chain(&mut device.flops_f8) {
            *rate *= each as f64;
        }
        dealt.cores = self.cores.map(|cores| cores / each);
        dealt
    }

    /// Host memory per device in bytes; `None` if unknown.
    pub fn host_memory(&self) -> Option<f64> {
        self.host.map(|host| host.memory / host.devices as f64)
    }

    /// Seconds in which a device copies bytes to host memory or back, while all devices of a node copy. Where the link is unknown, as
    /// where devices are cores, the bytes are read and written at the bandwidth of the device's memory.
    pub fn host_copy(&self, bytes: u64) -> f64 {
        match self.host_bandwidth() {
            bandwidth if bandwidth > 0.0 => bytes as f64 / bandwidth,
            _ => 2.0 * bytes as f64 / self.device.memory_bandwidth,
        }
    }

    /// Bytes per second between a device and host memory, one way, while all devices of a node copy; 0 if unknown.
    pub fn host_bandwidth(&self) -> f64 {
        let shared = self.host.and_then(|host| Some(host.bandwidth? / host.devices as f64));
        shared.map_or(self.device.host_bandwidth, |shared| shared.min(self.device.host_bandwidth))
    }

    /// Largest number of devices that the links join.
    pub fn most_devices(&self) -> u64 {
        self.links.last().map_or(1, |link| link.joins)
    }

    /// Innermost level that joins all ranks of a group over these axes.
    pub fn link(&self, mesh: &Mesh, axes: &Axes) -> &Link {
        let spans = axes.iter().map(|axis| mesh.axes.values().skip(axis.index()).map(|inner| inner.size).product());
        let reach: u64 = spans.max().unwrap_or(1);
        self.links.iter().find(|link| link.joins >= reach).unwrap_or(&self.links[self.links.len() - 1])
    }
}

impl Link {
    /// [`Link::joins`] of a level that joins all ranks.
    pub const ALL: u64 = u64::MAX;

    /// Level that joins all ranks, with a bandwidth and a latency only.
    pub fn plain(bandwidth: f64, latency: f64) -> Link {
        let (name, share) = (String::new(), Table::default());
        let (start, message, pair, switch, tree, step) = (0.0, 0.0, None, None, None, None);
        Link { name, joins: all(), bandwidth, latency, start, message, share, pair, switch, tree, step }
    }
}

/// Default fraction of the memory bandwidth, as in the preset of the H100.
fn most() -> f64 {
    0.895
}

fn one() -> u64 {
    1
}

fn all() -> u64 {
    Link::ALL
}

/// TOML integers have at most 63 bits.
fn is_all(joins: &u64) -> bool {
    *joins == all()
}
