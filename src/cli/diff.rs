//! `meshwright diff A B`: two configurations, or two plan files, side by side.

use super::options::job::{JobFlags, asked_job};
use super::options::sizes::ModelSizes;
use super::{Answer, TableFormat, json};
use crate::error::Error;
use autotune::explain::{diff, read_plan};
use clap::Args;
use estimator::{EstimateReport, EstimateRequest, Estimator};
use serde::Serialize;
use std::path::{Path, PathBuf};
use support::quantities::count_of;

/// Compare two configurations of a job, or two plan files: options, parts of the step, memory
///
/// A plan file is the answer of `plan --format json` or `estimate --format json`. Two files may be of different jobs; the
/// comparison then names what differs, and compares the time of a token on a device.
#[derive(Args)]
#[command(
    override_usage = "meshwright diff [OPTIONS] <MODEL> <A> <B>\n       meshwright diff [OPTIONS] <FILE> <FILE>",
    after_help = "\
Examples:
  meshwright diff llama3-8b tp=2,zero=1 tp=4,sp=true,zero=1 --gpus 8 --seq 8192 --global-batch 64
  meshwright plan llama3-8b --gpus 8 --seq 8k --global-batch 64 --format json -o a.json
  meshwright plan llama3-8b --gpus 16 --seq 8k --global-batch 64 --format json -o b.json
  meshwright diff a.json b.json
  meshwright diff a.json b.json --format json"
)]
pub(super) struct Diff {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    sizes: ModelSizes,
    /// First configuration, or plan file
    a: Option<String>,
    /// Second configuration
    b: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
    /// Write the answer to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args, Serialize)]
struct Flags {
    #[command(flatten)]
    #[serde(flatten)]
    job: JobFlags,
    /// Number of devices; dp follows from it if left out [default: those of each configuration]
    #[arg(long, value_name = "N", value_parser = count_of)]
    gpus: Option<u64>,
}

impl Diff {
    pub(super) fn run(mut self) -> Result<Answer, Error> {
        if self.sizes.is_given() && self.b.is_none() {
            // Without a MODEL, the configurations come first.
            (self.a, self.b) = (self.flags.job.model.take(), self.a.take());
            self.flags.job.in_numbers(&self.sizes)?;
        }
        let [a, b] = match (&self.flags.job.model, &self.a, &self.b) {
            (Some(model), Some(one), None) if one.contains('=') && !Path::new(one).exists() => {
                let message = format!("`diff {model}` needs two configurations, but `{one}` is alone");
                return Err(Error::Usage(message));
            }
            (Some(a), Some(b), None) => self.files([Path::new(a), Path::new(b)])?,
            (Some(_), Some(a), Some(b)) => self.configurations([a, b])?,
            _ => return Err(Error::Usage("`diff` needs a MODEL and two configurations, or two plan files".into())),
        };
        let found = diff(&a, &b);
        let text = if self.format == TableFormat::Json { json(&found)? } else { found.to_string() };
        Answer::done(text).put(self.output.as_deref())
    }

    /// Predictions of plan files, which have all options.
    fn files(&self, paths: [&Path; 2]) -> Result<[EstimateReport; 2], Error> {
        let given = serde_json::to_value(&self.flags).unwrap_or_default();
        let named = |(name, value): (&String, &serde_json::Value)| {
            (name != "model" && !value.is_null()).then(|| format!("--{}", name.replace('_', "-")))
        };
        if let Some(flag) = given.as_object().and_then(|flags| flags.iter().find_map(named)) {
            let message = format!("{flag} goes with a MODEL and two configurations: plan files have their own");
            return Err(Error::Usage(message));
        }
        let [a, b] = paths.map(|path| read_plan(path).map(|plan| plan.chosen));
        Ok([a?, b?])
    }

    /// Predictions of configurations of one job.
    fn configurations(&self, configurations: [&String; 2]) -> Result<[EstimateReport; 2], Error> {
        let request: EstimateRequest = asked_job(None, None, &self.flags)?;
        let estimator = Estimator::new();
        let [a, b] = configurations
            .map(|parallel| estimator.estimate(&EstimateRequest { parallel: parallel.clone(), ..request.clone() }));
        Ok([a?, b?])
    }
}
