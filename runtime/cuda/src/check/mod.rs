//! Checks the GPU code on one device against the CPU: results, speed, order between streams, leaks.
//!
//! Errors are relative, as each check documents, and each bound is derived, not measured. Rates are the best of several
//! timings by the device's clock.

mod attend;
mod attention;
mod bounds;
mod eight_bits;
mod elementwise;
mod gemm;
pub mod groups;
mod instructions;
mod memory;
mod nccl;
mod numbers;
mod order;
mod rows;
mod updates;
mod written;

pub use rows::{Choice, RowName, Rows};

use super::device::{Device, Properties};
use super::error::Error;
use super::staging::Staging;
use super::stream::{Event, Stream};
use kernels::cpu::Par;
use kernels::cpu::dropout::normal;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

/// The schema of a [`Report`].
const SCHEMA: &str = "meshwright.gpu-check/1";

/// All checks of a GPU.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The schema.
    pub schema: &'static str,
    /// The GPU that was checked.
    pub device: Properties,
    /// One row per check.
    pub rows: Vec<CheckRow>,
    /// Seconds of all checks.
    pub seconds: f64,
}

impl Report {
    /// The rows that were found on a device, with the seconds that this took.
    pub fn new(device: &Device, rows: Vec<CheckRow>, seconds: f64) -> Report {
        Report { schema: SCHEMA, device: device.properties().clone(), rows, seconds }
    }

    /// True if all checks came out right.
    pub fn is_right(&self) -> bool {
        self.rows.iter().all(|row| row.right)
    }
}

/// A check.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CheckRow {
    /// Its number among all rows, from 1.
    pub number: usize,
    /// The kernel.
    pub what: String,
    /// On which sizes.
    pub shape: String,
    /// The largest relative error; `None` if the check could not run.
    pub error: Option<f64>,
    /// The largest that is right.
    pub bound: f64,
    /// The measured rate; `None` if untimed.
    pub rate: Option<f64>,
    /// The unit of the rate: `FLOP/s` or `B/s`.
    pub unit: Cow<'static, str>,
    /// The share of the device's peak, where that is known.
    pub share: Option<f64>,
    /// True if the error is within the bound.
    pub right: bool,
    /// Why it could not run, or what else was seen.
    pub note: Option<String>,
}

/// Result of a check.
pub struct Found {
    error: f64,
    bound: f64,
    rate: Option<f64>,
    peak: Option<f64>,
    note: Option<String>,
}

impl Found {
    /// Results with an error and a bound.
    pub fn results(error: f64, bound: f64) -> Found {
        Found { error, bound, rate: None, peak: None, note: None }
    }

    /// The same with a rate and its peak.
    #[must_use]
    pub fn at(self, rate: f64, peak: Option<f64>) -> Found {
        Found { rate: Some(rate), peak, ..self }
    }

    /// The same with a note.
    #[must_use]
    pub fn noted(self, note: String) -> Found {
        Found { note: Some(note), ..self }
    }
}

/// The checks of a device.
pub struct Checks {
    bench: Bench,
    variants: bool,
}

impl Checks {
    /// Those of a device; `quick`: on small sizes alone; `variants`: with all tiles of attention, not only those that are chosen.
    ///
    /// # Errors
    /// The device cannot be used at all.
    pub fn new(device: &Arc<Device>, quick: bool, variants: bool) -> Result<Checks, Error> {
        Ok(Checks { bench: Bench::new(device, quick)?, variants })
    }

    /// Takes all rows. A check that fails is one.
    pub fn run(&mut self, rows: &mut Rows<'_>) {
        let Checks { bench, variants } = self;
        memory::check(bench, rows);
        instructions::check(bench, rows);
        elementwise::check(bench, rows);
        gemm::check(bench, rows);
        groups::check(bench, rows);
        eight_bits::check(bench, rows);
        attend::check(bench, rows);
        if *variants {
            attend::check_variants(bench, rows);
        }
        order::check(bench, rows);
        nccl::check(bench, rows);
    }
}

