//! The best orders against all orders: an exhaustive search of tiny problems that shares no code with the engines.

use meshwright_scheduler::check::check;
use meshwright_scheduler::costs::StageCosts;
use meshwright_scheduler::optimal::Answer;
use meshwright_scheduler::placement::{Pipeline, Placement};
use meshwright_scheduler::problem::{Backward, Objective, Problem};
use meshwright_scheduler::schedules::solve;

/// F, and B or I and W, of a stage and a micro-batch: 0, 1, 2.
type Job = (usize, usize, usize);

/// All orders of a problem, by depth first search; operations are appended in the order of their starts, so that each
/// order comes once.
struct Exhaustive<'a> {
    problem: &'a Problem<'a>,
    stages: usize,
    microbatches: usize,
    kinds: usize,
    /// End of each job done.
    end: Vec<Option<f64>>,
    /// For each rank: first start, when it is free, what it holds.
    ranks: Vec<(Option<f64>, f64, f64)>,
    best: Option<f64>,
}

impl<'a> Exhaustive<'a> {
    fn best(problem: &'a Problem<'a>) -> Option<f64> {
        let (stages, microbatches) = (problem.pipeline.stages() as usize, problem.pipeline.microbatches as usize);
        let kinds = if problem.backward == Backward::Fused { 2 } else { 3 };
        let end = vec![None; kinds * stages * microbatches];
        let ranks = vec![(None, 0.0, 0.0); problem.pipeline.ranks as usize];
        let mut search = Exhaustive { problem, stages, microbatches, kinds, end, ranks, best: None };
        search.go(0.0, 0);
        search.best
    }

    fn at(&self, (kind, stage, microbatch): Job) -> usize {
        (kind * self.stages + stage) * self.microbatches + microbatch
    }

    fn rank(&self, stage: usize, microbatch: usize) -> usize {
        self.problem.pipeline.rank(stage as u32, microbatch as u32) as usize
    }

    fn seconds(&self, (kind, stage, _): Job) -> f64 {
        let costs = self.problem.costs;
        match (kind, self.kinds) {
            (0, _) => costs.f[stage],
            (1, 2) => costs.i[stage] + costs.w[stage],
            (1, _) => costs.i[stage],
            _ => costs.w[stage],
        }
    }

    /// When all that a job needs has arrived; `None` if something has not been done.
    fn arrival(&self, (kind, stage, microbatch): Job) -> Option<f64> {
        let mut needs = Vec::new();
        if self.problem.objective == Objective::Span && !self.in_turn((kind, stage, microbatch)) {
            return None;
        }
        match kind {
            0 if stage > 0 => needs.push((0, stage - 1, microbatch)),
            0 => {}
            1 => {
                needs.push((0, stage, microbatch));
                needs.extend((stage + 1 < self.stages).then_some((1, stage + 1, microbatch)));
            }
            _ => needs.push((1, stage, microbatch)),
        }
        needs.into_iter().try_fold(0.0_f64, |latest, need| {
            let far = self.rank(need.1, microbatch) != self.rank(stage, microbatch);
            let hop = if far { self.problem.costs.comm[stage.min(need.1)] } else { 0.0 };
            Some(latest.max(self.end[self.at(need)]? + hop))
        })
    }

    /// True if the micro-batches before, of the same direction, have been done.
    fn in_turn(&self, (kind, stage, microbatch): Job) -> bool {
        let rank = self.rank(stage, microbatch);
        (0..microbatch)
            .all(|before| self.rank(stage, before) != rank || self.end[self.at((kind, stage, before))].is_some())
    }

    fn job(&self, at: usize) -> Job {
        (at / self.microbatches / self.stages, at / self.microbatches % self.stages, at % self.microbatches)
    }

    /// Jobs of a rank that are left.
    fn left(&self, rank: usize) -> impl Iterator<Item = Job> {
        let left = (0..self.end.len()).filter(|&at| self.end[at].is_none()).map(|at| self.job(at));
        left.filter(move |&(_, stage, microbatch)| self.rank(stage, microbatch) == rank)
    }

    fn go(&mut self, since: f64, from_rank: usize) {
        if self.end.iter().all(Option::is_some) {
            let value = self.value();
            self.best = Some(self.best.map_or(value, |best| best.min(value)));
            return;
        }
        for rank in 0..self.ranks.len() {
            let left: Vec<Job> = self.left(rank).collect();
            for &job in &left {
                self.append(&[job], self.seconds(job), (since, from_rank));
            }
            let Some(pair) = self.problem.costs.fb.filter(|_| self.problem.backward != Backward::Split) else {
                continue;
            };
            for &forward in left.iter().filter(|job| job.0 == 0) {
                for &backward in left.iter().filter(|job| job.0 == 1) {
                    let weights = (2, backward.1, backward.2);
                    let all = [forward, backward, weights];
                    self.append(&all[..self.kinds], pair, (since, from_rank));
                }
            }
        }
    }

