//! Compile options: the parallel configuration and the annotation rules. Plain data that crosses the layers of the workspace.

use crate::dim_role::DimRole;
use crate::types::DType;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The tensors that an annotation rule applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnnotationTarget {
    /// The model's inputs.
    Inputs,
    /// Parameters.
    Params,
    /// The values that pass from block to block.
    Values,
}

/// An annotation rule, `tp: kv_heads, feed_forward, vocabulary`: the axis shards every dim with one of the roles. Where it has more
/// ranks than there are `kv_heads`, it shards the `query_heads` of each too ([`crate::heads`]).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AnnotationRule {
    /// The axis or group.
    pub axis: String,
    /// The roles of the dims.
    pub roles: Vec<DimRole>,
    /// The tensors that it applies to.
    pub on: AnnotationTarget,
}

impl AnnotationRule {
    fn new(axis: &str, roles: &[DimRole], on: AnnotationTarget) -> AnnotationRule {
        AnnotationRule { axis: axis.to_string(), roles: roles.to_vec(), on }
    }
}

/// The context-parallel algorithm: access to the keys and values of other ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpKind {
    /// Ring attention: blocks are passed from rank to rank (Liu et al. 2023).
    Ring,
    /// All-gather before attention (Dubey et al. 2024, section 3.3.2).
    #[default]
    AllGather,
    /// Sequence shards become shards of heads and back (Jacobs et al. 2023).
    Ulysses,
}

impl CpKind {
    /// All, by name.
    pub const ALL: [(&str, CpKind); 3] =
        [("ring", CpKind::Ring), ("allgather", CpKind::AllGather), ("ulysses", CpKind::Ulysses)];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            CpKind::Ring => "ring",
            CpKind::AllGather => "allgather",
            CpKind::Ulysses => "ulysses",
        }
    }
}

/// How often ZeRO-3 gathers parameters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gather {
    /// At each use: in every forward and backward.
    #[default]
    Use,
    /// Once a step. They stay gathered from the first forward to the last backward that reads them.
    Step,
}

impl Gather {
    /// All, by name.
    pub const ALL: [(&str, Gather); 2] = [("use", Gather::Use), ("step", Gather::Step)];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Gather::Use => "use",
            Gather::Step => "step",
        }
    }
}

/// The blocks of a tensor that share a scale when it is quantised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scales {
    /// This many elements along a dim that a product sums, and squares of them in parameters.
    Blocks(u64),
    /// The entire tensor, by its elements as they are (current scaling).
    Tensor,
    /// The entire tensor, by what it was in this many steps before (delayed scaling). Parameters are scaled as they are.
    Delayed(u64),
}

/// How the operands of products become 8-bit numbers. Those of the forward are f8e4m3.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quantisation {
    /// The elements that share a scale.
    pub scales: Scales,
    /// The format of cotangents.
    pub cotangents: DType,
}

/// The values that the backward recomputes instead of saving them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Recompute {
    /// Nothing.
    #[default]
    None,
    /// All values of a layer except its input: in every layer, or in the first `n` layers of each stage.
    Full(Option<u32>),
    /// Parts of a layer, by the names of its modules and of single values; none named: the core of attention (Korthikanti et
    /// al. 2022).
    Selective(Vec<String>),
    /// The least recomputation that fits in memory.
    Auto,
}

impl Recompute {
    /// True if it names a module.
    pub fn has_module(&self, name: &str) -> bool {
        matches!(self, Recompute::Selective(modules) if modules.iter().any(|module| module == name))
    }
}

impl std::fmt::Display for Recompute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Recompute::None => f.write_str("none"),
            Recompute::Full(None) => f.write_str("full"),
            Recompute::Full(Some(layers)) => write!(f, "full:{layers}"),
            Recompute::Selective(modules) if modules.is_empty() => f.write_str("selective"),
            Recompute::Selective(modules) => write!(f, "selective:{}", modules.join("+")),
            Recompute::Auto => f.write_str("auto"),
        }
    }
}

