//! Pareto frontier of recomputation in a block: which values of the forward are saved for the backward.
//!
//! A saved value costs bytes, and a recomputed step costs seconds. The inputs of a recomputed step must be saved or
//! recomputed too (the integer program of Checkmate, Jain et al. 2020, with each value recomputed at most once). Steps
//! that run together on a machine form a cluster, which has its own seconds per subset.
//!
//! Dynamic program over the steps, from last to first. The state is the set of values of earlier steps that are needed,
//! and the recomputed steps of clusters that are not fully decided. Each state has a Pareto list of bytes and seconds.
//! The result is exact.

use crate::quantities::RecomputeCost;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Options of a step's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// Saved or recomputed.
    Either,
    /// Always saved.
    Keep,
    /// Recomputed, never saved.
    Recompute,
    /// View of the step's inputs, at no cost.
    View,
}

/// Statements that are decided together.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) choice: Choice,
    /// Values that the step produces, and values that it reads.
    pub(crate) makes: Vec<usize>,
    pub(crate) reads: Vec<usize>,
    /// Bytes that the step saves in addition to its values, unless it is recomputed.
    pub(crate) extra: f64,
    /// Cluster number; steps of one cluster run together.
    pub(crate) cluster: usize,
}

/// Forward of a block.
pub(crate) struct Forward<'a> {
    /// Bytes of each value.
    pub(crate) bytes: Vec<f64>,
    /// Steps in order: a step reads values of earlier steps, or inputs.
    pub(crate) steps: Vec<Step>,
    /// Values that the backward reads.
    pub(crate) wanted: Vec<usize>,
    /// Seconds of steps of one cluster, in order.
    pub(crate) seconds: &'a dyn Fn(&[usize]) -> f64,
}

impl Forward<'_> {
    /// Bytes that the backward reads.
    pub(crate) fn whole(&self) -> f64 {
        self.wanted.iter().map(|&value| self.bytes[value]).sum()
    }
}

/// Pareto-optimal choice.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Point {
    pub(crate) bytes: f64,
    pub(crate) seconds: f64,
    /// Recomputed steps, ascending.
    pub(crate) recomputed: Vec<usize>,
}

/// Choice for the steps processed so far.
#[derive(Clone, Copy)]
struct Part {
    bytes: f64,
    seconds: f64,
    /// Last recomputed step, as an index into the tree of choices; 0 if there is none.
    last: usize,
}

impl Part {
    fn cost(&self) -> RecomputeCost {
        RecomputeCost { bytes: self.bytes, seconds: self.seconds }
    }
}

/// Set of undecided values and steps, one bit each.
type State = u128;

/// Bits of a [`State`].
const BITS: usize = 128;

/// Pareto-optimal choices, from the fewest seconds to the fewest bytes; empty if a block needs more than [`BITS`]
/// bits. Choices that save less than `resolution` bytes over a faster choice are dropped, except the smallest. With
/// `resolution` 0 no choice is dropped.
pub(crate) fn best(forward: &Forward<'_>, resolution: f64) -> Vec<Point> {
    let Some(bits) = Bits::of(forward) else { return Vec::new() };
    let mut tree: Vec<(usize, usize)> = vec![(usize::MAX, 0)];
    let mut clusters = Clusters { forward, known: BTreeMap::new() };
    let wanted = forward.wanted.iter().fold(0, |state, &value| state | bits.values[value]);
    let mut states = BTreeMap::from([(wanted, vec![Part { bytes: 0.0, seconds: 0.0, last: 0 }])]);
    for (at, step) in forward.steps.iter().enumerate().rev() {
        let makes: State = step.makes.iter().map(|&value| bits.values[value]).fold(0, |a, b| a | b);
        let reads: State = step.reads.iter().map(|&value| bits.values[value]).fold(0, |a, b| a | b);
        let mut next = Choices { closed: bits.closed[at], states: BTreeMap::new() };
        for (state, parts) in states {
            let kept: f64 =
                step.makes.iter().filter(|&&value| state & bits.values[value] != 0).map(|&it| forward.bytes[it]).sum();
            let left = state & !makes;
            match step.choice {
                _ if state & makes == 0 => next.add(state, plus(&parts, step.extra)),
                Choice::View => next.add(left | reads, plus(&parts, step.extra)),
                Choice::Keep => next.add(left, plus(&parts, kept + step.extra)),
                Choice::Recompute | Choice::Either => {
                    if step.choice == Choice::Either {
                        next.add(left, plus(&parts, kept + step.extra));
                    }
                    let more = clusters.more(at, |other| state & bits.steps[other] != 0);
                    let recomputed = parts.iter().map(|part| {
                        tree.push((at, part.last));
                        Part { seconds: part.seconds + more, last: tree.len() - 1, ..*part }
                    });
                    next.add(left | reads | bits.steps[at], recomputed.collect());
                }
            }
        }
        states = next.states;
        states.values_mut().for_each(|parts| prune(parts, resolution, Part::cost));
    }
    let mut given = vec![true; forward.bytes.len()];
    forward.steps.iter().flat_map(|step| &step.makes).for_each(|&value| given[value] = false);
    let mut all: Vec<Part> = states
        .into_iter()
        .flat_map(|(state, parts)| {
            let kept = (0..given.len()).filter(|&value| given[value] && state & bits.values[value] != 0);
            let bytes: f64 = kept.map(|value| forward.bytes[value]).sum();
            parts.into_iter().map(move |part| Part { bytes: part.bytes + bytes, ..part })
        })
        .collect();
    prune(&mut all, resolution, Part::cost);
    all.iter()
        .map(|part| Point { bytes: part.bytes, seconds: part.seconds, recomputed: recomputed(&tree, part.last) })
        .collect()
}

