//! Branch and bound, what promises most first.
//!
//! Families wait in a heap. A round takes as many as [`ROUND`] of the best (at first more, or fewer), whatever the number of
//! threads, cuts each into parts and bounds these, or prices it if it is a single layout; then what was found is noted in the
//! order of the round. So answer and counts do not depend on threads. A family is dropped when its bound is above the worst
//! layout that is still wanted, or above the memory that there is; with neither, every layout is priced.
//!
//! Some layouts are gone through first (`region`): they are few, and what is found among them rules out most of the rest.

use super::best::{Best, Ranked};
use super::cores::each;
use super::region::Region;
use super::space::Space;
use super::{Bound, Family, Level, Limits, Oracle, Price};
use ir::goal::Layout;
use std::collections::BinaryHeap;

/// Families of a round.
const ROUND: usize = 64;

/// Families of a round that have no bound yet: what is found of some rules out none of the others, so that cores need not wait
/// for each other.
const FIRST_ROUND: usize = 4096;

/// Families of a round while no layout is known that fits: nothing is ruled out until one is.
const DIVE: usize = 16;

/// The bound of a family that has not been looked at.
const UNKNOWN: f64 = f64::NEG_INFINITY;

/// Bounds are sums in another order than prices: they count as this much less.
const ROUNDING: f64 = 1e-9;

/// A layout with fewer bytes by less than this has as many when they are rounded.
const NEARLY_HALF: f64 = 0.499;

/// What is looked for.
pub struct Task<'a> {
    /// How many layouts are wanted.
    pub wanted: usize,
    /// Bytes that a device has; none: any layout will do.
    pub memory: Option<f64>,
    /// Whether the least memory is wanted, and not the least time.
    pub by_memory: bool,
    /// Whether nothing is ruled out by a bound.
    pub exhaustive: bool,
    /// What is known already: seconds, or bytes where these are to be small, above which nothing is of use.
    pub below: f64,
    /// The share by which another layout must be better than those that are found to be looked for.
    pub gap: f64,
    /// A layout around which alone is looked, and around what is found there as long as that is better; none: everywhere.
    pub around: Option<Layout>,
    /// Told after each round.
    pub progress: &'a mut dyn FnMut(Progress),
}

/// What is known so far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Layouts priced.
    pub candidates: u64,
    /// Families that wait.
    pub open: usize,
    /// The best value so far.
    pub best: Option<f64>,
}

/// What was found.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The best layouts, the best first.
    pub best: Vec<Ranked>,
    /// Layouts priced.
    pub candidates: u64,
    /// Whether nothing is left that could be better.
    pub finished: bool,
}

/// A family that waits: the least guess first, then the deepest, then the oldest.
struct Waiting {
    /// On what is to be small.
    bound: f64,
    /// The bound, with what it is likely to grow by.
    guess: f64,
    known: Bound,
    number: u64,
    family: Family,
}

impl Waiting {
    fn new(bound: f64, known: Bound, number: u64, family: Family) -> Waiting {
        // The less is decided, the further is the best of a family from its bound: so a layout to compare with is found early.
        let grows = match family.level {
            Level::Devices | Level::Degrees | Level::Axes | Level::Ways | Level::Batch => 1.15,
            Level::Pipeline => 1.02,
            _ => 1.0,
        };
        Waiting { bound, guess: bound * grows, known, number, family }
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        let deeper = self.family.level.cmp(&other.family.level);
        other.guess.total_cmp(&self.guess).then(deeper).then(other.number.cmp(&self.number))
    }
}

/// What a round goes by.
#[derive(Clone, Copy)]
struct Look<'a> {
    best: &'a Best,
    memory: Option<f64>,
    by_memory: bool,
    exhaustive: bool,
    /// The value above which nothing is of use.
    threshold: f64,
    /// Whether no layout is known that fits, though the usual ones have been gone through: perhaps none does.
    is_doubted: bool,
    stop: &'a (dyn Fn() -> bool + Send + Sync),
}

