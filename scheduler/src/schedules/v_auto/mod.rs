//! The schedule V-auto: a search over building blocks.

mod cool_down;
mod fill;
mod warm_up;

use super::ScheduleError;
use super::zb_v_greedy::V;
use crate::block::{self, BlockRow, PERIOD, Pass, ends, first_slots, peak, relabel_weights, repeat, squeeze};
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use crate::problem::Patience;
use Pass::*;
use ir::schedule::{Kind, Schedule};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

/// The adaptive V (arXiv 2405.15362, appendix A). The candidates are all building blocks whose peak memory the limit allows,
/// and the order of [zb-v-greedy](super::zb_v_greedy). The result has the least span under the stages' costs.
///
/// In a block, slots modulo 6, rank 0 runs F of chunk 0 in slot 0, and F of chunk 1 and the two I in three others. Each W takes
/// the first free slot after its I. From rank to rank F of chunk 0 and I of chunk 1 move on by k slots, the others by -1; k
/// changes once, to a smaller one. A block is repeated and squeezed, warm-up and cool-down are rebuilt, and the remaining gaps
/// are filled. Without a limit each rank may hold 2p chunk activations; more is not used.
///
/// Two ranks, three micro-batches, f = i = w; stages 0 and 3 on rank 0:
/// ```text
/// rank 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 0I1 3W2 0I2 0W1 0W2
/// rank 1  1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 1I1 2I2 1I2 2W1 1W1 2W2 1W2
/// ```
pub(super) fn v_auto(
    costs: &StageCosts,
    pipeline: &Pipeline,
    patience: &Patience<'_>,
) -> Result<Schedule, ScheduleError> {
    let v = V::new(costs, pipeline)?;
    let (span, greedy) = v.best();
    (patience.log)(&format!("v-auto: span {span} by zb-v-greedy"));
    let best =
        v.best_of_blocks(patience).filter(|(least, _)| *least <= span + v.epsilon).map_or(greedy, |(_, rows)| rows);
    Ok(block::schedule("v-auto", &best, false))
}

/// Slots of all rows that each of the two phases fills without a deadline: about ten seconds of work.
const MOST_SLOTS: usize = 100_000_000;

/// Number of building blocks between two lines of progress.
const TOLD_EVERY: u64 = 64;

/// Slots of each rank's passes, modulo the period.
type Block = Vec<[usize; PERIOD]>;

/// Parameters of a block.
#[derive(Clone, Copy)]
struct Seed {
    /// Slots of rank 0: F of chunk 0, F of chunk 1, I of chunk 1, I of chunk 0.
    slots: [usize; 4],
    steps: Steps,
}

/// Steps of F of chunk 0 from rank to rank.
#[derive(Clone, Copy)]
struct Steps {
    /// Step on the first ranks.
    first: usize,
    /// Step afterwards.
    then: usize,
    /// Number of the first ranks.
    length: usize,
}

/// Yields the seeds of all blocks of `ranks` ranks, and the blocks. Blocks of many ranks are too large to store.
fn blocks(ranks: usize) -> impl Iterator<Item = (Seed, Block)> {
    let slots = 1..PERIOD;
    let firsts = slots.clone().flat_map(move |f1| {
        let slots = slots.clone();
        slots.clone().flat_map(move |i1| slots.clone().map(move |i0| [0, f1, i1, i0]))
    });
    let firsts = firsts.filter(|[_, f1, i1, i0]| f1 != i1 && f1 != i0 && i1 != i0);
    let steps = (1..PERIOD).flat_map(move |first| {
        (1..=first).flat_map(move |then| {
            let lengths = if first == then { 1..2 } else { 1..ranks };
            lengths.map(move |length| Steps { first, then, length })
        })
    });
    let steps: Vec<_> = steps.collect();
    let mut seen = HashSet::new();
    let seeds = firsts.flat_map(move |slots| steps.clone().into_iter().map(move |steps| Seed { slots, steps }));
    let all = seeds.filter_map(move |seed| Some((seed, block(seed, ranks)?)));
    all.filter(move |(_, block)| seen.insert([0, 1].map(|salt| fingerprint(salt, block))))
}