/// Choices by the state of the values and steps that they leave undecided.
struct Choices {
    /// Bits to clear.
    closed: State,
    states: BTreeMap<State, Vec<Part>>,
}

impl Choices {
    fn add(&mut self, state: State, parts: Vec<Part>) {
        match self.states.entry(state & !self.closed) {
            Entry::Vacant(entry) => drop(entry.insert(parts)),
            Entry::Occupied(mut entry) => entry.get_mut().extend(parts),
        }
    }
}

/// The choices with more bytes.
fn plus(parts: &[Part], bytes: f64) -> Vec<Part> {
    parts.iter().map(|part| Part { bytes: part.bytes + bytes, ..*part }).collect()
}

/// Recomputed steps up to a place of the tree of choices.
fn recomputed(tree: &[(usize, usize)], mut place: usize) -> Vec<usize> {
    let mut steps = Vec::new();
    while place > 0 {
        steps.push(tree[place].0);
        place = tree[place].1;
    }
    steps
}

/// Sorts entries by seconds, and removes those that save less than `resolution` bytes over a faster entry, except the
/// smallest.
pub(crate) fn prune<T>(all: &mut Vec<T>, resolution: f64, cost: impl Fn(&T) -> RecomputeCost) {
    all.sort_by(|a, b| {
        let (a, b) = (cost(a), cost(b));
        a.seconds.total_cmp(&b.seconds).then(a.bytes.total_cmp(&b.bytes))
    });
    let least = all.iter().map(|it| cost(it).bytes).fold(f64::INFINITY, f64::min);
    let mut last = f64::INFINITY;
    all.retain(|it| {
        let RecomputeCost { bytes, .. } = cost(it);
        let is_better = bytes < last - resolution || (bytes == least && least < last);
        last = if is_better { bytes } else { last };
        is_better
    });
}

/// Times of clusters, in seconds.
struct Clusters<'a> {
    forward: &'a Forward<'a>,
    known: BTreeMap<Vec<usize>, f64>,
}

impl Clusters<'_> {
    /// Seconds that a recomputed step adds to later recomputed steps of its cluster.
    fn more(&mut self, at: usize, runs: impl Fn(usize) -> bool) -> f64 {
        let steps = &self.forward.steps;
        let later = (at + 1..steps.len()).filter(|&other| steps[other].cluster == steps[at].cluster && runs(other));
        let later: Vec<usize> = later.collect();
        let with = [at].into_iter().chain(later.iter().copied()).collect();
        self.of(with) - if later.is_empty() { 0.0 } else { self.of(later) }
    }

    fn of(&mut self, steps: Vec<usize>) -> f64 {
        let forward = self.forward;
        *self.known.entry(steps).or_insert_with_key(|steps| (forward.seconds)(steps))
    }
}

/// Takes a free bit, unless one is taken; `None` if none is free.
fn take(bit: &mut State, free: &mut Vec<usize>) -> Option<()> {
    if *bit == 0 {
        *bit = 1 << free.pop()?;
    }
    Some(())
}

/// Bit of each value and step while undecided; bits are reused.
struct Bits {
    values: Vec<State>,
    steps: Vec<State>,
    /// Bits that are cleared after a step.
    closed: Vec<State>,
}

impl Bits {
    fn of(forward: &Forward<'_>) -> Option<Bits> {
        let steps = &forward.steps;
        let mut bits =
            Bits { values: vec![0; forward.bytes.len()], steps: vec![0; steps.len()], closed: vec![0; steps.len()] };
        let mut free: Vec<usize> = (0..BITS).rev().collect();
        for &value in &forward.wanted {
            take(&mut bits.values[value], &mut free)?;
        }
        for (at, step) in steps.iter().enumerate().rev() {
            for &value in &step.reads {
                take(&mut bits.values[value], &mut free)?;
            }
            let mut cluster = (0..steps.len()).filter(|&other| steps[other].cluster == step.cluster);
            if cluster.next() != Some(at) {
                take(&mut bits.steps[at], &mut free)?;
            } else {
                bits.closed[at] = cluster.map(|other| bits.steps[other]).fold(0, |a, b| a | b);
            }
            let made = step.makes.iter().map(|&value| bits.values[value]).fold(0, |a, b| a | b);
            let done = made | bits.closed[at];
            free.extend((0..BITS).filter(|bit| done >> bit & 1 == 1));
        }
        Some(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random and are the same each time (Knuth's MMIX).
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, most: u64) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((self.0 >> 33) % most) as usize
        }
    }

