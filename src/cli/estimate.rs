//! `meshwright estimate`: predicted step time of a model on a cluster, without the cluster.

use super::ignored::say_ignored;
use super::options::job::{ConfigFlags, asked_job, missing};
use super::options::present::{PresentFlags, told};
use super::options::sizes::ModelSizes;
use super::search_watch::SearchWatch;
use super::status;
use super::{Answer, TableFormat, json};
use crate::error::Error;
use clap::Args;
use compiler::error::Error as RequestError;
use compiler::text_files::read_text;
use estimator::{ConfigLine, EstimateReport, EstimateRequest, Estimator, SCHEMA, estimate_all};
use ir::catalogue::Code;
use serde_json::json;
use std::path::PathBuf;
use support::table::table;
use support::units::{count, percent, time};

/// Predict step time and memory of a configuration on a cluster
///
/// Nothing is executed: the cost model estimates the kernels and collectives of one rank, and the schedule is simulated.
/// Configurations that do not fit into memory are predicted too.
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright estimate llama3-8b --cluster h100 --gpus 8 --seq 8192 --global-batch 128 \\
      --parallel tp=2,zero=1,sp=true
  meshwright estimate llama3.1-405b --cluster h100 --gpus 1024 --seq 8192 --global-batch 512 \\
      --parallel tp=8,pp=16,vp=8,sp=true,zero=1 --format json
  meshwright estimate llama3-8b --gpus 64 --from-megatron \"--tensor-model-parallel-size 4 \\
      --sequence-parallel --use-distributed-optimizer --micro-batch-size 1 --seq-length 8192 \\
      --global-batch-size 128 --bf16\"
  meshwright estimate llama3-8b --gpus 64 --from-torchtitan config_registry.py:llama3_8b
  meshwright estimate --from-nanotron config.yaml
  meshwright estimate llama3-8b --gpus 16 --seq 4096 --from-deepspeed ds_config.json
  meshwright estimate --gpus 64 --from-maxtext llama3_8b.yml
  meshwright estimate llama3-8b --cluster a100-80gb --gpus 64 --seq 4096 --global-batch 256 \\
      --configs configs.jsonl
  meshwright estimate --layers 32 --hidden 4096 --heads 32 --kv-heads 8 --ffn 14336 \\
      --vocab 128256 --gpus 8 --seq 8192 --global-batch 128 --parallel tp=2,zero=1")]
pub(super) struct Estimate {
    #[command(flatten)]
    flags: ConfigFlags,
    #[command(flatten)]
    sizes: ModelSizes,
    #[command(flatten)]
    present: PresentFlags,
    /// Predict each line of this file instead (`-`: standard input): a configuration, or {"parallel": .., "model": .., "gpus": ..}
    #[arg(long, value_name = "FILE", conflicts_with = "parallel")]
    configs: Option<PathBuf>,
    /// Output format; with --configs, `json` prints one line per configuration
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
    /// Read the options from a JSON file (`-`: standard input); flags override it
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
}

impl Estimate {
    pub(super) fn run(mut self) -> Result<Answer, Error> {
        self.flags.job.in_numbers(&self.sizes)?;
        let mut notes = Vec::new();
        if let Some(mut present) = self.present.read(self.flags.gpus, self.flags.job.cluster())? {
            notes = told(&mut present, self.flags.job.model.as_deref())?;
            self.flags.job.fill(&present);
            self.flags.parallel = Some(present.parallel);
        }
        let missing = missing("estimate", &self.flags.job, None).filter(|_| self.configs.is_none());
        let request: EstimateRequest = asked_job(self.request.as_deref(), missing.as_deref(), &self.flags)?;
        say_ignored(&request.model)?;
        match &self.configs {
            Some(path) => many(&request, &read_text(path)?, self.format),
            None => {
                let report = Estimator::new().estimate(&request)?;
                let text = if self.format == TableFormat::Json { json(&report)? } else { report.to_string() };
                Ok(Answer { notes, ..Answer::done(text) })
            }
        }
    }
}

/// Limit on the lines of a file; each answer takes some kilobytes.
const MOST_LINES: usize = 1 << 16;

/// Limit on the refused lines whose reasons a table lists.
const MOST_SHOWN: usize = 50;

