//! `meshwright schedule`: one pipeline schedule, timed and drawn.

use super::Answer;
use super::number::finite;
use super::progress::SearchWatch;
use super::request::{Fields, from_json, resolve};
use crate::error::Error;
use crate::files::read_text;
use clap::{Args, ValueEnum};
use ir::catalogue::Code;
use scheduler::costs::{CostsFile, PerStage};
use scheduler::grid::grid;
use scheduler::problem::Objective;
use scheduler::report::{ScheduleReport, ScheduleRequest, Status, report_telling};
use scheduler::simulate::Timeline;
use serde::Serialize;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Lay out one step of a pipeline: who does what when, the bubble, the memory of each rank
///
/// F is a forward, I the gradient of the inputs, W that of the weights, B the two in one. Times have any unit.
#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  meshwright schedule --stages 4 --microbatches 8 --kind 1f1b
  meshwright schedule --stages 4 --microbatches 8 --kind gpipe --f 1 --i 1.2 --w 0.8 --comm 0.1 --format json
  meshwright schedule --stages 2 --microbatches 4 --kind 1f1b --memory-limit 2,1 --backward split"
)]
pub(super) struct Schedule {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    costs: Costs,
    /// JSON with the fields of the request (`-`: standard input); flags win over it
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// How the answer is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Where the answer goes; standard output if left out
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args, Serialize)]
struct Flags {
    /// Pipeline ranks
    #[arg(long, value_name = "P")]
    stages: Option<u32>,
    /// Micro-batches of a step
    #[arg(long, value_name = "M")]
    microbatches: Option<u32>,
    /// The schedule: see `meshwright schedules`
    #[arg(long)]
    kind: Option<String>,
    /// Stages per rank [default: as the kind has it]
    #[arg(long, value_name = "V")]
    chunks: Option<u32>,
    /// Which rank holds which stage [default: as the kind has it]
    #[arg(long, value_parser = ["chain", "loop", "v", "bidirectional"])]
    placement: Option<String>,
    /// Whether I and W run as one [default: as the kind has it]
    #[arg(long, value_parser = ["auto", "fused", "split"])]
    backward: Option<String>,
    /// What the lower bound and the gap are of [default: makespan]
    #[arg(long, value_parser = ["makespan", "span"])]
    objective: Option<String>,
    /// Seconds after which the search of `optimal` ends with the best so far [default: after a fixed amount of work]
    #[arg(long, value_name = "SECONDS", value_parser = finite)]
    deadline: Option<f64>,
}