    /// Steps of one or two values each, after two values that are given; now and then two or three neighbours are a cluster.
    fn block(dice: &mut Dice) -> (Vec<f64>, Vec<Step>, Vec<usize>) {
        let (mut bytes, mut steps) = (vec![3.0, 0.0], Vec::<Step>::new());
        for at in 0..4 + dice.below(6) {
            let reads = (0..1 + dice.below(2)).map(|_| dice.below(bytes.len() as u64)).collect();
            let makes: Vec<usize> = (0..1 + dice.below(2)).map(|place| bytes.len() + place).collect();
            bytes.extend(makes.iter().map(|_| dice.below(9) as f64));
            let choice = match dice.below(8) {
                0 => Choice::Keep,
                1 => Choice::Recompute,
                2 => Choice::View,
                _ => Choice::Either,
            };
            let cluster = if at > 0 && dice.below(3) == 0 { steps[at - 1].cluster } else { at };
            steps.push(Step { choice, makes, reads, extra: dice.below(3) as f64, cluster });
        }
        let wanted = (0..bytes.len()).filter(|_| dice.below(2) == 0).collect();
        (bytes, steps, wanted)
    }

    /// Cost of a choice: `run` has a bit for each step that is recomputed if its values are wanted.
    fn taken(forward: &Forward<'_>, run: u32) -> (f64, f64) {
        let mut wanted = forward.wanted.clone();
        let (mut bytes, mut recomputed) = (0.0, vec![false; forward.steps.len()]);
        for (at, step) in forward.steps.iter().enumerate().rev() {
            let made: Vec<usize> = step.makes.iter().copied().filter(|value| wanted.contains(value)).collect();
            let runs = step.choice == Choice::Recompute || (step.choice == Choice::Either && run >> at & 1 == 1);
            recomputed[at] = runs && !made.is_empty();
            if !made.is_empty() && (runs || step.choice == Choice::View) {
                wanted.extend(&step.reads);
            } else {
                bytes += made.iter().map(|&value| forward.bytes[value]).sum::<f64>();
            }
            bytes += if recomputed[at] { 0.0 } else { step.extra };
        }
        bytes +=
            [0, 1].into_iter().filter(|value| wanted.contains(value)).map(|value| forward.bytes[value]).sum::<f64>();
        let of = |cluster: usize| -> Vec<usize> {
            (0..recomputed.len()).filter(|&at| recomputed[at] && forward.steps[at].cluster == cluster).collect()
        };
        let clusters = (0..recomputed.len()).map(of).filter(|steps| !steps.is_empty());
        (bytes, clusters.map(|steps| (forward.seconds)(&steps)).sum())
    }

    /// The best of all choices of small blocks are those that are found.
    #[test]
    fn no_choice_is_left_out() {
        let mut dice = Dice(1);
        let mut sizes = Vec::new();
        for _ in 0..400 {
            let (bytes, steps, wanted) = block(&mut dice);
            let salt = dice.below(1 << 20);
            // Together they take less than each by itself.
            let seconds = |steps: &[usize]| {
                let each = steps.iter().map(|&at| 2.0 + ((salt >> at) % 7) as f64).sum::<f64>();
                each - 0.5 * (steps.len() as f64 - 1.0).powi(2).min(2.0)
            };
            let forward = Forward { bytes, steps, wanted, seconds: &seconds };
            let mut all: Vec<(f64, f64)> = (0..1 << forward.steps.len()).map(|run| taken(&forward, run)).collect();
            all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.total_cmp(&b.0)));
            let mut least = f64::INFINITY;
            all.retain(|&(bytes, _)| {
                let is_better = bytes < least;
                least = least.min(bytes);
                is_better
            });
            let rough = best(&forward, 1.5);
            for &(bytes, seconds) in &all {
                let near = |point: &Point| {
                    point.bytes <= bytes + 1.5 * (forward.steps.len() + 1) as f64 && point.seconds <= seconds
                };
                assert!(rough.iter().any(near), "{bytes} {seconds}: {rough:?}");
            }
            assert_eq!(rough.last().map(|point| point.bytes), all.last().map(|it| it.0));
            let found = best(&forward, 0.0);
            let figures: Vec<(f64, f64)> = found.iter().map(|point| (point.bytes, point.seconds)).collect();
            assert_eq!(figures, all);
            for point in &found {
                let run = point.recomputed.iter().map(|&at| 1 << at).sum();
                assert_eq!(taken(&forward, run), (point.bytes, point.seconds));
            }
            sizes.push(found.len());
        }
        assert!(sizes.iter().any(|&size| size > 6), "{sizes:?}");
    }

    #[test]
    fn a_block_that_is_too_wide_has_no_answer() {
        let forward =
            Forward { bytes: vec![1.0; 200], steps: Vec::new(), wanted: (0..200).collect(), seconds: &|_| 0.0 };
        assert_eq!(best(&forward, 0.0), []);
    }
}
