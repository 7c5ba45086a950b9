//! Steps of a run on a machine whose speed changes. Other guests of a host take part of its cores, now more and now less. The
//! rate of products before and after a step, relative to the best that was seen, is the machine's speed in it.

use meshwright::runtime::backends::cpu::product_rate;
use meshwright::runtime::metrics::{EvalRecord, StepRecord};
use meshwright::train::{Progress, RunHeader};
use std::time::Duration;

/// How long products are repeated.
const PROBE: Duration = Duration::from_millis(25);

/// How often the best rate is looked for.
const PROBES: usize = 8;

/// Clock ticks of a second in `/proc` (`man 5 proc_pid_stat`).
const TICKS: f64 = 100.0;

/// A run, step by step.
#[derive(Default)]
pub(crate) struct Steps {
    /// The rate of products before the next step, and the processor seconds of the run up to then.
    before: (f64, f64),
    /// The steps so far.
    pub(crate) taken: Vec<StepTime>,
}

/// A step.
pub(crate) struct StepTime {
    /// Seconds of the step.
    pub(crate) step_s: f64,
    /// Processor seconds of the step; 0 if the system does not report them.
    pub(crate) processor_s: f64,
    /// The mean rate of products before and after it, in FLOP/s.
    pub(crate) rate: f64,
}

impl Progress for Steps {
    fn started(&mut self, _: &RunHeader) {
        self.before = now();
    }
    fn step(&mut self, step: &StepRecord) {
        let processor_s = processor_seconds() - self.before.1;
        let after = now();
        let rate = (self.before.0 + after.0) / 2.0;
        self.taken.push(StepTime { step_s: step.step_time_s, processor_s, rate });
        self.before = after;
    }
    fn evaluating(&mut self, _: u64) {}
    fn evaluated(&mut self, _: &EvalRecord) {}
}

/// The rate of products, and the processor seconds of this process.
fn now() -> (f64, f64) {
    (rate(), processor_seconds())
}

/// FLOP/s of products on all cores together, at the moment.
fn rate() -> f64 {
    product_rate(cores(), PROBE).expect("products have a rate")
}

/// The best of several rates.
pub(crate) fn best_rate() -> f64 {
    (0..PROBES).map(|_| rate()).fold(0.0, f64::max)
}

/// Cores of this machine that the process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// Processor seconds of all threads of this process; 0 if the system does not report them.
fn processor_seconds() -> f64 {
    let read = || {
        let text = std::fs::read_to_string("/proc/self/stat").ok()?;
        let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
        // User and system, the 14th and 15th; the name is the second.
        let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
        Some((ticks(14)? + ticks(15)?) / TICKS)
    };
    read().unwrap_or(0.0)
}

/// The middle one.
pub(crate) fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
