//! One variant of the rule: rows built in rounds, one I of every stage a round.

use super::ROUNDING;
use crate::costs::StageCosts;
use ir::schedule::Kind;

/// A variant.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    /// Warm-up runs no forward that would end after the first I could start.
    pub early_gaps: bool,
    /// A stage two forwards ahead of the next one lets a forward wait that would hold up its I.
    pub backward_first: bool,
    /// A W that only partly fits in a gap fills it also where the stage has slack.
    pub fill_all: bool,
}

/// What a variant gives.
pub(super) struct Built {
    /// The longest time a rank takes from its first start to its last end.
    pub span: f64,
    /// Each stage's actions: kind and micro-batch.
    pub rows: Vec<Vec<(Kind, u32)>>,
}

/// The rows of a variant, when no rank may hold more than its limit, which is one forward at least.
///
/// Time linear in the number of actions.
pub(super) fn build(costs: &StageCosts, microbatches: u32, limit: &[f64], rule: Rule) -> Built {
    let slowest = (0..limit.len()).map(|s| costs.f[s] + costs.i[s] + costs.w[s]).fold(0.0, f64::max);
    let stages = vec![Stage::default(); limit.len()];
    let epsilon = slowest * ROUNDING;
    let mut build = Build { costs, limit, rule, epsilon, microbatches: microbatches as usize, stages, most_idle: 0.0 };
    build.warm_up();
    for round in 1..build.microbatches {
        build.forwards();
        build.backwards(round);
    }
    for stage in 0..limit.len() {
        build.flush(stage);
    }
    let span = build.stages.iter().zip(&costs.f).map(|(stage, f)| stage.now - (stage.forwards[0] - f));
    Built { span: span.fold(0.0, f64::max), rows: build.stages.into_iter().map(|stage| stage.row).collect() }
}

#[derive(Clone, Default)]
struct Stage {
    row: Vec<(Kind, u32)>,
    /// The end of its last action.
    now: f64,
    /// Ends of its F.
    forwards: Vec<f64>,
    /// Ends of its I.
    backwards: Vec<f64>,
    /// How many W it has run.
    weights: usize,
    held: f64,
    /// Idle seconds since its first F.
    idle: f64,
}

struct Build<'a> {
    costs: &'a StageCosts,
    limit: &'a [f64],
    rule: Rule,
    /// Differences of time below this are none.
    epsilon: f64,
    microbatches: usize,
    stages: Vec<Stage>,
    /// The idle seconds of the stage with the most.
    most_idle: f64,
}

