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
mod numbers;
mod order;
mod written;

use super::device::{Device, Properties};
use super::error::Error;
use super::staging::Staging;
use super::stream::{Event, Stream};
use kernels::cpu::Par;
use kernels::cpu::dropout::normal;
use serde::Serialize;
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
}

impl Report {
    /// True if all checks came out right.
    pub fn is_right(&self) -> bool {
        self.rows.iter().all(|row| row.right)
    }
}

/// A check.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckRow {
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
    pub unit: &'static str,
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
    fn at(self, rate: f64, peak: Option<f64>) -> Found {
        Found { rate: Some(rate), peak, ..self }
    }
}

/// Checks a device, `quick`: on small sizes alone.
///
/// # Errors
/// There is no such device, or it cannot be used at all. A check that fails is a row of the report.
pub fn check(ordinal: usize, quick: bool) -> Result<Report, Error> {
    let device = Device::open(ordinal)?;
    let mut bench = Bench::new(&device, quick)?;
    let mut rows = Vec::new();
    memory::check(&mut bench, &mut rows);
    instructions::check(&mut bench, &mut rows);
    elementwise::check(&mut bench, &mut rows);
    gemm::check(&mut bench, &mut rows);
    groups::check(&mut bench, &mut rows);
    eight_bits::check(&mut bench, &mut rows);
    attend::check(&mut bench, &mut rows);
    order::check(&mut bench, &mut rows);
    Ok(Report { schema: SCHEMA, device: device.properties().clone(), rows })
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

/// A check as a row.
pub fn row(
    what: impl Into<String>,
    shape: impl Into<String>,
    unit: &'static str,
    found: Result<Found, impl Display>,
) -> CheckRow {
    let (what, shape) = (what.into(), shape.into());
    match found {
        Ok(Found { error, bound, rate, peak, note }) => {
            let share = rate.zip(peak).map(|(rate, peak)| rate / peak);
            CheckRow { what, shape, error: Some(error), bound, rate, unit, share, right: error <= bound, note }
        }
        Err(why) => {
            let note = Some(why.to_string());
            CheckRow { what, shape, error: None, bound: 0.0, rate: None, unit, share: None, right: false, note }
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
        if let Err(why) = check(usize::MAX, true) {
            assert!(matches!(why, Error::Missing(_) | Error::NoDevice { .. }), "{why}");
        } else {
            panic!("there is no device of that number");
        }
    }
}
