//! A plan as one HTML page: time and memory as bars, alternatives as a scatter plot, the schedule as a timeline, and
//! explanations. The page loads no external resource and needs no script; hovering over an element shows its description.

mod bars;
mod infeasible;
mod layout;
mod scatter;
mod tables;

pub use infeasible::page_of_conflict;

use super::brief::brief;
use super::compare::device_gib;
use crate::error::Error;
use crate::plan::PlanReport;
use compiler::parallel;
use cost::Interval;
use estimator::{EstimateReport, EstimateRequest, Estimator};
use support::units::{count, gib, percent, tenths, time};
use view::draw::{self, Picture, escaped, filled, svg};
use view::report::report_telling;

const BODY: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");

/// Largest number of bars of a schedule that is drawn with several rounds of micro-batches.
const BARS: u64 = 2048;

/// Page of a plan.
///
/// # Errors
/// The plan's model, cluster or stack no longer exists.
pub fn page(estimator: &Estimator, report: &PlanReport) -> Result<String, Error> {
    let plan = &report.chosen;
    let cluster = estimator.cluster(&plan.inputs.cluster)?;
    let limit = device_gib(&cluster, plan.mesh.devices);
    let title = format!("{} on {} x {}", plan.inputs.model, plan.mesh.devices, plan.inputs.cluster);
    let parts = [
        ("title", escaped(&title)),
        ("parallel", escaped(&brief(&plan.parallel))),
        ("facts", facts(plan)),
        ("tiles", tiles(report, limit)),
        ("time", bars::time(plan)),
        ("memory", bars::memory(plan, limit)),
        ("scatter", scatter::runners_up(report, limit)),
        ("alternatives", tables::alternatives(report)),
        ("why", tables::why(report)),
        ("constraints", tables::constraints(report)),
        ("what_ifs", tables::what_ifs(report)),
        ("timeline", timeline(estimator, plan)?),
        ("stages", layout::stages(plan)?),
        ("axes", layout::axes(&plan.mesh, &cluster)),
        ("recomputed", layout::recomputed(plan)),
        ("commands", layout::commands(report)),
        ("search", tables::search(report.search.as_ref())),
    ];
    let parts = parts.each_ref().map(|(name, text)| (*name, text.as_str()));
    Ok(draw::page(&title, STYLE, &filled(BODY, &parts)))
}

/// Line on the job.
fn facts(plan: &EstimateReport) -> String {
    let EstimateRequest { seq, global_batch, ref stack, ref precision, .. } = plan.inputs;
    let parameters = count(plan.predicted.parameters as f64);
    escaped(&format!(
        "{parameters} parameters, {global_batch} sequences of {seq} tokens per step, stack {stack}, {precision}"
    ))
}

/// Main figures.
fn tiles(report: &PlanReport, limit: f64) -> String {
    let plan = &report.chosen;
    let predicted = &plan.predicted;
    let Interval { low, high } = predicted.interval_s;
    let (low, high) = (time(low), time(high));
    let days = report.search.as_ref().and_then(|search| search.days.zip(search.tokens));
    let mut tiles = vec![
        ("step", time(predicted.step_time_s), format!("80 % interval {low} to {high}")),
        (
            "tokens/s per device",
            count(predicted.tokens_per_s_per_gpu),
            format!("{} in total", count(predicted.tokens_per_s_per_gpu * plan.mesh.devices as f64)),
        ),
        (
            "MFU",
            percent(predicted.mfu).trim().to_string(),
            format!("with recomputation (HFU): {}", percent(predicted.hfu).trim()),
        ),
        ("memory of the worst rank", gib(predicted.fullest().device), format!("of {}", gib(limit))),
        (
            "pipeline bubble",
            percent(predicted.bubble).trim().to_string(),
            "average idle share of the ranks".to_string(),
        ),
    ];
    tiles.extend(days.map(|(days, tokens)| ("days", tenths(days), format!("for {} tokens", count(tokens)))));
    let tile = |(name, value, more): (&str, String, String)| {
        format!(
            "<div class=\"tile\"><span>{name}</span><b>{}</b><small>{}</small></div>\n",
            escaped(&value),
            escaped(&more)
        )
    };
    tiles.into_iter().map(tile).collect()
}

/// Timeline of the schedule, or of the first micro-batches of a long step; empty without a pipeline.
fn timeline(estimator: &Estimator, plan: &EstimateReport) -> Result<String, Error> {
    let stages = plan.stages.len() as u64;
    if plan.parallel.pp < 2 {
        return Ok("<p>There is one stage: every rank runs its micro-batches one after the other.</p>".to_string());
    }
    // Rounds have as many micro-batches as ranks, since interleaved schedules accept no others.
    let rounds = (BARS / (2 * stages * plan.parallel.pp)).max(1);
    let most = u32::try_from(rounds * plan.parallel.pp).unwrap_or(u32::MAX);
    let asked = EstimateRequest { parallel: parallel::print(&plan.parallel), gpus: None, ..plan.inputs.clone() };
    let request = estimator.schedule(&asked, most)?;
    let (report, drawn) = report_telling(&request, &|_| ())?;
    let picture = Picture::of(&report, &drawn, &request.costs.resolve(stages as u32, request.stages)?);
    let all = plan.predicted.microbatches;
    let note = if request.microbatches < all {
        format!(
            "<p>A step of {} of the {all} micro-batches; warm-up and cool-down are those of the full step.</p>",
            request.microbatches
        )
    } else {
        String::new()
    };
    Ok(format!("{note}<div class=\"paper\">{}</div>", svg(&[picture])))
}
