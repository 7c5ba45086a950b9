//! Completion of a pattern: warm-up and cool-down, by local search over the decisions that the pattern leaves open.

use super::ahead::run_ahead;
use super::fill::{Filled, Gaps, fill, unroll};
use super::pattern::Pattern;
use super::shape::Shape;
use crate::optimal::{Instance, Task};

/// The decisions that a pattern leaves open.
#[derive(Clone, Debug)]
struct Choice {
    /// Periods by which the F of each stage run earlier; never less than for the next stage. More F in flight fill the warm-up,
    /// as long as memory lasts.
    pull: Vec<u32>,
    /// Fraction of a W's length by which the W may delay the next operation, per rank.
    patience: Vec<f64>,
    /// Target value, between the bound (0) and the best known (1). A rank that has used up the idle time of this target runs W
    /// at once. `None`: no target.
    aim: Option<f64>,
    /// Number of next operations from which a rank may choose; 1: the order is that of the pattern.
    ahead: usize,
}

/// Values of `ahead` to try.
const AHEAD: [usize; 3] = [1, 4, 16];

/// Cost of a try with `ahead` above 1, relative to a try in the pattern's order.
const AHEAD_COSTS: u64 = 5;

/// Pairs of patience and aim to try: W never delay, delay by half their length, run at once, and two aims at or near the bound.
const MANNERS: [(f64, Option<f64>); 5] = [(0.0, None), (0.5, None), (1.0, None), (0.0, Some(0.0)), (0.0, Some(0.25))];

/// Pulls to try first, as multiples of the pattern's own lags.
const PULLS: [f64; 9] = [0.0, 0.125, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5];

/// A completed pattern and its value.
#[derive(Clone, Debug)]
pub(super) struct Completed {
    pub(super) filled: Filled,
    pub(super) value: f64,
}

/// Returns the best completion found in `tries` tries, or `None` if none is within the limits.
pub(super) fn complete(task: &Task, shape: &Shape, pattern: &Pattern, tries: u64) -> Option<Completed> {
    let mut climb =
        Climb { task, instance: task.instance, shape, pattern, work: work(task.instance), best: None, left: tries };
    let most = most_pull(shape, pattern);
    let lags: Vec<f64> = (0..shape.stages).map(|stage| lag(shape, pattern, stage)).collect();
    let pulls: Vec<Vec<u32>> = (PULLS.iter()).map(|&times| scaled(&lags, times, &most)).chain([most.clone()]).collect();
    for ahead in AHEAD {
        for pull in &pulls {
            for (patience, aim) in MANNERS {
                climb.attempt(Choice { pull: pull.clone(), patience: vec![patience; shape.ranks], aim, ahead });
            }
        }
        if climb.met() {
            break;
        }
    }
    climb.climb();
    climb.best.map(|(_, completed)| completed)
}

/// Returns the periods between F and I (or B) of a stage, less those of the last stage.
fn lag(shape: &Shape, pattern: &Pattern, stage: usize) -> f64 {
    (round_trip(shape, pattern, stage) - round_trip(shape, pattern, shape.stages - 1)) / pattern.period
}

/// Returns the seconds from the start of a stage's F to that of its I (or B).
fn round_trip(shape: &Shape, pattern: &Pattern, stage: usize) -> f64 {
    pattern.start[shape.path - 1 - stage] - pattern.start[stage]
}

/// Returns a multiple of the lags, at most `most` and never less than at the next stage.
fn scaled(lags: &[f64], times: f64, most: &[u32]) -> Vec<u32> {
    let mut pull: Vec<u32> =
        lags.iter().zip(most).map(|(lag, &most)| most.min((lag * times).round().max(0.0) as u32)).collect();
    for stage in (0..pull.len() - 1).rev() {
        pull[stage] = pull[stage].max(pull[stage + 1]);
    }
    pull
}

/// Returns the largest pull of each stage together with the stages before it if every W runs right after its I. Without a limit
/// it is twice the number of micro-batches in flight.
fn most_pull(shape: &Shape, pattern: &Pattern) -> Vec<u32> {
    let mut pull = vec![0; shape.stages];
    for stage in (0..shape.stages).rev() {
        let enough = 2 * (lag(shape, pattern, 0).ceil() as u32 + 1);
        let base = pull.get(stage + 1).copied().unwrap_or(0);
        pull[..=stage].fill(base);
        while pull[stage] < enough && fits(shape, pattern, &pull, stage) {
            pull[..=stage].iter_mut().for_each(|pull| *pull += 1);
        }
    }
    pull
}

