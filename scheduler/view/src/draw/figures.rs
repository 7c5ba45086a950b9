//! Summary figures above a picture.

use super::axis::figure;
use crate::report::{ScheduleReport, Status};
use scheduler::schedules::{OrderBasis, find};

pub(super) fn title(report: &ScheduleReport) -> String {
    let ScheduleReport { kind, stages, microbatches, chunks, .. } = report;
    let chunks = if *chunks > 1 { format!(" of {chunks} stages") } else { String::new() };
    format!("{kind}: {stages} ranks{chunks}, {microbatches} micro-batches")
}

/// Verdict on an order: `at most 3.4 % above the best`.
pub fn verdict(report: &ScheduleReport) -> String {
    match report.status {
        Status::Optimal => "no order is faster".to_string(),
        Status::Feasible => {
            let above = 100.0 * report.gap / (1.0 - report.gap);
            let above = if above >= 0.05 { format!("{above:.1}") } else { figure(above) };
            format!("{}at most {above} % above the best{}", method(report), end(report))
        }
        Status::Infeasible => "above the memory limit".to_string(),
    }
}

/// A word on a search that proves nothing by itself.
fn method(report: &ScheduleReport) -> &'static str {
    let is_heuristic = find(&report.kind).is_ok_and(|kind| kind.searches() && kind.order != OrderBasis::Solved);
    if is_heuristic { "by a heuristic, " } else { "" }
}

/// A word on a search that has left candidates out.
fn end(report: &ScheduleReport) -> &'static str {
    match (report.stopped, report.deterministic) {
        (false, _) => "",
        (true, true) => "; the search stopped at its limit of work, --deadline gives it more",
        (true, false) => "; the search stopped at its deadline",
    }
}

pub(super) fn summary(report: &ScheduleReport) -> String {
    let unit = &report.unit;
    let (name, reached) = report.reached();
    let peak = report.peak_memory.iter().copied().fold(0.0, f64::max);
    format!(
        "{name} {} {unit}, lower bound {} {unit}: {}; bubble {:.1} %; peak memory {}",
        figure(reached),
        figure(report.lower_bound),
        verdict(report),
        100.0 * report.bubble,
        figure(peak),
    )
}
