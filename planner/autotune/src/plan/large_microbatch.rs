//! Lower bounds for micro-batches of all sizes, from the seconds of the largest ones.
//!
//! Time per sequence does not increase with micro-batch size, since tile waves, link efficiency and launch overhead all
//! improve. The largest micro-batch therefore bounds all others.
//!
//! The exception is resharding between token and expert shardings with folded experts. The reshard path depends on size, and
//! is chosen with simpler formulas than the costs used here. If the paths differ, or are not compared, the bound is
//! multiplied by a safety factor (`OTHER_PATHS`). It is also capped at a multiple of the bound with unsharded experts on each
//! rank (`MOST_OF_UNSHARDED`). (A test compares all of these bounds with estimated costs.)

use crate::search::{Space, divisors};
use estimator::{Evaluator, LargeShare, StepCost};
use ir::options::{CpKind, Offload, ParallelConfig, Recompute};
use std::sync::Arc;
use support::query::Query;

/// Tokens of a micro-batch that exceeds every device's memory, while no tensor size exceeds its limits.
const MOST_TOKENS: u64 = 1 << 28;

/// Number of experts that may each have a slot for every one of these tokens, whatever a model's hidden size.
const FEW_EXPERTS: u64 = 8;

/// Safety factor for the large-micro-batch bound with folded, unsharded experts. **Empirical, not proved:** over 13,500 random
/// configurations of five MoE models the smallest observed ratio was 0.977.
const OTHER_PATHS: f64 = 0.95;

/// Safety factor for folded, sharded experts. **Empirical, not proved:** over the same configurations the smallest observed ratio
/// was 0.88, configurations three times slower than with unsharded experts on each rank excepted.
const OTHER_PATHS_SHARDED: f64 = 0.85;

/// Cap of the large-micro-batch bound, as a multiple of the time with unsharded experts on each rank.
const MOST_OF_UNSHARDED: f64 = 2.0;

/// Safety factor for bounding experts on some ranks by experts on fewer ranks: larger groups may send rows to other nodes
/// faster than smaller groups.
const FEWER_RANKS: f64 = 0.95;

/// Threshold and factor for experts sharded too finely. If experts on one rank each, sharded into a few parts, take
/// `TOO_SMALL` times as long as unsharded ones, more parts or ranks take at least `TIMES_TOO_SMALL` times as long.
/// **Empirical, not proved:** of the degrees of three MoE models none takes less than 1.64 times.
const TOO_SMALL: f64 = 2.0 * OTHER_PATHS_SHARDED;
const TIMES_TOO_SMALL: f64 = 1.64 * OTHER_PATHS_SHARDED;

/// Share that a still larger micro-batch could save in its last, partly filled wave of tiles: at this size there are 10^4
/// waves.
const LAST_WAVE: f64 = 1e-3;

/// Lower bounds from large micro-batches of the configurations of a space.
pub(super) struct LargeMicrobatches<'a> {
    evaluator: &'a Evaluator,
    space: &'a Space,
    /// Divisors of the global batch, ascending.
    batches: Vec<u64>,
    works: Query<LargeMicrobatches<'a>, LayerConfig, LargeWork>,
    /// Seconds of work with the fastest option for sharing a sequence, whatever option the key has.
    fastest: Query<LargeMicrobatches<'a>, LayerConfig, f64>,
    /// `true` for micro-batches of this many sequences whose reshard paths are those of large ones.
    alike: Query<LargeMicrobatches<'a>, (LayerConfig, u64), bool>,
}

/// The fields that the time per sequence in large micro-batches depends on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct LayerConfig {
    /// Data-parallel ranks and stages, which count alike: they compute different tokens.
    dp: u64,
    tp: u64,
    cp: u64,
    ep: u64,
    etp: u64,
    sp: bool,
    cp_kind: CpKind,
    tp_overlap: Option<bool>,
    recompute: Recompute,
    rank_order: Arc<[String]>,
}

