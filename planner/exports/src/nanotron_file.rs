//! Reading the YAML file of nanotron: the configuration that a job has now.

use crate::flag_error::FlagError;
use crate::flag_table::{NANOTRON, Setting};
use crate::present::{Keys, Present};
use crate::yaml;
use serde_json::{Map, Value, json};
use yaml_rust2::Yaml;

/// Keys that are read.
pub(crate) const READ: [&str; 30] = [
    "parallelism.dp",
    "parallelism.pp",
    "parallelism.tp",
    "parallelism.pp_engine",
    "parallelism.tp_mode",
    "parallelism.tp_linear_async_communication",
    "parallelism.expert_parallel_size",
    "parallelism.context_parallel_size",
    "parallelism.recompute_layer",
    "tokens.micro_batch_size",
    "tokens.batch_accumulation_per_replica",
    "tokens.sequence_length",
    "optimizer.zero_stage",
    "optimizer.optimizer_factory",
    "optimizer.accumulate_grad_in_fp32",
    "model.dtype",
    "model.model_config",
    "model.model_config.attention_bias",
    "model.model_config.hidden_size",
    "model.model_config.intermediate_size",
    "model.model_config.is_llama_config",
    "model.model_config.is_qwen2_config",
    "model.model_config.max_position_embeddings",
    "model.model_config.num_attention_heads",
    "model.model_config.num_hidden_layers",
    "model.model_config.num_key_value_heads",
    "model.model_config.rms_norm_eps",
    "model.model_config.rope_theta",
    "model.model_config.tie_word_embeddings",
    "model.model_config.vocab_size",
];

/// Reads the text of a file.
///
/// # Errors
/// The text is no YAML, or a key has a value that nanotron refuses.
pub fn read(text: &str) -> Result<Present, FlagError> {
    let file = &yaml::load(text)?;
    let parallelism = &file["parallelism"];
    if parallelism.as_hash().is_none() {
        return Err("it has no section `parallelism`".into());
    }
    let mut keys = Keys::default();
    let dp = whole(file, "parallelism", "dp")?.unwrap_or(1);
    for key in ["dp", "tp", "pp"] {
        keys.put(key, whole(file, "parallelism", key)?.unwrap_or(1));
    }
    layout(parallelism, &mut keys)?;
    if let Some(stage) = whole(file, "optimizer", "zero_stage")? {
        keys.put("zero", stage);
    }
    let mbs = whole(file, "tokens", "micro_batch_size")?;
    if let Some(mbs) = mbs {
        keys.put("mbs", mbs);
    }
    let rounds = whole(file, "tokens", "batch_accumulation_per_replica")?;
    Ok(Present {
        parallel: keys.text(),
        model: model(&file["model"]["model_config"]),
        stack: Some("nanotron-2024".to_string()),
        seq: whole(file, "tokens", "sequence_length")?,
        global_batch: mbs.zip(rounds).and_then(|(mbs, rounds)| mbs.checked_mul(rounds)?.checked_mul(dp)),
        precision: precision(&file["model"]["dtype"])?,
        optimizer: optimizer(&file["optimizer"]["optimizer_factory"]["name"])?,
        grad_dtype: gradients(file)?,
        warnings: unmodelled(file)?,
        ..Present::default()
    })
}

/// Warnings about keys that a prediction does not know.
///
/// # Errors
/// nanotron has no key of the name, or the key does not take its value.
fn unmodelled(file: &Yaml) -> Result<Vec<String>, FlagError> {
    let mut settings = Vec::new();
    leaves(file, String::new(), &mut settings);
    settings.retain(|setting| !READ.contains(&setting.name.as_str()));
    settings.iter().try_for_each(|setting| NANOTRON.check_setting(setting))?;
    let warnings = settings.iter().filter_map(|setting| NANOTRON.warning(&setting.name, setting.value.as_slice()));
    Ok(warnings.collect())
}

/// The keys within a section, by their paths, with their values.
fn leaves(value: &Yaml, path: String, found: &mut Vec<Setting>) {
    match value.as_hash().filter(|keys| !keys.is_empty()) {
        Some(keys) => {
            for (key, value) in keys {
                let key = key.as_str().map_or_else(|| shown(key), str::to_string);
                leaves(value, if path.is_empty() { key } else { format!("{path}.{key}") }, found);
            }
        }
        None => found.push(Setting { name: path, value: yaml::text_of(value) }),
    }
}

/// A whole number, if the key is there.
fn number(value: &Yaml, key: &str) -> Result<Option<u64>, FlagError> {
    match value {
        Yaml::BadValue | Yaml::Null => Ok(None),
        Yaml::Integer(number) if *number >= 0 => Ok(Some(*number as u64)),
        other => Err(format!("{key} is {}: it takes a whole number", shown(other)).into()),
    }
}

fn shown(value: &Yaml) -> String {
    match value {
        Yaml::String(text) | Yaml::Real(text) => format!("`{text}`"),
        Yaml::Integer(number) => number.to_string(),
        Yaml::Boolean(is) => is.to_string(),
        _ => "a list or a section".to_string(),
    }
}

/// Whole number of a key in a section, if it is there.
fn whole(file: &Yaml, section: &str, key: &str) -> Result<Option<u64>, FlagError> {
    number(&file[section][key], &format!("{section}.{key}"))
}

