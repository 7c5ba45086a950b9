//! Time of a step: the last gradient reduction, the optimizer update after it, and a breakdown of the step's seconds.

use super::ordered_stages::OrderedStages;
use super::pipeline::Rank;
use super::quantities::{PerSection, StageRuns};
use super::replicas::{Exchange, Replicas};
use super::report::TimeShares;
use super::stages::{StageCost, plus};
use cost::{CollectiveKind, Elements, Group, Passes, Platform, Seconds};
use ir::options::ParallelConfig;

/// Time of a step.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Step {
    /// Seconds of the step.
    pub(super) seconds: f64,
    /// Breakdown of the seconds on the busiest rank.
    pub(super) shares: TimeShares,
}

impl OrderedStages<'_> {
    /// Time of the step, if the reduction of shared parameters' gradients takes `tied` seconds.
    ///
    /// The norm of the gradients synchronises all ranks before the update. The slowest update ends the step. All devices wait for
    /// the slowest device and, if devices share cores, for a core.
    pub(super) fn step(&self, tied: f64) -> Step {
        let OrderedStages { parallel, replicas: Replicas { platform, .. }, loads, flow, .. } = *self;
        let after = self.after(flow.ranks.iter().map(|rank| Own::of(rank, loads)));
        let ranks = || flow.ranks.iter().zip(&after);
        let end = |(rank, after): (&Rank, &After)| rank.end + after.exchange.reduce;
        let summed = ranks().map(end).fold(0.0, f64::max);
        let updated = after.iter().map(After::update).fold(0.0, f64::max);
        let work = summed + tied + updated;
        let fixed = platform.fixed();
        let path = (work + fixed) * platform.stragglers(parallel.devices());
        let each = (parallel.devices() / parallel.pp.max(1)) as f64;
        let all = ranks().map(|(rank, after)| each * (rank.busy() + rank.messages + after.work()));
        // A core computes for one device at a time.
        let seconds = platform.cluster.cores.map_or(path, |cores| path.max(all.sum::<f64>() / cores as f64 + fixed));
        let work_of = |(rank, after): (&Rank, &After)| rank.busy() + after.work();
        let busier = |a, b| if work_of(b) > work_of(a) { b } else { a };
        let busiest = ranks().reduce(busier).expect("a pipeline has ranks");
        let (rank, after) = busiest;
        let mut shares = shares(rank, loads);
        shares.dp += after.exchange.reduce + after.exchange.gather + tied;
        shares.optimizer = after.optimizer;
        shares.host += after.host;
        shares.bubble += summed - end(busiest) + updated - after.update();
        shares.cores = seconds - path;
        shares.other = path - work;
        Step { seconds, shares }
    }

    /// Lower bound on the work after the last backwards, over all times of the backwards.
    pub(super) fn least_after(&self) -> LeastAfter {
        let compute = Passes { forward: f64::INFINITY, backward: f64::INFINITY };
        let ranks = self.after(self.flow.ranks.iter().map(|rank| Own { compute, ..Own::of(rank, self.loads) }));
        let update = ranks.iter().map(After::update).fold(0.0, f64::max);
        LeastAfter { reduce: ranks.iter().map(|after| after.exchange.reduce).collect(), update }
    }

    /// Work of each rank after its last backward. Most ranks equal the rank before them.
    fn after(&self, ranks: impl Iterator<Item = Own>) -> Vec<After> {
        let mut last: Option<(Own, After)> = None;
        let after = |own: Own| match last {
            Some((same, after)) if same == own => after,
            _ => last.insert((own, After::of(own, self.parallel, self.replicas))).1,
        };
        ranks.map(after).collect()
    }
}

/// Lower bound on the work after the last backwards.
pub(super) struct LeastAfter {
    /// Seconds of each rank's gradient reduction.
    pub(super) reduce: Vec<f64>,
    /// Seconds of the update.
    pub(super) update: f64,
}

/// The quantities of a rank that its work after the last backward depends on.
#[derive(Clone, Copy, PartialEq)]
struct Own {
    /// Parameter elements before ZeRO.
    elements: Elements,
    /// Number of trained parameters.
    tensors: usize,
    /// Seconds of a micro-batch that may hide collectives.
    compute: Passes,
}

impl Own {
    fn of(rank: &Rank, loads: &[StageCost]) -> Own {
        let own = || rank.stages.iter().map(|it| &loads[it.stage]);
        let seconds = || own().map(StageCost::seconds);
        Own {
            elements: own().map(|load| load.elements).sum(),
            tensors: own().map(|load| load.tensors).sum(),
            compute: Passes {
                forward: seconds().map(|seconds| seconds.f).sum(),
                backward: seconds().map(|seconds| seconds.i + seconds.w).sum(),
            },
        }
    }
}

