//! Partition into stages by numbers alone. The objective is lexicographic: bytes above the memory limit (if there is one),
//! then the slowest rank, then the slowest stage.
//!
//! If every rank has one stage and the result fits the memory limit, the partition is exact. Otherwise a partition into
//! equal shares is improved one block instance at a time. A search through all partitions then looks for a better one. The
//! search ends when none is left or after [`STEPS`] steps.
//!
//! A stage of the first partition exceeds its share of the total by at most one block instance. So no rank is slower than in
//! the best partition by more than the heaviest instance for each of its stages. In small pipelines the search completes,
//! and the partition is optimal.

use std::ops::Range;

/// Number of steps after which the search returns its best partition.
const STEPS: usize = 4_000;

/// Memory budget of the ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryBudget {
    /// Bytes of model states of each block instance.
    pub model_states: Vec<u64>,
    /// Bytes that each block instance saves per micro-batch from its forward to its backward.
    pub saved: Vec<u64>,
    /// Peak number of micro-batches of each stage between their forward and their backward.
    pub in_flight: Vec<u64>,
    /// Memory limit of each rank, in bytes.
    pub limit: u64,
}

/// Returns the first block instance of each stage. `on[s]` are the ranks among which the micro-batches of stage s are split
/// evenly, `ranks` the number of all ranks.
pub(super) fn starts(weights: &[u128], on: &[Vec<u32>], ranks: u32, budget: Option<&MemoryBudget>) -> Vec<usize> {
    let mut alone: Vec<u32> = on.iter().filter(|ranks| ranks.len() == 1).map(|ranks| ranks[0]).collect();
    alone.sort_unstable();
    alone.dedup();
    if alone.len() == on.len() {
        let starts = chain(weights, on.len());
        if Search::new(weights, on, ranks, budget).score(&starts).0 == 0 {
            return starts;
        }
    }
    let mut search = Search::new(weights, on, ranks, budget);
    search.improve();
    search.all(&mut vec![0], &mut vec![RankLoad::default(); ranks as usize], Closed::default());
    search.best
}

/// Score of a partition: most bytes above the limit; slowest rank, in half weights; slowest stage; sum of squares of both.
type Score = (u64, u128, u128, u128);

/// Load of a rank by the stages so far.
#[derive(Clone, Copy, Default)]
struct RankLoad {
    bytes: u64,
    /// Work of the rank, in half weights.
    weight: u128,
}

/// Totals of the stages whose block instances are decided.
#[derive(Clone, Copy, Default)]
struct Closed {
    /// Most bytes above the limit.
    above: u64,
    /// Load of the slowest rank, in half weights.
    load: u128,
    /// Weight of the slowest stage.
    stage: u128,
    /// Sum of all ranks' loads, in half weights.
    loads: u128,
}

struct Search<'a> {
    /// Prefix sums of the weights.
    before: Vec<u128>,
    budget: Option<&'a MemoryBudget>,
    on: &'a [Vec<u32>],
    ranks: usize,
    best: Vec<usize>,
    score: Score,
    steps: usize,
}

