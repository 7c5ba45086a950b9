//! `meshwright calibrate`: constants fitted to measurements of this machine, or to training runs.

use super::measuring;
#[cfg(feature = "cuda")]
use super::measuring_gpu;
use crate::accuracy::{self, FewFit, Fit, RUNS_EACH, Run, Scored, Summary};
use crate::calibrate;
use crate::cli::Answer;
use crate::error::Error;
use clap::{Args, ValueEnum};
use compiler::error::Error as RequestError;
use compiler::machine_source;
use compiler::text_files::{read_text, write_text};
use cost::Stack;
use estimator::Estimator;
use ir::catalogue::Code;
use std::path::{Path, PathBuf};
use support::one_line::printable;
use support::table::table;
use support::units::plural;

/// Measure this machine, or fit a stack to measured runs
///
/// Without --from, kernels and communication of virtual devices are timed for about fifteen seconds. The results are shown, and
/// written as a cluster file for `estimate --cluster FILE --stack meshwright-threads`. Measure on an idle machine.
///
/// With --backend cuda, the kernels of a GPU are timed for less than a minute, and the copies between ranks that share it. The
/// file is for `--stack meshwright-cuda`. The exit status is 1 if there is no GPU.
///
/// With --script torch, nothing is measured: the answer is a Python program that needs PyTorch alone. Under torchrun it measures GPUs or
/// cores of one node, or GPUs of several, with their collectives, and writes a cluster file.
///
/// With --from, each line of the file is a run: {"model": .., "cluster": .., "stack": .., "gpus": .., "seq": ..,
/// "global_batch": .., "precision": .., "parallel": .., "step_time_s": ..}. The constants of the stack are
/// fitted within their intervals, one constant for every two runs, and the file states the errors on runs that were left out.
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright calibrate -o here.toml                          measure this machine
  meshwright calibrate --backend cuda -o gpu.toml            measure its GPU
  meshwright calibrate --script torch -o measure.py          measure a cluster with PyTorch:
  # torchrun --nproc-per-node 8 measure.py cluster.toml
  meshwright calibrate --from runs.jsonl                     prediction error of the presets
  meshwright calibrate --from runs.jsonl -o stack.toml       fit the stack of the runs
  meshwright calibrate --from runs.jsonl --report accuracy.md")]
pub(in crate::cli) struct Calibrate {
    /// File of measured runs, one JSON object per line
    #[arg(long, value_name = "FILE.jsonl")]
    from: Option<PathBuf>,
    /// Backend to measure
    #[arg(long, value_enum, value_name = "NAME", default_value_t, conflicts_with = "from")]
    backend: Backend,
    /// Index of the GPU, with --backend cuda [default: 0]
    #[arg(long, value_name = "N", conflicts_with = "from")]
    device: Option<usize>,
    /// Measure small sizes only, with --backend cuda; the rates are not meaningful
    #[arg(long, conflicts_with = "from")]
    quick: bool,
    /// Write a program that measures a cluster instead
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["from", "backend", "device", "quick", "stack", "report", "runs", "list"])]
    script: Option<Script>,
    /// Use only the runs on this stack
    #[arg(long)]
    stack: Option<String>,
    /// Write the cluster, or the program of --script, to this file; with --from: fit the stack and write it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the error tables to this file
    #[arg(long, value_name = "FILE.md")]
    report: Option<PathBuf>,
    /// Write the runs that are used to this file, in the format of --from
    #[arg(long, value_name = "FILE.jsonl")]
    runs: Option<PathBuf>,
    /// List every run
    #[arg(long)]
    list: bool,
}

/// The measured backend.
#[derive(Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Backend {
    /// The processor
    #[default]
    Cpu,
    /// An NVIDIA GPU
    Cuda,
}

/// A program that measures a cluster.
#[derive(Clone, Copy, ValueEnum)]
enum Script {
    /// Python, with PyTorch: for torchrun
    Torch,
}

impl Calibrate {
    pub(in crate::cli) fn run(self) -> Result<Answer, Error> {
        match self.script {
            Some(Script::Torch) => Answer::done(calibrate::TORCH_SCRIPT.to_string()).put(self.output.as_deref()),
            None => self.answer().map(Answer::done),
        }
    }

    fn answer(self) -> Result<String, Error> {
        let Some(from) = &self.from else {
            self.needs_no_runs()?;
            self.needs_no_gpu()?;
            let output = self.output.as_deref();
            return match self.backend {
                Backend::Cpu => measuring::run(output),
                #[cfg(not(feature = "cuda"))]
                Backend::Cuda => Err(Error::Usage(
                    "`calibrate --backend cuda` is not in this build: build it with cargo build --release --features cuda".into(),
                )),
                #[cfg(feature = "cuda")]
                Backend::Cuda => measuring_gpu::run(self.device.unwrap_or(0), self.quick, output),
            };
        };
        let mut runs = accuracy::read(&read_text(from)?)?;
        runs.retain(|run| self.stack.as_ref().is_none_or(|stack| *stack == run.request.stack));
        if runs.is_empty() {
            return Err(Error::input(Code::BadOption, format!("{} has no runs to use", from.display()))
                .help("name a file with runs, and a stack that occurs in it"));
        }
        if let Some(path) = &self.runs {
            write_text(path, &accuracy::write(&runs)?)?;
        }
        let estimator = Estimator::new();
        if let Some(path) = &self.output {
            return fitted(&estimator, &runs, path);
        }
        let scored = accuracy::score(&estimator, &runs);
        if let Some(path) = &self.report {
            let stacks = stacks(&runs)?;
            let folds = accuracy::folds(&estimator, &stacks, &runs);
            write_text(path, &printable(&accuracy::document(&scored, &folds, &stacks)))?;
        }
        Ok(if self.list { listed(&scored) } else { summed_up(&accuracy::by_source(&scored)) })
    }

