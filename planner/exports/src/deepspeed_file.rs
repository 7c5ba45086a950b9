//! Reading the JSON file of DeepSpeed: the configuration that a job has now.

use crate::flag_error::FlagError;
use crate::flag_table::{DEEPSPEED, Setting};
use crate::present::{Keys, Present};
use serde_json::{Map, Value};

/// Keys that are read.
pub(crate) const READ: [&str; 16] = [
    "activation_checkpointing",
    "bf16.enabled",
    "bfloat16.enabled",
    "communication_data_type",
    "data_types.grad_accum_dtype",
    "fp16.enabled",
    "gradient_accumulation_steps",
    "optimizer.type",
    "tensor_parallel.autotp_size",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "zero_optimization.cpu_offload",
    "zero_optimization.offload_optimizer",
    "zero_optimization.offload_optimizer.device",
    "zero_optimization.overlap_comm",
    "zero_optimization.stage",
];

/// A value that another program fills in: Hugging Face's Trainer.
const FILLED_IN: &str = "auto";

/// Reads the text of a file. The number of devices says how many ranks of data parallelism there are, where the file leaves it open.
///
/// # Errors
/// The text is no JSON, a key has a value that DeepSpeed refuses, or the number of devices is needed.
pub fn read(text: &str, gpus: Option<u64>) -> Result<Present, FlagError> {
    let file: Value = serde_json::from_str(text).map_err(|why| FlagError::Text(format!("it is no JSON: {why}")))?;
    if !file.is_object() {
        return Err(FlagError::Text("it is no object".to_string()));
    }
    let mut settings = Vec::new();
    leaves(&file, String::new(), &mut settings);
    let mut warnings = ignored(&file);
    settings.retain(|setting| DEEPSPEED.asks(section(&setting.name)));
    settings.iter().filter(|setting| setting.value.as_deref() != Some(FILLED_IN)).try_for_each(check)?;
    let tp = whole(&file, "/tensor_parallel/autotp_size")?.unwrap_or(1).max(1);
    let batch = Batch::read(&file, gpus.map(|gpus| gpus / tp))?;
    let mut keys = Keys::default();
    if let Some(dp) = batch.dp {
        keys.put("dp", dp);
    }
    keys.put("tp", tp);
    if let Some(mbs) = batch.mbs {
        keys.put("mbs", mbs);
    }
    let stage = sharding(&file, &mut keys)?;
    if file.get("activation_checkpointing").is_some() {
        keys.put("recompute", "full");
    }
    let precision = if is_on(&file, "/bf16/enabled") || is_on(&file, "/bfloat16/enabled") {
        "bf16"
    } else if is_on(&file, "/fp16/enabled") {
        "fp16"
    } else {
        "f32"
    };
    let others = settings.iter().filter(|setting| !READ.contains(&setting.name.as_str()));
    let unmodelled = others.filter_map(|Setting { name, value }| DEEPSPEED.warning(name, value.as_slice()));
    warnings.extend(unmodelled);
    Ok(Present {
        parallel: keys.text(),
        stack: Some("deepspeed-2021".to_string()),
        global_batch: batch.sequences,
        precision: precision.to_string(),
        optimizer: optimizer(&file)?,
        grad_dtype: gradients(&file, precision, stage),
        warnings,
        ..Present::default()
    })
}

/// The section of a key.
fn section(name: &str) -> &str {
    name.split_once('.').map_or(name, |(section, _)| section)
}

/// Warnings about keys that DeepSpeed ignores without a word: those of the top level that it does not ask for.
fn ignored(file: &Value) -> Vec<String> {
    let names = file.as_object().into_iter().flat_map(Map::keys).filter(|name| !DEEPSPEED.asks(name));
    names.map(|name| format!("not known: DeepSpeed ignores {name}{}", DEEPSPEED.suggestion(name))).collect()
}

fn check(setting: &Setting) -> Result<(), FlagError> {
    DEEPSPEED.check_setting(setting)
}

/// The keys within a section, by their paths, with their values.
fn leaves(value: &Value, path: String, found: &mut Vec<Setting>) {
    match value.as_object().filter(|section| !section.is_empty()) {
        Some(section) => {
            for (name, value) in section {
                leaves(value, if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, found);
            }
        }
        None => {
            let text = match value {
                Value::String(text) => Some(text.clone()),
                Value::Array(_) | Value::Object(_) => None,
                other => Some(other.to_string()),
            };
            found.push(Setting { name: path, value: text });
        }
    }
}

/// The value at a place, unless another program fills it in.
fn value<'f>(file: &'f Value, place: &str) -> Option<&'f Value> {
    file.pointer(place).filter(|value| !value.is_null() && value.as_str() != Some(FILLED_IN))
}

