//! Reading the JSON file of DeepSpeed: the configuration that a job has now.

use crate::flag_error::FlagError;
use crate::flag_table::{DEEPSPEED, Setting};
use crate::present::{Keys, Present};
use crate::{json_text, yaml};
use serde_json::{Map, Value};

/// Keys that are read.
pub(crate) const READ: [&str; 17] = [
    "activation_checkpointing",
    "bf16.enabled",
    "bfloat16.enabled",
    "communication_data_type",
    "data_types.grad_accum_dtype",
    "fp16.enabled",
    "gradient_accumulation_steps",
    "optimizer.type",
    "sequence_parallel_size",
    "tensor_parallel.autotp_size",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "zero_optimization.cpu_offload",
    "zero_optimization.offload_optimizer",
    "zero_optimization.offload_optimizer.device",
    "zero_optimization.overlap_comm",
    "zero_optimization.stage",
];

/// The most ignored keys that warnings name.
const MOST_IGNORED: usize = 16;

/// A value that another program fills in: Hugging Face's Trainer.
const FILLED_IN: &str = "auto";

/// Reads the text of a file. The number of devices says how many ranks of data parallelism there are, where the file leaves it open.
///
/// # Errors
/// The text is no JSON, a key has a value that DeepSpeed refuses, or the number of devices is needed.
pub fn read(text: &str, gpus: Option<u64>) -> Result<Present, FlagError> {
    let file: Value = json_text::load(text).map_err(|why| FlagError::Text(format!("it is no JSON: {why}")))?;
    if !file.is_object() {
        return Err(FlagError::Text("it is no object".to_string()));
    }
    sections(&file)?;
    let mut settings = Vec::new();
    leaves(&file, String::new(), &mut settings);
    let mut warnings = ignored(&file);
    settings.retain(|setting| DEEPSPEED.asks(section(&setting.name)));
    let mut stated = settings.iter().filter(|setting| setting.value.as_deref() != Some(FILLED_IN));
    stated.try_for_each(|setting| DEEPSPEED.check_setting(setting))?;
    warnings.extend(filled_in(&settings));
    let tp = whole(&file, "/tensor_parallel/autotp_size")?.unwrap_or(1).max(1);
    let cp = whole(&file, "/sequence_parallel_size")?.unwrap_or(1).max(1);
    let batch = Batch::read(&file, ranks(gpus, tp.saturating_mul(cp))?)?;
    let mut keys = Keys::default();
    if let Some(dp) = batch.dp {
        keys.put("dp", dp);
    }
    keys.put("tp", tp);
    if cp > 1 {
        keys.put("cp", cp);
        keys.put("cp_kind", "ulysses");
    }
    if let Some(mbs) = batch.mbs {
        keys.put("mbs", mbs);
    }
    let stage = sharding(&file, &mut keys)?;
    if file.get("activation_checkpointing").is_some_and(Value::is_object) {
        keys.put("recompute", "full");
    }
    let precision = precision(&file)?;
    let others = settings.iter().filter(|setting| !READ.contains(&setting.name.as_str()));
    let unmodelled = others.filter_map(|Setting { name, value }| DEEPSPEED.warning(name, value.as_slice()));
    warnings.extend(unmodelled);
    Ok(Present {
        parallel: keys.text(),
        stack: Some("deepspeed-2021".to_string()),
        global_batch: batch.sequences,
        precision: precision.to_string(),
        optimizer: optimizer(&file)?,
        grad_dtype: gradients(&file, precision, stage)?,
        warnings,
        ..Present::default()
    })
}

/// Checks that sections are some.
///
/// # Errors
/// A section is another value.
fn sections(file: &Value) -> Result<(), FlagError> {
    const SECTIONS: [&str; 8] = [
        "/bf16",
        "/bfloat16",
        "/data_types",
        "/fp16",
        "/optimizer",
        "/tensor_parallel",
        "/zero_optimization",
        "/zero_optimization/offload_optimizer",
    ];
    let mut others = SECTIONS.iter().filter_map(|place| Some((place, file.pointer(place)?)));
    // No offload is stated as null.
    match others.find(|(place, value)| !(value.is_object() || value.is_null() && place.ends_with("offload_optimizer")))
    {
        Some((place, value)) => Err(format!("{} is {value}: it is a section", key_at(place)).into()),
        None => Ok(()),
    }
}