    /// Refuses options that require a GPU, on the processor.
    fn needs_no_gpu(&self) -> Result<(), Error> {
        let given = [("--device", self.device.is_some()), ("--quick", self.quick)];
        match given.into_iter().find(|(_, given)| *given && self.backend == Backend::Cpu) {
            None => Ok(()),
            Some((option, _)) => {
                let message = format!("`{option}` requires --backend cuda");
                Err(Error::input(Code::ConflictingOptions, message).help(format!(
                    "add --backend cuda to measure a GPU, or leave out {option} to measure the processor"
                )))
            }
        }
    }

    /// Refuses options that require `--from`.
    fn needs_no_runs(&self) -> Result<(), Error> {
        let given = [
            ("--stack", self.stack.is_some()),
            ("--report", self.report.is_some()),
            ("--runs", self.runs.is_some()),
            ("--list", self.list),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((option, _)) => {
                let message = format!("`{option}` requires --from");
                Err(Error::input(Code::ConflictingOptions, message).help(format!(
                    "give the runs with --from FILE.jsonl, or leave out {option} to measure this machine"
                )))
            }
        }
    }
}

/// Returns the stacks of the runs, in order of first appearance.
fn stacks(runs: &[Run]) -> Result<Vec<Stack>, Error> {
    let mut stacks: Vec<Stack> = Vec::new();
    for run in runs {
        if stacks.iter().all(|stack| stack.name != run.request.stack) {
            stacks.push(machine_source::stack(&run.request.stack)?);
        }
    }
    Ok(stacks)
}

/// The runs that a fit may use: those that are predicted.
///
/// # Errors
/// There are fewer than one constant needs.
fn usable<'a>(estimator: &Estimator, runs: &'a [Run], stack: &Stack) -> Result<Vec<&'a Run>, Error> {
    let scored = accuracy::score(estimator, runs.iter().filter(|run| !run.apart));
    let first = scored.iter().find_map(|row| row.prediction.as_ref().err()).map(RequestError::message);
    let used: Vec<&Run> = scored.iter().filter(|row| row.prediction.is_ok()).map(|row| row.run).collect();
    if used.len() >= RUNS_EACH {
        return Ok(used);
    }
    let number = plural(used.len() as u64, "run");
    let refused = first.map_or_else(String::new, |why| format!("; others cannot be predicted, the first: {why}"));
    Err(Error::input(Code::BadOption, format!("{} cannot be fitted to {number}{refused}", stack.name)).help(format!(
        "give {RUNS_EACH} runs for each constant; the intervals of predictions narrow with their number"
    )))
}

fn fitted(estimator: &Estimator, runs: &[Run], path: &Path) -> Result<String, Error> {
    let stacks = stacks(runs)?;
    let [stack] = stacks.as_slice() else {
        let names: Vec<&str> = stacks.iter().map(|stack| stack.name.as_str()).collect();
        return Err(Error::input(Code::BadOption, format!("the runs are on {}", names.join(", ")))
            .help("choose one with --stack: only one stack can be fitted"));
    };
    let own = usable(estimator, runs, stack)?;
    let FewFit { fit, fitted, narrow } = accuracy::fit_few(estimator, stack, &own);
    let Fit { stack: fit, error, rows, at_end } = fit;
    write_text(path, &calibrate::stack_file(&fit)?)?;
    let folds = accuracy::folds(estimator, std::slice::from_ref(&narrow), runs);
    let mut constants = fit.fitted;
    let rows_of = constants.by_name().map(|(name, constant)| {
        let end = match (fitted.contains(&name), at_end.contains(&name)) {
            (false, _) => "not fitted",
            (true, true) => "at a bound of its interval",
            (true, false) => "",
        };
        [name, &format!("{}", constant.value), &format!("{}", constant.low), &format!("{}", constant.high), end]
            .map(String::from)
    });
    let [low, high] = [fit.residual.time.low, fit.residual.time.high].map(f64::exp);
    let seen: Vec<Summary> = folds.into_iter().map(|fold| fold.summary).collect();
    Ok(format!(
        "stack {} fitted to {rows} runs: mean error {:.1} %; measured / predicted time of runs left out: 10th percentile {low:.3}, 90th \
         percentile {high:.3}\n\n{}\nErrors on held-out runs:\n\n{}",
        fit.name,
        error * 100.0,
        table(["CONSTANT", "VALUE", "LOW", "HIGH", ""], &rows_of),
        summed_up(&seen),
    ))
}

fn summed_up(rows: &[Summary]) -> String {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let row = |row: &Summary| {
        [
            row.name.clone(),
            row.rows.to_string(),
            row.refused.to_string(),
            percent(row.median),
            percent(row.p90),
            format!("{:.3}", row.bias),
            percent(row.inside),
        ]
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    table(["SOURCE", "RUNS", "REFUSED", "MEDIAN", "P90", "BIAS", "IN INTERVAL"], &rows)
}

fn listed(scored: &[Scored<'_>]) -> String {
    let row = |row: &Scored<'_>| {
        let ratio = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.3}"));
        let why = row.prediction.as_ref().err().map(ToString::to_string).unwrap_or_default();
        [
            row.run.id.clone(),
            row.run.request.parallel.clone(),
            format!("{:.4}", row.run.step_time_s),
            ratio(row.ratio()),
            ratio(row.memory_ratio()),
            why.lines().next().unwrap_or_default().to_string(),
        ]
    };
    let rows: Vec<_> = scored.iter().map(row).collect();
    table(["RUN", "CONFIG", "SECONDS", "PREDICTED/MEASURED", "MEMORY", ""], &rows)
}
