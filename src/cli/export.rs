//! `meshwright export`: a configuration in the language of another training framework.

use super::options::job::{ConfigFlags, asked_job};
use super::options::sizes::ModelSizes;
use super::{Answer, TableFormat, json};
use crate::error::Error;
use crate::exporting::export;
use autotune::explain::read_plan;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use compiler::model_source::ModelSource;
use estimator::{EstimateReport, EstimateRequest, Estimator};
use exports::{Export as Written, Grade, Launch, Target};
use ir::catalogue::Code;
use std::path::{Path, PathBuf};

/// Write a plan, or a configuration of a job, as flags or a file of another training framework
///
/// The answer holds what the framework can state. Keys that it states nearly or not at all are listed above it, and on standard
/// error. If a key would be lost nothing is written, unless --allow names it.
#[derive(Args)]
#[command(
    override_usage = "meshwright export [OPTIONS] --to <FRAMEWORK> <PLAN>\n       meshwright export [OPTIONS] --to <FRAMEWORK> <MODEL>",
    after_help = "\
Examples:
  meshwright plan llama3-8b --gpus 64 --seq 8k --global-batch 128 --format json -o plan.json
  meshwright export plan.json --to megatron -o run.sh
  meshwright export llama3-8b --to torchtitan --gpus 64 --seq 8192 --global-batch 128 \\
      --parallel tp=4,sp=true,zero=3
  meshwright export llama3-8b --to deepspeed --gpus 8 --seq 8192 --global-batch 64 \\
      --parallel zero=3,recompute=full --allow recompute
  meshwright export plan.json --to torch-pipelining -o pipeline.py"
)]
pub(super) struct Export {
    #[command(flatten)]
    flags: ConfigFlags,
    #[command(flatten)]
    sizes: ModelSizes,
    /// Framework
    #[arg(long, value_name = "FRAMEWORK", value_parser = one_of(Target::ALL))]
    to: Target,
    /// Launcher of the processes, for a framework whose export is a script: `torchrun` once on each node, `slurm` by sbatch, or the
    /// script itself once on each node, `bare`
    #[arg(long, value_name = "LAUNCHER", default_value = "torchrun", value_parser = one_of(Launch::ALL))]
    launch: Launch,
    /// Refuse keys that the framework states nearly too
    #[arg(long)]
    strict: bool,
    /// Leave out these keys, comma-separated, if the framework cannot state them
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    allow: Vec<String>,
    /// Output format; `json` has the file as text, and the keys that it does not state exactly
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
    /// Write the answer to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Reads one of some names.
fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.map(|(name, _)| name)).try_map(move |name: String| {
        all.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value).ok_or("there is no such name")
    })
}

impl Export {
    pub(super) fn run(mut self) -> Result<Answer, Error> {
        self.flags.job.in_numbers(&self.sizes)?;
        let estimator = Estimator::new();
        let report = self.report(&estimator)?;
        let written = export(&estimator, &report, self.to, self.launch)?;
        self.check(&written)?;
        let warned = report.warnings().into_iter().map(|warning| format!("note: {warning}"));
        let notes = written.notes.iter().map(ToString::to_string).chain(warned).collect();
        let text = if self.format == TableFormat::Json { json(&written)? } else { written.text };
        Answer { notes, ..Answer::done(text) }.put(self.output.as_deref())
    }

    /// The prediction of the configuration: that of a plan file, unless the flags describe a job.
    fn report(&mut self, estimator: &Estimator) -> Result<EstimateReport, Error> {
        let given = serde_json::to_value(&self.flags).unwrap_or_default();
        let is_job = given
            .as_object()
            .is_some_and(|flags| flags.iter().any(|(name, value)| name != "model" && !value.is_null()));
        match &self.flags.job.model.clone() {
            None => Err(Error::Usage("`export` needs a plan file, or a MODEL with --seq and --global-batch".into())),
            Some(model) if !is_job && !Path::new(model).exists() && ModelSource::open(model).is_ok() => {
                Err(Error::Usage(format!("`export {model}` needs --seq and --global-batch, or a plan file")))
            }
            Some(plan) if !is_job => Ok(read_plan(Path::new(plan))?.chosen),
            Some(_) => {
                // The prediction is of the framework that runs the job.
                self.flags.job.with_stack(self.to.stack());
                let request: EstimateRequest = asked_job(None, None, &self.flags)?;
                Ok(estimator.estimate(&request)?)
            }
        }
    }

    /// # Errors
    /// A key would be lost, or be stated nearly where all must be exact.
    fn check(&self, written: &Written) -> Result<(), Error> {
        let allowed = |key: &str| self.allow.iter().any(|name| name == key);
        let refused = |grade| grade == Grade::Lost || self.strict;
        let left: Vec<_> = written.notes.iter().filter(|note| refused(note.grade) && !allowed(note.key)).collect();
        if left.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = left.iter().map(|note| format!("\n  {note}")).collect();
        let keys: Vec<&str> = left.iter().map(|note| note.key).collect();
        let message =
            format!("{} does not state this configuration exactly:{}", written.target.version(), lines.concat());
        let advice = format!("pin what it can state and plan again, or leave the keys out: --allow {}", keys.join(","));
        Err(Error::input(Code::LostInExport, message).help(advice))
    }
}
