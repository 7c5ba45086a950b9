//! Pareto frontier of recomputation over all kinds of layers of a model.

use super::module_sets;
use super::site::Site;
use super::tensors::{self, Chosen, STEPS};
use crate::block_options::BlockOptions;
use crate::knapsack::prune;
use crate::platform::Platform;
use crate::quantities::RecomputeCost;
use ir::entity::EntityRef;
use ir::graph::{Block, Model};
use ir::ids::BlockId;
use transforms::recompute::{is_layer, is_module, of_value};

/// Recomputation frontier of a model's layers.
#[derive(Clone, PartialEq, Debug)]
pub struct Frontier {
    /// Kinds of layers.
    pub kinds: Vec<Kind>,
    names: Vec<Names>,
    /// For choices over all layers at once: per block, the least seconds of each choice and of all choices that save
    /// less.
    sets: Vec<(BlockId, Vec<f64>)>,
    /// Pareto-optimal choices for all kinds together, from the fewest seconds to the fewest bytes.
    pub best: Vec<RecomputeChoice>,
}

/// Pareto-optimal recomputation choice.
#[derive(Clone, PartialEq, Debug)]
pub struct RecomputeChoice {
    /// Index of each kind's choice in its list.
    pub choices: Vec<usize>,
    /// Saved activations of the layers, in bytes.
    pub bytes: f64,
    /// Recomputation time, in seconds.
    pub seconds: f64,
    /// Lower bound in seconds on this choice and on all choices that save fewer bytes.
    pub least: f64,
}

impl RecomputeChoice {
    fn cost(&self) -> RecomputeCost {
        RecomputeCost { bytes: self.bytes, seconds: self.seconds }
    }
}

/// A kind of layers with its Pareto-optimal choices, from the fewest seconds to the fewest bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct Kind {
    /// The block.
    pub block: BlockId,
    /// Number of block instances.
    pub runs: f64,
    /// Saved activations of a layer in bytes, per choice.
    pub bytes: Vec<f64>,
    /// Recomputation time in seconds, per choice.
    pub seconds: Vec<f64>,
    /// Lower bound in seconds on this choice and on all choices that save fewer bytes.
    pub least: Vec<f64>,
}

/// Values and choices of a kind of layers.
#[derive(Clone, PartialEq, Debug)]
struct Names {
    block: String,
    /// All values of its forward.
    values: Vec<String>,
    /// Recomputed values of each choice.
    choices: Vec<Vec<String>>,
}

/// Recomputation frontier for the given number of instances of each block of a planned model, per micro-batch. Blocks
/// that are not layers are ignored, as is the configuration's own recomputation. If the stack cannot recompute single
/// values, choices are sets of its modules.
pub fn frontier(model: &Model, runs: &[f64], options: &BlockOptions, platform: &Platform<'_>) -> Frontier {
    if let Some(modules) = platform.stack.supports.modules() {
        return module_sets::frontier(model, runs, options, platform, &modules);
    }
    let mut frontier = Frontier::none();
    for (id, block) in model.blocks.iter().filter(|(id, block)| is_layer(block) && runs[id.index()] > 0.0) {
        let chosen = tensors::frontier(&Site::new(model, block, options, platform));
        let runs = runs[id.index()];
        frontier.best = with(&frontier.best, &chosen, runs);
        frontier.kinds.push(Kind {
            block: id,
            runs,
            bytes: chosen.iter().map(|choice| choice.bytes).collect(),
            seconds: chosen.iter().map(|choice| choice.seconds).collect(),
            least: chosen.iter().map(|choice| choice.least).collect(),
        });
        let choices = chosen.into_iter().map(|choice| choice.names).collect();
        frontier.names.push(Names { block: block.name.clone(), values: values(block), choices });
    }
    frontier
}

/// Combines choices with those of another kind, which has `runs` instances.
fn with(best: &[RecomputeChoice], chosen: &[Chosen], runs: f64) -> Vec<RecomputeChoice> {
    let mut pairs = Vec::with_capacity(best.len() * chosen.len());
    for (before, recomputed) in best.iter().enumerate() {
        let sums = chosen.iter().map(|it| recomputed.cost() + runs * it.cost());
        pairs.extend(sums.enumerate().map(|(at, cost)| (before, at, cost)));
    }
    let most = pairs.iter().map(|(.., cost)| cost.bytes).fold(0.0, f64::max);
    prune(&mut pairs, most / STEPS, |(.., cost)| *cost);
    let joined = pairs.into_iter().map(|(before, at, RecomputeCost { bytes, seconds })| {
        let choices = best[before].choices.iter().copied().chain([at]).collect();
        RecomputeChoice { choices, bytes, seconds, least: best[before].least + runs * chosen[at].least }
    });
    joined.collect()
}

fn values(block: &Block) -> Vec<String> {
    let names = block.values.values().map(|value| &value.name);
    names.filter(|name| of_value(block, name).is_some()).cloned().collect()
}

impl Frontier {
    /// Frontier without layers.
    pub(super) fn none() -> Frontier {
        let nothing = RecomputeChoice { choices: Vec::new(), bytes: 0.0, seconds: 0.0, least: 0.0 };
        Frontier { kinds: Vec::new(), names: Vec::new(), sets: Vec::new(), best: vec![nothing] }
    }

    /// Frontier of named choices for all layers at once.
    pub(super) fn of_sets(
        kind: Kind,
        choices: Vec<Vec<String>>,
        sets: Vec<(BlockId, Vec<f64>)>,
        best: Vec<RecomputeChoice>,
    ) -> Frontier {
        let names = Names { block: String::new(), values: Vec::new(), choices };
        Frontier { kinds: vec![kind], names: vec![names], sets, best }
    }

    /// Returns whether choices cover all layers at once.
    pub fn is_of_sets(&self) -> bool {
        !self.sets.is_empty()
    }

    /// Lower bound in seconds on a block instance's recomputation under a choice per kind, and under choices that save
    /// fewer bytes; 0 without choices.
    pub fn least(&self, choices: &[usize], block: usize) -> f64 {
        if self.is_of_sets() {
            return self.sets.iter().filter(|(of, _)| of.index() == block).map(|(_, least)| least[choices[0]]).sum();
        }
        let own = self.kinds.iter().zip(choices).filter(|(kind, _)| kind.block.index() == block);
        own.map(|(kind, &choice)| kind.least[choice]).sum()
    }

    /// Names after `selective:` for a choice per kind, in forward order. A name is unqualified if all kinds with the
    /// value recompute it and the value is not a module's; otherwise it is qualified by block.
    pub fn names(&self, choices: &[usize]) -> Vec<String> {
        let chosen: Vec<&Vec<String>> =
            self.names.iter().zip(choices).map(|(names, &choice)| &names.choices[choice]).collect();
        if self.is_of_sets() {
            return chosen[0].clone();
        }
        let mut names: Vec<String> = Vec::new();
        for (Names { block, .. }, recomputed) in self.names.iter().zip(&chosen) {
            for name in *recomputed {
                let mut kinds = self.names.iter().zip(&chosen);
                let is_kept = kinds.any(|(kind, chosen)| kind.values.contains(name) && !chosen.contains(name));
                let alone = !is_module(name) && !is_kept;
                let qualified = if alone { name.clone() } else { format!("{block}.{name}") };
                if !names.contains(&qualified) {
                    names.push(qualified);
                }
            }
        }
        names
    }
}
