//! Reading the YAML file of nanotron: the configuration that a job has now.

use crate::present::{Keys, Present, unread};
use crate::yaml;
use serde_json::{Map, Value, json};
use yaml_rust2::Yaml;

/// Keys that are read, with those of the section `parallelism` that change no prediction.
const READ: [&str; 17] = [
    "parallelism.dp",
    "parallelism.pp",
    "parallelism.tp",
    "parallelism.pp_engine",
    "parallelism.tp_mode",
    "parallelism.tp_linear_async_communication",
    "parallelism.expert_parallel_size",
    "parallelism.context_parallel_size",
    "parallelism.recompute_layer",
    "parallelism.tp_recompute_allgather",
    "tokens.micro_batch_size",
    "tokens.batch_accumulation_per_replica",
    "tokens.sequence_length",
    "optimizer.zero_stage",
    "optimizer.optimizer_factory",
    "model.dtype",
    "model.model_config",
];

/// Reads the text of a file.
///
/// # Errors
/// The text is no YAML, or a key has a value that nanotron refuses.
pub fn read(text: &str) -> Result<Present, String> {
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
        warnings: unread_keys(file).iter().map(|key| format!("not modelled: {key}")).collect(),
        ..Present::default()
    })
}

/// Keys that are not read: those of `parallelism`, and others that resemble a key that is read.
fn unread_keys(file: &Yaml) -> Vec<String> {
    let sections = file.as_hash().into_iter().flatten();
    let keys = sections.flat_map(|(section, keys)| {
        let section = section.as_str().unwrap_or_default();
        keys.as_hash().into_iter().flatten().filter_map(move |(key, _)| Some(format!("{section}.{}", key.as_str()?)))
    });
    let others = keys.filter(|key| !READ.contains(&key.as_str()));
    others.filter_map(|key| unread(&key, READ, key.starts_with("parallelism."))).collect()
}

/// A whole number, if the key is there.
fn number(value: &Yaml, key: &str) -> Result<Option<u64>, String> {
    match value {
        Yaml::BadValue | Yaml::Null => Ok(None),
        Yaml::Integer(number) if *number >= 0 => Ok(Some(*number as u64)),
        other => Err(format!("{key} is {}: it takes a whole number", shown(other))),
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
fn whole(file: &Yaml, section: &str, key: &str) -> Result<Option<u64>, String> {
    number(&file[section][key], &format!("{section}.{key}"))
}

fn layout(parallelism: &Yaml, keys: &mut Keys) -> Result<(), String> {
    let tp = number(&parallelism["tp"], "parallelism.tp")?.unwrap_or(1);
    let [tp_mode, engine] = ["tp_mode", "pp_engine"].map(|key| parallelism[key].as_str().map(str::to_ascii_lowercase));
    match tp_mode.as_deref() {
        None | Some("all_reduce") => {}
        Some("reduce_scatter") => keys.put("sp", tp > 1),
        Some(other) => return Err(format!("parallelism.tp_mode is `{other}`: it is ALL_REDUCE or REDUCE_SCATTER")),
    }
    match engine.as_deref() {
        Some("1f1b") => keys.put("schedule", "1f1b"),
        None | Some("afab") => keys.put("schedule", "gpipe"),
        Some(other) => return Err(format!("parallelism.pp_engine is `{other}`: it is 1f1b or afab")),
    }
    if parallelism["tp_linear_async_communication"].as_bool() == Some(true) {
        keys.put("tp_overlap", true);
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
    if parallelism["recompute_layer"].as_bool() == Some(true) {
        keys.put("recompute", "full");
    }
    Ok(())
}

fn precision(dtype: &Yaml) -> Result<String, String> {
    match dtype.as_str().unwrap_or("bfloat16") {
        "bfloat16" => Ok("bf16".into()),
        "float32" => Ok("f32".into()),
        other => Err(format!("model.dtype is `{other}`: predictions know bfloat16 and float32")),
    }
}

fn optimizer(name: &Yaml) -> Result<String, String> {
    match name.as_str().unwrap_or("adamW").to_ascii_lowercase().as_str() {
        "adamw" => Ok("adamw".into()),
        "sgd" => Ok("sgd".into()),
        other => Err(format!("optimizer.optimizer_factory.name is `{other}`: predictions know adamW and sgd")),
    }
}

/// The keys of a `config.json` for the model of a file: those of a Llama, or of a Qwen2 if it is one.
fn model(config: &Yaml) -> Option<String> {
    let family = if config["is_qwen2_config"].as_bool() == Some(true) {
        "qwen2"
    } else if config["is_llama_config"].as_bool() == Some(true) {
        "llama"
    } else {
        return None;
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
    keys.extend(config["tie_word_embeddings"].as_bool().map(|tied| ("tie_word_embeddings".to_string(), tied.into())));
    Some(Value::Object(keys).to_string())
}
