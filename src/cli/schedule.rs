//! `meshwright schedule`: one pipeline schedule, timed and drawn.

use super::drawing::{self, Compared, Drawn};
use super::options::request::{Fields, from_json, resolve};
use super::{Answer, NOTHING_FITS};
use crate::error::Error;
use clap::{Args, ValueEnum};
use compiler::text_files::read_text;
use ir::catalogue::Code;
use scheduler::costs::{CostsFile, PerStage};
use scheduler::decimal::precise;
use serde::Serialize;
use std::path::{Path, PathBuf};
use support::quantities::finite;
use view::draw::{html, svg, trace};
use view::interop::write_csv;
use view::report::{ScheduleReport, ScheduleRequest};

/// Simulate and draw one pipeline schedule, with its bubble and the memory of each rank
///
/// Actions: F is a forward, I the gradient of the inputs, W the gradient of the weights, B both fused. G gathers parameters,
/// D drops them, R reduces gradients, N is the global norm, U the update, O offloads activations, L loads them back. Times
/// are in any unit.
#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  meshwright schedule --stages 4 --microbatches 8 --kind 1f1b
  meshwright schedule --stages 4 --microbatches 8 --kind gpipe --f 1 --i 1.2 --w 0.8 \\
      --comm 0.1 --format json
  meshwright schedule --stages 2 --microbatches 4 --kind 1f1b --memory-limit 2,1 \\
      --backward split
  meshwright schedule --stages 4 --microbatches 8 --kind 1f1b --compare gpipe \\
      --format html -o both.html
  meshwright schedule --from torch.csv --f 1 --i 1.2 --w 0.8 --format svg -o torch.svg"
)]
pub(super) struct Schedule {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    costs: Costs,
    /// Read the options from a JSON file (`-`: standard input); flags override it
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// Read the order from a file: CSV of torch.distributed.pipelining, or JSON of --format json
    #[arg(long, value_name = "FILE", conflicts_with_all = ["request", "stages", "microbatches", "kind", "chunks", "placement", "backward", "group", "slices", "deadline"])]
    from: Option<PathBuf>,
    /// Draw a second schedule below on the same time axis: a kind, a file as for --from, or a trace of `train`
    #[arg(long, value_name = "KIND|FILE")]
    compare: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Write the answer to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args, Serialize)]
struct Flags {
    /// Pipeline ranks
    #[arg(long, value_name = "P")]
    stages: Option<u32>,
    /// Micro-batches per step
    #[arg(long, value_name = "M")]
    microbatches: Option<u32>,
    /// Schedule kind: see `meshwright schedules`
    #[arg(long)]
    kind: Option<String>,
    /// Stages per rank [default: depends on the kind]
    #[arg(long, value_name = "V")]
    chunks: Option<u32>,
    /// Micro-batches per group in interleaved kinds [default: depends on the kind]
    #[arg(long, value_name = "N")]
    group: Option<u32>,
    /// Sequence slices per micro-batch in sliced kinds; costs are per slice [default: depends on the kind]
    #[arg(long, value_name = "Q")]
    slices: Option<u32>,
    /// Placement of stages on ranks [default: depends on the kind]
    #[arg(long, value_parser = ["chain", "loop", "v", "bidirectional"])]
    placement: Option<String>,
    /// Fuse I and W into one backward [default: depends on the kind]
    #[arg(long, value_parser = ["auto", "fused", "split"])]
    backward: Option<String>,
    /// Objective: makespan (first action of all ranks to the last) or span (longest time from a rank's first action to its
    /// last) [default: makespan]
    #[arg(long, value_parser = ["makespan", "span"])]
    objective: Option<String>,
    /// Stop the searches of `optimal` and `v-auto` after this many seconds, with the best order found [default: a fixed amount
    /// of work]
    #[arg(long, value_name = "SECONDS", value_parser = finite)]
    deadline: Option<f64>,
    /// When a send waits for its receive: never (async), with the next receives (batched), or each send by itself
    /// (blocking). Checks for deadlocks; times are those of async [default: async]
    #[arg(long, value_parser = ["async", "batched", "blocking"])]
    sends: Option<String>,
}