impl Search<'_> {
    /// Starts from the partition whose shares are as equal as single splits permit.
    fn new<'a>(weights: &[u128], on: &'a [Vec<u32>], ranks: u32, budget: Option<&'a MemoryBudget>) -> Search<'a> {
        let before = sums(weights);
        let (runs, stages) = (weights.len(), on.len());
        let mut best = vec![0];
        for stage in 1..stages {
            let share = before.partition_point(|&sum| sum * (stages as u128) < before[runs] * stage as u128);
            best.push(share.clamp(best[stage - 1] + 1, runs - (stages - stage)));
        }
        let mut search = Search { before, budget, on, ranks: ranks as usize, best, score: (0, 0, 0, 0), steps: 0 };
        search.score = search.score(&search.best);
        search
    }

    fn weight(&self, runs: Range<usize>) -> u128 {
        self.before[runs.end] - self.before[runs.start]
    }

    /// Returns the load that a stage of these block instances adds to each of its ranks.
    fn part(&self, stage: usize, runs: Range<usize>) -> RankLoad {
        let bytes = self.budget.map_or(0, |budget| {
            let model_states: u64 = budget.model_states[runs.clone()].iter().sum();
            let saved: u64 = budget.saved[runs.clone()].iter().sum();
            model_states + saved * budget.in_flight[stage]
        });
        RankLoad { bytes, weight: 2 * self.weight(runs) / self.on[stage].len() as u128 }
    }

    fn put(&self, loads: &mut [RankLoad], stage: usize, part: RankLoad) {
        for &rank in &self.on[stage] {
            let load = &mut loads[rank as usize];
            *load = RankLoad { bytes: load.bytes + part.bytes, weight: load.weight + part.weight };
        }
    }

    /// Undoes a [put](Search::put).
    fn take(&self, loads: &mut [RankLoad], stage: usize, part: RankLoad) {
        for &rank in &self.on[stage] {
            let load = &mut loads[rank as usize];
            *load = RankLoad { bytes: load.bytes - part.bytes, weight: load.weight - part.weight };
        }
    }

    /// Returns the bytes above the limit.
    fn above(&self, load: &RankLoad) -> u64 {
        self.budget.map_or(0, |budget| load.bytes.saturating_sub(budget.limit))
    }

    fn score(&self, starts: &[usize]) -> Score {
        let stages = super::stage_runs(starts, self.before.len() - 1);
        let mut loads = vec![RankLoad::default(); self.ranks];
        for (stage, runs) in stages.iter().enumerate() {
            self.put(&mut loads, stage, self.part(stage, runs.clone()));
        }
        let ranks = loads.iter().map(|load| load.weight);
        let stages = stages.iter().map(|runs| self.weight(runs.clone()));
        let squares = ranks.clone().chain(stages.clone()).map(|weight| weight * weight).sum();
        let above = loads.iter().map(|load| self.above(load)).max().unwrap_or(0);
        (above, ranks.max().unwrap_or(0), stages.max().unwrap_or(0), squares)
    }

    /// Moves single block instances from one stage to another, and shifts those between, as long as the score improves.
    fn improve(&mut self) {
        let stages = self.on.len();
        let mut pairs = (0..stages).flat_map(|from| (0..stages).map(move |to| (from, to))).collect::<Vec<_>>();
        pairs.retain(|(from, to)| from != to);
        while let Some((starts, score)) =
            pairs.iter().filter_map(|&(from, to)| self.moved(from, to)).min_by_key(|m| m.1)
            && score < self.score
        {
            (self.best, self.score) = (starts, score);
        }
    }

    fn moved(&self, from: usize, to: usize) -> Option<(Vec<usize>, Score)> {
        let mut starts = self.best.clone();
        if from < to {
            starts[from + 1..=to].iter_mut().for_each(|start| *start -= 1);
        } else {
            starts[to + 1..=from].iter_mut().for_each(|start| *start += 1);
        }
        let runs = self.before.len() - 1;
        let whole = starts.windows(2).all(|pair| pair[0] < pair[1]) && starts.last().is_some_and(|&last| last < runs);
        whole.then(|| (self.score(&starts), starts)).map(|(score, starts)| (starts, score))
    }

    /// Returns the totals of `others` and of one more stage, whose load `part` has been added to its ranks.
    fn closed(&self, others: Closed, loads: &[RankLoad], stage: usize, runs: Range<usize>, part: RankLoad) -> Closed {
        let on = &self.on[stage];
        let own = on.iter().map(|&rank| loads[rank as usize]);
        Closed {
            above: own.clone().map(|load| self.above(&load)).fold(others.above, u64::max),
            load: own.map(|load| load.weight).fold(others.load, u128::max),
            stage: others.stage.max(self.weight(runs)),
            loads: others.loads + part.weight * on.len() as u128,
        }
    }

    /// Searches all partitions that extend `starts`, whose last stage is open. `loads` and `others` are those of the decided
    /// stages.
    fn all(&mut self, starts: &mut Vec<usize>, loads: &mut [RankLoad], others: Closed) {
        let (stage, from, runs) = (starts.len() - 1, starts[starts.len() - 1], self.before.len() - 1);
        let last = stage + 1 == self.on.len();
        let ends = if last { runs..=runs } else { from + 1..=runs - (self.on.len() - stage - 1) };
        for end in ends {
            self.steps += 1;
            let part = self.part(stage, from..end);
            self.put(loads, stage, part);
            let closed = self.closed(others, loads, stage, from..end, part);
            let worse = (closed.above, closed.load, closed.stage) >= (self.score.0, self.score.1, self.score.2);
            let full = (closed.above, closed.load) > (self.score.0, self.score.1);
            if !worse && last {
                let score = self.score(starts);
                (self.best, self.score) = (starts.clone(), score);
            } else if !worse && self.may_hold(&closed, end) {
                starts.push(end);
                self.all(starts, loads, closed);
                starts.pop();
            }
            self.take(loads, stage, part);
            // A longer stage is slower and needs more memory.
            if full || self.steps >= STEPS {
                break;
            }
        }
    }

    /// Returns whether the remaining block instances may lead to a better partition: they fit on all ranks together if no rank
    /// is slower than in the best partition. A partition with fewer bytes above the limit may be slower.
    fn may_hold(&self, closed: &Closed, end: usize) -> bool {
        let all = self.score.1 * self.ranks as u128;
        closed.above < self.score.0 || closed.loads + 2 * self.weight(end..self.before.len() - 1) <= all
    }
}

