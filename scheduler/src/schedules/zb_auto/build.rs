//! One variant of the rule: rows built in rounds, one I of every stage a round.

use super::ROUNDING;
use crate::costs::StageCosts;
use ir::schedule::Kind;

/// A variant of the rule.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    /// Warm-up runs no forward that would end after the first I could start.
    pub early_gaps: bool,
    /// True if a stage two forwards ahead of the next one delays a forward that would hold up its I.
    pub backward_first: bool,
    /// True if a W longer than a gap also runs in the gap if the stage has slack.
    pub fill_all: bool,
}

/// Result of a variant.
pub(super) struct Built {
    /// Longest time of a rank from its first start to its last end, in seconds.
    pub span: f64,
    /// Actions of each stage: kind and micro-batch.
    pub rows: Vec<Vec<(Kind, u32)>>,
}

/// Builds the rows of a variant within the limit of each rank, which is at least one forward.
///
/// Takes time linear in the number of actions.
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
    /// End of the stage's last action.
    now: f64,
    /// Ends of the stage's F.
    forwards: Vec<f64>,
    /// Ends of the stage's I.
    backwards: Vec<f64>,
    /// Number of W that have run.
    weights: usize,
    held: f64,
    /// Idle seconds since its first F.
    idle: f64,
}

struct Build<'a> {
    costs: &'a StageCosts,
    limit: &'a [f64],
    rule: Rule,
    /// Difference of times up to which they count as equal.
    epsilon: f64,
    microbatches: usize,
    stages: Vec<Stage>,
    /// Idle seconds of the stage with the most.
    most_idle: f64,
}

impl Build<'_> {
    /// Runs F of micro-batch 0, further forwards, and the first I. Memory and the time until the first I bound the further
    /// forwards; a stage runs no more of them than the stage before.
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

    /// Returns the number of further forwards until a stage's first I arrives, and the end of the last of them.
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

    /// Runs one F on each stage that wants one. A stage waits if the next stage does.
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

    /// Returns whether a stage has a forward left that does not delay its next I by more than its slack.
    fn wants_forward(&self, stage: usize) -> bool {
        let here = &self.stages[stage];
        if here.forwards.len() >= self.microbatches {
            return false;
        }
        let next = self.stages.get(stage + 1).filter(|next| here.forwards.len() >= next.forwards.len() + 2);
        let Some(next) = next.filter(|_| self.rule.backward_first) else { return true };
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

    /// Runs the round's I on each stage, the last stage first.
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

    /// Runs the W that end before an arrival, and one more if the gap left exceeds the slack.
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

    /// Returns the seconds that a stage may idle without becoming the one that idles most.
    fn slack(&self, stage: usize) -> f64 {
        self.most_idle - self.stages[stage].idle
    }

    /// Returns whether one time is later than another.
    fn after(&self, a: f64, b: f64) -> bool {
        a > b + self.epsilon
    }

    /// Returns whether a forward fits in addition to the memory in use.
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

    /// Runs an action after its arrival, and returns its end.
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
