//! The hardware: what a device does per second, and what joins devices. A file of `planner/cost/clusters/`.

use crate::machine::Format;
use crate::table::Table;
use ir::mesh::{Axes, Mesh};
use ir::types::DType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// One device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// As its maker says it.
    #[serde(default)]
    pub name: String,
    /// Peak floating-point operations per second on f32 operands; also of integers, and of types that it widens.
    pub flops_f32: f64,
    /// The same on bf16 operands.
    pub flops_bf16: f64,
    /// The same on 8-bit operands; left out: it has none.
    pub flops_f8: Option<f64>,
    /// The same on 4-bit operands; left out: it has none.
    pub flops_f4: Option<f64>,
    /// Bytes per second between its memory and its cores.
    pub memory_bandwidth: f64,
    /// The share of it that a long kernel gets.
    #[serde(default = "most")]
    pub memory_share: f64,
    /// Bytes of memory that a program can have.
    pub memory: u64,
    /// Bytes per second to the host's memory and as many back; 0: none is known.
    #[serde(default)]
    pub host_bandwidth: f64,
    /// Seconds from the start of a kernel until all cores are busy, and from when the first is not until its end.
    #[serde(default)]
    pub start: f64,
    /// Parts that work on tiles of their own: streaming multiprocessors.
    #[serde(default = "one")]
    pub sms: u64,
    /// How it multiplies matrices.
    #[serde(default)]
    pub matmul: Matmul,
    /// How fast its attention kernels are.
    #[serde(default)]
    pub attention: BTreeMap<Kernel, Attention>,
}

/// How a device multiplies matrices.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Matmul {
    /// The share of the peak that products of long rows sustain, full tiles on all parts: on f32 operands.
    pub f32: f64,
    /// On bf16 and fp16 operands.
    pub half: f64,
    /// On 8-bit operands.
    pub f8: f64,
    /// On 4-bit operands.
    pub f4: f64,
    /// The share of that rate that is left after seconds of computing, when the clock has sunk to stay within the power.
    pub power: f64,
    /// Steps of k that filling and emptying a tile costs.
    pub depth: f64,
    /// Tiles that a part works on: rows, columns, and the share of the full rate that such a tile reaches.
    pub tiles: Vec<[f64; 3]>,
}

/// An implementation of attention. A stack names the best that it has; a device lists those that run on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    /// Two products and a softmax, with the scores in memory.
    Unfused,
    /// Dao et al. 2022.
    Flash1,
    /// Dao 2023.
    #[default]
    Flash2,
    /// That of cuDNN 9.
    Cudnn,
    /// Shah et al. 2024.
    Flash3,
}

/// The speed of an attention kernel on a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Share of the bf16 peak forward on endless sequences, by the size of a head.
    pub forward: Table,
    /// The same backward.
    pub backward: Table,
    /// How many keys a query looks at where half of that share is reached: forward, backward.
    pub half: [f64; 2],
}

/// A level of the network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// What it is.
    #[serde(default)]
    pub name: String,
    /// How many consecutive ranks it joins; left out: all, as the last level does.
    #[serde(default = "all", skip_serializing_if = "is_all")]
    pub joins: u64,
    /// Bytes per second that a device sends while it receives as many.
    pub bandwidth: f64,
    /// Seconds of one hop of no bytes.
    pub latency: f64,
    /// Seconds until a collective begins.
    #[serde(default)]
    pub start: f64,
    /// Seconds that each peer costs a sender beside the bytes, where it sends to many at once.
    #[serde(default)]
    pub message: f64,
    /// The share of the bandwidth that a message gets, by its bytes.
    #[serde(default)]
    pub share: Table,
    /// Bytes per second that a device sends to a single peer; left out: all of its bandwidth.
    pub pair: Option<f64>,
    /// Bytes per second of a sum that the switch takes; left out: it takes none.
    pub switch: Option<f64>,
    /// The share of the bandwidth that long sums over a tree get; left out: trees are not used.
    pub tree: Option<f64>,
    /// Seconds that each rank adds to a ring over this level that stands alone, beside its bytes; left out: what the hops of
    /// its first part take.
    pub step: Option<f64>,
}