    /// Goes on with one job, or with those of an overlapped pair: F, and B or I and W.
    fn append(&mut self, jobs: &[Job], seconds: f64, since: (f64, usize)) {
        let first = &jobs[..jobs.len().min(2)];
        let Some(arrivals) = first.iter().map(|&job| self.arrival(job)).collect::<Option<Vec<f64>>>() else { return };
        let (rank, costs) = (self.rank(jobs[0].1, jobs[0].2), self.problem.costs);
        let before = self.ranks[rank];
        let start = arrivals.into_iter().fold(before.1, f64::max);
        let held = before.2 + if jobs[0].0 == 0 { costs.mem_f[jobs[0].1] } else { 0.0 };
        let limit = costs.limit.as_ref().map_or(f64::INFINITY, |limit| limit[rank]);
        if held > limit || (start, rank) < since {
            return;
        }
        let freed = jobs.iter().map(|&(kind, stage, _)| match (kind, self.kinds) {
            (0, _) => 0.0,
            (1, 2) => costs.mem_f[stage],
            (1, _) => costs.mem_i[stage],
            _ => costs.mem_w[stage],
        });
        let (end, freed) = (start + seconds, freed.sum::<f64>());
        for &job in jobs {
            let at = self.at(job);
            self.end[at] = Some(end);
        }
        self.ranks[rank] = (before.0.or(Some(start)), end, held - freed);
        if self.best.is_none_or(|best| self.least(rank) < best) {
            self.go(start, rank);
        }
        for &job in jobs {
            let at = self.at(job);
            self.end[at] = None;
        }
        self.ranks[rank] = before;
    }

    /// Lower bound on the value, from the work left on a rank. Each F may be in a pair.
    fn least(&self, rank: usize) -> f64 {
        let pairs = self.problem.costs.fb.is_some() && self.problem.backward != Backward::Split;
        let alone: f64 = self.left(rank).map(|job| self.seconds(job)).sum();
        let most = |kinds: &[usize]| {
            let all = (0..self.stages).map(|stage| kinds.iter().map(|&kind| self.seconds((kind, stage, 0))).sum());
            all.fold(0.0, f64::max)
        };
        let gain = most(&[0]) + most(&[1, 2][..self.kinds - 1]) - self.problem.costs.fb.unwrap_or(0.0);
        let forwards = self.left(rank).filter(|job| job.0 == 0).count() as f64;
        let less = if pairs { forwards * gain.max(0.0) } else { 0.0 };
        self.ranks[rank].1 + alone - less - self.origin(rank)
    }

    fn origin(&self, rank: usize) -> f64 {
        if self.problem.objective == Objective::Span { self.ranks[rank].0.unwrap_or(0.0) } else { 0.0 }
    }

    fn value(&self) -> f64 {
        (0..self.ranks.len()).map(|rank| self.ranks[rank].1 - self.origin(rank)).fold(0.0, f64::max)
    }
}

/// Numbers from a seed: xorshift (Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn list(&mut self, length: usize, from: u64, most: u64) -> Vec<f64> {
        (0..length).map(|_| (from + self.below(most)) as f64).collect()
    }
}

/// Small enough for all orders: at most four stages in all, few micro-batches.
fn problem(numbers: &mut Numbers) -> (StageCosts, Pipeline, Objective, Backward) {
    let placement = Placement::ALL[numbers.below(4) as usize];
    let backward = [Backward::Fused, Backward::Split][numbers.below(2) as usize];
    let most = match (placement, backward) {
        (Placement::Chain, Backward::Fused) => 3,
        (Placement::Bidirectional, _) | (_, Backward::Fused) => 2,
        (Placement::Chain, _) => 3,
        _ => 2,
    };
    let pipeline = Pipeline::new(placement, 2, 1 + numbers.below(most) as u32);
    let stages = pipeline.stages() as usize;
    let (mem_i, mem_w) = (numbers.list(stages, 0, 3), numbers.list(stages, 0, 3));
    let costs = StageCosts {
        unit: "s".into(),
        f: numbers.list(stages, 1, 5),
        i: numbers.list(stages, 1, 5),
        w: numbers.list(stages, 0, 5),
        comm: numbers.list(stages - 1, 0, 3),
        fb: None,
        mem_f: mem_i.iter().zip(&mem_w).map(|(i, w)| i + w).collect(),
        mem_i,
        mem_w,
        limit: (numbers.below(4) > 0).then(|| numbers.list(2, 2, 9)),
    };
    let objective = [Objective::Makespan, Objective::Span][numbers.below(2) as usize];
    (costs, pipeline, objective, backward)
}

fn right(answer: &Answer, problem: &Problem, best: f64, seed: u64) {
    let violations = check(&answer.schedule, problem.costs, problem.pipeline.microbatches, |stage, microbatch| {
        problem.pipeline.rank(stage, microbatch)
    });
    assert!(violations.is_empty(), "seed {seed}: {violations:?}");
    let (bound, value) = (answer.bound, answer.value);
    assert!(
        answer.deterministic && bound <= best && best <= value,
        "seed {seed}: {bound} <= {best} <= {value}? {problem:?}"
    );
    // Where two chains meet, the bound allows a rank to start later than it can.
    let sure = problem.pipeline.placement != Placement::Bidirectional || problem.objective == Objective::Makespan;
    assert!(answer.optimal || !sure, "seed {seed}: {value} of {best}, bound {bound}: {problem:?}");
    assert!(!answer.optimal || value == best, "seed {seed}: {value} for {best}");
}

