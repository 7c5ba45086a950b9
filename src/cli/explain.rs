//! `meshwright explain PLAN.json`: explains why a plan was chosen, and why another was not.

use super::options::request::asked;
use super::plan::{PlanFormat, compared, printed, text_width};
use super::{Answer, json};
use crate::error::Error;
use crate::groups::groups;
use autotune::explain::{self, read_plan, request_of};
use autotune::plan::PlanReport;
use clap::Args;
use compiler::deadline::Deadline;
use cost::CPU;
use estimator::Estimator;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use support::quantities::finite;

/// Explain a plan: its choices, the alternatives, the binding constraints, and what more memory or bandwidth would save
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright plan llama3-8b --cluster h100 --gpus 8 --seq 8192 --global-batch 128 \\
      --format json -o plan.json
  meshwright explain plan.json
  meshwright explain plan.json --why-not tp=4
  meshwright explain plan.json --why-not pp=4,zero=0 --format json
  meshwright explain plan.json --groups layer
  meshwright explain plan.json --format html -o plan.html")]
pub(super) struct Explain {
    #[command(flatten)]
    flags: Flags,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: PlanFormat,
    /// Write the answer to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Read the options from a JSON file (`-`: standard input); flags override it
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
}

#[derive(Args, Serialize)]
struct Flags {
    /// Plan file of `plan --format json` or `estimate --format json` (`-`: standard input)
    plan: Option<PathBuf>,
    /// Compare the plan with the best configuration that also has these pins
    #[arg(long, value_name = "CONFIG")]
    why_not: Option<String>,
    /// Compile the plan and show which statements run as one kernel, and why not more: of this block or body (`layer.F`), or of all
    #[arg(long, num_args = 0..=1, default_missing_value = "", value_name = "BODY", conflicts_with = "why_not")]
    groups: Option<String>,
    /// Stop after this many seconds and return what is known
    #[arg(long, value_name = "S", value_parser = finite)]
    deadline: Option<f64>,
}

/// Request of an explanation.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    plan: PathBuf,
    #[serde(default)]
    why_not: Option<String>,
    #[serde(default)]
    groups: Option<String>,
    #[serde(default)]
    deadline: Option<f64>,
}

impl Explain {
    pub(super) fn run(self) -> Result<Answer, Error> {
        let missing = self.flags.plan.is_none().then_some("`explain` needs a PLAN");
        let request: Request = asked(self.request.as_deref(), missing, &self.flags)?;
        if let Some(name) = &request.groups {
            let text = in_groups(&read_plan(&request.plan)?, name, self.format)?;
            return Answer::done(text).put(self.output.as_deref());
        }
        let (estimator, deadline) = (Estimator::new(), Deadline::asked(request.deadline)?);
        let plan = explained(&estimator, read_plan(&request.plan)?, &deadline)?;
        let width = text_width(self.output.as_deref());
        let text = match (&request.why_not, self.format) {
            (Some(pins), format) => compared(format, (&estimator, width), &plan, pins, &deadline)?,
            (None, PlanFormat::Table) => plan.explanation(width),
            (None, format) => printed(format, &estimator, &plan, width)?,
        };
        Answer::done(text).put(self.output.as_deref())
    }
}

/// The groups of a plan's program.
fn in_groups(plan: &PlanReport, name: &str, format: PlanFormat) -> Result<String, Error> {
    let (note, file) = explain::compiled(&plan.chosen, None)?;
    let report = groups(&file, &CPU).ok_or_else(|| Error::fault("explain", "a plan has no program"))?;
    if !report.has(name) {
        let bodies = report.bodies.iter().map(|body| body.body.as_str()).collect::<Vec<_>>().join(", ");
        return Err(Error::Usage(format!("--groups {name}: there is no such body, but {bodies}")));
    }
    match format {
        PlanFormat::Table => Ok(note + &report.text(name)),
        PlanFormat::Json => json(&report),
        PlanFormat::Ir | PlanFormat::Html => Err(Error::Usage("--groups requires --format table or json".into())),
    }
}

/// The plan with its explanation: a configuration that was given, by `estimate`, is explained against those near it.
fn explained(estimator: &Estimator, plan: PlanReport, deadline: &Deadline) -> Result<PlanReport, Error> {
    if plan.why.is_some() {
        return Ok(plan);
    }
    let request = request_of(&plan);
    Ok(explain::given(estimator, &request, plan, deadline)?)
}
