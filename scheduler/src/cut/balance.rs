//! Where to cut, by weights alone: the slowest rank as fast as can be, then the slowest stage.
//!
//! Where every rank holds one stage that is exact. Else a cut into equal shares is improved run by run, and a search through
//! all cuts looks for a better one until none is left, or [`STEPS`] have been made. A stage of the first cut is at most a run
//! over its share of the whole, so no rank takes longer than in the best cut by more than the heaviest run for each of its
//! stages; in small pipelines the search ends, and the cut is the best.

/// Steps after which the search takes what it has.
const STEPS: usize = 200_000;

/// The first run of each stage; `on[s]` are the ranks that share the micro-batches of stage s evenly, of so many in all.
pub(super) fn starts(weights: &[u128], on: &[Vec<u32>], ranks: u32) -> Vec<usize> {
    let mut alone: Vec<u32> = on.iter().filter(|ranks| ranks.len() == 1).map(|ranks| ranks[0]).collect();
    alone.sort_unstable();
    alone.dedup();
    if alone.len() == on.len() {
        return chain(weights, on.len());
    }
    let mut search = Search::new(weights, on, ranks);
    search.improve();
    search.all(&mut vec![0], &mut vec![0; ranks as usize], 0);
    search.best
}

/// The slowest rank, in halves of weights; the slowest stage; the sum of squares of both.
type Score = (u128, u128, u128);

struct Search<'a> {
    /// Weight of the runs before each.
    before: Vec<u128>,
    on: &'a [Vec<u32>],
    ranks: usize,
    best: Vec<usize>,
    score: Score,
    steps: usize,
}

impl Search<'_> {
    /// Begins with shares as equal as single cuts can make them.
    fn new<'a>(weights: &[u128], on: &'a [Vec<u32>], ranks: u32) -> Search<'a> {
        let mut before = vec![0];
        before.extend(weights.iter().scan(0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        }));
        let (runs, stages) = (weights.len(), on.len());
        let mut best = vec![0];
        for stage in 1..stages {
            let share = before.partition_point(|&sum| sum * (stages as u128) < before[runs] * stage as u128);
            best.push(share.clamp(best[stage - 1] + 1, runs - (stages - stage)));
        }
        let mut search = Search { before, on, ranks: ranks as usize, best, score: (0, 0, 0), steps: 0 };
        search.score = search.score(&search.best);
        search
    }

    fn weight(&self, from: usize, to: usize) -> u128 {
        self.before[to] - self.before[from]
    }

    /// What a stage of the weight adds to each of its ranks.
    fn part(&self, stage: usize, weight: u128) -> u128 {
        2 * weight / self.on[stage].len() as u128
    }

    fn score(&self, starts: &[usize]) -> Score {
        let ends = starts.iter().skip(1).copied().chain([self.before.len() - 1]);
        let stages: Vec<u128> = starts.iter().zip(ends).map(|(&from, to)| self.weight(from, to)).collect();
        let mut loads = vec![0; self.ranks];
        for (stage, &weight) in stages.iter().enumerate() {
            self.on[stage].iter().for_each(|&rank| loads[rank as usize] += self.part(stage, weight));
        }
        let slowest = |of: &[u128]| of.iter().copied().max().unwrap_or(0);
        (slowest(&loads), slowest(&stages), loads.iter().chain(&stages).map(|weight| weight * weight).sum())
    }

    /// Moves single runs from one stage to another, all between them shifted, as long as that is better.
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

    /// All cuts that go on from `starts`, whose last stage is still open; `loads` and `slowest` are of the closed ones.
    fn all(&mut self, starts: &mut Vec<usize>, loads: &mut Vec<u128>, slowest: u128) {
        let (stage, from, runs) = (starts.len() - 1, starts[starts.len() - 1], self.before.len() - 1);
        let last = stage + 1 == self.on.len();
        let ends = if last { runs..=runs } else { from + 1..=runs - (self.on.len() - stage - 1) };
        for end in ends {
            self.steps += 1;
            let weight = self.weight(from, end);
            let part = self.part(stage, weight);
            self.on[stage].iter().for_each(|&rank| loads[rank as usize] += part);
            let (load, slow) = (loads.iter().copied().max().unwrap_or(0), slowest.max(weight));
            let worse = (load, slow) >= (self.score.0, self.score.1);
            if !worse && last {
                let score = self.score(starts);
                (self.best, self.score) = (starts.clone(), score);
            } else if !worse && self.is_room(loads, end) {
                starts.push(end);
                self.all(starts, loads, slow);
                starts.pop();
            }
            self.on[stage].iter().for_each(|&rank| loads[rank as usize] -= part);
            let full = self.on[stage].iter().any(|&rank| loads[rank as usize] + part > self.score.0);
            if full || self.steps >= STEPS {
                break;
            }
        }
    }

    /// Whether the runs that are left fit on all ranks together if none may be slower than the best cut's slowest.
    fn is_room(&self, loads: &[u128], end: usize) -> bool {
        let room: u128 = loads.iter().map(|&load| self.score.0.saturating_sub(load)).sum();
        2 * self.weight(end, self.before.len() - 1) <= room
    }
}