impl LayerConfig {
    fn of(parallel: &ParallelConfig) -> LayerConfig {
        let ParallelConfig {
            dp,
            tp,
            pp,
            cp,
            ep,
            etp,
            sp,
            cp_kind,
            tp_overlap,
            ref recompute,
            ref rank_order,
            // Large micro-batches have their own number of sequences, and offload nothing.
            mbs: _,
            offload: _,
            // The work of a rank is counted without what pipelines and data-parallel ranks add.
            zero: _,
            shard: _,
            gather: _,
            offload_optimizer: _,
            dp_overlap: _,
            schedule: _,
            vp: _,
            group: _,
            slices: _,
            stages: _,
        } = *parallel;
        let (recompute, rank_order) = (recompute.clone(), Arc::clone(rank_order));
        LayerConfig { dp: dp * pp, tp, cp, ep, etp, sp, cp_kind, tp_overlap, recompute, rank_order }
    }

    /// The configuration that has these fields, and defaults beside them.
    fn parallel(&self) -> ParallelConfig {
        let LayerConfig { dp, tp, cp, ep, etp, sp, cp_kind, tp_overlap, ref recompute, ref rank_order } = *self;
        let (recompute, rank_order) = (recompute.clone(), Arc::clone(rank_order));
        let degrees = ParallelConfig { dp, tp, cp, ep, etp, ..ParallelConfig::default() };
        ParallelConfig { sp, cp_kind, tp_overlap, recompute, rank_order, ..degrees }
    }
}

/// The work of a step in large micro-batches.
#[derive(Clone, Copy, Debug)]
struct LargeWork {
    /// Seconds of the work.
    seconds: f64,
    /// Share of the seconds that is a lower bound for all sizes.
    share: f64,
}