/// Finds the best layouts of the families of a space: first among the usual ones, then near the best that is known as long as
/// there is a better one, then among all.
pub fn search(space: &Space, roots: &[Family], oracle: &impl Oracle, mut task: Task<'_>) -> Outcome {
    let mut known = Known { best: Best::new(task.wanted, task.by_memory), candidates: 0 };
    let mut gone: Vec<Region> = Vec::new();
    // What is known rules out as much as what would be found first.
    let is_known = task.below.is_finite();
    let mut next = match &task.around {
        Some(centre) => Region::near(centre),
        None if task.exhaustive || is_known => Region::All,
        None => Region::Usual,
    };
    let skips_shown = task.by_memory && !task.exhaustive;
    loop {
        // What has been priced is not priced again.
        let is_new = |part: &Family| part.level < Level::One || !gone.iter().any(|region| region.holds(space, part));
        let is_needless = |part: &Family| skips_shown && space.shows(&part.layout);
        let is_next = |part: &Family| next.holds(space, part) && is_new(part) && !is_needless(part);
        let families = roots.iter().filter(|family| is_next(family)).cloned().collect();
        let parts = |family: &Family| space.parts(family).into_iter().filter(is_next).collect();
        let pass = Pass { parts: &parts, is_first: gone.is_empty(), stop: &*space.stop };
        let finished = go_through(families, &pass, oracle, &mut task, &mut known);
        let is_all = next == Region::All;
        gone.push(next);
        let near = known.best.first().map(|best| Region::near(&best.layout));
        let rest = if task.around.is_some() { Region::Usual } else { Region::All };
        let open = near.into_iter().chain([rest]).find(|region| !gone.contains(region));
        match open.filter(|_| finished && !is_all) {
            Some(region) => next = region,
            None => {
                let Known { best, candidates } = known;
                return Outcome { best: best.ranked(), candidates, finished: finished && is_all };
            }
        }
    }
}

/// What is known so far.
struct Known {
    best: Best,
    candidates: u64,
}

/// What a family is made of.
type Parts<'a> = dyn Fn(&Family) -> Vec<Family> + Sync + 'a;

/// A way through some families.
struct Pass<'a> {
    parts: &'a Parts<'a>,
    /// Whether none went before.
    is_first: bool,
    stop: &'a (dyn Fn() -> bool + Send + Sync),
}

/// Goes through families until none is left that could be better; says whether it came so far.
fn go_through(
    families: Vec<Family>,
    pass: &Pass<'_>,
    oracle: &impl Oracle,
    task: &mut Task<'_>,
    known: &mut Known,
) -> bool {
    let (mut heap, mut number) = (BinaryHeap::new(), 0);
    let Pass { parts, is_first, stop } = *pass;
    for family in families {
        number += 1;
        heap.push(Waiting::new(UNKNOWN, Bound { seconds: 0.0, bytes: 0.0 }, number, family));
    }
    let Task { memory, by_memory, exhaustive, below, gap, .. } = *task;
    while !heap.is_empty() {
        let Known { best, candidates } = known;
        let threshold = if exhaustive { f64::INFINITY } else { (best.threshold() * (1.0 - gap)).min(below) };
        let most = if exhaustive || threshold.is_finite() { ROUND } else { DIVE };
        let round = round(&mut heap, most, threshold);
        let is_doubted = memory.is_some() && !by_memory && !exhaustive && !is_first && best.first().is_none();
        let look = Look { best, memory, by_memory, exhaustive, threshold, is_doubted, stop };
        let asked: Vec<Vec<Question>> = each(&round, |waiting| look.questions(parts, waiting));
        let answers = look.answers(oracle, &asked.iter().flatten().collect::<Vec<&Question>>());
        for (Question { family, is_priced, .. }, answer) in asked.into_iter().flatten().zip(answers) {
            *candidates += u64::from(is_priced);
            match answer {
                Some(Answer::Bound(bound, known)) => {
                    number += 1;
                    heap.push(Waiting::new(bound, known, number, family));
                }
                Some(Answer::Price(price)) if memory.is_none_or(|memory| price.bytes <= memory) => {
                    best.offer(Ranked { layout: family.layout, price });
                }
                _ => {}
            }
        }
        let value = |ranked: &Ranked| if by_memory { ranked.price.bytes } else { ranked.price.seconds };
        (task.progress)(Progress { candidates: *candidates, open: heap.len(), best: best.first().map(value) });
        // What was asked after the stop has no answer.
        if stop() {
            return false;
        }
    }
    !stop()
}

/// The next families whose bound is not above the threshold: so many at most, or of those that have none [`FIRST_ROUND`].
fn round(heap: &mut BinaryHeap<Waiting>, most: usize, threshold: f64) -> Vec<Waiting> {
    let are_new = heap.peek().is_some_and(|next| next.bound == UNKNOWN);
    let most = if are_new { FIRST_ROUND } else { most };
    let mut round = Vec::new();
    while round.len() < most
        && let Some(next) = heap.pop()
    {
        if next.bound <= threshold {
            round.push(next);
        }
    }
    round
}

/// What a round asks.
struct Question {
    family: Family,
    /// What is known of a larger family.
    known: Bound,
    /// Whether a price is asked for, not a bound.
    is_priced: bool,
}