/// Ranks of data parallelism, if the number of devices is known.
///
/// # Errors
/// Other degrees do not divide it.
fn ranks(gpus: Option<u64>, others: u64) -> Result<Option<u64>, FlagError> {
    match gpus {
        Some(gpus) if !gpus.is_multiple_of(others) => {
            let text = format!(
                "tensor_parallel.autotp_size times sequence_parallel_size is {others}, which does not divide {gpus} devices"
            );
            Err(FlagError::Combination(text))
        }
        gpus => Ok(gpus.map(|gpus| gpus / others)),
    }
}

/// The precision recipe.
fn precision(file: &Value) -> Result<&'static str, FlagError> {
    let is_bf16 = truth(file, "/bf16/enabled")?.or(truth(file, "/bfloat16/enabled")?) == Some(true);
    let is_fp16 = truth(file, "/fp16/enabled")? == Some(true);
    match (is_bf16, is_fp16) {
        (true, true) => Err(FlagError::Combination("bf16 and fp16 are enabled: DeepSpeed takes one of them".into())),
        (true, false) => Ok("bf16"),
        (false, true) => Ok("fp16"),
        (false, false) => Ok("f32"),
    }
}

/// Warnings about keys that are read and that another program fills in.
fn filled_in(settings: &[Setting]) -> Vec<String> {
    let open = settings.iter().filter(|setting| setting.value.as_deref() == Some(FILLED_IN));
    let open = open.filter(|setting| READ.contains(&setting.name.as_str()));
    open.map(|setting| format!("not known: {} is filled in by another program: read as left out", setting.name))
        .collect()
}

/// The section of a key.
fn section(name: &str) -> &str {
    name.split_once('.').map_or(name, |(section, _)| section)
}

