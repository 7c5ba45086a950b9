//! `meshwright plan`: finds the best configuration of a model on a cluster.

use super::ignored::say_ignored;
use super::options::job::{AFTER_STACK, JobFlags, asked_job, missing};
use super::options::parallel::{help, long_help};
use super::options::sizes::ModelSizes;
use super::search_watch::SearchWatch;
use super::status;
use super::{Answer, NOTHING_FITS, json, terminal};
use crate::error::Error;
use autotune::TEXT_WIDTH;
use autotune::explain::{self, Planned};
use autotune::plan::PlanReport;
use autotune::plan::{PlanRequest, Search, find};
use clap::{Args, ValueEnum};
use compiler::deadline::Deadline;
use estimator::Estimator;
use serde::Serialize;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use support::quantities::{Price, amount_of, count_of, finite};
use support::units::count;

/// Help of `--pin`.
const PIN: &str = "Options that the configuration must have, also as sets and ranges (tp<=8,zero=1|3)";

/// Find the best configuration for a model on a cluster
///
/// Branch and bound over all parallel degrees, schedules, ZeRO stages, micro-batch sizes and recompute choices, on the cost
/// model of `estimate`. The answer states whether the search was complete, and under which bounds. Schedules that need a
/// search of their own (`optimal`, `v-auto`) are tried only if pinned.
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright plan llama3-8b --cluster h100 --gpus 64 --seq 8192 --global-batch 128
  meshwright plan llama3.1-405b --cluster h100 --gpus 16384 --seq 8192 --global-batch 2048 \\
      --pin tp=8,cp=1 --top 10
  meshwright plan llama3-70b --gpus 256 --seq 8k --global-batch 1k --pin 'tp<=8,zero=1|3' \\
      --why-not pp=1
  meshwright plan deepseek-v3 --cluster h800 --gpus 2048 --seq 4096 --global-batch 15360 \\
      --precision fp8-block --tokens 14.8e12
  meshwright plan --layers 32 --hidden 4096 --heads 32 --kv-heads 8 --ffn 14336 \\
      --vocab 128256 --gpus 64 --seq 8k --global-batch 128")]
pub(super) struct Plan {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    sizes: ModelSizes,
    /// Compare the plan with the best configuration that also has these pins, such as tp=8
    #[arg(long, value_name = "CONFIG")]
    why_not: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: PlanFormat,
    /// Read the options from a JSON file (`-`: standard input); flags override it
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// Write the answer to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// How a plan is printed.
#[derive(Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum PlanFormat {
    /// Text
    #[default]
    Table,
    /// JSON with all figures; a plan as `meshwright.plan/2`
    Json,
    /// IR of the model with the configuration's shardings and collectives
    Ir,
    /// Web page with charts
    Html,
}

#[derive(Args, Serialize)]
struct Flags {
    #[command(flatten)]
    #[serde(flatten)]
    job: JobFlags,
    /// Number of devices
    #[arg(long, value_name = "N", display_order = AFTER_STACK, value_parser = count_of)]
    gpus: Option<u64>,
    /// Upper limit if more devices help
    #[arg(long, value_name = "N", display_order = AFTER_STACK, value_parser = count_of)]
    max_gpus: Option<u64>,
    #[arg(long, value_name = "CONFIG", help = help(PIN, "none"), long_help = long_help(PIN, "none"))]
    pin: Option<String>,
    /// Number of configurations to show, no two alike in degrees, schedule, ZeRO, micro-batch and recomputation [default: 5]
    #[arg(long, value_name = "K")]
    top: Option<usize>,
    /// Objective to minimise [default: time]
    #[arg(long, value_name = "time|memory")]
    objective: Option<ObjectiveFlag>,
    /// Prefer a simpler configuration that is slower by at most this share of the step; 0: the nominally fastest [default: 0.02]
    #[arg(long, value_name = "SHARE", value_parser = finite)]
    tie: Option<f64>,
    /// Stop after this many seconds and return the best configuration found
    #[arg(long, value_name = "S", value_parser = finite)]
    deadline: Option<f64>,
    /// Predict every configuration without pruning: slow, to check the search
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    exhaustive: bool,
    /// Number of tokens to train on, such as 15T for 15e12, to report the days and device hours this takes
    #[arg(long, value_name = "N", value_parser = amount_of)]
    tokens: Option<f64>,
    /// Price of an hour of a device, such as $2.5, to report the price of tokens, and of training on --tokens
    #[arg(long, value_name = "PRICE", value_parser = price)]
    price: Option<String>,
}