/// State that checks share: the device, a stream, and random numbers.
struct Bench {
    device: Arc<Device>,
    stream: Stream,
    staging: Staging,
    /// Standard normal numbers; checks take slices of them.
    normals: Vec<f32>,
    par: Par,
    extent: Extent,
}

/// How much is done.
struct Extent {
    /// Elements of the large elementwise checks.
    elements: usize,
    /// Rows of the large matrices; columns and terms are near it.
    matrix: usize,
    /// Terms of the largest of the other products.
    terms: usize,
    /// Number of timings, whose best counts, and launches in each.
    timings: usize,
    launches: usize,
}

/// 64 MiB of f32 are beyond the 50 MB of an H100's second-level cache.
const FULL: Extent = Extent { elements: 1 << 24, matrix: 4096, terms: usize::MAX, timings: 5, launches: 10 };
const QUICK: Extent = Extent { elements: 1 << 20, matrix: 128, terms: 1 << 21, timings: 1, launches: 1 };

impl Bench {
    fn new(device: &Arc<Device>, quick: bool) -> Result<Bench, Error> {
        let extent = if quick { QUICK } else { FULL };
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        Ok(Bench {
            device: device.clone(),
            stream: Stream::new(device)?,
            staging: Staging::new(device)?,
            normals: (0..extent.elements as u64 + 64).map(|i| normal([20, 26], i)).collect(),
            par: Par(threads),
            extent,
        })
    }

    /// `n` numbers, others for another `seed` below 64.
    fn normals(&self, n: usize, seed: usize) -> &[f32] {
        &self.normals[seed..seed + n]
    }

    /// Seconds of a launch: the best of some timings.
    fn seconds(&self, mut launch: impl FnMut(&Stream) -> Result<(), Error>) -> Result<f64, Error> {
        let (start, end) = (Event::timed(&self.device)?, Event::timed(&self.device)?);
        launch(&self.stream)?;
        let mut best = f64::INFINITY;
        for _ in 0..self.extent.timings {
            self.stream.record(&start)?;
            for _ in 0..self.extent.launches {
                launch(&self.stream)?;
            }
            self.stream.record(&end)?;
            best = best.min(start.seconds_to(&end)? / self.extent.launches as f64);
        }
        Ok(best)
    }
}

/// A check as a row, without its number.
fn row(
    what: impl Into<String>,
    shape: impl Into<String>,
    unit: &'static str,
    found: Result<Found, impl Display>,
) -> CheckRow {
    let (what, shape) = (what.into(), shape.into());
    match found {
        Ok(Found { error, bound, rate, peak, note }) => {
            let share = rate.zip(peak).map(|(rate, peak)| rate / peak);
            let (number, unit, error, right) = (0, unit.into(), Some(error), error <= bound);
            CheckRow { number, what, shape, error, bound, rate, unit, share, right, note }
        }
        Err(why) => {
            let (number, unit, note) = (0, unit.into(), Some(why.to_string()));
            let (error, rate, share) = (None, None, None);
            CheckRow { number, what, shape, error, bound: 0.0, rate, unit, share, right: false, note }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_right_within_its_bound_and_if_it_ran() {
        let found = |error| Ok::<_, Error>(Found::results(error, 0.5).at(10.0, Some(40.0)));
        let right = row("a", "1", "B/s", found(0.5));
        assert!(right.right && right.share == Some(0.25));
        assert!(!row("a", "1", "B/s", found(0.6)).right);
        assert!(!row("a", "1", "B/s", found(f64::NAN)).right);
        let failed = row("a", "1", "B/s", Err(Error::Program("no".into())));
        assert!(!failed.right && failed.note.as_deref() == Some("no"));
    }

    #[test]
    fn without_a_gpu_the_check_says_what_is_missing() {
        if let Err(why) = Device::open(usize::MAX) {
            assert!(matches!(why, Error::Missing(_) | Error::NoDevice { .. }), "{why}");
        } else {
            panic!("there is no device of that number");
        }
    }
}
