//! From the parts to a step: the last rank to reduce its gradients, the optimizer update after it, and a breakdown of the
//! step's seconds.

use super::ordered_stages::OrderedStages;
use super::pipeline::Rank;
use super::replicas::{Exchange, Replicas};
use super::report::TimeShares;
use super::stages::{StageCost, plus};
use cost::{CollectiveKind, Group, Platform, Seconds};
use ir::options::ParallelConfig;

/// A step in time.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Step {
    /// From its begin to its end.
    pub(super) seconds: f64,
    /// Parts of the step on the rank that ends last.
    pub(super) shares: TimeShares,
}

impl OrderedStages<'_> {
    /// The step, if it takes so many seconds to sum `tied` gradients. The norm of the gradients joins all ranks before the
    /// update; after it each updates what it holds, and the slowest ends the step. Devices differ, and all wait for the slowest;
    /// and where they share cores, they wait for these.
    pub(super) fn step(&self, tied: f64) -> Step {
        let OrderedStages { parallel, replicas: Replicas { platform, .. }, loads, flow } = *self;
        let after = self.after(flow.ranks.iter().map(|rank| Own::of(rank, loads)));
        let ends = || flow.ranks.iter().zip(&after).map(|(rank, after)| rank.end + after.exchange.reduce);
        let (last, summed) = ends().enumerate().fold((0, 0.0), |most, at| if at.1 > most.1 { at } else { most });
        let updated = after.iter().map(After::update).fold(0.0, f64::max);
        let work = summed + tied + updated;
        let fixed = platform.fixed();
        let path = (work + fixed) * platform.stragglers(parallel.devices());
        let each = (parallel.devices() / parallel.pp.max(1)) as f64;
        let all =
            flow.ranks.iter().zip(&after).map(|(rank, after)| each * (rank.busy() + rank.messages + after.work()));
        // However many devices work at once, a core does the work of one at a time.
        let seconds = platform.cluster.cores.map_or(path, |cores| path.max(all.sum::<f64>() / cores as f64 + fixed));
        let mut shares = shares(&flow.ranks[last], loads);
        shares.dp += after[last].exchange.reduce + after[last].exchange.gather + tied;
        shares.optimizer = after[last].optimizer;
        shares.bubble += updated - after[last].update();
        shares.cores = seconds - path;
        shares.other = path - work;
        Step { seconds, shares }
    }

    /// Lower bound on the time after the last backwards, for any times of these.
    pub(super) fn least_after(&self) -> LeastAfter {
        let ranks = self.after(self.flow.ranks.iter().map(|rank| Own::of(rank, self.loads).beside([f64::INFINITY; 2])));
        let update = ranks.iter().map(After::update).fold(0.0, f64::max);
        LeastAfter { reduce: ranks.iter().map(|after| after.exchange.reduce).collect(), update }
    }

    /// Time after the last backward of each rank; most equal the one before.
    fn after(&self, ranks: impl Iterator<Item = Own>) -> Vec<After> {
        let mut last: Option<(Own, After)> = None;
        let of = |own: Own| match last {
            Some((same, after)) if same == own => after,
            _ => last.insert((own, After::of(own, self.parallel, self.replicas))).1,
        };
        ranks.map(of).collect()
    }
}

/// Lower bound on the time after the last backwards.
pub(super) struct LeastAfter {
    /// Seconds in which each rank's gradients are summed.
    pub(super) reduce: Vec<f64>,
    /// Seconds of the update.
    pub(super) update: f64,
}

/// Figures of a rank's stages that determine the time after its last backward.
#[derive(Clone, Copy, PartialEq)]
struct Own {
    /// Elements of dense parameters and of experts.
    elements: [f64; 2],
    /// How many parameters there are.
    tensors: usize,
    /// Seconds of a forward and of a backward.
    beside: [f64; 2],
}

impl Own {
    fn of(rank: &Rank, loads: &[StageCost]) -> Own {
        let own = || rank.stages.iter().map(|(stage, _)| &loads[*stage]);
        let seconds = || own().map(StageCost::seconds);
        Own {
            elements: [own().map(|load| load.dense).sum(), own().map(|load| load.experts).sum()],
            tensors: own().map(|load| load.tensors).sum(),
            beside: [seconds().map(|[f, ..]| f).sum(), seconds().map(|[_, i, w]| i + w).sum()],
        }
    }

    /// The same beside so many seconds of a forward and a backward.
    fn beside(self, beside: [f64; 2]) -> Own {
        Own { beside, ..self }
    }
}

/// Time after a rank's last backward.
#[derive(Clone, Copy)]
struct After {
    exchange: Exchange,
    optimizer: f64,
}

impl After {
    fn of(own: Own, parallel: &ParallelConfig, replicas: &Replicas<'_>) -> After {
        let Own { elements, tensors, beside: [forward, backward] } = own;
        let [dense, experts] = replicas.parts();
        let cut = parallel.zero > 0;
        let local = if cut { elements[0] / dense + elements[1] / experts } else { elements[0] + elements[1] };
        After {
            exchange: replicas.exchange(elements, tensors, forward, backward),
            optimizer: optimizer(local, replicas.platform),
        }
    }

    fn work(&self) -> f64 {
        self.exchange.reduce + self.update()
    }

    fn update(&self) -> f64 {
        self.optimizer + self.exchange.gather
    }
}

/// Seconds of an update of so many elements: gradients are read for the norm and again, master copies and states are read
/// and written, parameters written; 34 bytes of an element in mixed precision with AdamW. Copies of the states in f32 are
/// written, read, written and read once more.
pub(super) fn optimizer(elements: f64, platform: &Platform<'_>) -> f64 {
    let recipe = platform.recipe;
    let parameter = if recipe.master > 0.0 { recipe.parameter } else { 2.0 * recipe.parameter };
    let states = 2.0 * (recipe.master + recipe.states) + 4.0 * recipe.widened;
    platform.copy(elements * (2.0 * recipe.gradient + states + parameter))
}

/// Seconds in which the first and the last stage sum the gradients of parameters that both hold.
pub(super) fn tied(elements: f64, parallel: &ParallelConfig, platform: &Platform<'_>) -> f64 {
    let stride = super::place::stride(parallel, "pp") * (parallel.pp - 1);
    platform.collective_time(CollectiveKind::AllReduce, elements * platform.recipe.wire, Group { ranks: 2, stride })
}

/// Parts of a rank's time until its last backward ends.
fn shares(rank: &Rank, loads: &[StageCost]) -> TimeShares {
    let (mut own, mut again) = (Seconds::default(), Seconds::default());
    let (mut shards, mut messages) = (0.0, 0.0);
    for (stage, [f, i, w]) in &rank.stages {
        let load = &loads[*stage];
        own = plus(plus(plus(own, &load.f, *f), &load.i, *i), &load.w, *w);
        again = plus(again, &load.again, *i);
        shards += f * load.shards[0] + i * load.shards[1];
        messages += (f + i) * load.messages;
    }
    TimeShares {
        gemm: own.gemm,
        attention: own.attention,
        memory_bound: own.memory_bound,
        recompute: again.gemm + again.attention + again.memory_bound + again.launch,
        tp: own.tp + again.tp,
        cp: own.cp + again.cp,
        ep: own.ep + again.ep,
        dp: shards,
        p2p: messages + rank.idle.latency,
        bubble: rank.idle.dependency + rank.idle.memory,
        optimizer: 0.0,
        launch: own.launch,
        cores: 0.0,
        other: 0.0,
    }
}
