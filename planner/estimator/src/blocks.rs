//! The blocks of a model on one rank. Configurations that share the axes below pp share one plan; configurations that share
//! every field a block depends on share its cost.

use super::error::Error;
use super::projection::BlockConfig;
use super::stages::plus;
use cost::{
    BlockOptions, Capacity, Elements, ExecutedFlops, Passes, Platform, Profile, Reach, Routing, Seconds,
    SplitByExperts, Stack, profile,
};
use ir::entity::EntityRef;
use ir::graph::{ArgKind, Block, Model, ParamInstance};
use ir::ids::{BlockId, Value};
use ir::options::Recompute;
use std::ops::Range;
use std::sync::Arc;
use transforms::recompute::{check_names, is_layer};

/// A model planned for one micro-batch of the ranks that compute a block together.
#[derive(Debug)]
pub(super) struct Planned {
    /// The model with its collectives.
    pub(super) model: Model,
    /// Its block instances and parameters.
    pub(super) outline: Arc<Outline>,
}

/// Block instances and parameters of a planned model.
#[derive(Debug)]
pub(super) struct Outline {
    /// Block of each instance, in the model's order.
    pub(super) runs: Vec<usize>,
    /// Name of each instance: `layer[3]`.
    pub(super) names: Vec<String>,
    /// The instances between the first and the last block.
    pub(super) layers: Range<usize>,
    /// The instances up to the one that reads tokens: the embedding, and in front of it an encoder.
    pub(super) front: usize,
    /// Consecutive instances of one block.
    pub(super) spans: Vec<Span>,
    /// Number of trained parameters of each distinct block.
    pub(super) tensors: Vec<usize>,
    /// Parameters that several instances share.
    pub(super) tied: Vec<Tied>,
    /// Elements of all parameters.
    pub(super) parameters: u64,
}

/// Consecutive instances of one block, all of them layers or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) block: usize,
    /// The instances.
    pub(super) runs: Range<usize>,
    /// `true` if they are layers.
    pub(super) are_layers: bool,
}

impl Span {
    /// Number of these instances that are in a range.
    pub(super) fn within(&self, runs: &Range<usize>) -> usize {
        self.runs.end.min(runs.end).saturating_sub(self.runs.start.max(runs.start))
    }
}

/// A parameter that several block instances share.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Tied {
    /// The instances.
    pub(super) runs: Vec<usize>,
    /// Number of elements on one rank.
    pub(super) elements: f64,
    /// `true` if the optimizer updates it.
    pub(super) is_trained: bool,
}

/// Costs of a model's block instances on one rank of a configuration.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Block instances and parameters.
    pub(super) outline: Arc<Outline>,
    /// Profile of each distinct block.
    pub(super) profiles: Vec<Profile>,
    /// The same with full recomputation, if the configuration has it for some layers.
    pub(super) recomputed: Option<Vec<Profile>>,
    /// Profiles with offloaded activations, if the configuration has it for some layers and not for all blocks.
    pub(super) on_host: Option<Arc<Blocks>>,
}

/// Lower bound on the launches of a small micro-batch over those of a large one, whose reshard paths may have more collectives.
/// **Empirical, not proved:** over 21,000 random configurations of nine models the smallest observed ratio was 0.918, and 1
/// without folded experts.
const LAUNCHED: f64 = 0.85;

/// Blocks of which costs are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockFilter {
    /// All blocks.
    All,
    /// Blocks without experts.
    Others,
    /// Blocks with experts.
    Experts,
}

impl BlockFilter {
    /// Returns `true` if a block is among them.
    pub(super) fn has(self, block: &Block) -> bool {
        match self {
            BlockFilter::All => true,
            BlockFilter::Others => Routing::of(block).is_none(),
            BlockFilter::Experts => Routing::of(block).is_some(),
        }
    }
}

/// Costs that are known before others are computed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KnownCosts<'a> {
    /// Those of the blocks that are left out. They cost nothing if these are not known.
    pub(super) others: Option<&'a Blocks>,
    /// Those of all blocks without recomputation.
    pub(super) plain: Option<&'a Blocks>,
}

/// Checks the options of a configuration that a plan does not depend on: names of recomputed values, and sharded heads.
///
/// # Errors
/// The model lacks a recomputed value, or the degrees do not divide the heads.
pub(super) fn check(model: &Model, config: &BlockConfig) -> Result<(), Error> {
    check_names(model, &config.options.recompute)?;
    Ok(planner::check_sharing(model, &config.parallel())?)
}

impl Tied {
    /// True if the instance `last` has it, and one before `front`.
    fn joins(&self, front: usize, last: usize) -> bool {
        self.runs.contains(&last) && self.runs.iter().any(|&run| run < front)
    }

