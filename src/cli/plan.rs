//! `meshwright plan`: the best layout of a model on a cluster.

use super::number::count;
use super::request::{Fields, from_json, resolve};
use super::{Answer, json, plan_text};
use crate::error::Error;
use crate::estimate::{EstimateReport, Estimator};
use crate::explain::{self, Planned};
use crate::files::write_text;
use crate::plan::{Infeasible, PlanRequest, Search, find};
use clap::{Args, ValueEnum};
use ir::catalogue::Code;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Find the best layout for a model on a cluster
///
/// All ways to share out the devices, all schedules, ZeRO stages, micro-batches and recomputations are searched by branch and
/// bound on the cost model of `estimate`: the answer is the best there is, and says so where that is proved.
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright plan llama3-8b --cluster h100 --gpus 64 --seq 8192 --global-batch 128
  meshwright plan llama3.1-405b --cluster h100 --gpus 16384 --seq 8192 --global-batch 2048 --pin tp=8,cp=1 --top 10
  meshwright plan deepseek-v3 --cluster h800 --gpus 2048 --seq 4096 --global-batch 15360 --precision fp8-block --tokens 14.8e12")]
pub(super) struct Plan {
    #[command(flatten)]
    flags: Flags,
    /// How the answer is printed
    #[arg(long, value_enum, default_value_t)]
    format: PlanFormat,
    /// JSON with the same fields (`-`: standard input); flags win over it
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// Write the answer into this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// How a plan is printed.
#[derive(Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum PlanFormat {
    /// A text for reading
    #[default]
    Table,
    /// All figures, as `meshwright.plan/1`
    Json,
    /// The model with the layout's shardings and collectives
    Ir,
    /// A page with pictures
    Html,
}

#[derive(Args, Serialize)]
struct Flags {
    /// A preset (see `meshwright models`), a config.json or its folder, or a .ir file
    model: Option<String>,
    /// The hardware: a name (see `meshwright clusters`) or a TOML file [default: h100]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// The software: a name (see `meshwright stacks`) or a TOML file [default: megatron-core-2025]
    #[arg(long, value_name = "NAME")]
    stack: Option<String>,
    /// Devices: as many are used
    #[arg(long, value_name = "N")]
    gpus: Option<u64>,
    /// More may be used, up to so many
    #[arg(long, value_name = "N")]
    max_gpus: Option<u64>,
    /// Tokens per sequence
    #[arg(long, value_name = "TOKENS")]
    seq: Option<u64>,
    /// Sequences per step, all ranks together
    #[arg(long, value_name = "N")]
    global_batch: Option<u64>,
    /// Number formats: bf16, fp16, fp8-tensor, fp8-row, fp8-block, mxfp8, mxfp4, nvfp4, f32 [default: bf16]
    #[arg(long, value_name = "RECIPE")]
    precision: Option<String>,
    /// Type of gradients, accumulated and on the wire [default: the stack's]
    #[arg(long, value_name = "TYPE")]
    grad_dtype: Option<String>,
    /// Type of the master copy of parameters, or `none` [default: f32 where parameters are not]
    #[arg(long, value_name = "TYPE")]
    master: Option<String>,
    /// adamw, adamw-bf16 (with moments in bf16), momentum or sgd [default: adamw]
    #[arg(long, value_name = "NAME")]
    optimizer: Option<String>,
    /// Tokens of each document of a sequence, parted by commas: attention stays within each
    #[arg(long, value_name = "TOKENS", value_delimiter = ',')]
    lengths: Option<Vec<u64>>,
    /// What the layout must have: any of dp, tp, pp, cp, ep, etp, vp, mbs, zero, shard, recompute, sp, schedule, group, slices,
    /// cp_kind, order, stages, offload, tp_overlap, dp_overlap
    #[arg(long, value_name = "LAYOUT")]
    pin: Option<String>,
    /// How many layouts are shown, no two alike in degrees, schedule, ZeRO, micro-batch and recomputation [default: 5]
    #[arg(long, value_name = "K")]
    top: Option<usize>,
    /// What is to be small [default: time]
    #[arg(long, value_name = "time|memory")]
    objective: Option<ObjectiveFlag>,
    /// Answer after so many seconds with the best so far
    #[arg(long, value_name = "S")]
    deadline: Option<f64>,
    /// Predict every layout, rule out none by a bound: slow, to check the search
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    exhaustive: bool,
    /// Tokens to train on: says how many days that takes
    #[arg(long, value_name = "N")]
    tokens: Option<f64>,
}

