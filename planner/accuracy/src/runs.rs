//! Measured runs, one JSON object per line.

use super::published;
use compiler::error::Error;
use compiler::model_source::{ADAPTERS, ModelSource};
use estimator::EstimateRequest;
use ir::catalogue::Code;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Source of runs whose line names none: they are the user's own.
pub(super) const OWN: &str = "runs";

/// A training run and its measurements.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// Name of the run, for messages.
    pub id: String,
    /// Publisher of the run. Errors are summarised by source.
    pub source: String,
    /// True if the run is reported apart: it is not fitted, and not in totals or rankings.
    pub apart: bool,
    /// Name of the model, for messages and for cross-validation by model.
    pub model: String,
    /// The request that predicts the run.
    pub request: EstimateRequest,
    /// Measured step time, in seconds.
    pub step_time_s: f64,
    /// Measured memory of a device in GiB, and the kind of figure.
    pub memory: Option<(f64, MemoryKind)>,
}

/// Kinds of memory figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Peak of allocated tensors, on the worst rank.
    Allocated,
    /// Peak of memory reserved by the allocator, on the ranks of the first pipeline stage.
    FirstStage,
    /// Peak of memory reserved by the allocator, on the worst rank.
    #[default]
    Reserved,
    /// Memory shown by the driver, on the worst rank, with contexts and communicators.
    Device,
}

/// A run as one line of the file.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunLine {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// A preset, a path, a name of the file's own models, or a configuration as it is in a `config.json`.
    pub model: Value,
    /// Adapters of the model, as behind `+lora=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<String>,
    pub cluster: String,
    pub stack: String,
    pub gpus: u64,
    pub seq: u64,
    pub global_batch: u64,
    /// Tokens of each document in a sequence, in the form of `--lengths`; default: one document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lengths: Vec<u64>,
    pub precision: String,
    /// Optimizer in the form of `--optimizer`; default: `adamw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<String>,
    #[serde(alias = "layout")]
    pub parallel: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_time_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_s_per_gpu: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gib: Option<f64>,
    #[serde(default)]
    pub memory: MemoryKind,
}

/// Reads a file of runs. A line has one of three forms: a run; `{"models": {NAME: CONFIG, ..}}`, names for
/// configurations that later lines use; or a record of a published collection. Records are skipped if they do not state
/// their configuration or a time.
///
/// # Errors
/// A line is not JSON, has an unknown key, or lacks a field that a prediction needs.
pub fn read(text: &str) -> Result<Vec<Run>, Error> {
    let mut models = BTreeMap::new();
    let mut runs = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why: serde_json::Error| {
            Error::input(Code::BadOption, format!("line {}: {why}", number + 1)).help(
                "a run has model, cluster, stack, gpus, seq, global_batch, precision, parallel, and step_time_s or \
                 tokens_per_s_per_gpu; optional are id, source, apart, optimizer, memory_gib and memory",
            )
        };
        let value: Value = serde_json::from_str(line).map_err(wrong)?;
        if let Some(Value::Object(named)) = value.get("models") {
            models.extend(named.clone());
        } else if value.get("model_config").is_some() {
            runs.extend(published::line(&value).map(|line| run(line, &models, number)).transpose()?);
        } else {
            runs.push(run(serde_json::from_value(value).map_err(wrong)?, &models, number)?);
        }
    }
    Ok(runs)
}

/// Prints runs as a file of the user's form, with each configuration once.
///
/// # Errors
/// A run cannot be written as JSON, which is an internal error.
pub fn write(runs: &[Run]) -> Result<String, Error> {
    let fault = |why| Error::fault("runs", why);
    let (mut names, mut models) = (BTreeMap::new(), BTreeMap::new());
    for run in runs.iter().filter(|run| run.request.model.starts_with('{')) {
        let (model, _) = ModelSource::split(&run.request.model);
        let config: Value = serde_json::from_str(model).map_err(fault)?;
        let count = names.len();
        let name = names.entry(model.to_string()).or_insert_with(|| format!("{}.{count}", run.model));
        models.insert(name.clone(), config);
    }
    let standard = EstimateRequest::default();
    let mut text = serde_json::json!({ "models": models }).to_string() + "\n";
    for run in runs {
        let request = &run.request;
        let (model, lora) = ModelSource::split(&request.model);
        let line = RunLine {
            id: run.id.clone(),
            source: run.source.clone(),
            apart: run.apart,
            model: Value::String(names.get(model).map_or(model, String::as_str).to_string()),
            lora: lora.map(str::to_string),
            cluster: request.cluster.clone(),
            stack: request.stack.clone(),
            gpus: request.gpus.unwrap_or(1),
            seq: request.seq,
            global_batch: request.global_batch,
            lengths: request.lengths.clone(),
            precision: request.precision.clone(),
            optimizer: Some(request.optimizer.clone()).filter(|optimizer| *optimizer != standard.optimizer),
            parallel: request.parallel.clone(),
            step_time_s: Some((run.step_time_s * 1e6).round() / 1e6),
            tokens_per_s_per_gpu: None,
            memory_gib: run.memory.map(|memory| memory.0),
            memory: run.memory.map_or(MemoryKind::default(), |memory| memory.1),
        };
        text += &(serde_json::to_string(&line).map_err(fault)? + "\n");
    }
    Ok(text)
}