#[derive(Args)]
struct Costs {
    /// Time of a forward [default: 1]
    #[arg(long, value_name = "TIME", value_parser = finite)]
    f: Option<f64>,
    /// Time of a gradient of the inputs [default: 1]
    #[arg(long, value_name = "TIME", value_parser = finite)]
    i: Option<f64>,
    /// Time of a gradient of the weights [default: 1]
    #[arg(long, value_name = "TIME", value_parser = finite)]
    w: Option<f64>,
    /// Time of an overlapped pair of F and B [default: the sum]
    #[arg(long, value_name = "TIME", value_parser = finite)]
    fb: Option<f64>,
    /// Time of a hop between ranks [default: 0]
    #[arg(long, value_name = "TIME", value_parser = finite)]
    comm: Option<f64>,
    /// What a rank may hold, in forward activations: a number, or one per rank
    #[arg(long, value_name = "X|X,Y,..", value_delimiter = ',', value_parser = finite)]
    memory_limit: Vec<f64>,
    /// JSON with costs per stage: {"unit","f","i","w","fb","comm","mem_f","mem_i","mem_w","limit"}
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Format {
    /// A line per rank, time from left to right
    #[default]
    Grid,
    /// All figures and the order
    Json,
}

/// The exit status where the memory limit does not hold.
const NOTHING_FITS: u8 = 4;

impl Schedule {
    pub(super) fn run(self) -> Result<Answer, Error> {
        let fields = match &self.request {
            Some(path) => from_json::<ScheduleRequest>(path)?,
            None => required(&self.flags)?,
        };
        let mut request: ScheduleRequest = resolve(fields, &self.flags)?;
        self.costs.apply(&mut request.costs)?;
        let search = SearchWatch::new();
        let (answer, timeline) = report_telling(&request, &|line| search.line(line))?;
        search.over();
        let text = match self.format {
            Format::Grid => drawn(&answer, &timeline, self.output.is_none()),
            Format::Json => super::json(&answer)?,
        };
        let (status, complaint) = match answer.over_limit.first() {
            Some(first) => (NOTHING_FITS, Some(over_limit(first))),
            None => (0, None),
        };
        match &self.output {
            None => Ok(Answer { text, status, complaint }),
            Some(path) => {
                fs::write(path, text).map_err(|why| Error::file("write", path, &why))?;
                Ok(Answer { text: String::new(), status, complaint })
            }
        }
    }
}

/// Said beside an answer that breaks the memory limit.
fn over_limit(first: &str) -> Error {
    Error::input(Code::MemoryLimit, first)
        .help("choose a kind that holds less (meshwright schedules), or raise --memory-limit")
}

/// Without a request the three numbers that make a schedule must be given.
fn required(flags: &Flags) -> Result<Fields, Error> {
    let given = [
        ("stages", flags.stages.is_some()),
        ("microbatches", flags.microbatches.is_some()),
        ("kind", flags.kind.is_some()),
    ];
    match given.into_iter().find(|(_, given)| !given) {
        None => Ok(Fields::new()),
        Some((name, _)) => Err(Error::Usage(format!("`schedule` needs --{name} (or a --request)"))),
    }
}

impl Costs {
    /// A costs file takes the place of what stands there; flags win over it.
    fn apply(&self, costs: &mut CostsFile) -> Result<(), Error> {
        if let Some(path) = &self.costs {
            *costs = read(path)?;
        }
        for (flag, field) in
            [(self.f, &mut costs.f), (self.i, &mut costs.i), (self.w, &mut costs.w), (self.comm, &mut costs.comm)]
        {
            if let Some(time) = flag {
                *field = PerStage::All(time);
            }
        }
        costs.fb = self.fb.or(costs.fb);
        match self.memory_limit[..] {
            [] => {}
            [limit] => costs.limit = Some(PerStage::All(limit)),
            _ => costs.limit = Some(PerStage::Each(self.memory_limit.clone())),
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<CostsFile, Error> {
    let text = read_text(path)?;
    serde_json::from_str(&text).map_err(|why| {
        Error::input(Code::BadCosts, format!("{}: {why}", path.display()))
            .help("each of f, i, w, mem_f, mem_i, mem_w is a number or a list with one per stage")
    })
}

fn drawn(answer: &ScheduleReport, timeline: &Timeline, to_screen: bool) -> String {
    let terminal = to_screen && std::io::stdout().is_terminal();
    let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(120);
    let peak = answer.peak_memory.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
    let unit = &answer.unit;
    let (name, reached) = match answer.objective {
        Objective::Makespan => ("makespan", answer.makespan),
        Objective::Span => ("span", answer.span),
    };
    let verdict = match answer.status {
        Status::Optimal => "no order is faster".to_string(),
        Status::Feasible => format!("at most {:.1} % above the best", 100.0 * answer.gap / (1.0 - answer.gap)),
        Status::Infeasible => "above the memory limit".to_string(),
    };
    format!(
        "{}\n{}: {} stages, {} micro-batches\n{name:<13} {reached} {unit}, lower bound {} {unit}: {verdict}\n\
         bubble        {:.1} %\npeak memory   {peak} by rank, in forward activations of a stage unless costs say otherwise\n",
        grid(timeline, width, terminal),
        answer.kind,
        answer.stages,
        answer.microbatches,
        answer.lower_bound,
        100.0 * answer.bubble,
    )
}