/// A whole number, if it is there.
fn whole(file: &Value, place: &str) -> Result<Option<u64>, FlagError> {
    let Some(value) = value(file, place) else { return Ok(None) };
    // DeepSpeed takes 5e8 for a size.
    let whole =
        value.as_u64().or_else(|| value.as_f64().filter(|number| number.fract() == 0.0).map(|number| number as u64));
    let key = place.trim_start_matches('/').replace('/', ".");
    whole.map(Some).ok_or_else(|| format!("{key} is {value}: it takes a whole number").into())
}

/// The kind of the optimizer.
fn optimizer(file: &Value) -> Result<String, FlagError> {
    let Some(name) = value(file, "/optimizer/type").and_then(Value::as_str) else { return Ok("adamw".into()) };
    match name.to_ascii_lowercase().as_str() {
        "adam" | "adamw" | "fusedadam" | "deepspeedcpuadam" => Ok("adamw".into()),
        "sgd" => Ok("sgd".into()),
        _ => Err(format!("optimizer.type is `{name}`: predictions know Adam, AdamW and SGD").into()),
    }
}

/// Puts what is sharded and where it is, and returns the stage.
fn sharding(file: &Value, keys: &mut Keys) -> Result<u64, FlagError> {
    let stage = whole(file, "/zero_optimization/stage")?.unwrap_or(0);
    keys.put("zero", stage);
    // ZeRO-3 overlaps unless it is told not to (runtime/zero/config.py, overlap_comm).
    let overlaps = value(file, "/zero_optimization/overlap_comm").and_then(Value::as_bool).unwrap_or(stage == 3);
    keys.put("dp_overlap", overlaps);
    let host = value(file, "/zero_optimization/offload_optimizer/device").and_then(Value::as_str);
    // A former name.
    let is_offloaded = is_on(file, "/zero_optimization/cpu_offload");
    if is_offloaded || host.is_some_and(|place| place != "none") {
        keys.put("offload_optimizer", true);
    }
    Ok(stage)
}

/// The type in which gradients are accumulated: that of the parameters, unless the file says otherwise where it can be another
/// (runtime/engine.py, get_data_types and _do_optimizer_sanity_check).
fn gradients(file: &Value, precision: &str, stage: u64) -> Option<String> {
    if precision == "f32" {
        return None;
    }
    let is_open = stage == 0 || stage == 1 && precision == "bf16";
    let stated = value(file, "/data_types/grad_accum_dtype").and_then(Value::as_str).filter(|_| is_open);
    let is_wide = stated.is_some_and(|dtype| matches!(dtype, "fp32" | "float32" | "float"));
    Some(if is_wide { "f32" } else { "bf16" }.to_string())
}

fn is_on(file: &Value, place: &str) -> bool {
    value(file, place).and_then(Value::as_bool) == Some(true)
}

/// Sequences of a step and of a micro-batch, and the ranks that share a step.
struct Batch {
    sequences: Option<u64>,
    mbs: Option<u64>,
    dp: Option<u64>,
}

impl Batch {
    /// Reads them: sequences are micro-batch times accumulation times ranks, of which one may be left out.
    fn read(file: &Value, dp: Option<u64>) -> Result<Batch, FlagError> {
        let sequences = whole(file, "/train_batch_size")?;
        let micro = whole(file, "/train_micro_batch_size_per_gpu")?;
        let passes = whole(file, "/gradient_accumulation_steps")?;
        if [sequences, micro, passes].contains(&Some(0)) {
            return Err("a batch of no sequences, or no accumulation: they begin at 1".into());
        }
        let of_rank = sequences.zip(dp).map(|(sequences, dp)| sequences / dp.max(1));
        let mbs = micro.or_else(|| Some(of_rank? / passes.unwrap_or(1)));
        let product = mbs.zip(dp).and_then(|(mbs, dp)| mbs.checked_mul(passes.unwrap_or(1))?.checked_mul(dp));
        let all = sequences.or(product);
        if let (Some(sequences), Some(micro), Some(passes), Some(dp)) = (sequences, micro, passes, dp)
            && product != Some(sequences)
        {
            let text = format!(
                "train_batch_size is {sequences}, but {micro} sequences times {passes} passes times {dp} ranks of data parallelism are not"
            );
            return Err(FlagError::Combination(text));
        }
        let ranks = sequences
            .zip(micro)
            .zip(passes)
            .map(|((sequences, micro), passes)| sequences / micro.saturating_mul(passes).max(1));
        Ok(Batch { sequences: all, mbs: mbs.map(|mbs| mbs.max(1)), dp: dp.or(ranks) })
    }
}