/// Where each stage has a rank of its own: the smallest slowest stage; among those, the smallest sum of squares; among
/// those, the earliest cuts. Exact, in time stages x runs^2. `best[k][i]` is the least of an objective for the runs from `i`
/// in `k` stages.
fn chain(weights: &[u128], stages: usize) -> Vec<usize> {
    let longest = table(weights, stages, |stage, rest| Some(stage.max(rest)));
    let limit = longest[stages][0].unwrap_or(u128::MAX);
    let squares = table(weights, stages, |stage, rest| (stage <= limit).then_some(stage * stage + rest));
    let mut starts = vec![0];
    for left in (1..stages).rev() {
        let from = starts[starts.len() - 1];
        let mut stage = 0;
        for end in from + 1..=weights.len() - left {
            stage += weights[end - 1];
            let whole = squares[left][end].filter(|_| stage <= limit).map(|rest| stage * stage + rest);
            if whole.is_some() && whole == squares[left + 1][from] {
                starts.push(end);
                break;
            }
        }
    }
    starts
}

fn table(weights: &[u128], stages: usize, join: impl Fn(u128, u128) -> Option<u128>) -> Vec<Vec<Option<u128>>> {
    let runs = weights.len();
    let mut best = vec![vec![None; runs + 1]; stages + 1];
    best[0][runs] = Some(0);
    for count in 1..=stages {
        for from in 0..=runs - count {
            let mut stage = 0;
            for end in from + 1..=runs {
                stage += weights[end - 1];
                let whole = best[count - 1][end].and_then(|rest| join(stage, rest));
                best[count][from] = [best[count][from], whole].into_iter().flatten().min();
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{Pipeline, Placement};

    /// All cuts.
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

    /// The slowest rank in thousandths, and the slowest stage; two chains have half the micro-batches each.
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
                    let ours = starts(&weights, &on, ranks);
                    assert_eq!(slowest(&pipeline, &weights, &ours), best, "{pipeline:?}, {weights:?}: {ours:?}");
                }
            }
        }
    }

    /// Equal layers between a light embedding and a heavy head: the rank of the head has fewer of them.
    #[test]
    fn large_pipelines_stay_within_a_run_per_stage_of_their_share() {
        let weights: Vec<u128> = [3].into_iter().chain([10; 126]).chain([37]).collect();
        for (placement, ranks, chunks) in
            [(Placement::Loop, 16, 4), (Placement::V, 16, 2), (Placement::Bidirectional, 16, 2), (Placement::V, 8, 3)]
        {
            let pipeline = Pipeline { chunks, ..Pipeline::new(placement, ranks, 32) };
            let starts = starts(&weights, &pipeline.owners(), ranks);
            let share = weights.iter().sum::<u128>() as f64 / f64::from(ranks);
            let (rank, stage) = slowest(&pipeline, &weights, &starts);
            assert!(stage >= 37 && rank as f64 / 1e3 >= share);
            assert!(rank as f64 / 1e3 < share + 10.0, "{pipeline:?}: {rank} of {share}, {starts:?}");
        }
    }
}