/// Equal devices and the levels of links between them, innermost first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Its name, as `--cluster` says it.
    pub name: String,
    /// Other names of it.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// One line on it.
    #[serde(default)]
    pub about: String,
    /// Processor cores that its devices share, each a device's worth of compute; left out: each device has its own.
    pub cores: Option<u64>,
    /// Each of its devices.
    pub device: Device,
    /// The host's memory of a node; left out: not known.
    pub host: Option<Host>,
    /// The levels, innermost first; at least one.
    pub links: Vec<Link>,
}

/// The memory beside a node's host processors, into which devices offload.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Bytes.
    pub memory: f64,
    /// Devices that share it.
    pub devices: u64,
}

/// Virtual devices in one process, one core each. Constants, so that no answer depends on the machine it is computed on.
pub static CPU: LazyLock<Cluster> =
    LazyLock::new(|| toml::from_str(include_str!("../clusters/cpu.toml")).expect("a test reads every preset"));

impl Default for Matmul {
    /// What large products get on the accelerators of the presets, without tiles.
    fn default() -> Matmul {
        Matmul { f32: 0.8, half: 0.8, f8: 0.7, f4: 0.6, power: 1.0, depth: 0.0, tiles: vec![[1.0, 1.0, 1.0]] }
    }
}

impl Device {
    /// Peak operations per second on operands of a type.
    pub fn flops(&self, dtype: DType) -> f64 {
        match dtype {
            DType::BF16 => self.flops_bf16,
            DType::F32 | DType::F16 | DType::F8E4M3 | DType::F8E5M2 | DType::I32 => self.flops_f32,
        }
    }

    /// Peak operations per second on operands of a format; none: it cannot multiply them.
    pub fn peak(&self, format: Format) -> Option<f64> {
        match format {
            Format::F32 => Some(self.flops_f32),
            Format::Half => Some(self.flops_bf16),
            Format::F8 => self.flops_f8,
            Format::F4 => self.flops_f4,
        }
    }

    /// Operations per second that large products sustain in a long step. Formats that it lacks are widened to half precision.
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
    /// Cores that each of so many devices has to itself: 1 where there are no more than devices, or where none are shared.
    pub fn cores_each(&self, devices: u64) -> u64 {
        self.cores.map_or(1, |cores| (cores / devices.max(1)).max(1))
    }

    /// The cluster with each device as fast as its cores, where there are more of these than devices.
    #[must_use]
    pub fn dealt(&self, devices: u64) -> Cluster {
        let each = self.cores_each(devices);
        let mut dealt = self.clone();
        let device = &mut dealt.device;
        for rate in [&mut device.flops_f32, &mut device.flops_bf16, &mut device.memory_bandwidth] {
            *rate *= each as f64;
        }
        dealt.cores = self.cores.map(|cores| cores / each);
        dealt
    }

    /// The cluster whose devices leave a share of their memory free.
    #[must_use]
    pub fn with_margin(&self, share: f64) -> Cluster {
        let mut cluster = self.clone();
        cluster.device.memory = (self.device.memory as f64 * (1.0 - share)) as u64;
        cluster
    }

    /// Bytes of the host's memory for each device; none: nothing is known of it.
    pub fn host_memory(&self) -> Option<f64> {
        self.host.map(|host| host.memory / host.devices as f64)
    }

    /// The innermost level that joins all ranks of a group over these axes.
    pub fn link(&self, mesh: &Mesh, axes: &Axes) -> &Link {
        let span = |axis| mesh.axes.keys().filter(|&inner| inner >= axis).map(|inner| mesh.axes[inner].size).product();
        let reach: u64 = axes.iter().map(span).max().unwrap_or(1);
        self.links.iter().find(|link| link.joins >= reach).unwrap_or(&self.links[self.links.len() - 1])
    }
}

impl Link {
    /// A level that joins all, and takes a message's bytes and one latency.
    pub fn plain(bandwidth: f64, latency: f64) -> Link {
        let (name, share) = (String::new(), Table::default());
        let (start, message, pair, switch, tree, step) = (0.0, 0.0, None, None, None, None);
        Link { name, joins: all(), bandwidth, latency, start, message, share, pair, switch, tree, step }
    }
}

/// The share of the memory's bandwidth where nobody has measured it: H100's, as its preset has it.
fn most() -> f64 {
    0.895
}

fn one() -> u64 {
    1
}

fn all() -> u64 {
    u64::MAX
}

/// TOML has no numbers of more than 63 bits.
fn is_all(joins: &u64) -> bool {
    *joins == all()
}