/// Warnings about keys that DeepSpeed ignores without a word: those of the top level that it does not ask for.
fn ignored(file: &Value) -> Vec<String> {
    let names = file.as_object().into_iter().flat_map(Map::keys);
    let mut names = names.filter(|name| name.contains('.') || !DEEPSPEED.asks(name));
    let first = names.by_ref().take(MOST_IGNORED);
    let mut told: Vec<String> =
        first.map(|name| format!("not known: DeepSpeed ignores {name}{}", DEEPSPEED.suggestion(name))).collect();
    let more = names.count();
    told.extend((more > 0).then(|| format!("not known: DeepSpeed ignores {more} more")));
    told
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

/// The key at a place, as messages name it.
fn key_at(place: &str) -> String {
    place.trim_start_matches('/').replace('/', ".")
}

/// A whole number, if it is there.
fn whole(file: &Value, place: &str) -> Result<Option<u64>, FlagError> {
    let Some(value) = value(file, place) else { return Ok(None) };
    // DeepSpeed takes 5e8 and "8" for a size.
    let number = value.as_f64().filter(|number| number.fract() == 0.0).map(|number| number as u64);
    let whole = value.as_u64().or(number).or_else(|| value.as_str()?.parse().ok());
    whole.map(Some).ok_or_else(|| format!("{} is {value}: it takes a whole number", key_at(place)).into())
}

/// The kind of the optimizer.
fn optimizer(file: &Value) -> Result<String, FlagError> {
    let Some(name) = value(file, "/optimizer/type").and_then(Value::as_str) else { return Ok("adamw".into()) };
    match name.to_ascii_lowercase().as_str() {
        "adam" | "adamw" | "fusedadam" | "deepspeedcpuadam" => Ok("adamw".into()),
        "sgd" if value(file, "/optimizer/params/momentum").and_then(Value::as_f64).is_some_and(|share| share > 0.0) => {
            Ok("momentum".into())
        }
        "sgd" => Ok("sgd".into()),
        _ => Err(format!("optimizer.type is `{name}`: predictions know Adam, AdamW and SGD").into()),
    }
}

/// Puts what is sharded and where it is, and returns the stage.
fn sharding(file: &Value, keys: &mut Keys) -> Result<u64, FlagError> {
    let stage = whole(file, "/zero_optimization/stage")?.unwrap_or(0);
    keys.put("zero", stage);
    // ZeRO-3 overlaps unless it is told not to (runtime/zero/config.py, overlap_comm).
    let overlaps = truth(file, "/zero_optimization/overlap_comm")?.unwrap_or(stage == 3);
    keys.put("dp_overlap", overlaps);
    let host = value(file, "/zero_optimization/offload_optimizer/device").and_then(Value::as_str);
    // A former name.
    let is_offloaded = truth(file, "/zero_optimization/cpu_offload")? == Some(true);
    if is_offloaded || host.is_some_and(|place| place != "none") {
        keys.put("offload_optimizer", true);
    }
    Ok(stage)
}

/// The type in which gradients are accumulated: that of the parameters, unless the file says otherwise where it can be another
/// (runtime/engine.py, get_data_types and _do_optimizer_sanity_check).
fn gradients(file: &Value, precision: &str, stage: u64) -> Result<Option<String>, FlagError> {
    const SENT: &str = "communication_data_type";
    // runtime/config.py, get_communication_data_type.
    if let Some(other) = file.get(SENT).filter(|kind| !kind.is_null())
        && !matches!(other.as_str(), Some("fp16" | "bf16" | "fp32" | FILLED_IN))
    {
        return Err(format!("{SENT} is {other}: DeepSpeed has fp16, bf16 and fp32").into());
    }
    if precision == "f32" {
        return Ok(None);
    }
    let is_open = stage == 0 || stage == 1 && precision == "bf16";
    let dtype = match value(file, "/data_types/grad_accum_dtype").filter(|_| is_open) {
        None => "bf16",
        Some(stated) if matches!(stated.as_str(), Some("fp32" | "float32" | "float")) => "f32",
        Some(stated) if matches!(stated.as_str(), Some("bf16" | "bfloat16" | "fp16" | "float16" | "half")) => "bf16",
        Some(other) => {
            return Err(format!("data_types.grad_accum_dtype is {other}: predictions know fp32, bf16 and fp16").into());
        }
    };
    // Gradients that are sent in another type than they are kept in are those of the stack.
    let is_sent_wide = file.get(SENT).and_then(Value::as_str) == Some("fp32");
    Ok(Some(dtype.to_string()).filter(|dtype| !(is_sent_wide && dtype == "bf16")))
}

/// A truth value in one of the ways that DeepSpeed takes, if it is there.
fn truth(file: &Value, place: &str) -> Result<Option<bool>, FlagError> {
    let Some(value) = value(file, place) else { return Ok(None) };
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
    yaml::truth(&text).map(Some).ok_or_else(|| format!("{} is {value}: it is true or false", key_at(place)).into())
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
        if let (Some(sequences), Some(micro), Some(passes), Some(dp)) = (sequences, micro, passes, dp)
            && product([micro, passes, dp]) != Some(sequences)
        {
            let text = format!(
                "train_batch_size is {sequences}, but {micro} sequences times {passes} passes times {dp} ranks of data parallelism are not"
            );
            return Err(FlagError::Combination(text));
        }
        let passes_of = passes.unwrap_or(1);
        let dp = match (dp, sequences, micro, passes) {
            (None, Some(sequences), Some(micro), Some(passes)) => Some(shared(sequences, micro, passes)?),
            _ => dp,
        };
        let mbs = match (micro, sequences, dp) {
            (None, Some(sequences), Some(dp)) => Some(shared(sequences, dp, passes_of)?),
            _ => micro,
        };
        let known = mbs.zip(dp).and_then(|(mbs, dp)| product([mbs, passes_of, dp]));
        let all = sequences.or(known);
        Ok(Batch { sequences: all, mbs, dp })
    }
}

fn product(factors: [u64; 3]) -> Option<u64> {
    factors.into_iter().try_fold(1_u64, u64::checked_mul)
}

/// The share of a step's sequences.
///
/// # Errors
/// They do not divide.
fn shared(sequences: u64, first: u64, second: u64) -> Result<u64, FlagError> {
    let places = first.saturating_mul(second);
    match sequences.checked_rem(places) {
        Some(0) => Ok(sequences / places),
        _ => Err(FlagError::Combination(format!(
            "train_batch_size is {sequences}, which {first} times {second} does not divide: sequences of a micro-batch, passes and ranks"
        ))),
    }
}