/// Partitions for a pipeline with one stage per rank. Minimises the slowest stage, then the sum of squares, then takes the
/// earliest starts. Exact.
fn chain(weights: &[u128], stages: usize) -> Vec<usize> {
    let before = sums(weights);
    let limit = least_limit(&before, weights, stages);
    let squares = squares(&before, stages, limit);
    let mut starts = vec![0];
    for left in (1..stages).rev() {
        let from = starts[starts.len() - 1];
        for end in from + 1..=weights.len() - left {
            let stage = before[end] - before[from];
            let whole = squares[left][end].filter(|_| stage <= limit).map(|rest| stage * stage + rest);
            if whole.is_some() && whole == squares[left + 1][from] {
                starts.push(end);
                break;
            }
        }
    }
    starts
}

/// Returns the prefix sums of the weights, the total included.
fn sums(weights: &[u128]) -> Vec<u128> {
    let sums = weights.iter().scan(0, |sum, weight| {
        *sum += weight;
        Some(*sum)
    });
    [0].into_iter().chain(sums).collect()
}

/// Returns the least weight limit per stage under which stages that each take as many instances as fit reach the end.
fn least_limit(before: &[u128], weights: &[u128], stages: usize) -> u128 {
    let (runs, total) = (weights.len(), before[weights.len()]);
    let heaviest = weights.iter().max().copied().unwrap_or(0);

    // With a split where the sums pass each equal share, no stage has more than a share and one instance.
    let (mut low, mut high) = (heaviest.max(total.div_ceil(stages as u128)), total / stages as u128 + 1 + heaviest);
    while low < high {
        let middle = low + (high - low) / 2;
        let end = (0..stages).fold(0, |from, _| last_within(before, from, middle));
        if end == runs { high = middle } else { low = middle + 1 }
    }
    high
}

/// Returns the end of the longest stage from an instance whose weight is within the limit.
fn last_within(before: &[u128], from: usize, limit: u128) -> usize {
    before.partition_point(|&sum| sum <= before[from] + limit) - 1
}

