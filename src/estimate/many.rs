//! Many layouts at once, on all cores.

use super::estimator::Estimator;
use super::report::EstimateReport;
use super::request::EstimateRequest;
use crate::error::Error;
use ir::catalogue::Code;
use serde::Deserialize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// A line of `--layouts`: a layout, or an object with a layout and what differs from the rest of the request.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Line {
    /// `"tp=8,pp=2"`
    Layout(String),
    /// `{"layout": "tp=8,pp=2", "gpus": 64}`
    Request {
        /// The layout.
        layout: String,
        /// Another model.
        model: Option<String>,
        /// Other hardware.
        cluster: Option<String>,
        /// Other software.
        stack: Option<String>,
        /// As many devices.
        gpus: Option<u64>,
        /// Tokens per sequence.
        seq: Option<u64>,
        /// Sequences per step.
        global_batch: Option<u64>,
        /// Number formats.
        precision: Option<String>,
    },
}

impl Line {
    /// A line of a file: JSON, or a bare layout.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<Line, Error> {
        let text = text.trim();
        if !text.starts_with(['{', '"']) {
            return Ok(Line::Layout(text.to_string()));
        }
        serde_json::from_str(text).map_err(|why| {
            Error::input(Code::RequestUnreadable, format!("`{text}`: {why}"))
                .help("a line is a layout, or {\"layout\": .., \"model\": .., \"gpus\": ..}")
        })
    }

    /// The request with what the line says.
    pub fn over(self, base: &EstimateRequest) -> EstimateRequest {
        let base = base.clone();
        match self {
            Line::Layout(layout) => EstimateRequest { layout, ..base },
            Line::Request { layout, model, cluster, stack, gpus, seq, global_batch, precision } => EstimateRequest {
                layout,
                model: model.unwrap_or(base.model),
                cluster: cluster.unwrap_or(base.cluster),
                stack: stack.unwrap_or(base.stack),
                gpus: gpus.or(base.gpus),
                seq: seq.unwrap_or(base.seq),
                global_batch: global_batch.unwrap_or(base.global_batch),
                precision: precision.unwrap_or(base.precision),
                ..base
            },
        }
    }
}

/// Predicts all requests, in their order; `done` is told of how many there are answers.
pub fn estimate_all(
    estimator: &Estimator,
    requests: &[EstimateRequest],
    done: &(dyn Fn(usize) + Sync),
) -> Vec<Result<EstimateReport, Error>> {
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let answers: Vec<Mutex<Option<Result<EstimateReport, Error>>>> =
        requests.iter().map(|_| Mutex::new(None)).collect();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(requests.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(request) = requests.get(at) else { break };
                    let answer = estimator.estimate(request);
                    *answers[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                    done(finished.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let missing = || Err(Error::fault("estimate", "a thread has left no answer"));
    let take = |answer: Mutex<Option<_>>| answer.into_inner().unwrap_or_else(PoisonError::into_inner);
    answers.into_iter().map(|answer| take(answer).unwrap_or_else(missing)).collect()
}