impl<'a> LargeMicrobatches<'a> {
    pub(super) fn new(evaluator: &'a Evaluator, space: &'a Space) -> LargeMicrobatches<'a> {
        let batches = divisors(space.global_batch);
        let (works, fastest) = (Query::new(LargeMicrobatches::work_of), Query::new(LargeMicrobatches::fastest_of));
        let alike = Query::new(LargeMicrobatches::are_alike);
        LargeMicrobatches { evaluator, space, batches, works, fastest, alike }
    }

    /// Lower bound on the seconds of work of all configurations with these degrees. The computation may stop as soon as the
    /// bound exceeds `enough`.
    ///
    /// In large micro-batches it never helps to shard layers or sequences, to exchange rows, or to shard an expert. Unsharded
    /// experts on each rank are evaluated first, for increasing numbers of ranks that share a layer. Next come unsharded
    /// experts on increasing numbers of ranks, then experts sharded too finely.
    pub(super) fn of_degrees(&self, parallel: &ParallelConfig, enough: f64) -> f64 {
        let with = |ep, etp| self.with(&ParallelConfig { ep, etp, ..parallel.clone() });
        let whole = with(1, 1);
        let mut seconds = whole;
        for ep in divisors(parallel.ep) {
            if seconds > enough || (self.space.stop)() {
                return seconds;
            }
            let fewer = if ep < parallel.ep { FEWER_RANKS } else { 1.0 };
            seconds = seconds.max(fewer * with(ep, 1));
        }
        let is_too_small = |&etp: &u64| !(self.space.stop)() && with(1, etp) > TOO_SMALL * whole;
        if seconds <= enough && divisors(parallel.etp).iter().any(is_too_small) {
            seconds = seconds.max(TIMES_TOO_SMALL * whole);
        }
        if seconds > enough { seconds } else { seconds.max(with(parallel.ep, parallel.etp)) }
    }

    /// Seconds of work of configurations with exactly these degrees, with the fastest option for sharing a sequence.
    fn with(&self, parallel: &ParallelConfig) -> f64 {
        let (sp, cp_kind, tp_overlap) = Default::default();
        self.fastest.get(self, &LayerConfig { sp, cp_kind, tp_overlap, ..LayerConfig::of(parallel) })
    }

    fn fastest_of(&self, config: &LayerConfig) -> f64 {
        let ways = self.space.sequence_shardings(&config.parallel());
        // With overlap, a stack takes no longer than without.
        let hidden = ways.iter().filter(|way| way.tp_overlap == ways[0].tp_overlap);
        hidden.map(|way| self.of_sharing(way)).fold(f64::INFINITY, f64::min)
    }

    /// Seconds of work of configurations with one option for sharing a sequence.
    pub(super) fn of_sharing(&self, parallel: &ParallelConfig) -> f64 {
        let LargeWork { seconds, share } = self.work(parallel);
        seconds * share
    }

    /// Lower bound of a configuration: `bound` of a large micro-batch, with the share of its work that holds for the
    /// configuration's size. A bound that rules nothing out need not be the tightest.
    pub(super) fn least(
        &self,
        parallel: &ParallelConfig,
        bound: impl Fn(LargeShare<'_>) -> Option<StepCost>,
        is_ruled_out: impl Fn(StepCost) -> bool,
    ) -> Option<StepCost> {
        let large = self.large(parallel);
        let part =
            |share: f64| bound(LargeShare { config: &large, share: share * parallel.mbs as f64 / large.mbs as f64 });
        let some = part(self.work(parallel).share)?;
        if is_ruled_out(some) || !parallel.has_folded_experts() {
            return Some(some);
        }
        let all = part(1.0 - LAST_WAVE)?;
        Some(if is_ruled_out(all) && self.has_paths_of_large(parallel) { all } else { some })
    }

    /// Returns `true` if a micro-batch takes the same reshard paths as the larger one.
    fn has_paths_of_large(&self, parallel: &ParallelConfig) -> bool {
        self.alike.get(self, &(LayerConfig::of(parallel), parallel.mbs))
    }

    fn are_alike(&self, (config, mbs): &(LayerConfig, u64)) -> bool {
        let large = self.large(&config.parallel());
        let own = ParallelConfig { mbs: *mbs, ..large.clone() };
        own.mbs <= large.mbs && self.evaluator.have_same_statements(&own, &large).unwrap_or(false)
    }

    fn work(&self, parallel: &ParallelConfig) -> LargeWork {
        self.works.get(self, &LayerConfig::of(parallel))
    }

    fn work_of(&self, config: &LayerConfig) -> LargeWork {
        let parallel = config.parallel();
        let seconds = self.seconds(&parallel);
        LargeWork { seconds, share: self.share(&parallel, seconds) }
    }

    /// Share of these seconds that is a lower bound for all sizes.
    fn share(&self, parallel: &ParallelConfig, seconds: f64) -> f64 {
        if !parallel.has_folded_experts() {
            return 1.0 - LAST_WAVE;
        }
        let whole = self.space.sequence_shardings(&ParallelConfig { ep: 1, etp: 1, ..parallel.clone() });
        let whole = whole.iter().map(|way| self.work(way).seconds).fold(f64::INFINITY, f64::min);
        let factor = if parallel.etp > 1 { OTHER_PATHS_SHARDED } else { OTHER_PATHS };
        f64::min(factor, whole * MOST_OF_UNSHARDED / seconds)
    }

    /// Seconds of all work of a configuration in large micro-batches; 0 if it cannot be planned.
    fn seconds(&self, parallel: &ParallelConfig) -> f64 {
        self.evaluator.work_of(self.large(parallel)).unwrap_or(0.0)
    }

    /// The configuration on one pipeline rank with the largest micro-batches. If the limit allows, their number of sequences
    /// is a multiple of the number of devices, so that all degrees divide it. Nothing is offloaded, since that only takes
    /// longer.
    fn large(&self, parallel: &ParallelConfig) -> ParallelConfig {
        let all = self.space.experts.map_or(1, |[experts, _]| experts.div_ceil(FEW_EXPERTS));
        let experts = parallel.ep.saturating_mul(parallel.etp).max(all);
        let most = MOST_TOKENS / self.space.tokens.saturating_mul(experts).max(1);
        let all = parallel.devices();
        let mbs = match most / all {
            0 => self.batches[self.batches.partition_point(|&batch| batch <= most).saturating_sub(1)],
            times => times * all,
        };
        ParallelConfig { mbs, dp: parallel.dp * parallel.pp, pp: 1, offload: Offload::None, ..parallel.clone() }
    }
}