/// Compares with all orders; how many problems have an order, are proved, and have none.
fn compare(seeds: std::ops::RangeInclusive<u64>, mut change: impl FnMut(&mut Numbers, &mut StageCosts)) -> [u32; 3] {
    let [mut found, mut optimal, mut none] = [0; 3];
    for seed in seeds {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut costs, pipeline, objective, backward) = problem(&mut numbers);
        change(&mut numbers, &mut costs);
        let backward = if costs.fb.is_some() && backward == Backward::Split { Backward::Auto } else { backward };
        let problem = Problem { costs: &costs, pipeline: &pipeline, objective, backward, deadline: None };
        match (solve(&problem, &|_| {}), Exhaustive::best(&problem)) {
            (Ok(answer), Some(best)) => {
                right(&answer, &problem, best, seed);
                found += 1;
                optimal += u32::from(answer.optimal);
            }
            (Err(why), None) => {
                assert!(why.least > why.limit, "seed {seed}: {why}");
                none += 1;
            }
            (answer, best) => panic!("seed {seed}: {answer:?}, but all orders give {best:?}"),
        }
    }
    [found, optimal, none]
}

#[test]
fn no_order_is_better() {
    let [found, optimal, none] = compare(1..=150, |_, _| ());
    assert!(optimal + 5 > found && found > 90 && none > 5, "{found} have an order, {optimal} proved, {none} have none");
}

#[test]
fn no_order_with_overlapped_pairs_is_better() {
    let [found, optimal, none] = compare(1000..=1150, |numbers, costs| costs.fb = Some((1 + numbers.below(12)) as f64));
    assert!(optimal + 5 > found && found > 90 && none > 5, "{found} have an order, {optimal} proved, {none} have none");
}

fn unit(
    placement: Placement,
    ranks: u32,
    microbatches: u32,
    [f, i, w]: [f64; 3],
    limit: f64,
) -> (StageCosts, Pipeline) {
    let pipeline = Pipeline::new(placement, ranks, microbatches);
    let limit = Some(vec![limit; ranks as usize]);
    let whole = StageCosts::uniform(pipeline.stages(), f, i, w, 0.0);
    // An activation is saved until W.
    let (mem_i, mem_w) = (vec![0.0; whole.f.len()], whole.mem_f.clone());
    (StageCosts { mem_i, mem_w, limit, ..whole }, pipeline)
}

/// Cases in which published schedules lose or do not exist: ZB-V needs the memory of 2p stages, DualPipe takes 26 and 132 (run with the
/// authors' code).
#[test]
fn better_than_what_is_published() {
    let cases = [
        (unit(Placement::V, 2, 4, [1., 1., 1.], 2.), 33.0),
        (unit(Placement::V, 3, 4, [1., 1., 1.], 3.), 36.0),
        (unit(Placement::Bidirectional, 4, 8, [1., 1., 1.], 5.), 25.0),
        (unit(Placement::Bidirectional, 4, 8, [5., 6., 4.], 5.), 125.0),
    ];
    for ((costs, pipeline), best) in cases {
        let (objective, backward, deadline) = (Objective::Makespan, Backward::Auto, None);
        let problem = Problem { costs: &costs, pipeline: &pipeline, objective, backward, deadline };
        let answer = solve(&problem, &|_| {}).expect("there is room for one micro-batch");
        assert_eq!((answer.value, answer.bound, answer.optimal), (best, best, true), "{pipeline:?}");
    }
}

#[test]
fn a_deadline_ends_the_search_with_what_there_is() {
    let (mut costs, pipeline) = unit(Placement::V, 4, 8, [5., 6., 4.], 6.);
    let (objective, deadline) = (Objective::Makespan, Some(std::time::Instant::now()));
    for (backward, pair) in [(Backward::Split, None), (Backward::Auto, Some(11.))] {
        costs.fb = pair;
        let problem = Problem { costs: &costs, pipeline: &pipeline, objective, backward, deadline };
        let answer = solve(&problem, &|_| {}).expect("there is room for one micro-batch");
        assert!(!answer.deterministic && answer.bound <= answer.value);
        assert_eq!(answer.optimal, answer.bound == answer.value);
    }
}

#[test]
fn costs_without_a_common_unit_are_rounded_and_still_met() {
    let (costs, pipeline) = unit(Placement::Chain, 3, 5, [2_f64.sqrt(), 3_f64.sqrt(), 0.7], 3.);
    for objective in [Objective::Makespan, Objective::Span] {
        let (backward, deadline) = (Backward::Split, None);
        let problem = Problem { costs: &costs, pipeline: &pipeline, objective, backward, deadline };
        let answer = solve(&problem, &|_| {}).expect("there is room for one micro-batch");
        assert!(answer.optimal && answer.bound <= answer.value, "{} of {}", answer.bound, answer.value);
    }
}