/// Hashes a block. Two hashes with different salts are both equal for two different blocks with a chance of 2^-128.
fn fingerprint(salt: u64, block: &Block) -> u64 {
    let mut hasher = DefaultHasher::new();
    (salt, block).hash(&mut hasher);
    hasher.finish()
}

/// Builds the block of a seed. Returns `None` if passes meet.
fn block(seed: Seed, ranks: usize) -> Option<Block> {
    let Seed { mut slots, steps } = seed;
    let mut block = vec![with_weights(slots)?];
    for rank in 0..ranks.saturating_sub(1) {
        let step = if rank < steps.length { steps.first } else { steps.then };
        let moved = [slots[0] + step, slots[1] + PERIOD - 1, slots[2] + step, slots[3] + PERIOD - 1];
        slots = moved.map(|slot| slot % PERIOD);
        block.push(with_weights(slots)?);
    }
    Some(block)
}

/// Adds the W of a rank to its F and I, each in the first free slot after its I.
fn with_weights(slots: [usize; 4]) -> Option<[usize; PERIOD]> {
    let mut taken = [false; PERIOD];
    for slot in slots {
        if std::mem::replace(&mut taken[slot], true) {
            return None;
        }
    }
    let w1 = take_free(&mut taken, slots[I1 as usize])?;
    let w0 = take_free(&mut taken, slots[I0 as usize])?;
    Some([slots[0], slots[1], slots[2], slots[3], w1, w0])
}

/// Takes the first free slot from `from` on, modulo the period.
fn take_free(taken: &mut [bool], from: usize) -> Option<usize> {
    let free = (from..from + PERIOD).map(|slot| slot % PERIOD).find(|&slot| !taken[slot])?;
    taken[free] = true;
    Some(free)
}

/// Converts a block to rows of all micro-batches. Returns `None` if more than `most` chunk activations are held, the rows
/// deadlock, or the deadline has passed.
fn rows(block: &Block, microbatches: usize, most: i32, patience: &Patience<'_>) -> Option<Vec<BlockRow>> {
    let ranks = block.len();
    let enough = microbatches.max(2 * ranks); // the warm-up relies on this number
    let rows = patience.unless_over(repeat(&first_slots(block), enough))?;
    let mut limit = highest(&rows);
    if limit > 2 * ranks as i32 || microbatches == enough && limit > most {
        return None;
    }
    let rows = patience.unless_over(squeeze(&rows)?)?;
    let rows = squeeze(&patience.unless_over(warm_up::rebuilt(rows, enough))?)?;
    let held = highest(&rows);
    let mut rows = Some(rows).filter(|_| held <= limit)?;
    if microbatches < enough {
        rows.iter_mut().for_each(|row| keep(row, microbatches));
        if microbatches <= ranks && 2 * microbatches as i32 <= most {
            warm_up::release_weights(&mut rows, held.min(2 * ranks as i32));
        }
        rows = squeeze(&rows)?;
        limit = highest(&rows);
        if limit > most {
            return None;
        }
    }
    let mut rows = patience.unless_over(cool_down::rebuilt(rows, microbatches)?)?;
    fill::fill(&mut rows);
    rows.iter_mut().for_each(relabel_weights);
    let whole = rows.iter().all(|row| row.iter().flatten().count() == PERIOD * microbatches);
    (whole && highest(&rows) <= limit).then_some(rows)
}

fn highest(rows: &[BlockRow]) -> i32 {
    rows.iter().map(peak).max().unwrap_or(0)
}

/// Removes the passes of later micro-batches.
fn keep(row: &mut BlockRow, microbatches: usize) {
    let mut count = [0; PERIOD];
    for slot in row {
        *slot = slot.filter(|&pass| {
            count[pass as usize] += 1;
            count[pass as usize] <= microbatches
        });
    }
}