/// Work of a rank after its last backward.
#[derive(Clone, Copy)]
struct After {
    exchange: Exchange,
    optimizer: f64,
    /// Seconds in which the update waits for states to come from host memory, or to go there.
    host: f64,
}

impl After {
    fn of(own: Own, parallel: &ParallelConfig, replicas: &Replicas<'_>) -> After {
        let Own { elements, tensors, compute } = own;
        let updated = if parallel.zero > 0 { elements.trained / replicas.parts() } else { elements.trained };
        let optimizer = optimizer(updated.total(), replicas.platform);
        After {
            exchange: replicas.exchange(elements, tensors, compute),
            optimizer,
            host: if replicas.offloads_states { waits(updated.total(), optimizer, replicas.platform) } else { 0.0 },
        }
    }

    fn work(&self) -> f64 {
        self.exchange.reduce + self.update()
    }

    fn update(&self) -> f64 {
        self.optimizer + self.host + self.exchange.gather
    }
}

/// Seconds of the optimizer update of some trained elements. It reads gradients twice (for the norm, and for the update), reads and
/// writes master copies and states, and writes parameters: 34 bytes per element in mixed precision with AdamW. Temporary f32
/// copies of the states are written and read twice.
pub(super) fn optimizer(elements: f64, platform: &Platform<'_>) -> f64 {
    let recipe = platform.recipe;
    let parameter = if recipe.master > 0.0 { recipe.parameter } else { 2.0 * recipe.parameter };
    let states = 2.0 * (recipe.master + recipe.states) + 4.0 * recipe.widened;
    platform.copy(elements * (2.0 * recipe.gradient + states + parameter))
}

/// Seconds that the update of some trained elements takes longer if their states are in host memory. Copies both ways overlap with the
/// update and with each other: of states that come and go, or of gradients and parameters where the host updates. The host reads
/// and writes its states, reads gradients and writes parameters, at its share of the node's bandwidth.
fn waits(elements: f64, optimizer: f64, platform: &Platform<'_>) -> f64 {
    let Platform { cluster, recipe, .. } = *platform;
    let states = elements * (recipe.master + recipe.states);
    if !platform.stack.traits.zero.updates_on_host {
        return (cluster.host_copy(states as u64) - optimizer).max(0.0);
    }
    let copied = elements * recipe.gradient.max(recipe.parameter);
    let touched = 2.0 * states + elements * (recipe.gradient + recipe.parameter);
    let share = cluster.host.and_then(|host| Some(host.bandwidth? / host.devices as f64));
    let update = share.map_or(0.0, |share| touched / share);
    (update.max(cluster.host_copy(copied as u64)) - optimizer).max(0.0)
}

/// Seconds of reducing the gradients of parameters that the first and the last stage share.
pub(super) fn tied(elements: f64, parallel: &ParallelConfig, platform: &Platform<'_>) -> f64 {
    let stride = super::place::stride(parallel, "pp") * (parallel.pp - 1);
    platform.collective_time(
        CollectiveKind::AllReduce,
        elements * platform.recipe.comm_gradient,
        Group { ranks: 2, stride },
    )
}

/// Breakdown of a rank's seconds up to its last backward.
fn shares(rank: &Rank, loads: &[StageCost]) -> TimeShares {
    let (mut own, mut recomputed) = (Seconds::default(), Seconds::default());
    let (mut shards, mut messages) = (0.0, 0.0);
    for &StageRuns { stage, runs: PerSection { f, i, w } } in &rank.stages {
        let load = &loads[stage];
        own = plus(plus(plus(own, &load.f, f), &load.i, i), &load.w, w);
        recomputed = plus(recomputed, &load.recomputed, i);
        shards += f * load.shards.forward + i * load.shards.backward;
        messages += (f + i) * load.messages;
    }
    TimeShares {
        gemm: own.gemm,
        attention: own.attention,
        memory_bound: own.memory_bound,
        recompute: recomputed.gemm + recomputed.attention + recomputed.memory_bound + recomputed.launch,
        tp: own.tp + recomputed.tp,
        cp: own.cp + recomputed.cp,
        ep: own.ep + recomputed.ep,
        dp: shards,
        p2p: messages + rank.idle.latency,
        bubble: rank.idle.dependency + rank.idle.memory,
        optimizer: 0.0,
        launch: own.launch,
        host: own.host,
        cores: 0.0,
        other: 0.0,
    }
}