/// Returns a table whose entry `[k][i]` is the least sum of squares of the instances from `i` in `k` stages, none above the
/// limit. Entries are computed only if the stages before and after can hold their instances.
fn squares(before: &[u128], stages: usize, limit: u128) -> Vec<Vec<Option<u128>>> {
    let runs = before.len() - 1;
    let mut best = vec![vec![None; runs + 1]; stages + 1];
    best[0][runs] = Some(0);
    for count in 1..=stages {
        let least = before.partition_point(|&sum| sum + count as u128 * limit < before[runs]).max(stages - count);
        let most = before.partition_point(|&sum| sum <= (stages - count) as u128 * limit).min(runs + 1 - count);
        for from in least..most {
            let ends = from + 1..=last_within(before, from, limit);
            let sums = ends.filter_map(|end| Some(best[count - 1][end]? + (before[end] - before[from]).pow(2)));
            best[count][from] = sums.min();
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{Pipeline, Placement};

    /// Returns all partitions.
    fn every(from: usize, stages: usize, runs: usize) -> Vec<Vec<usize>> {
        if stages == 1 {
            return vec![vec![from]];
        }
        let rest = (from + 1..=runs - (stages - 1)).flat_map(|next| every(next, stages - 1, runs));
        rest.map(|starts| [vec![from], starts].concat()).collect()
    }

    fn sums(weights: &[u128], starts: &[usize]) -> Vec<u128> {
        let ends = starts.iter().skip(1).copied().chain([weights.len()]);
        starts.iter().zip(ends).map(|(&s, e)| weights[s..e].iter().sum()).collect()
    }

    fn random(state: &mut u64) -> u128 {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        u128::from(*state >> 61)
    }

    #[test]
    fn cuts_of_a_chain_are_the_best_of_all() {
        let mut state = 7;
        for runs in 1..9 {
            let weights: Vec<u128> = (0..runs).map(|_| random(&mut state)).collect();
            for stages in 1..=runs {
                let score = |starts: &Vec<usize>| {
                    let sums = sums(&weights, starts);
                    (sums.iter().max().copied(), sums.iter().map(|s| s * s).sum::<u128>(), starts.clone())
                };
                let best = every(0, stages, runs).into_iter().min_by_key(score).unwrap();
                assert_eq!(chain(&weights, stages), best, "{weights:?} in {stages}");
            }
        }
    }

    /// Returns the slowest rank, in thousandths, and the slowest stage. Each of two chains has half of the micro-batches.
    fn slowest(pipeline: &Pipeline, weights: &[u128], starts: &[usize]) -> (u128, u128) {
        let mut loads = vec![0; pipeline.ranks as usize];
        for (stage, sum) in sums(weights, starts).into_iter().enumerate() {
            for microbatch in [0, pipeline.microbatches - 1] {
                loads[pipeline.rank(stage as u32, microbatch) as usize] += 500 * sum;
            }
        }
        (loads.into_iter().max().unwrap(), sums(weights, starts).into_iter().max().unwrap())
    }

    #[test]
    fn cuts_of_every_placement_are_the_best_of_all() {
        let mut state = 11;
        for placement in [Placement::Loop, Placement::V, Placement::Bidirectional] {
            for (ranks, chunks) in [(1, 2), (2, 2), (2, 3), (3, 2), (4, 2)] {
                let pipeline = Pipeline { chunks, ..Pipeline::new(placement, ranks, 4) };
                let (stages, on) = (pipeline.stages(), pipeline.owners());
                for runs in stages as usize..=stages as usize + 4 {
                    let weights: Vec<u128> = (0..runs).map(|_| 1 + random(&mut state)).collect();
                    let all = every(0, stages as usize, runs).into_iter();
                    let best = all.map(|starts| slowest(&pipeline, &weights, &starts)).min().unwrap();
                    let ours = starts(&weights, &on, ranks, None);
                    assert_eq!(slowest(&pipeline, &weights, &ours), best, "{pipeline:?}, {weights:?}: {ours:?}");
                }
            }
        }
    }

    /// Returns the most bytes above the limit.
    fn above(pipeline: &Pipeline, budget: &MemoryBudget, starts: &[usize]) -> u64 {
        let mut bytes = vec![0; pipeline.ranks as usize];
        for (stage, owners) in pipeline.owners().iter().enumerate() {
            let end = starts.get(stage + 1).copied().unwrap_or(budget.model_states.len());
            for run in starts[stage]..end {
                let of_run = budget.model_states[run] + budget.in_flight[stage] * budget.saved[run];
                owners.iter().for_each(|&rank| bytes[rank as usize] += of_run);
            }
        }
        bytes.into_iter().max().unwrap().saturating_sub(budget.limit)
    }

    #[test]
    fn cuts_within_memory_are_the_best_of_all() {
        let (mut state, mut bound) = (5, 0);
        for placement in Placement::ALL {
            for ranks in [2, 3] {
                let pipeline = Pipeline::new(placement, ranks, 4);
                let stages = pipeline.stages() as usize;
                for limit in [20, 40, 60] {
                    let runs = stages + 3;
                    let mut some = |count: usize| (0..count).map(|_| 1 + random(&mut state) as u64).collect::<Vec<_>>();
                    let weights: Vec<u128> = some(runs).into_iter().map(u128::from).collect();
                    let budget =
                        MemoryBudget { model_states: some(runs), saved: some(runs), in_flight: some(stages), limit };
                    let score =
                        |starts: &[usize]| (above(&pipeline, &budget, starts), slowest(&pipeline, &weights, starts));
                    let best = every(0, stages, runs).iter().map(|starts| score(starts)).min().unwrap();
                    let ours = starts(&weights, &pipeline.owners(), ranks, Some(&budget));
                    assert_eq!(score(&ours), best, "{pipeline:?}, {weights:?}, {budget:?}: {ours:?}");
                    let free = starts(&weights, &pipeline.owners(), ranks, None);
                    bound += usize::from(best.0 == 0 && above(&pipeline, &budget, &free) > 0);
                }
            }
        }
        assert!(bound > 0, "no limit kept out the fastest partition");
    }

    /// Equal layers between a light embedding and a heavy head: the rank of the head has fewer of them.
    #[test]
    fn large_pipelines_stay_within_a_run_per_stage_of_their_share() {
        let weights: Vec<u128> = [3].into_iter().chain([10; 126]).chain([37]).collect();
        for (placement, ranks, chunks) in
            [(Placement::Loop, 16, 4), (Placement::V, 16, 2), (Placement::Bidirectional, 16, 2), (Placement::V, 8, 3)]
        {
            let pipeline = Pipeline { chunks, ..Pipeline::new(placement, ranks, 32) };
            let starts = starts(&weights, &pipeline.owners(), ranks, None);
            let share = weights.iter().sum::<u128>() as f64 / f64::from(ranks);
            let (rank, stage) = slowest(&pipeline, &weights, &starts);
            assert!(stage >= 37 && rank as f64 / 1e3 >= share);
            assert!(rank as f64 / 1e3 < share + 10.0, "{pipeline:?}: {rank} of {share}, {starts:?}");
        }
    }
}