/// Error: a text is none of the values of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAValue {
    text: String,
    /// The values that can be.
    values: &'static str,
}

impl std::fmt::Display for NotAValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` must be one of {}", self.text, self.values)
    }
}

impl std::error::Error for NotAValue {}

impl std::str::FromStr for Recompute {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<Recompute, NotAValue> {
        let recompute = match text.split_once(':') {
            None => match text {
                "none" => Some(Recompute::None),
                "full" => Some(Recompute::Full(None)),
                "selective" => Some(Recompute::Selective(Vec::new())),
                "auto" => Some(Recompute::Auto),
                _ => None,
            },
            Some(("full", layers)) => layers.parse().ok().map(|layers| Recompute::Full(Some(layers))),
            Some(("selective", modules)) if !modules.split('+').any(str::is_empty) => {
                Some(Recompute::Selective(modules.split('+').map(str::to_string).collect()))
            }
            Some(_) => None,
        };
        let values = "none, full, full:N, selective, selective:NAME+NAME, auto";
        recompute.ok_or_else(|| NotAValue { text: text.to_string(), values })
    }
}

impl Serialize for Recompute {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Recompute {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Recompute, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The block instances whose saved activations are offloaded to host memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Offload {
    /// None.
    #[default]
    None,
    /// All, or the first `n` layers of each stage.
    All(Option<u32>),
    /// As few layers as must, so that the rest fits on the device.
    Auto,
}

impl Offload {
    /// True if none is offloaded.
    pub fn is_none(self) -> bool {
        self == Offload::None
    }

    /// True if layers may stay on the device while others are offloaded.
    pub fn is_in_part(self) -> bool {
        matches!(self, Offload::All(Some(_)) | Offload::Auto)
    }
}

impl std::fmt::Display for Offload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Offload::None => f.write_str("none"),
            Offload::All(None) => f.write_str("all"),
            Offload::All(Some(layers)) => write!(f, "all:{layers}"),
            Offload::Auto => f.write_str("auto"),
        }
    }
}

impl std::str::FromStr for Offload {
    type Err = NotAValue;

    /// Reads `true` as `all` and `false` as `none` too.
    fn from_str(text: &str) -> Result<Offload, NotAValue> {
        match text {
            "none" | "false" => Ok(Offload::None),
            "all" | "true" => Ok(Offload::All(None)),
            "auto" => Ok(Offload::Auto),
            _ => match text.strip_prefix("all:").and_then(|layers| layers.parse().ok()) {
                Some(0) => Ok(Offload::None),
                Some(layers) => Ok(Offload::All(Some(layers))),
                None => Err(NotAValue { text: text.to_string(), values: "none, all, all:N, auto" }),
            },
        }
    }
}

impl Serialize for Offload {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Offload {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Offload, D::Error> {
        struct Text;

        impl serde::de::Visitor<'_> for Text {
            type Value = Offload;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("none, all, all:N, auto, true or false")
            }

            fn visit_bool<E>(self, all: bool) -> Result<Offload, E> {
                Ok(if all { Offload::All(None) } else { Offload::None })
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Offload, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Text)
    }
}

/// A parallel configuration: the parallel degrees, and the other options that a user can set.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParallelConfig {
    /// Data parallel degree.
    pub dp: u64,
    /// Tensor parallel degree.
    pub tp: u64,
    /// Pipeline parallel degree: ranks, each with `vp` stages.
    pub pp: u64,
    /// Context parallel degree: the number of shards of every sequence.
    pub cp: u64,
    /// Expert parallel degree: a group over dp, cp and tp, whose ranks hold different experts.
    pub ep: u64,
    /// Tensor parallel degree within experts.
    pub etp: u64,
    /// The context-parallel algorithm of attention.
    pub cp_kind: CpKind,
    /// Sequence parallelism: the residual stream is sharded over tp along the sequence.
    pub sp: bool,
    /// ZeRO stage: 0; 1 for sharded optimizer state, 2 for gradients too, 3 for parameters too.
    pub zero: u8,
    /// The size of a ZeRO group; default: all data-parallel ranks.
    pub shard: Option<u64>,
    /// How often ZeRO-3 gathers parameters; without effect below stage 3.
    pub gather: Gather,
    /// The recomputed values.
    pub recompute: Recompute,
    /// The saved activations that are offloaded to host memory.
    pub offload: Offload,
    /// True if optimizer states and master copies are in host memory between updates (Ren et al. 2021, ZeRO-Offload; here the
    /// device updates them).
    pub offload_optimizer: bool,
    /// True to overlap tensor-parallel communication with matmuls; default: that of the stack.
    pub tp_overlap: Option<bool>,
    /// True to overlap data-parallel communication with the backward; default: that of the stack.
    pub dp_overlap: Option<bool>,
    /// Sequences per micro-batch and data-parallel rank.
    pub mbs: u64,
    /// The pipeline schedule.
    pub schedule: String,
    /// Stages per pipeline rank; default: that of the schedule.
    pub vp: Option<u32>,
    /// Micro-batches that go through one stage of a rank before its next one; default: that of the schedule.
    pub group: Option<u32>,
    /// Sequence slices, in schedules that support them; default: that of the schedule.
    pub slices: Option<u32>,
    /// Rank order, outermost first.
    pub rank_order: Arc<[String]>,
    /// The first block instance of each stage but the first; empty: balanced by cost.
    pub stages: Vec<u32>,
}

/// The default rank order, shared by all configurations to save memory.
fn default_order() -> Arc<[String]> {
    static ORDER: LazyLock<Arc<[String]>> = LazyLock::new(|| ParallelConfig::AXES.map(str::to_string).into());
    Arc::clone(&ORDER)
}

impl Default for ParallelConfig {
    fn default() -> ParallelConfig {
        let rank_order = default_order();
        let schedule = "1f1b".to_string();
        ParallelConfig {
            dp: 1,
            tp: 1,
            pp: 1,
            cp: 1,
            ep: 1,
            etp: 1,
            cp_kind: CpKind::default(),
            sp: false,
            zero: 0,
            shard: None,
            gather: Gather::default(),
            recompute: Recompute::default(),
            offload: Offload::None,
            offload_optimizer: false,
            tp_overlap: None,
            dp_overlap: None,
            mbs: 1,
            schedule,
            vp: None,
            group: None,
            slices: None,
            rank_order,
            stages: Vec::new(),
        }
    }
}

impl ParallelConfig {
    /// The axes of a configuration, in the default rank order.
    pub const AXES: [&str; 4] = ["pp", "dp", "cp", "tp"];

    /// The roles of the dims that tensor parallelism shards in parameters.
    pub const TENSOR_ROLES: [DimRole; 5] =
        [DimRole::KvHeads, DimRole::ScanGroups, DimRole::FeedForward, DimRole::SharedFeedForward, DimRole::Vocabulary];

    /// The roles of the dims that ranks of a sequence shard in what goes from block to block.
    pub const SEQUENCE_ROLES: [DimRole; 2] = [DimRole::Sequence, DimRole::Patches];

    /// The number of devices.
    pub fn devices(&self) -> u64 {
        self.dp * self.tp * self.pp * self.cp
    }

    /// The number of ranks that share the tokens of a sequence.
    pub fn sequence_ranks(&self) -> u64 {
        self.cp * if self.sp { self.tp } else { 1 }
    }

    /// True if parameters are gathered once a step: ZeRO-3 with [`Gather::Step`].
    pub fn gathers_once(&self) -> bool {
        self.zero == 3 && self.gather == Gather::Step
    }

    /// True if anything is offloaded to host memory.
    pub fn uses_host(&self) -> bool {
        !self.offload.is_none() || self.offload_optimizer
    }

    /// The degree of an axis by name.
    pub fn degree(&self, axis: &str) -> Option<u64> {
        match axis {
            "dp" => Some(self.dp),
            "tp" => Some(self.tp),
            "pp" => Some(self.pp),
            "cp" => Some(self.cp),
            "ep" => Some(self.ep),
            "etp" => Some(self.etp),
            _ => None,
        }
    }

    /// The annotation rules of this configuration for a transformer: batch over dp, sequences and the patches of their images over cp, heads, feed-forward
    /// and vocabulary over tp (Shoeybi et al. 2019; query heads too if there are too few key heads), and with `sp` the sequence between the matmuls too (Korthikanti et
    /// al. 2022); experts over ep, and their feed-forward over etp. If several rules shard a dim, the axis of the first is
    /// major.
    pub fn annotation_rules(&self) -> Vec<AnnotationRule> {
        let mut rules = vec![
            AnnotationRule::new("dp", &[DimRole::Batch], AnnotationTarget::Inputs),
            AnnotationRule::new("tp", &Self::TENSOR_ROLES, AnnotationTarget::Params),
        ];
        if self.cp > 1 {
            rules.push(AnnotationRule::new("cp", &Self::SEQUENCE_ROLES, AnnotationTarget::Inputs));
            rules.push(AnnotationRule::new("cp", &Self::SEQUENCE_ROLES, AnnotationTarget::Values));
        }
        if self.sp {
            rules.push(AnnotationRule::new("tp", &Self::SEQUENCE_ROLES, AnnotationTarget::Values));
        }
        if self.ep > 1 {
            rules.push(AnnotationRule::new("ep", &[DimRole::Experts], AnnotationTarget::Params));
        }
        if self.etp > 1 {
            rules.push(AnnotationRule::new("etp", &[DimRole::ExpertFeedForward], AnnotationTarget::Params));
        }
        rules
    }
}

/// Gradients are reduced in buckets of at most this many bytes: the `bucket_cap_mb=25` of common trainers.
pub const BUCKET_BYTES: u64 = 25 << 20;

/// The options of a compilation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlanOptions {
    /// The parallel configuration.
    pub parallel: ParallelConfig,
    /// The annotation rules from which sharding propagation starts.
    pub rules: Vec<AnnotationRule>,
    /// The number of devices within each link level, innermost first: axes are split so that each is within one level.
    pub levels: Vec<u64>,
    /// The most bytes of a gradient bucket.
    pub bucket_bytes: u64,
    /// The method that chooses the shardings that neither the file nor a rule states.
    #[serde(default)]
    pub sharding: Sharding,
}

/// A method that chooses shardings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharding {
    /// Propagation of the annotations along the sharding rules of the ops.
    #[default]
    Rules,
    /// The shortest step whose memory fits on a device.
    Auto {
        /// The memory budget of a device, in bytes; default: the memory of the cluster's devices.
        memory: Option<u64>,
        /// Micro-batches of a step; gradients are reduced once a step.
        microbatches: u32,
        /// The time limit of the search; default: a fixed amount of work.
        #[serde(default)]
        deadline: Option<Duration>,
    },
}

impl PlanOptions {
    /// The options of a configuration with its own annotation rules, on one link level.
    pub fn of(parallel: ParallelConfig) -> PlanOptions {
        let rules = parallel.annotation_rules();
        PlanOptions { parallel, rules, levels: Vec::new(), bucket_bytes: BUCKET_BYTES, sharding: Sharding::Rules }
    }

    /// Options without annotations: the cost model decides all open shardings.
    pub fn auto(parallel: ParallelConfig, memory: Option<u64>, microbatches: u32) -> PlanOptions {
        PlanOptions {
            rules: Vec::new(),
            sharding: Sharding::Auto { memory, microbatches, deadline: None },
            ..PlanOptions::of(parallel)
        }
    }
}
