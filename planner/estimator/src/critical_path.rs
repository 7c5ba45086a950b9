//! Critical path: the chain of actions that determines a step's end. Under other times, a step in the same order takes at least
//! as long as this chain.

use super::quantities::PerSection;
use ir::schedule::{Action, Kind};
use scheduler::simulate::Simulation;

/// A chain of actions, counted by stage.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct CriticalPath {
    /// Rank of its last action.
    pub(super) rank: usize,
    /// Number of F, I and W of each stage on the chain.
    pub(super) runs: Vec<PerSection>,
    /// Number of hops between each stage and the next, in either direction.
    pub(super) hops: Vec<f64>,
}

impl CriticalPath {
    /// Chain that ends last in a simulation; `hops` are the seconds between stages, and `slices` the actions per micro-batch.
    pub(super) fn of(run: &Simulation<'_>, stages: usize, hops: &[f64], slices: f64) -> CriticalPath {
        let times = 1.0 / slices;
        let mut path = CriticalPath {
            rank: run.critical_path().next().map_or(0, |last| run.action(last).0),
            runs: vec![PerSection::default(); stages],
            hops: vec![0.0; stages.saturating_sub(1)],
        };
        for at in run.critical_path() {
            path.add(run.action(at).1, times);
            // Of two arrivals, the later one counts.
            if let Some(hop) = run.hops(at).max_by(|&a, &b| hops[a].total_cmp(&hops[b])) {
                path.hops[hop] += times;
            }
        }
        path
    }

    pub(super) fn add(&mut self, action: &Action, times: f64) {
        for item in action.items() {
            let Some(stage) = item.stage.map(|stage| stage as usize) else { continue };
            let PerSection { f, i, w } = &mut self.runs[stage];
            match item.kind {
                Kind::F => *f += times,
                Kind::I => *i += times,
                Kind::W => *w += times,
                Kind::B => (*i, *w) = (*i + times, *w + times),
                _ => {}
            }
        }
    }

    /// Extrapolates by a number of rounds; `more` is the chain with one round more. Returns `None` if rounds differ.
    pub(super) fn further(&self, more: &CriticalPath, rounds: f64) -> Option<CriticalPath> {
        if self.rank != more.rank {
            return None;
        }
        let at = |few: f64, more: f64| (more >= few).then_some(few + (more - few) * rounds);
        let runs = self.runs.iter().zip(&more.runs).map(|(few, more)| {
            Some(PerSection { f: at(few.f, more.f)?, i: at(few.i, more.i)?, w: at(few.w, more.w)? })
        });
        let hops = self.hops.iter().zip(&more.hops).map(|(&few, &more)| at(few, more));
        Some(CriticalPath { rank: self.rank, runs: runs.collect::<Option<_>>()?, hops: hops.collect::<Option<_>>()? })
    }

    /// Seconds of the chain if sections and hops take these seconds.
    pub(super) fn seconds(&self, stages: &[PerSection], hops: &[f64]) -> f64 {
        let runs = self.runs.iter().zip(stages).map(|(&runs, &seconds)| (runs * seconds).total());
        runs.sum::<f64>() + self.hops.iter().zip(hops).map(|(times, seconds)| times * seconds).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::options::ParallelConfig;
    use scheduler::costs::StageCosts;
    use scheduler::predict::pipeline_of;
    use scheduler::simulate::DependencyGraph;

    /// For schedules with a fixed order, the chain takes as long as the step. Under other times it takes no longer than the step.
    #[test]
    fn a_chain_is_as_long_as_its_step_and_no_longer_than_another() {
        for schedule in ["1f1b", "gpipe", "zb-h1", "interleaved-1f1b", "interleaved-zb", "dualpipe", "zb-v"] {
            let parallel = ParallelConfig {
                pp: 4,
                vp: schedule.starts_with("inter").then_some(2),
                schedule: schedule.into(),
                ..ParallelConfig::default()
            };
            let (kind, pipeline) = pipeline_of(&parallel, 12).unwrap();
            let stages = pipeline.stages() as usize;
            let costs = |slow: usize| {
                let mut costs = StageCosts::uniform(stages as u32, 1.0, 1.3, 0.8, 0.1);
                costs.i[slow] *= 1.7;
                costs.comm[slow.min(stages - 2)] *= 3.0;
                costs
            };
            let each = |costs: &StageCosts| -> Vec<PerSection> {
                let of = |stage| PerSection { f: costs.f[stage], i: costs.i[stage], w: costs.w[stage] };
                (0..stages).map(of).collect()
            };
            let wiring = DependencyGraph::of(&kind.make(&costs(0), &pipeline).unwrap(), stages).unwrap();
            for slow in 0..stages {
                let path = CriticalPath::of(&wiring.run(&costs(slow)), stages, &costs(slow).comm, 1.0);
                for other in 0..stages {
                    let (costs, end) = (costs(other), wiring.run(&costs(other)).makespan());
                    let chain = path.seconds(&each(&costs), &costs.comm);
                    assert!(chain <= end * (1.0 + 1e-9), "{schedule} {slow} {other}: {chain} {end}");
                    assert!(slow != other || (chain / end - 1.0).abs() < 1e-9, "{schedule} {slow}: {chain} {end}");
                }
            }
        }
    }
}