/// A word, if the key is there.
fn word<'f>(value: &'f Yaml, key: &str) -> Result<Option<&'f str>, FlagError> {
    match value {
        Yaml::BadValue | Yaml::Null => Ok(None),
        Yaml::String(text) => Ok(Some(text)),
        other => Err(format!("{key} is {}: it takes a word", shown(other)).into()),
    }
}

/// A truth value of a section, if the key is there.
fn truth(section: &Yaml, key: &str) -> Result<Option<bool>, FlagError> {
    match &section[key] {
        Yaml::BadValue | Yaml::Null => Ok(None),
        Yaml::Boolean(is) => Ok(Some(*is)),
        other => Err(format!("{key} is {}: it is true or false", shown(other)).into()),
    }
}

/// True if a key of a section is true.
fn is_set(section: &Yaml, key: &str) -> Result<bool, FlagError> {
    Ok(truth(section, key)? == Some(true))
}

fn layout(parallelism: &Yaml, keys: &mut Keys) -> Result<(), FlagError> {
    let tp = number(&parallelism["tp"], "parallelism.tp")?.unwrap_or(1);
    let mode = word(&parallelism["tp_mode"], "parallelism.tp_mode")?.map(str::to_ascii_lowercase);
    let has_sp = mode.as_deref() == Some("reduce_scatter");
    match mode.as_deref() {
        None | Some("all_reduce") => {}
        Some("reduce_scatter") => keys.put("sp", tp > 1),
        Some(other) => {
            return Err(format!("parallelism.tp_mode is `{other}`: it is ALL_REDUCE or REDUCE_SCATTER").into());
        }
    }
    match word(&parallelism["pp_engine"], "parallelism.pp_engine")?.map(str::to_ascii_lowercase).as_deref() {
        Some("1f1b") => keys.put("schedule", "1f1b"),
        None | Some("afab") => keys.put("schedule", "gpipe"),
        Some(other) => return Err(format!("parallelism.pp_engine is `{other}`: it is 1f1b or afab").into()),
    }
    // The stack hides collectives of the backward, as nanotron does if it is told to.
    let is_asynchronous = is_set(parallelism, "tp_linear_async_communication")?;
    if tp > 1 && has_sp && !is_asynchronous {
        keys.put("tp_overlap", false);
    }
    if let Some(ep) = number(&parallelism["expert_parallel_size"], "parallelism.expert_parallel_size")? {
        keys.put("ep", ep);
    }
    if let Some(cp) = number(&parallelism["context_parallel_size"], "parallelism.context_parallel_size")? {
        keys.put("cp", cp);
        if cp > 1 {
            keys.put("cp_kind", "ring");
        }
    }
    if is_set(parallelism, "recompute_layer")? {
        keys.put("recompute", "full");
    }
    Ok(())
}

/// The type of accumulated gradients, if they are not f32, as the stack has them.
fn gradients(file: &Yaml) -> Result<Option<String>, FlagError> {
    let is_narrow = truth(&file["optimizer"], "accumulate_grad_in_fp32")? == Some(false);
    let is_plain = file["model"]["dtype"].as_str() == Some("float32");
    Ok((is_narrow && !is_plain).then(|| "bf16".to_string()))
}

fn precision(dtype: &Yaml) -> Result<String, FlagError> {
    match word(dtype, "model.dtype")?.unwrap_or("bfloat16") {
        "bfloat16" => Ok("bf16".into()),
        "float32" => Ok("f32".into()),
        other => Err(format!("model.dtype is `{other}`: predictions know bfloat16 and float32").into()),
    }
}

fn optimizer(name: &Yaml) -> Result<String, FlagError> {
    match word(name, "optimizer.optimizer_factory.name")?.unwrap_or("adamW").to_ascii_lowercase().as_str() {
        "adamw" => Ok("adamw".into()),
        "sgd" => Ok("sgd".into()),
        other => Err(format!("optimizer.optimizer_factory.name is `{other}`: predictions know adamW and sgd").into()),
    }
}

/// The keys of a `config.json` for the model of a file: those of a Llama, or of a Qwen2 if it is one.
fn model(config: &Yaml) -> Option<String> {
    let [is_qwen2, is_llama, has_bias] =
        ["is_qwen2_config", "is_llama_config", "attention_bias"].map(|key| config[key].as_bool() == Some(true));
    // Without biases Qwen2 is a Llama.
    let family = match (is_qwen2, is_llama) {
        (true, _) if has_bias => "qwen2",
        (true, _) | (_, true) => "llama",
        _ => return None,
    };
    let mut keys = Map::from_iter([("model_type".to_string(), json!(family))]);
    let sizes = [
        "hidden_size",
        "intermediate_size",
        "max_position_embeddings",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "vocab_size",
    ];
    for key in sizes {
        keys.extend(config[key].as_i64().map(|size| (key.to_string(), Value::from(size))));
    }
    for key in ["rope_theta", "rms_norm_eps"] {
        let number = config[key].as_f64().or_else(|| config[key].as_i64().map(|whole| whole as f64));
        keys.extend(number.map(|number| (key.to_string(), Value::from(number))));
    }
    if family == "llama" && has_bias {
        keys.insert("attention_bias".to_string(), true.into());
    }
    keys.extend(config["tie_word_embeddings"].as_bool().map(|tied| ("tie_word_embeddings".to_string(), tied.into())));
    Some(Value::Object(keys).to_string())
}