    /// Its elements, `times` times.
    pub(super) fn elements(&self, times: f64) -> Elements {
        let all = SplitByExperts { dense: times * self.elements, experts: 0.0 };
        Elements { all, trained: if self.is_trained { all } else { SplitByExperts::default() } }
    }
}

impl Planned {
    /// Fraction of routed tokens that experts drop, averaged over layers with experts; `None` without experts.
    pub(super) fn dropped(&self, stack: &Stack) -> Option<f64> {
        let dropped = |routing: Routing| match stack.traits.experts.capacity {
            Capacity::Dropless => 0.0,
            Capacity::Drops if routing.capacity >= routing.tokens => routing.even().dropped(),
            Capacity::Drops | Capacity::Pads => routing.dropped(),
        };
        let blocks: Vec<_> = self.model.blocks.values().map(|block| Routing::of(block).map(dropped)).collect();
        let shares: Vec<f64> = self.outline.runs.iter().filter_map(|&run| blocks[run]).collect();
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    }
}

impl Outline {
    /// Blocks of layers, with the number of instances of each.
    pub(super) fn layers_by_block(&self) -> Vec<(usize, u64)> {
        let mut all: Vec<(usize, u64)> = Vec::new();
        for span in self.spans.iter().filter(|span| span.are_layers) {
            let runs = span.runs.len() as u64;
            match all.iter_mut().find(|(block, _)| *block == span.block) {
                Some((_, sum)) => *sum += runs,
                None => all.push((span.block, runs)),
            }
        }
        all
    }

    /// Returns whether the last instance shares a parameter with one in front of the layers.
    pub(super) fn ties_ends(&self) -> bool {
        let (front, last) = (self.front.max(self.layers.start), self.runs.len().saturating_sub(1));
        last > 0 && self.tied.iter().any(|tied| tied.joins(front, last))
    }

    /// The block of these instances, whether they are layers, and their number, if they are of one block and share no parameter.
    pub(super) fn only_block(&self, runs: &Range<usize>) -> Option<(usize, bool, usize)> {
        let shares = self.tied.iter().any(|tied| tied.runs.iter().any(|run| runs.contains(run)));
        let span = self.spans.iter().find(|span| span.within(runs) == runs.len()).filter(|_| !shares)?;
        Some((span.block, span.are_layers, runs.len()))
    }

    /// Outline of a planned model.
    pub(super) fn of(model: &Model) -> Outline {
        let calls = || model.calls.iter().flat_map(|call| (0..call.instances()).map(move |instance| (call, instance)));
        let name = |block: &str, instances: u32, index: u32| match instances {
            1 => block.to_string(),
            _ => format!("{block}[{index}]"),
        };
        let names: Vec<String> = calls()
            .map(|(call, instance)| name(&model.blocks[call.block].name, call.instances(), call.index(instance)))
            .collect();
        let runs: Vec<usize> = calls().map(|(call, _)| call.block.index()).collect();
        let mut bound: Vec<(ParamInstance, usize, (BlockId, Value))> = Vec::new();
        for (number, (call, instance)) in calls().enumerate() {
            let params = model.blocks[call.block].args_of(ArgKind::Param).map(|param| (call.block, param));
            bound.extend(params.zip(model.call_params(call, instance)).map(|(param, id)| (id, number, param)));
        }
        bound.sort_by_key(|(id, number, _)| (*id, *number));
        let elements =
            |(block, param): (BlockId, Value)| model.blocks[block].ty(param).local_elements(&model.mesh) as f64;
        let tied = bound.chunk_by(|a, b| a.0 == b.0).filter(|binders| binders.len() > 1).map(|binders| Tied {
            runs: binders.iter().map(|(_, number, _)| *number).collect(),
            elements: binders.iter().map(|(.., param)| elements(*param)).fold(0.0, f64::max),
            is_trained: !model.params[binders[0].0.0].frozen,
        });
        let tied = tied.collect();
        let ends = usize::from(runs.len() > 2);
        let tokens = model.inputs.first().map(|input| input.value);
        let reads = calls().position(|(call, _)| tokens.is_some_and(|tokens| call.args.contains(&tokens)));
        let front = reads.map_or(0, |embedding| embedding + 1);
        let (layers, parameters) = (ends..runs.len() - ends, model.parameter_count());
        let trained = |id: BlockId| {
            let bound = model.calls.iter().find(|call| call.block == id).map(|call| model.call_params(call, 0));
            bound.unwrap_or_default().iter().filter(|param| !model.params[param.0].frozen).count()
        };
        let tensors = model.blocks.keys().map(trained).collect();
        let spans = spans(&runs, &layers);
        Outline { layers, front, spans, tensors, tied, parameters, runs, names }
    }
}