fn run(line: RunLine, models: &BTreeMap<String, Value>, number: usize) -> Result<Run, Error> {
    let named = line.model.as_str().and_then(|name| models.get(name).map(|config| (name, config)));
    let (name, model) = match (&line.model, named) {
        (_, Some((name, config))) => (name.rsplit_once('.').map_or(name, |it| it.0).to_string(), config.to_string()),
        (Value::String(name), None) => (name.clone(), name.clone()),
        (config, None) => {
            let name = config.get("name").and_then(Value::as_str).unwrap_or("a configuration");
            (name.to_string(), config.to_string())
        }
    };
    let model = line.lora.iter().fold(model, |model, lora| format!("{model}{ADAPTERS}{lora}"));
    let tokens = line.global_batch as f64 * line.seq as f64 / line.gpus.max(1) as f64;
    let seconds = line.step_time_s.or(line.tokens_per_s_per_gpu.map(|rate| tokens / rate));
    let seconds = seconds.filter(|seconds| *seconds > 0.0 && seconds.is_finite()).ok_or_else(|| {
        Error::input(Code::BadOption, format!("line {}: the run has no time", number + 1))
            .help("give step_time_s or tokens_per_s_per_gpu, above 0")
    })?;
    let absurd = |name: &str, value: f64, unit: &str| {
        Error::input(Code::BadOption, format!("line {}: {name} is {value:e} {unit}", number + 1))
            .help("times are in seconds, 1e-9 to 1e9, and memory in GiB, 1e-6 to 1e6")
    };
    if !(1e-9..=1e9).contains(&seconds) {
        return Err(absurd("the time of a step", seconds, "s"));
    }
    if let Some(gib) = line.memory_gib.filter(|gib| !(1e-6..=1e6).contains(gib)) {
        return Err(absurd("the memory of a device", gib, "GiB"));
    }
    let standard = EstimateRequest::default();
    Ok(Run {
        id: if line.id.is_empty() { format!("line {}", number + 1) } else { line.id },
        source: if line.source.is_empty() { OWN.into() } else { line.source },
        apart: line.apart,
        model: name,
        request: EstimateRequest {
            model,
            cluster: line.cluster,
            stack: line.stack,
            gpus: Some(line.gpus),
            seq: line.seq,
            global_batch: line.global_batch,
            lengths: line.lengths,
            precision: line.precision,
            optimizer: line.optimizer.unwrap_or(standard.optimizer.clone()),
            parallel: line.parallel,
            // It ran: the free memory is no evidence.
            memory_margin: Some(0.0),
            ..standard
        },
        step_time_s: seconds,
        memory: line.memory_gib.map(|gib| (gib, line.memory)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"model":"llama3-8b","cluster":"h100","stack":"nemo","gpus":8,"seq":8192,"global_batch":16,
        "precision":"bf16","parallel":"tp=2","tokens_per_s_per_gpu":8192.0}"#;

    #[test]
    fn a_rate_is_a_time() {
        let runs = read(&RUN.replace('\n', "")).unwrap();
        assert_eq!((runs[0].step_time_s, runs[0].id.as_str(), runs[0].request.gpus), (2.0, "line 1", Some(8)));
        let message = read(&RUN.replace('\n', "").replace("8192.0", "0.0")).unwrap_err().to_string();
        assert!(message.contains("line 1: the run has no time"), "{message}");
    }

    #[test]
    fn what_no_machine_measures_is_refused() {
        let run = RUN.replace('\n', "");
        let time = |time: &str| read(&run.replace(r#""tokens_per_s_per_gpu":8192.0"#, time)).unwrap_err().to_string();
        assert!(time(r#""step_time_s":5e-324"#).contains("line 1: the time of a step is 5e-324 s"));
        assert!(time(r#""step_time_s":1e10"#).contains("the time of a step"));
        assert!(time(r#""step_time_s":1.0,"memory_gib":1e-308"#).contains("the memory of a device is 1e-308 GiB"));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let message = read(r#"{"model":"llama3-8b","speed":3}"#).unwrap_err().to_string();
        assert!(message.contains("line 1") && message.contains("speed"), "{message}");
    }

    #[test]
    fn what_is_written_reads_back() {
        let text = format!(
            "{}\n{}\n",
            r#"{"models":{"small.0":{"model_type":"gpt2","n_embd":64}}}"#,
            RUN.replace('\n', "").replace("llama3-8b", "small.0")
        );
        let runs = read(&text).unwrap();
        assert_eq!(runs[0].model, "small");
        let again: Vec<Run> = read(&write(&runs).unwrap()).unwrap();
        assert_eq!(again.len(), 1);
        assert_eq!((&again[0].request, again[0].step_time_s), (&runs[0].request, runs[0].step_time_s));
    }
}
