//! A configuration with the facts of its job that frameworks ask for.

use crate::Target;
use crate::launch::{Launch, Nodes};
use cost::{EnumSet, Hidden, Recipe, StackTraits};
use ir::graph::Model;
use ir::models::ModelConfig;
use ir::options::{ParallelConfig, Recompute};

/// A job to export.
#[derive(Clone, Debug)]
pub struct Job {
    /// The model as the request named it.
    pub model: String,
    /// Its adapters, if it has any: the rank, then what the name states besides.
    pub adapters: Option<String>,
    /// The configuration in full.
    pub parallel: ParallelConfig,
    /// Tokens of a sequence.
    pub seq: u64,
    /// Sequences of a step.
    pub global_batch: u64,
    /// The precision recipe.
    pub precision: String,
    /// The optimizer.
    pub optimizer: String,
    /// The stages in the order of the model.
    pub stages: Vec<Stage>,
    /// True if the configuration sets their boundaries; else they are the stack's own.
    pub sets_stages: bool,
    /// Experts of a layer; 0 for dense models.
    pub experts: u64,
    /// Groups of query heads that share a key head.
    pub kv_heads: u64,
    /// Devices of a node: those beside one host.
    pub per_node: u64,
    /// Devices that the innermost links join, on one node or several.
    pub domain: u64,
    /// The model's configuration, if it has one.
    pub config: Option<ModelConfig>,
    /// Tokens of an expert over those of even routing, above which tokens are dropped.
    pub capacity: Option<f64>,
    /// True if the prediction is of documents that are shorter than a sequence.
    pub documents: bool,
    /// The stack that the prediction is of.
    pub stack: String,
    /// The properties of the stack that the prediction is of.
    pub traits: StackTraits,
    /// Number formats of the prediction.
    pub recipe: Recipe,
    /// Major number of the devices' compute capability, if they have one.
    pub capability: Option<u64>,
    /// Launcher of the processes.
    pub launch: Launch,
    /// Seconds that launches would add to a step without CUDA graphs, over those of the step, where the stack has graphs of layers
    /// without experts alone.
    pub launches: f64,
    /// The prediction, as a sentence.
    pub predicted: String,
    /// The order of the pipeline, for a target that takes it.
    pub order: Option<TorchOrder>,
}

/// The order of a pipeline's actions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TorchOrder {
    /// A CSV file of `torch.distributed.pipelining`.
    pub csv: String,
    /// The rank of each stage.
    pub ranks: Vec<usize>,
    /// Why it is another order than that of the configuration, if it is.
    pub instead: Option<String>,
}

/// Blocks of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stage {
    /// True if it has the embedding.
    pub embedding: bool,
    /// Layers.
    pub layers: u64,
    /// Layers that predict further tokens.
    pub further: u64,
    /// True if it has the head.
    pub head: bool,
}

/// The stages of a model that begin at the block instance 0 and at each of `starts`.
pub fn stages(model: &Model, starts: &[u32]) -> Vec<Stage> {
    let calls = model.calls.len();
    let mut blocks = Vec::new();
    // Layers behind a block between the ends predict further tokens; blocks between them count as none.
    let mut is_further = false;
    for (nth, call) in model.calls.iter().enumerate() {
        let stage = match call.repeat {
            None if nth == 0 => Stage { embedding: true, ..Stage::default() },
            None if nth + 1 == calls => Stage { head: true, ..Stage::default() },
            None => {
                is_further = true;
                Stage::default()
            }
            Some(_) if is_further => Stage { further: 1, ..Stage::default() },
            Some(_) => Stage { layers: 1, ..Stage::default() },
        };
        blocks.extend((0..call.instances()).map(|_| stage));
    }
    let starts: Vec<usize> = std::iter::once(0).chain(starts.iter().map(|&start| start as usize)).collect();
    let ends = starts.iter().skip(1).copied().chain([blocks.len()]);
    let joined = starts.iter().zip(ends).map(|(&start, end)| {
        let blocks = blocks.get(start..end).unwrap_or_default();
        Stage {
            embedding: blocks.iter().any(|block| block.embedding),
            layers: blocks.iter().map(|block| block.layers).sum(),
            further: blocks.iter().map(|block| block.further).sum(),
            head: blocks.iter().any(|block| block.head),
        }
    });
    joined.collect()
}

impl Job {
    /// Micro-batches of a step.
    pub fn microbatches(&self) -> u64 {
        self.global_batch / (self.parallel.dp * self.parallel.mbs).max(1)
    }

    /// Ranks of a ZeRO group, of those of dp and cp.
    pub(crate) fn shard(&self) -> u64 {
        self.parallel.shard.unwrap_or(self.parallel.dp * self.parallel.cp)
    }

    /// ZeRO groups.
    pub(crate) fn groups(&self) -> u64 {
        self.parallel.dp * self.parallel.cp / self.shard().max(1)
    }

    /// Layers.
    pub(crate) fn layers(&self) -> u64 {
        self.stages.iter().map(|stage| stage.layers).sum()
    }

    /// Layers that predict further tokens.
    pub(crate) fn further(&self) -> u64 {
        self.stages.iter().map(|stage| stage.further).sum()
    }

    /// True if the prediction hides communication of a kind behind compute.
    pub(crate) fn hides(&self, kind: Hidden) -> bool {
        let pinned = match kind {
            Hidden::Tp => self.parallel.tp_overlap,
            Hidden::Dp => self.parallel.dp_overlap,
            _ => None,
        };
        pinned.unwrap_or_else(|| self.traits.hides.contains(kind))
    }

    /// The property of a stack that hides what the job's stack does, but for one kind.
    pub(crate) fn hides_all_but(&self, kind: Hidden) -> String {
        let others: EnumSet<Hidden> = self.traits.hides.iter().filter(|other| *other != kind).collect();
        format!("hides={}", others.names().collect::<Vec<_>>().join("|"))
    }

    /// The order of the ranks, if it is not the usual one.
    pub(crate) fn other_order(&self) -> Option<String> {
        Some(self.parallel.rank_order.join(",")).filter(|order| order != "pp,dp,cp,tp")
    }

    /// True if all stages have as many layers.
    pub(crate) fn is_even(&self) -> bool {
        self.stages.windows(2).all(|pair| pair[0].layers == pair[1].layers)
    }

    /// Stages of a pipeline rank.
    pub(crate) fn stages_of_rank(&self) -> u64 {
        (self.stages.len() as u64 / self.parallel.pp.max(1)).max(1)
    }

    /// The names of a selective recomputation; none for others.
    pub(crate) fn modules(&self) -> Vec<&str> {
        match &self.parallel.recompute {
            Recompute::Selective(modules) if modules.is_empty() => vec!["core_attn"],
            Recompute::Selective(modules) => modules.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Sentences above an export.
    pub(crate) fn heading(&self, target: Target) -> Vec<String> {
        let devices = self.parallel.devices();
        let mut lines = vec![
            format!("{}, for {}", self.model, target.version()),
            format!("{devices} devices, {} sequences of {} tokens a step", self.global_batch, self.seq),
            self.predicted.clone(),
        ];
        lines.extend(Nodes::of(self).told(self));
        lines
    }
}