impl V<'_> {
    /// Returns the least span of any block and its rows, or `None` if none fits.
    ///
    /// Above 2p, each further micro-batch takes a rank at least the time of its passes. So all blocks are evaluated with 2p
    /// first, and with all micro-batches in the order of these spans, until the rest cannot be better. The first phase may take
    /// half of the time. Without a deadline each phase ends when its rows have filled [`MOST_SLOTS`].
    fn best_of_blocks(&self, patience: &Patience<'_>) -> Option<(f64, Vec<BlockRow>)> {
        let few = self.microbatches.min(2 * self.ranks);
        let half = patience.deadline.map(|deadline| {
            let now = Instant::now();
            now + deadline.saturating_duration_since(now) / 2
        });
        let first = if few < self.microbatches { Patience { deadline: half, ..*patience } } else { *patience };
        let tried = (1..).zip(blocks(self.ranks)).take_while(|&(number, _)| self.goes_on(number, few, &first));
        let spans = tried.filter_map(|(number, (seed, block))| {
            if number.is_multiple_of(TOLD_EVERY) {
                (patience.log)(&format!("v-auto: {number} building blocks tried"));
            }
            Some((self.span(&rows(&block, few, self.chunks(), &first)?)?, seed))
        });
        let mut tried: Vec<(f64, Seed)> = spans.collect();
        tried.sort_by(|a, b| a.0.total_cmp(&b.0));
        let work = (0..self.ranks).map(|rank| Pass::ALL.iter().map(|&pass| self.seconds(rank, pass)).sum::<f64>());
        let least_more = (self.microbatches - few) as f64 * work.fold(0.0, f64::max);
        let mut best: Option<(f64, Vec<BlockRow>)> = None;
        for (number, (span, seed)) in (1..).zip(tried) {
            if best.as_ref().is_some_and(|(least, _)| span + least_more >= least - self.epsilon)
                || !self.goes_on(number, self.microbatches, patience)
            {
                break;
            }
            let rows =
                block(seed, self.ranks).and_then(|block| rows(&block, self.microbatches, self.chunks(), patience));
            if let Some(rows) = rows.filter(|rows| self.allows(rows))
                && let Some(span) = self.span(&rows)
                && best.as_ref().is_none_or(|(least, _)| span < least - self.epsilon)
            {
                best = Some((span, rows));
            }
        }
        best
    }

    /// Returns whether the block of this number may be evaluated with these micro-batches.
    fn goes_on(&self, number: u64, microbatches: usize, patience: &Patience<'_>) -> bool {
        let slots = self.ranks * microbatches.max(2 * self.ranks) * PERIOD;
        let most = (MOST_SLOTS / slots.max(1)).max(1) as u64;
        let goes_on = if patience.deadline.is_some() { !patience.is_over() } else { number <= most };
        if !goes_on {
            patience.stop();
        }
        goes_on
    }

    /// Returns the largest number of chunk activations that a rank's limit allows, at most 2p.
    fn chunks(&self) -> i32 {
        let allowed = (0..self.ranks).map(|rank| {
            let least = self.memory(rank, F0).min(self.memory(rank, F1));
            (self.limit[rank] / least + 1e-6).floor() as i32
        });
        allowed.max().unwrap_or(0).min(2 * self.ranks as i32)
    }

    /// Returns whether each rank stays within its limit.
    fn allows(&self, rows: &[BlockRow]) -> bool {
        rows.iter().enumerate().all(|(rank, row)| {
            let mut held = 0.0;
            row.iter().flatten().all(|&pass| {
                held += self.memory(rank, pass);
                pass.kind() != Kind::F || self.fits(rank, held)
            })
        })
    }

    /// Returns the longest time of a rank from its first start to its last end, or `None` if the rows deadlock.
    fn span(&self, rows: &[BlockRow]) -> Option<f64> {
        let ends = ends(rows, |rank, pass| self.seconds(rank, pass), |stage| self.costs.comm[stage])?;
        let spans = ends
            .iter()
            .enumerate()
            .filter_map(|(rank, ends)| Some(ends.last()? - (ends.first()? - self.seconds(rank, F0))));
        Some(spans.fold(0.0, f64::max))
    }
}
