//! Critical path: the chain of actions that determines a step's end. Under other times, the same order takes at least as long
//! as this chain takes under those times.

use ir::schedule::{Action, Kind};
use scheduler::simulate::Simulation;

/// The chain, as how often each stage runs on it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct CriticalPath {
    /// The rank on which it ends.
    pub(super) rank: usize,
    /// How often the F, I and W of each stage are on it.
    pub(super) runs: Vec<[f64; 3]>,
    /// How often it goes from a stage to the next, or back.
    pub(super) hops: Vec<f64>,
}

impl CriticalPath {
    /// The chain that ends last in a simulation of so many stages with these seconds between them, whose actions are of a
    /// slice of a sequence each.
    pub(super) fn of(run: &Simulation<'_>, stages: usize, hops: &[f64], slices: f64) -> CriticalPath {
        let times = 1.0 / slices;
        let mut path = CriticalPath {
            rank: run.critical_path().next().map_or(0, |last| run.action(last).0),
            runs: vec![[0.0; 3]; stages],
            hops: vec![0.0; stages.saturating_sub(1)],
        };
        for at in run.critical_path() {
            path.add(run.action(at).1, times);
            // Where two things arrive, the later one counts.
            if let Some(hop) = run.hops(at).max_by(|&a, &b| hops[a].total_cmp(&hops[b])) {
                path.hops[hop] += times;
            }
        }
        path
    }

    pub(super) fn add(&mut self, action: &Action, times: f64) {
        for item in action.items() {
            let Some(stage) = item.stage.map(|stage| stage as usize) else { continue };
            let [f, i, w] = &mut self.runs[stage];
            match item.kind {
                Kind::F => *f += times,
                Kind::I => *i += times,
                Kind::W => *w += times,
                Kind::B => (*i, *w) = (*i + times, *w + times),
                _ => {}
            }
        }
    }

    /// The chain so many rounds later, if `more` is that of one; none if a round is not the same each time.
    pub(super) fn further(&self, more: &CriticalPath, rounds: f64) -> Option<CriticalPath> {
        if self.rank != more.rank {
            return None;
        }
        let at = |few: &f64, more: &f64| (more >= few).then(|| few + (more - few) * rounds);
        let runs = self
            .runs
            .iter()
            .zip(&more.runs)
            .map(|(few, more)| Some([at(&few[0], &more[0])?, at(&few[1], &more[1])?, at(&few[2], &more[2])?]));
        let hops = self.hops.iter().zip(&more.hops).map(|(few, more)| at(few, more));
        Some(CriticalPath { rank: self.rank, runs: runs.collect::<Option<_>>()?, hops: hops.collect::<Option<_>>()? })
    }

    /// Seconds of it where the F, I and W of each stage, and the hops, take so many.
    pub(super) fn seconds(&self, stages: &[[f64; 3]], hops: &[f64]) -> f64 {
        let runs = self
            .runs
            .iter()
            .zip(stages)
            .map(|(runs, seconds)| runs.iter().zip(seconds).map(|(a, b)| a * b).sum::<f64>());
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

    /// For each schedule with a fixed order: its chain takes exactly the time of the step, and under other times no longer.
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
            let each = |costs: &StageCosts| -> Vec<[f64; 3]> {
                (0..stages).map(|stage| [costs.f[stage], costs.i[stage], costs.w[stage]]).collect()
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
