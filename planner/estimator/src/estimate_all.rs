//! Batch evaluation of many configurations on all cores.

use super::error::Error;
use super::estimator::Estimator;
use super::report::EstimateReport;
use super::request::EstimateRequest;
use compiler::deadline::Deadline;
use serde::Deserialize;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::parallel::each;

/// Line of `--configs`: a configuration, or an object with a configuration and other changes to the request.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigLine {
    /// The configuration.
    #[serde(alias = "layout")]
    pub parallel: String,
    /// Model.
    pub model: Option<String>,
    /// Cluster.
    pub cluster: Option<String>,
    /// Stack.
    pub stack: Option<String>,
    /// Number of devices.
    pub gpus: Option<u64>,
    /// Tokens per sequence.
    pub seq: Option<u64>,
    /// Sequences per step.
    pub global_batch: Option<u64>,
    /// Number formats.
    pub precision: Option<String>,
}

impl ConfigLine {
    /// Parses a line of a file: a JSON object, a JSON string, or a bare configuration.
    ///
    /// # Errors
    /// The line is JSON of another form.
    pub fn parse(text: &str) -> Result<ConfigLine, Error> {
        let text = text.trim();
        let of = |parallel: String| ConfigLine { parallel, ..ConfigLine::default() };
        let read = match text.as_bytes().first() {
            Some(b'{') => serde_json::from_str(text),
            Some(b'"') => serde_json::from_str(text).map(of),
            _ => Ok(of(text.to_string())),
        };
        read.map_err(|why| Error::Line { line: text.to_string(), why: why.to_string() })
    }

    /// The request with the changes of the line.
    pub fn over(self, base: &EstimateRequest) -> EstimateRequest {
        let base = base.clone();
        EstimateRequest {
            parallel: self.parallel,
            model: self.model.unwrap_or(base.model),
            cluster: self.cluster.unwrap_or(base.cluster),
            stack: self.stack.unwrap_or(base.stack),
            gpus: self.gpus.or(base.gpus),
            seq: self.seq.unwrap_or(base.seq),
            global_batch: self.global_batch.unwrap_or(base.global_batch),
            precision: self.precision.unwrap_or(base.precision),
            ..base
        }
    }
}

/// Predicts all requests, in order, and calls `done` with the number of finished requests.
pub fn estimate_all(
    estimator: &Estimator,
    requests: &[EstimateRequest],
    done: &(dyn Fn(usize) + Sync),
) -> Vec<Result<EstimateReport, Error>> {
    let finished = AtomicUsize::new(0);
    each(requests, |request| {
        let answer = estimator.estimate(request);
        done(finished.fetch_add(1, Ordering::Relaxed) + 1);
        answer
    })
}

/// Predicts all requests, in order, until a deadline; requests without time left are `None`.
pub fn estimate_until(
    estimator: &Estimator,
    requests: &[EstimateRequest],
    deadline: &Deadline,
) -> Vec<Option<Result<EstimateReport, Error>>> {
    each(requests, |request| (!deadline.is_over()).then(|| estimator.estimate(request)))
}