/// Returns whether pulling the stages up to `stage` by one more period fits the limits.
fn fits(shape: &Shape, pattern: &Pattern, pull: &[u32], stage: usize) -> bool {
    let mut start = pattern.start.clone();
    for (class, of) in shape.classes.iter().enumerate() {
        if !shape.on_path(class) {
            let backward = class - shape.stages;
            start[class] = start[backward] + shape.classes[backward].seconds - of.seconds;
        } else if class % shape.per_stream < shape.stages {
            let more = u32::from(of.stage <= stage);
            start[class] -= f64::from(pull[of.stage] + more) * pattern.period;
        }
    }
    Pattern { start, ..*pattern }.fits(shape)
}

struct Climb<'a> {
    task: &'a Task<'a>,
    instance: &'a Instance,
    shape: &'a Shape,
    pattern: &'a Pattern,
    /// Seconds of work of each rank.
    work: Vec<f64>,
    best: Option<(Choice, Completed)>,
    left: u64,
}

impl Climb<'_> {
    /// Tries a choice, and keeps it if it is no worse than the best.
    fn attempt(&mut self, choice: Choice) {
        if self.left == 0 || self.task.budget.late() {
            self.left = 0;
            return;
        }
        self.left = self.left.saturating_sub(if choice.ahead > 1 { AHEAD_COSTS } else { 1 });
        let orders = unroll(self.instance, self.shape, self.pattern, &choice.pull);
        let spare = self.spare(choice.aim);
        let gaps = Gaps { patience: &choice.patience, spare: &spare };
        let filled = match choice.ahead {
            1 => fill(self.instance, self.shape, &orders, gaps),
            ahead => run_ahead(self.instance, self.shape, &orders, gaps, ahead),
        };
        let Some(filled) = filled else { return };
        let value = filled.value(self.task.problem.objective);
        let before = self.best.as_ref().map_or(f64::INFINITY, |(_, best)| best.value);
        if value <= before {
            self.best = Some((choice, Completed { filled, value }));
        }
    }

    /// Returns the seconds that each rank may idle.
    fn spare(&self, aim: Option<f64>) -> Vec<f64> {
        let Some(aim) = aim else { return vec![f64::INFINITY; self.work.len()] };
        let best = self.best.as_ref().map_or(2.0 * self.task.bound, |(_, best)| best.value);
        let value = self.task.bound + aim * (best - self.task.bound);
        self.work.iter().map(|work| value - work).collect()
    }

    /// Returns whether the best value is proved optimal.
    fn met(&self) -> bool {
        self.best.as_ref().is_some_and(|(_, best)| self.task.meets(best.value, self.task.bound))
    }

    /// Changes the best choice in small steps, with a fixed random sequence, until the tries are spent or the bound is met.
    fn climb(&mut self) {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        while self.left > 0 && !self.met() {
            let Some((choice, _)) = &self.best else { return };
            let changed = changed(choice, &mut random);
            self.attempt(changed);
        }
    }
}

fn changed(choice: &Choice, random: &mut Random) -> Choice {
    let mut choice = choice.clone();
    let (stages, ranks) = (choice.pull.len(), choice.patience.len());
    match random.below(4) {
        0 => {
            let to = random.below(stages);
            choice.pull[..=to].iter_mut().for_each(|pull| *pull += 1);
        }
        1 => {
            let to = random.below(stages);
            let least = choice.pull.get(to + 1).copied().unwrap_or(0);
            let from = random.below(to + 1);
            for stage in from..=to {
                choice.pull[stage] = choice.pull[stage].saturating_sub(1).max(least);
            }
            for stage in (0..from).rev() {
                choice.pull[stage] = choice.pull[stage].max(choice.pull[stage + 1]);
            }
        }
        2 => choice.aim = (random.below(5) > 0).then(|| random.below(17) as f64 / 16.0),
        3 if random.below(8) == 0 => choice.ahead = 1 << random.below(5),
        _ => {
            let (one, other) = (random.below(ranks), random.below(ranks));
            let patience = random.below(5) as f64 / 4.0;
            choice.patience[one.min(other)..=one.max(other)].fill(patience);
        }
    }
    choice
}

fn work(instance: &Instance) -> Vec<f64> {
    let ranks = instance.of_rank.iter();
    ranks.map(|rank| rank.iter().map(|&index| instance.operations[index].seconds).sum()).collect()
}

/// Marsaglia 2003, "Xorshift RNGs": 64 bits, shifts 13, 7, 17.
struct Random(u64);

impl Random {
    /// Returns a number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % end
    }
}