#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum ObjectiveFlag {
    /// The time of a step
    Time,
    /// The memory of the worst rank
    Memory,
}

/// The exit status where nothing fits.
const NOTHING_FITS: u8 = 4;

impl Plan {
    pub(super) fn run(self) -> Result<Answer, Error> {
        let fields = match &self.request {
            Some(path) => from_json::<PlanRequest>(path)?,
            None if self.flags.model.is_none() => return Err(Error::Usage("`plan` needs a MODEL".into())),
            None => Fields::new(),
        };
        let request: PlanRequest = resolve(fields, &self.flags)?;
        let (estimator, teller) = (Estimator::new(), Teller::new());
        let found = find(&estimator, &request, &|search| teller.tell(search))?;
        teller.end();
        let answer = match explain::plan(&estimator, &request, found)? {
            Planned::Best(plan) => Answer::done(self.shown(&estimator, &plan)?),
            Planned::Infeasible(answer) => {
                let complaint = complaint(&answer);
                let text =
                    if self.format == PlanFormat::Json { json(&answer)? } else { plan_text::infeasible(&answer) };
                Answer { text, status: NOTHING_FITS, complaint: Some(complaint) }
            }
        };
        self.put(answer)
    }

    fn shown(&self, estimator: &Estimator, plan: &EstimateReport) -> Result<String, Error> {
        match self.format {
            PlanFormat::Table => Ok(plan_text::plan(plan)),
            PlanFormat::Json => json(plan),
            PlanFormat::Ir => explain::annotated(plan),
            PlanFormat::Html => explain::page(estimator, plan),
        }
    }

    /// The answer, or its text in the file that is asked for.
    fn put(&self, answer: Answer) -> Result<Answer, Error> {
        let Some(path) = &self.output else { return Ok(answer) };
        write_text(path, &answer.text)?;
        Ok(Answer { text: String::new(), ..answer })
    }
}

/// What is said beside the answer that nothing fits.
fn complaint(answer: &Infeasible) -> Error {
    let least = answer
        .closest
        .as_ref()
        .map_or_else(String::new, |closest| format!("; the least needs {:.1} GiB", closest.predicted.memory_gib.total));
    let help = match answer.ways_out.first() {
        Some(way) => format!("the cheapest way out: {}", way.change),
        None => "more devices (--gpus), fewer pins, or a smaller batch or sequence".to_string(),
    };
    Error::input(Code::NothingFits, format!("no layout fits{least}")).help(help)
}

/// Tells a person who waits how far the search is; a file does not want to know.
struct Teller {
    is_read: bool,
    last: Mutex<Instant>,
    told: Mutex<bool>,
}

impl Teller {
    fn new() -> Teller {
        Teller { is_read: std::io::stderr().is_terminal(), last: Mutex::new(Instant::now()), told: Mutex::new(false) }
    }

    fn tell(&self, search: &Search) {
        let (Ok(mut last), Ok(mut told)) = (self.last.lock(), self.told.lock()) else { return };
        if self.is_read && last.elapsed() > Duration::from_millis(500) {
            (*last, *told) = (Instant::now(), true);
            let (all, done) = (count(search.space as f64), count(search.candidates as f64));
            let _ = write!(std::io::stderr().lock(), "\r{done} of {all} layouts predicted, {:.1} s", search.seconds);
        }
    }

    fn end(&self) {
        if self.told.lock().is_ok_and(|told| *told) {
            let _ = writeln!(std::io::stderr().lock());
        }
    }
}
