//! Plans in files.

use crate::error::Error;
use crate::estimate::{EstimateReport, SCHEMA};
use crate::files::read_text;
use crate::layout;
use crate::plan::PlanRequest;
use ir::catalogue::Code;
use serde_json::Value;
use std::path::Path;

/// The JSON schema of a plan file.
pub const SCHEMA_OF_A_PLAN: &str = include_str!("plan.schema.json");

/// The plan of a file; `-` is standard input.
///
/// # Errors
/// The file cannot be read, holds no plan, one of another version, or the answer that nothing fits.
pub fn read_plan(path: &Path) -> Result<EstimateReport, Error> {
    let text = read_text(path)?;
    let place = path.display().to_string();
    let is_none = |why: String| {
        Error::input(Code::NoPlan, format!("{place} is no plan: {why}"))
            .help("meshwright plan MODEL .. --format json -o FILE writes one")
    };
    let value: Value = serde_json::from_str(&text).map_err(|why| is_none(why.to_string()))?;
    let schema = value.get("schema").and_then(Value::as_str).unwrap_or_default().to_string();
    if schema.starts_with("meshwright.plan/") && schema != SCHEMA {
        let version = value.get("tool_version").and_then(Value::as_str).unwrap_or("another version");
        return Err(Error::input(
            Code::PlanVersion,
            format!("{place} has the form {schema}; this version reads {SCHEMA}"),
        )
        .help(format!("make the plan again, or read it with meshwright {version}")));
    }
    if schema != SCHEMA {
        return Err(is_none("it does not say `\"schema\": \"meshwright.plan/1\"`".to_string()));
    }
    if value.get("status").and_then(Value::as_str) == Some("infeasible") {
        return Err(is_none("it says that nothing fits".to_string()).help("plan again with one of its `ways_out`"));
    }
    let plan: EstimateReport = serde_json::from_value(value).map_err(|why| is_none(why.to_string()))?;
    // What is drawn and compared counts on degrees that can be.
    layout::parse_any(&layout::print(&plan.layout)).map_err(|why| is_none(why.message()))?;
    Ok(plan)
}

/// The request that a plan answers.
pub fn request_of(plan: &EstimateReport) -> PlanRequest {
    let inputs = plan.inputs.clone();
    let search = plan.search.clone().unwrap_or_default();
    PlanRequest {
        model: inputs.model,
        cluster: inputs.cluster,
        stack: inputs.stack,
        gpus: plan.mesh.devices,
        seq: inputs.seq,
        global_batch: inputs.global_batch,
        precision: inputs.precision,
        grad_dtype: inputs.grad_dtype,
        master: inputs.master,
        optimizer: inputs.optimizer,
        lengths: inputs.lengths,
        pin: search.pin,
        objective: search.objective,
        ..PlanRequest::default()
    }
}
