//! Reading plan files.

use crate::error::{Error, NotAPlan};
use crate::plan::SCHEMA;
use crate::plan::{PlanReport, PlanRequest};
use compiler::parallel;
use compiler::text_files::read_text;
use estimator::{Comm, Predicted, StageMemory};
use serde_json::Value;
use std::ops::RangeInclusive;
use std::path::Path;

/// JSON schema of a plan file. The part of the parallel configuration comes from its table of keys.
pub fn plan_schema() -> String {
    let template = include_str!("plan.schema.json");
    template.replace("\"the table of keys\"", &format!("{:#}", parallel::json_schema()).replace('\n', "\n  "))
}

/// Reads the plan of a file; `-` is standard input.
///
/// # Errors
/// The file cannot be read, is not a plan, has another version, or is the report of an infeasible request.
pub fn read_plan(path: &Path) -> Result<PlanReport, Error> {
    let text = read_text(path)?;
    let place = path.display().to_string();
    let is_none = |why: NotAPlan| Error::NotAPlan { place: place.clone(), why };
    let has_wrong = |why: String| is_none(NotAPlan::Content(why));
    let value: Value = serde_json::from_str(&text).map_err(|why| has_wrong(why.to_string()))?;
    let schema = value.get("schema").and_then(Value::as_str).unwrap_or_default().to_string();
    let is_read = [SCHEMA, estimator::SCHEMA].contains(&schema.as_str());
    if schema.starts_with("meshwright.") && !is_read {
        let version = value.get("tool_version").and_then(Value::as_str).unwrap_or("another version");
        return Err(Error::PlanVersion { place, schema, read: SCHEMA, version: version.to_string() });
    }
    if !is_read {
        return Err(is_none(NotAPlan::NoSchema));
    }
    match value.get("status").and_then(Value::as_str) {
        Some("infeasible") => return Err(is_none(NotAPlan::Infeasible)),
        Some("unknown") => return Err(is_none(NotAPlan::Unknown)),
        _ => {}
    }
    let plan: PlanReport = serde_json::from_value(value).map_err(|why| has_wrong(why.to_string()))?;
    // Drawings and comparisons need valid degrees.
    parallel::parse_any(&parallel::print(&plan.chosen.parallel)).map_err(|why| has_wrong(why.to_string()))?;
    let others = plan.alternatives.iter().map(|other| &other.predicted);
    match std::iter::once(&plan.chosen.predicted).chain(others).find_map(absurd) {
        Some(why) => Err(has_wrong(why)),
        None => Ok(plan),
    }
}

/// Valid step times in seconds: from a nanosecond to thirty years.
const STEP: RangeInclusive<f64> = 1e-9..=1e9;

/// Valid memory of a device in GiB.
const HELD: RangeInclusive<f64> = 0.0..=1e9;

/// Message about a value of a prediction that is out of range.
fn absurd(predicted: &Predicted) -> Option<String> {
    let Predicted {
        step_time_s, interval_s, ref time_s, ref exposed_comm_s, ref memory_gib, memory_interval_gib, ..
    } = *predicted;
    let wrong = |name: &str, value: f64, range: &RangeInclusive<f64>| {
        let (low, high) = (range.start(), range.end());
        (!range.contains(&value)).then(|| format!("`{name}` is {value:e}, not between {low:e} and {high:e}"))
    };
    let Comm { tp, cp, ep, dp, pp } = *exposed_comm_s;
    // The remainder of a step may be negative by rounding.
    let part = -1e-6 * step_time_s..=1e9;
    let parts = time_s.by_name().into_iter().chain([("exposed_comm_s", tp + cp + ep + dp + pp)]);
    let held = memory_gib.per_stage.iter().flat_map(|stage| {
        let StageMemory { parameters, gradients, optimizer, activations, buffers, device, .. } = *stage;
        [parameters, gradients, optimizer, activations, buffers, device]
    });
    wrong("step_time_s", step_time_s, &STEP)
        .or_else(|| {
            [interval_s.low, interval_s.high].into_iter().find_map(|seconds| wrong("interval_s", seconds, &STEP))
        })
        .or_else(|| parts.into_iter().find_map(|(name, seconds)| wrong(name, seconds, &part)))
        .or_else(|| held.chain([memory_gib.total]).find_map(|gib| wrong("memory_gib", gib, &HELD)))
        .or_else(|| {
            [memory_interval_gib.low, memory_interval_gib.high]
                .into_iter()
                .find_map(|gib| wrong("memory_interval_gib", gib, &HELD))
        })
        .or_else(|| wrong("chance_to_fit", predicted.chance_to_fit, &(0.0..=1.0)))
}

/// Request of a plan.
pub fn request_of(plan: &PlanReport) -> PlanRequest {
    let inputs = plan.chosen.inputs.clone();
    let search = plan.search.clone().unwrap_or_default();
    PlanRequest {
        model: inputs.model,
        cluster: inputs.cluster,
        stack: inputs.stack,
        gpus: plan.chosen.mesh.devices,
        seq: inputs.seq,
        global_batch: inputs.global_batch,
        precision: inputs.precision,
        grad_dtype: inputs.grad_dtype,
        master: inputs.master,
        optimizer: inputs.optimizer,
        lengths: inputs.lengths,
        headroom: inputs.headroom,
        memory_margin: inputs.memory_margin,
        beyond_stack: inputs.beyond_stack,
        pin: search.pin,
        objective: search.objective,
        tie: search.tie,
        ..PlanRequest::default()
    }
}