impl Build<'_> {
    /// F of micro-batch 0, as many more as memory and the time until the first I allow, fewer on each next stage, and the
    /// first I.
    fn warm_up(&mut self) {
        let last = self.stages.len() - 1;
        (0..=last).for_each(|stage| self.forward(stage));
        let mut extra = vec![0; last + 1];
        let mut backward = self.stages[last].now + self.costs.i[last]; // end of the next stage's first I
        for stage in (0..last).rev() {
            let arrival = backward + self.costs.comm[stage];
            let (count, end) = self.until(stage, arrival);
            extra[stage] = count;
            backward = end.max(arrival) + self.costs.i[stage];
        }
        for stage in 1..=last {
            let all = extra[stage].min(extra[stage - 1]) + 1 == self.microbatches;
            if !all {
                extra[stage] = extra[stage].min(extra[stage - 1].saturating_sub(1));
            }
        }
        for (stage, count) in extra.into_iter().enumerate() {
            (0..count).for_each(|_| self.forward(stage));
        }
        (0..=last).rev().for_each(|stage| self.backward(stage));
    }

    /// How many forwards more a stage can run until its first I arrives, and when the last of them ends.
    fn until(&self, stage: usize, arrival: f64) -> (usize, f64) {
        let (f, Stage { held, now, .. }) = (self.costs.f[stage], &self.stages[stage]);
        let (mut count, mut held, mut now) = (0, *held, *now);
        while 1 + count < self.microbatches && self.fits(stage, held) {
            let late = if self.rule.early_gaps { self.after(now + f, arrival) } else { !self.after(arrival, now) };
            if late {
                break;
            }
            count += 1;
            held += self.costs.mem_f[stage];
            now += f;
        }
        (count, now)
    }

    /// One F on each stage that wants one. A stage waits if the next does.
    fn forwards(&mut self) {
        let mut wants: Vec<bool> = (0..self.stages.len()).map(|stage| self.wants_forward(stage)).collect();
        for stage in (1..wants.len()).rev() {
            wants[stage - 1] &= wants[stage];
        }
        for stage in (0..wants.len()).filter(|&stage| wants[stage]) {
            while !self.fits(stage, self.stages[stage].held) && self.has_weight(stage) {
                self.weight(stage);
            }
            if stage > 0 {
                let arrival = self.stages[stage - 1].forwards[self.stages[stage].forwards.len()];
                self.fill(stage, arrival + self.costs.comm[stage - 1]);
            }
            self.forward(stage);
        }
    }

    /// Whether a stage has a forward left that does not hold up its next I by more than its slack.
    fn wants_forward(&self, stage: usize) -> bool {
        let here = &self.stages[stage];
        if here.forwards.len() >= self.microbatches {
            return false;
        }
        let ahead = |next: &&Stage| self.rule.backward_first && here.forwards.len() >= next.forwards.len() + 2;
        let Some(next) = self.stages.get(stage + 1).filter(ahead) else { return true };
        let costs = self.costs;
        let backward = next.now + costs.f[stage + 1] + costs.i[stage + 1] + costs.comm[stage];
        if !self.after(backward, here.now) {
            return false;
        }
        let (mut held, mut end) = (here.held, here.now + costs.f[stage]);
        for _ in here.weights..here.backwards.len() {
            if self.fits(stage, held) {
                break;
            }
            held -= costs.mem_w[stage];
            end += costs.w[stage];
        }
        !self.after(end, backward) || self.after(backward - here.now, self.slack(stage))
    }

    /// The round's I on each stage, the last stage first.
    fn backwards(&mut self, round: usize) {
        for stage in (0..self.stages.len()).rev() {
            if let Some(next) = self.stages.get(stage + 1) {
                self.fill(stage, next.backwards[round] + self.costs.comm[stage]);
            }
            if stage == 0 && self.stages[stage].forwards.len() == self.microbatches {
                self.flush(stage);
            }
            self.backward(stage);
        }
    }

    /// W until an arrival: those that end before it, and one more if the gap left is more than the slack.
    fn fill(&mut self, stage: usize, arrival: f64) {
        while self.has_weight(stage) && !self.after(self.stages[stage].now + self.costs.w[stage], arrival) {
            self.weight(stage);
        }
        let gap = arrival - self.stages[stage].now;
        let matters = self.rule.fill_all || self.after(gap, self.slack(stage));
        if self.has_weight(stage) && self.after(gap, 0.0) && matters {
            self.weight(stage);
        }
    }

    fn flush(&mut self, stage: usize) {
        while self.has_weight(stage) {
            self.weight(stage);
        }
    }

    /// How long a stage may idle more and still not be the one that idles most.
    fn slack(&self, stage: usize) -> f64 {
        self.most_idle - self.stages[stage].idle
    }

    /// Whether one time is later than another.
    fn after(&self, a: f64, b: f64) -> bool {
        a > b + self.epsilon
    }

    /// Whether a forward fits beside what is held.
    fn fits(&self, stage: usize, held: f64) -> bool {
        held + self.costs.mem_f[stage] <= self.limit[stage] * (1.0 + ROUNDING)
    }

    fn has_weight(&self, stage: usize) -> bool {
        self.stages[stage].weights < self.stages[stage].backwards.len()
    }

    fn forward(&mut self, stage: usize) {
        let nth = self.stages[stage].forwards.len();
        let arrival = stage.checked_sub(1).map(|from| self.stages[from].forwards[nth] + self.costs.comm[from]);
        let end = self.run(stage, Kind::F, nth, arrival, self.costs.f[stage]);
        self.stages[stage].forwards.push(end);
        self.stages[stage].held += self.costs.mem_f[stage];
    }

    fn backward(&mut self, stage: usize) {
        let nth = self.stages[stage].backwards.len();
        let arrival = self.stages.get(stage + 1).map(|next| next.backwards[nth] + self.costs.comm[stage]);
        let end = self.run(stage, Kind::I, nth, arrival, self.costs.i[stage]);
        self.stages[stage].backwards.push(end);
        self.stages[stage].held -= self.costs.mem_i[stage];
    }

    fn weight(&mut self, stage: usize) {
        let nth = self.stages[stage].weights;
        self.run(stage, Kind::W, nth, None, self.costs.w[stage]);
        self.stages[stage].weights += 1;
        self.stages[stage].held -= self.costs.mem_w[stage];
    }

    /// Runs an action after its arrival; gives its end.
    fn run(&mut self, stage: usize, kind: Kind, microbatch: usize, arrival: Option<f64>, seconds: f64) -> f64 {
        let here = &mut self.stages[stage];
        let idle = arrival.map_or(0.0, |arrival| (arrival - here.now).max(0.0));
        if !here.row.is_empty() {
            here.idle += idle;
            self.most_idle = self.most_idle.max(here.idle);
        }
        here.now += idle + seconds;
        here.row.push((kind, microbatch as u32));
        here.now
    }
}
