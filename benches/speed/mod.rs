//! Steps of a run on a machine whose speed changes. Other guests of a host take part of its cores, now more and now less. The
//! rate of products before and after a step, relative to the best that was seen, is the machine's speed in it.

use kernels::cpu::Par;
use kernels::cpu::einsum::Einsum;
use meshwright::train::{Progress, RunHeader};
use runtime::metrics::{EvalRecord, StepRecord};
use std::time::{Duration, Instant};

/// Rows and columns of the product whose rate is the machine's speed: its matrices stay in cache.
const PRODUCT: usize = 512;

/// How long the product is repeated.
const PROBE: Duration = Duration::from_millis(25);

/// How often the best rate is looked for.
const PROBES: usize = 8;

/// Clock ticks of a second in `/proc` (`man 5 proc_pid_stat`).
const TICKS: f64 = 100.0;

/// A run, step by step.
pub(crate) struct Steps<'a> {
    probe: &'a Probe,
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
    /// The mean rate of products before and after it, in products a second.
    pub(crate) rate: f64,
}

impl Progress for Steps<'_> {
    fn started(&mut self, _: &RunHeader) {
        self.before = self.now();
    }
    fn step(&mut self, step: &StepRecord) {
        let processor_s = processor_seconds() - self.before.1;
        let after = self.now();
        let rate = (self.before.0 + after.0) / 2.0;
        self.taken.push(StepTime { step_s: step.step_time_s, processor_s, rate });
        self.before = after;
    }
    fn evaluating(&mut self, _: u64) {}
    fn evaluated(&mut self, _: &EvalRecord) {}
}

impl Steps<'_> {
    /// No step yet.
    pub(crate) fn new(probe: &Probe) -> Steps<'_> {
        Steps { probe, before: (0.0, 0.0), taken: Vec::new() }
    }

    fn now(&self) -> (f64, f64) {
        (self.probe.rate(), processor_seconds())
    }
}

/// A product that each core repeats.
pub(crate) struct Probe(Einsum);

impl Probe {
    /// The product of two matrices.
    pub(crate) fn new() -> Probe {
        let letters = ["mk", "kn", "mn"].map(|letters| letters.chars().collect::<Vec<_>>());
        let plan = Einsum::new(&letters[0], &letters[1], &letters[2], &[PRODUCT; 2], &[PRODUCT; 2]);
        Probe(plan.expect("a product of matrices"))
    }

    /// Products a second of all cores together.
    pub(crate) fn rate(&self) -> f64 {
        let repeat = || {
            let (a, b) = (vec![1.0; PRODUCT * PRODUCT], vec![0.5; PRODUCT * PRODUCT]);
            let (mut out, mut scratch) = (vec![0.0; PRODUCT * PRODUCT], Vec::new());
            let mut product = || self.0.run(&a, &b, &mut out, false, Par(1), &mut scratch);
            product();
            let (began, mut products) = (Instant::now(), 0);
            while began.elapsed() < PROBE {
                product();
                products += 1;
            }
            f64::from(products) / began.elapsed().as_secs_f64()
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..cores()).map(|_| scope.spawn(repeat)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a product ends")).sum()
        })
    }

    /// The best of several rates.
    pub(crate) fn best(&self) -> f64 {
        (0..PROBES).map(|_| self.rate()).fold(0.0, f64::max)
    }
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