enum Answer {
    /// On what is to be small, and all that is known.
    Bound(f64, Bound),
    Price(Price),
}

impl Look<'_> {
    /// What is asked of a family that waits.
    fn questions(&self, parts: &Parts<'_>, waiting: &Waiting) -> Vec<Question> {
        let Waiting { family, known, bound, .. } = waiting;
        let known = *known;
        if !self.exhaustive && self.best.threshold_of(family) < *bound {
            return Vec::new();
        }
        if *bound == UNKNOWN || family.level == Level::One {
            return vec![Question { family: family.clone(), known, is_priced: *bound != UNKNOWN }];
        }
        parts(family).into_iter().map(|family| Question { family, known, is_priced: false }).collect()
    }

    /// What is answered to each. Prices take longest: no core is to begin one when the others are through, nor two those of the
    /// same pipeline, which would wait for each other's.
    fn answers(&self, oracle: &impl Oracle, asked: &[&Question]) -> Vec<Option<Answer>> {
        let mut order: Vec<usize> = (0..asked.len()).collect();
        order.sort_by_key(|&at| {
            let Question { family: Family { layout, .. }, is_priced, .. } = asked[at];
            let pipeline = (&layout.schedule, layout.pp, layout.mbs, &layout.stages);
            (!is_priced, is_priced.then_some(pipeline))
        });
        let mut answers: Vec<Option<Answer>> = asked.iter().map(|_| None).collect();
        let answer = |&at: &usize| if (self.stop)() { None } else { self.answer(oracle, asked[at]) };
        for (&at, answer) in order.iter().zip(each(&order, answer)) {
            answers[at] = answer;
        }
        answers
    }

    /// The price, or the bound of a family that can be, that has room and that may be of use.
    fn answer(&self, oracle: &impl Oracle, Question { family, known, is_priced }: &Question) -> Option<Answer> {
        let limits = if self.by_memory {
            Limits { seconds: f64::INFINITY, bytes: None }
        } else {
            Limits { seconds: self.threshold, bytes: self.memory }
        };
        if *is_priced {
            return oracle.price(&family.layout, limits).map(Answer::Price);
        }
        let Bound { seconds, bytes } = oracle.bound(family, *known, limits)?;
        // What holds for a family holds for its parts.
        let found = Bound { seconds: seconds.max(known.seconds), bytes: bytes.max(known.bytes) };
        let bound = (if self.by_memory { found.bytes } else { found.seconds }) * (1.0 - ROUNDING);
        let fits = has_room(found.bytes, self.memory);
        let is_of_use =
            || fits && bound.is_finite() && bound <= self.threshold && self.best.threshold_of(family) >= bound;
        let is_ruled_out = || self.has_no_room(oracle, family, found) || self.is_beaten(oracle, family, found);
        (self.exhaustive || is_of_use() && !is_ruled_out()).then_some(Answer::Bound(bound, found))
    }

    /// Whether none of a family has room, where it is doubted that any layout has: bounds on time say little of memory.
    fn has_no_room(&self, oracle: &impl Oracle, family: &Family, known: Bound) -> bool {
        let limits = Limits { seconds: f64::INFINITY, bytes: None };
        let least = || oracle.bound(family, known, limits).map(|bound| bound.bytes);
        self.is_doubted && least().is_none_or(|bytes| !has_room(bytes, self.memory))
    }

    /// Whether none of a family, which needs as much memory as the layout that it must beat, is better by what falls next.
    fn is_beaten(&self, oracle: &impl Oracle, family: &Family, found: Bound) -> bool {
        let Some(rival) = self.best.rival(family).filter(|_| self.by_memory) else { return false };
        let Price { seconds, bytes, .. } = rival.price;
        if found.bytes < bytes.round() - NEARLY_HALF {
            return false;
        }
        let is_hosted = family.level >= Level::Host && family.layout.offload;
        if is_hosted != rival.layout.offload {
            return is_hosted;
        }
        let limits = Limits { seconds, bytes: Some(bytes.round() + 1.0) };
        let bound = oracle.bound(family, Bound { seconds: 0.0, bytes: 0.0 }, limits);
        bound.is_none_or(|bound| bound.seconds * (1.0 - ROUNDING) > seconds)
    }
}

/// Whether a bound of so many bytes leaves room in the memory that there is, if it counts.
pub fn has_room(bytes: f64, memory: Option<f64>) -> bool {
    memory.is_none_or(|memory| bytes * (1.0 - ROUNDING) <= memory)
}