/// Answers all nonblank lines of a file. A refused configuration is an answer. A line that cannot be parsed gets an
/// answer too, and an error at the end.
fn many(base: &EstimateRequest, lines: &str, format: TableFormat) -> Result<Answer, Error> {
    let (numbers, lines): (Vec<usize>, Vec<&str>) =
        (1..).zip(lines.lines()).filter(|(_, line)| !line.trim().is_empty()).take(MOST_LINES + 1).unzip();
    if lines.len() > MOST_LINES {
        let message = format!("the file has more than {MOST_LINES} configurations");
        return Err(Error::input(Code::RequestUnreadable, message).help("split it into several files"));
    }
    let requests: Vec<_> = lines.iter().map(|line| ConfigLine::parse(line).map(|line| line.over(base))).collect();
    let whole: Vec<EstimateRequest> = requests.iter().filter_map(|request| request.as_ref().ok().cloned()).collect();
    let watch = SearchWatch::new();
    let told = |done| watch.line(format_args!("{done} of {} configurations predicted", whole.len()));
    let mut answers = estimate_all(&Estimator::new(), &whole, &told).into_iter();
    watch.over();
    let answers = requests.into_iter().map(|request| match request.and_then(|_| answers.next().transpose()) {
        Ok(answer) => answer.ok_or_else(|| RequestError::fault("estimate", "a line has no answer")),
        Err(error) => Err(error.into()),
    });
    let answers: Vec<(&str, Result<EstimateReport, RequestError>)> = lines.into_iter().zip(answers).collect();
    let wrong = numbers.iter().zip(&answers).filter(|(_, (_, answer))| answer.as_ref().is_err_and(is_no_config));
    let wrong: Vec<String> = wrong.map(|(number, _)| number.to_string()).collect();
    let shown = wrong[..wrong.len().min(MOST_SHOWN)].join(", ");
    let text = if format == TableFormat::Table { ranking(answers) } else { json_lines(answers)? };
    if wrong.is_empty() {
        return Ok(Answer::done(text));
    }
    let message = match wrong.len().saturating_sub(MOST_SHOWN) {
        0 => format!("lines that are not a configuration: {shown}"),
        more => format!("lines that are not a configuration: {shown} and {more} more"),
    };
    let complaint = Error::input(Code::RequestUnreadable, message).help("the answer gives the reason for each line");
    Ok(Answer::ended(text, status::of_error(&complaint), Some(complaint)))
}

/// True if a line could not be read, rather than what it asks be refused.
fn is_no_config(error: &RequestError) -> bool {
    matches!(error.code(), Some(Code::RequestUnreadable | Code::BadOption))
}

/// A line for each answer.
fn json_lines(answers: Vec<(&str, Result<EstimateReport, RequestError>)>) -> Result<String, Error> {
    let mut text = String::new();
    for (line, answer) in answers {
        let line = match answer {
            Ok(report) => serde_json::to_string(&report),
            Err(error) => serde_json::to_string(&refusal(line, &error)),
        };
        text += &line.map_err(|why| Error::fault("json", why))?;
        text.push('\n');
    }
    Ok(text)
}

fn refusal(line: &str, error: &RequestError) -> serde_json::Value {
    let code = error.code().map(|code| code.to_string());
    json!({"schema": SCHEMA, "status": "error", "line": line, "code": code, "error": error.to_string().trim_end()})
}

/// The fastest first, what does not fit after what does; then what was refused.
fn ranking(answers: Vec<(&str, Result<EstimateReport, RequestError>)>) -> String {
    let (mut reports, mut refused, mut more) = (Vec::new(), String::new(), 0);
    for (at, (line, answer)) in answers.into_iter().enumerate() {
        match answer {
            Ok(report) => reports.push(report),
            Err(error) if at - reports.len() < MOST_SHOWN => refused += &format!("{line}\n{error}"),
            Err(_) => more += 1,
        }
    }
    if more > 0 {
        refused += &format!("{more} more lines are refused\n");
    }
    reports.sort_by(|a, b| {
        let key = |report: &EstimateReport| -report.predicted.tokens_per_s_per_gpu;
        (!a.predicted.fits).cmp(&!b.predicted.fits).then(key(a).total_cmp(&key(b)))
    });
    let rows: Vec<_> = reports
        .iter()
        .map(|report| {
            let predicted = &report.predicted;
            [
                time(predicted.step_time_s),
                count(predicted.tokens_per_s_per_gpu),
                percent(predicted.mfu).trim().to_string(),
                format!("{:.1}", predicted.fullest().device),
                if predicted.fits { "yes" } else { "no" }.to_string(),
                report.inputs.parallel.clone(),
            ]
        })
        .collect();
    table(["STEP", "TOKENS/S/GPU", "MFU", "GIB", "FITS", "CONFIG"], &rows) + &refused
}