#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum ObjectiveFlag {
    /// Step time
    Time,
    /// Memory of the worst rank
    Memory,
}

/// Turns off huge pages for the process. The system zeroes each as a whole, while a search's lists are short and scattered.
/// Where the system keeps them, a plan only takes longer.
fn refuse_huge_pages() {
    #[cfg(target_os = "linux")]
    rustix::thread::disable_transparent_huge_pages(true).unwrap_or_default();
}

impl Plan {
    pub(super) fn run(mut self) -> Result<Answer, Error> {
        refuse_huge_pages();
        self.flags.job.in_numbers(&self.sizes)?;
        let missing = missing("plan", &self.flags.job, Some(&self.flags.gpus));
        let request: PlanRequest = asked_job(self.request.as_deref(), missing.as_deref(), &self.flags)?;
        say_ignored(&request.model)?;
        // The process ends after the answer, so that freeing the search's memory would only take time.
        let estimator = ManuallyDrop::new(Estimator::new());
        let width = text_width(self.output.as_deref());
        let answer = match planned(&estimator, &request)? {
            Planned::Best(plan) => Answer::done(match &self.why_not {
                Some(pins) => {
                    compared(self.format, (&estimator, width), &plan, pins, &Deadline::asked(request.deadline)?)?
                }
                None => printed(self.format, &estimator, &plan, width)?,
            }),
            Planned::Infeasible(answer) => {
                let complaint = Error::from(answer.error());
                let text = match self.format {
                    PlanFormat::Table => format!("{answer:width$}"),
                    PlanFormat::Json => json(&answer)?,
                    PlanFormat::Ir => explain::annotated_closest(&answer)?,
                    PlanFormat::Html => explain::page_of_conflict(&estimator, &answer)?,
                };
                let status = if answer.is_known() { NOTHING_FITS } else { status::of_error(&complaint) };
                Answer::ended(text, status, Some(complaint))
            }
        };
        answer.put(self.output.as_deref())
    }
}

/// The text of a price.
fn price(text: &str) -> Result<String, String> {
    text.parse::<Price>().map(|_| text.to_string())
}

/// The answer to a request. The search's progress goes to standard error.
pub(super) fn planned(estimator: &Estimator, request: &PlanRequest) -> Result<Planned, Error> {
    let watch = SearchWatch::new();
    let found = find(estimator, request, &|search| watch.line(progress(search)));
    watch.over();
    Ok(explain::plan(estimator, request, found?)?)
}

/// Columns of running text: those of the terminal, unless the answer goes to a file, and no more than are easy to read.
pub(super) fn text_width(output: Option<&Path>) -> usize {
    let wide = terminal::width().filter(|_| output.is_none());
    wide.map_or(TEXT_WIDTH, |width| width.min(TEXT_WIDTH))
}

/// A plan as it is asked for.
pub(super) fn printed(
    format: PlanFormat,
    estimator: &Estimator,
    plan: &PlanReport,
    width: usize,
) -> Result<String, Error> {
    match format {
        PlanFormat::Table => Ok(format!("{plan:width$}")),
        PlanFormat::Json => json(plan),
        PlanFormat::Ir => Ok(explain::annotated(&plan.chosen)?),
        PlanFormat::Html => Ok(explain::page(estimator, plan)?),
    }
}

/// The answer to `--why-not`, in a number of columns.
pub(super) fn compared(
    format: PlanFormat,
    (estimator, width): (&Estimator, usize),
    plan: &PlanReport,
    pins: &str,
    deadline: &Deadline,
) -> Result<String, Error> {
    if matches!(format, PlanFormat::Html | PlanFormat::Ir) {
        return Err(Error::Usage("--why-not requires --format table or json".into()));
    }
    let find = |estimator: &Estimator, request: &PlanRequest| find(estimator, request, &|_| ());
    let answer = explain::why_not(estimator, plan, pins, (&find, deadline))?;
    if format == PlanFormat::Json { json(&answer) } else { Ok(answer.text(plan, width)) }
}

/// Formats the progress of a search.
fn progress(search: &Search) -> String {
    format!("{} of {} configurations predicted", count(search.candidates as f64), count(search.space as f64))
}