#[derive(Args)]
struct Costs {
    /// Time of a forward [default: 1]
    #[arg(long, value_name = "TIME", value_parser = finite)]
    f: Option<f64>,
    /// Time of the gradient of the inputs [default: 1]
    #[arg(long, value_name = "TIME", value_parser = finite)]
    i: Option<f64>,
    /// Time of the gradient of the weights [default: 1]
    #[arg(long, value_name = "TIME", value_parser = finite)]
    w: Option<f64>,
    /// Time of an overlapped pair of F and B [default: the sum]
    #[arg(long, value_name = "TIME", value_parser = finite)]
    fb: Option<f64>,
    /// Time of a point-to-point transfer between ranks [default: 0]
    #[arg(long, value_name = "TIME", value_parser = finite)]
    comm: Option<f64>,
    /// Activation memory limit per rank, in forward passes: one number, or one per rank
    #[arg(long, value_name = "X|X,Y,..", value_delimiter = ',', value_parser = finite)]
    memory_limit: Vec<f64>,
    /// JSON with costs per stage: {"unit","f","i","w","fb","comm","mem_f","mem_i","mem_w","limit"}
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Format {
    /// Text: one line per rank, time from left to right
    #[default]
    Grid,
    /// JSON with all figures and the order
    Json,
    /// CSV of the order, as torch.distributed.pipelining loads it
    Csv,
    /// Drawing, with the memory of each rank
    Svg,
    /// Interactive web page
    Html,
    /// Trace for ui.perfetto.dev
    Trace,
}

impl Schedule {
    pub(super) fn run(self) -> Result<Answer, Error> {
        let mut request: ScheduleRequest = match (&self.request, &self.from) {
            (Some(path), _) => resolve(from_json::<ScheduleRequest>(path)?, &self.flags)?,
            (None, Some(_)) => resolve(Fields::new(), &self.flags)?,
            (None, None) => resolve(required(&self.flags)?, &self.flags)?,
        };
        self.costs.apply(&mut request.costs)?;
        let drawn = match &self.from {
            Some(path) => Drawn::from_file(path, &request)?,
            None => Drawn::of_kind(&request)?,
        };
        let compared = self.compare.as_ref().map(|what| Compared::find(what, &request, &drawn)).transpose()?;
        let text = self.text(&drawn, compared)?;
        let answer = &drawn.report;
        let (status, complaint) = match answer.over_limit.first() {
            Some(first) => (NOTHING_FITS, Some(over_limit(first, answer))),
            None => (0, None),
        };
        Answer { has_colours: true, ..Answer::ended(text, status, complaint) }.put(self.output.as_deref())
    }
}

impl Schedule {
    fn text(&self, drawn: &Drawn, compared: Option<Compared>) -> Result<String, Error> {
        let pictures = |compared: Option<Compared>| -> Vec<_> {
            std::iter::once(drawn.picture()).chain(compared.map(Compared::picture)).collect()
        };
        match (self.format, compared) {
            (Format::Grid, compared) => drawing::grids(drawn, compared, self.output.is_none()),
            (Format::Svg, compared) => Ok(svg(&pictures(compared))),
            (Format::Html, compared) => Ok(html(&pictures(compared))),
            (Format::Json | Format::Csv | Format::Trace, Some(_)) => {
                Err(Error::Usage("--compare requires --format grid, svg or html".into()))
            }
            (Format::Json, None) => super::json(&drawn.report),
            (Format::Csv, None) => Ok(write_csv(&drawn.schedule())?),
            (Format::Trace, None) => Ok(trace(&drawn.picture(), &drawn.timeline)),
        }
    }
}

/// Error printed with an answer that exceeds the memory limit.
fn over_limit(first: &str, answer: &ScheduleReport) -> Error {
    let most = |numbers: &[f64]| numbers.iter().copied().fold(0.0, f64::max);
    let own = format!("this order needs --memory-limit {}", precise(most(&answer.peak_memory)));
    let least = answer
        .least_limit
        .iter()
        .map(|least| format!("; the smallest limit for any order is {}", precise(most(least))));
    Error::input(Code::MemoryLimit, first).help(format!("{own}{}", least.collect::<String>()))
}

/// Checks that the required flags are given, if there is no request file.
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
    /// Applies the costs: a costs file replaces those of the request, and flags override the file.
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