fn spans(blocks: &[usize], layers: &Range<usize>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (run, &block) in blocks.iter().enumerate() {
        let are_layers = layers.contains(&run);
        match spans.last_mut().filter(|span| span.block == block && span.are_layers == are_layers) {
            Some(span) => span.runs.end = run + 1,
            None => spans.push(Span { block, runs: run..run + 1, are_layers }),
        }
    }
    spans
}

impl Blocks {
    /// Sum of a figure over all block instances.
    pub(super) fn sum(&self, of: impl Fn(&Profile) -> f64) -> f64 {
        self.outline.spans.iter().map(|span| span.runs.len() as f64 * of(&self.profiles[span.block])).sum()
    }

    /// Lower bound for smaller micro-batches, with `share` of the work: device seconds, and temporary values of the model's ends.
    /// The number of kernel launches stays, except for [`LAUNCHED`].
    pub(super) fn part(&self, share: f64) -> Blocks {
        let seconds = |of: &Seconds| plus(Seconds::default(), &Seconds { launch: 0.0, ..*of }, share);
        let part = |of: &Profile| {
            let elements = of.elements;
            let [mut f, mut i, w, recomputed] = [&of.f, &of.i, &of.w, &of.recomputed].map(seconds);
            let Passes { forward, backward } = of.launches().map(|host| host * LAUNCHED);
            f.launch = (forward - f.total()).max(0.0);
            i.launch = (backward - i.total() - w.total() - recomputed.total()).max(0.0);
            Profile { f, i, w, recomputed, elements, ..Profile::default() }
        };
        let mut profiles: Vec<Profile> = self.profiles.iter().map(part).collect();
        for end in self.outline.spans.iter().filter(|span| !span.are_layers) {
            let (end, whole) = (&mut profiles[end.block], &self.profiles[end.block]);
            (end.transient, end.transient_in_w) = (share * whole.transient, share * whole.transient_in_w);
            end.made_for_w = share * whole.made_for_w;
        }
        Blocks { outline: Arc::clone(&self.outline), profiles, recomputed: None, on_host: None }
    }

    /// Costs of some blocks of a planned model under options. Attention computes `share` of the pairs of one causal document, by
    /// how far its queries reach.
    pub(super) fn of(
        model: &Model,
        outline: &Arc<Outline>,
        options: &BlockOptions,
        platform: &Platform<'_>,
        share: &dyn Fn(Reach) -> f64,
        which: BlockFilter,
        known: KnownCosts<'_>,
    ) -> Blocks {
        let under = |recompute: &Recompute, id: BlockId, others: Option<&[Profile]>| {
            let block = &model.blocks[id];
            if !which.has(block) {
                return others.map_or_else(Profile::default, |others| others[id.index()].clone());
            }
            let options = BlockOptions { recompute: recompute.clone(), ..options.clone() };
            masked(profile(model, block, &options, platform), share(Reach::of_block(block)))
        };
        let of_others = known.others.map(|others| &others.profiles[..]);
        let all = |recompute: &Recompute| model.blocks.keys().map(|id| under(recompute, id, of_others)).collect();
        let outline = Arc::clone(outline);
        let Recompute::Full(_) = options.recompute else {
            return Blocks { outline, profiles: all(&options.recompute), recomputed: None, on_host: None };
        };
        let profiles: Vec<Profile> = known.plain.map_or_else(|| all(&Recompute::None), |plain| plain.profiles.clone());
        let of_others = known.others.and_then(|others| others.recomputed.as_deref());
        // Full recomputation applies to layers, not to the ends of the model. Blocks that are left out may not be planned.
        let recomputed = |(id, block): (BlockId, &Block)| match which.has(block) && !is_layer(block) {
            true => profiles[id.index()].clone(),
            false => under(&Recompute::Full(None), id, of_others),
        };
        let recomputed = Some(model.blocks.iter().map(recomputed).collect());
        Blocks { outline, profiles, recomputed, on_host: None }
    }
}

/// Profile with attention masked by documents, to `share` of the pairs. Causal attention has half of the FLOPs of full
/// attention.
fn masked(profile: Profile, share: f64) -> Profile {
    let seconds = |seconds: Seconds| Seconds { attention: seconds.attention * share, ..seconds };
    let less = |causal: f64, whole: f64| causal - (whole - causal) * (1.0 - share);
    let attention = profile.f.attention + profile.i.attention + profile.w.attention;
    Profile {
        f: seconds(profile.f),
        i: seconds(profile.i),
        w: seconds(profile.w),
        recomputed: seconds(profile.recomputed),
        work: profile.work - attention * (1.0 - share),
        flops: less(profile.flops, profile.flops_noncausal),
        recomputed_flops: less(profile.recomputed_flops, profile.recomputed_flops_noncausal),
        executed: ExecutedFlops { attention: profile.executed.attention * share, ..profile.executed },
        ..profile
    }
}
