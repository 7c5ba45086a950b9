//! Predictions of measured runs.

use super::runs::{MemoryKind, Run};
use compiler::error::Error;
use cost::{Interval, Job, Percentiles, Stack};
use estimator::{EstimateReport, EstimateRequest, Estimator, estimate_all};

/// A run and its prediction.
#[derive(Clone, PartialEq, Debug)]
pub struct Scored<'a> {
    /// The run.
    pub run: &'a Run,
    /// The prediction, or the error that refused it.
    pub prediction: Result<Prediction, Error>,
}

/// Predicted values of the measured figures.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// Predicted step time, in seconds.
    pub step_time_s: f64,
    /// 10th and 90th percentile of the step time, in seconds.
    pub interval_s: Interval,
    /// Predicted share of the device's peak.
    pub mfu: f64,
    /// Predicted memory in GiB, of the kind that the source prints; allocated memory if the source prints none.
    pub memory_gib: f64,
    /// 10th and 90th percentile of that memory, in GiB.
    pub memory_interval_gib: Interval,
    /// Distribution of the logarithm of measured over predicted memory.
    pub memory_errors: Percentiles,
    /// Predicted chance that every device holds it.
    pub chance_to_fit: f64,
    /// Properties of the request that errors depend on.
    pub job: Job,
}

/// Predicts all runs, using all cores, and returns them in order.
pub fn score<'a>(estimator: &Estimator, runs: impl IntoIterator<Item = &'a Run>) -> Vec<Scored<'a>> {
    let runs: Vec<&Run> = runs.into_iter().collect();
    let requests: Vec<EstimateRequest> = runs.iter().map(|run| run.request.clone()).collect();
    let reports = estimate_all(estimator, &requests, &|_| ());
    let scored = |(run, report): (&'a Run, Result<EstimateReport, estimator::Error>)| {
        let kind = run.memory.map_or(MemoryKind::Allocated, |memory| memory.1);
        let predicted = |report: EstimateReport| {
            let cluster = estimator.cluster(&report.inputs.cluster)?;
            let stack = estimator.stack(&report.inputs.stack)?;
            Ok(Prediction::of(&report, kind, &cluster.device.name, &stack))
        };
        Scored { run, prediction: report.and_then(predicted).map_err(Error::from) }
    };
    runs.into_iter().zip(reports).map(scored).collect()
}

impl Prediction {
    fn of(report: &EstimateReport, kind: MemoryKind, device: &str, stack: &Stack) -> Prediction {
        let predicted = &report.predicted;
        let stages = predicted.memory_gib.per_stage.iter();
        let memory_gib = match kind {
            MemoryKind::FirstStage => stages.take(1).map(|stage| stage.reserved).sum(),
            MemoryKind::Allocated => stages.map(|stage| stage.allocated).fold(0.0, f64::max),
            MemoryKind::Reserved => stages.map(|stage| stage.reserved).fold(0.0, f64::max),
            MemoryKind::Device => stages.map(|stage| stage.device).fold(0.0, f64::max),
        };
        // The interval is that of the device memory; kinds of memory err alike.
        let share = memory_gib / predicted.fullest().device;
        let job = report.job(device);
        Prediction {
            step_time_s: predicted.step_time_s,
            interval_s: predicted.interval_s,
            mfu: predicted.mfu,
            memory_gib,
            memory_interval_gib: predicted.memory_interval_gib.map(|gib| gib * share),
            memory_errors: stack.residual.memory_errors(&job),
            chance_to_fit: predicted.chance_to_fit,
            job,
        }
    }
}

impl Scored<'_> {
    /// Predicted over measured step time.
    pub fn ratio(&self) -> Option<f64> {
        self.prediction.as_ref().ok().map(|prediction| prediction.step_time_s / self.run.step_time_s)
    }

    /// Predicted over measured memory.
    pub fn memory_ratio(&self) -> Option<f64> {
        let (gib, _) = self.run.memory?;
        self.prediction.as_ref().ok().map(|prediction| prediction.memory_gib / gib)
    }

    /// Returns whether the measured memory is within the predicted interval.
    pub fn memory_inside(&self) -> Option<bool> {
        let (gib, _) = self.run.memory?;
        Some(self.prediction.as_ref().ok()?.memory_interval_gib.contains(gib))
    }

    /// Predicted chance of less memory than was measured.
    pub fn memory_chance(&self) -> Option<f64> {
        let ratio = self.memory_ratio()?;
        Some(self.prediction.as_ref().ok()?.memory_errors.chance_below(-ratio.ln()))
    }

    /// Returns whether the measured time is within the predicted interval.
    pub fn inside(&self) -> Option<bool> {
        Some(self.prediction.as_ref().ok()?.interval_s.contains(self.run.step_time_s))
    }
}
