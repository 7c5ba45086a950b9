//! A small model of the kinds of a large one: few heads, layers, experts and tokens.

use super::config::ModelConfig;
use super::draft::Batch;
use super::error::ConfigError;
use super::file::{family_of, from_config};
use super::keys::{Done, Keys};
use crate::types::DType;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Most tokens of the vocabulary, elements of a net's and an expert's width, and ranks of latent vectors.
const VOCABULARY: u64 = 96;
const WIDTH: u64 = 64;
const RANK: u64 = 32;
/// Most heads, and of these with fewer keys than queries.
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;
/// Most experts, and choices of a token.
const EXPERTS: u64 = 8;
const CHOSEN: u64 = 2;
/// Most tokens of a window or a chunk: fewer than those of the sequences that a check runs.
const WINDOW: u64 = 5;
/// The beginning of the text on keys that no class has.
const ADDITION: &str = "an addition";

/// The keys of a small model of the same kinds, whose heads have at most `head` elements: its layers, norms, positions and router are
/// those of the file's. Nothing is dropped in training, no layer predicts further tokens, and what no class of `transformers` computes is
/// left out.
///
/// # Errors
/// The errors of [`from_config`], for the file or the small one.
pub fn small(file: &Map<String, Value>, head: u64) -> Result<Map<String, Value>, ConfigError> {
    let keys = family_of(file)?.keys;
    let mut file = canonical(keys, file);
    // Layers that differ by their place begin early.
    let layers = layers(&read(&file)?);
    for (name, value) in values(keys, &file) {
        if value.as_u64().is_some_and(|place| is_place(name) && (2..u64::from(layers)).contains(&place)) {
            file.insert(name.to_string(), 1.into());
        }
    }
    let config = read(&file)?;
    let (kinds, mut small_layers) = (blocks(&config)?, layers.min(2));
    loop {
        let small = Sizes::of(&config, head, small_layers).of_file(keys, &file);
        // The last layer may be of a kind of its own, and more layers than these of many.
        match read(&small).and_then(|config| blocks(&config)) {
            Ok(found) if found == kinds || small_layers == layers => return Ok(small),
            Err(why) if small_layers == layers => return Err(why),
            _ => small_layers += 1,
        }
    }
}

/// The names of a model's blocks: one for each kind of layer, and the ends.
fn blocks(config: &ModelConfig) -> Result<BTreeSet<String>, ConfigError> {
    let model = config.build(&Batch { batch: 1, seq: 1, dtype: DType::F32 })?;
    Ok(model.blocks.values().map(|block| block.name.clone()).collect())
}

fn read(file: &Map<String, Value>) -> Result<ModelConfig, ConfigError> {
    from_config(&Value::Object(file.clone()).to_string())
}

fn layers(config: &ModelConfig) -> u32 {
    match config {
        ModelConfig::Llama(config) => config.layers,
        ModelConfig::Gpt2(config) => config.layers,
    }
}

/// The same under the names that are read, without what no class computes.
fn canonical(keys: Keys, file: &Map<String, Value>) -> Map<String, Value> {
    let mut own = Map::new();
    for (name, value) in file {
        let row = keys.row(name);
        let of = row.and_then(|row| if let Done::Alias(of) = row.done { Some(of) } else { None });
        let is_balance = name.starts_with("router_") && row.is_some_and(|row| row.about.starts_with(ADDITION));
        if !is_balance && !matches!(name.as_str(), "capacity_factor" | "routing_group") {
            own.insert(of.unwrap_or(name).to_string(), value.clone());
        }
    }
    own
}

/// The keys that a family reads, each with its value in a file or that of its absence.
fn values(keys: Keys, file: &Map<String, Value>) -> Vec<(&'static str, Value)> {
    let rows = keys.rows().filter(|(_, row)| row.done == Done::Read);
    rows.filter_map(|(name, row)| Some((name, file.get(name).cloned().or_else(|| row.absent())?))).collect()
}

/// True for the number of a layer from which on layers differ.
fn is_place(name: &str) -> bool {
    matches!(name, "first_k_dense_replace" | "num_dense_layers" | "max_window_layers" | "moe_layer_start_index")
}

/// Sizes of a model, and those of the small one.
struct Sizes {
    hidden: u64,
    layers: u64,
    /// The most elements of a head, and those that it has.
    most: u64,
    head: u64,
    small_hidden: u64,
    small_heads: u64,
    small_kv_heads: u64,
    small_layers: u64,
}

impl Sizes {
    fn of(config: &ModelConfig, head: u64, small_layers: u32) -> Sizes {
        let (hidden, heads, kv_heads, own_head) = match config {
            ModelConfig::Llama(config) => (config.hidden, config.heads, config.kv_heads, config.head),
            ModelConfig::Gpt2(config) => (config.hidden, config.heads, config.heads, config.hidden / config.heads),
        };
        let small_heads = heads.min(HEADS);
        Sizes {
            hidden,
            layers: layers(config).into(),
            most: head,
            head: head.min(own_head),
            small_hidden: (hidden / heads).min(head) * small_heads,
            small_heads,
            small_kv_heads: if kv_heads == heads { small_heads } else { kv_heads.min(KV_HEADS) },
            small_layers: small_layers.into(),
        }
    }

    /// The keys of the small model.
    fn of_file(&self, keys: Keys, file: &Map<String, Value>) -> Map<String, Value> {
        let mut small = file.clone();
        for (name, value) in values(keys, file) {
            let smaller = self.of_key(name, &value);
            if smaller != value {
                small.insert(name.to_string(), smaller);
            }
        }
        if let Some(heads) = state_heads(keys, &small) {
            small.insert("num_heads".to_string(), heads.into());
        }
        small
    }

    /// The value of a key of the small model.
    fn of_key(&self, name: &str, value: &Value) -> Value {
        match value {
            Value::Number(number) if name.contains("drop") || name == "router_jitter_noise" => {
                if number.is_f64() {
                    0.0.into()
                } else {
                    0.into()
                }
            }
            // The size follows from the number of heads.
            Value::Number(_) if name == "mamba_d_head" => "auto".into(),
            Value::Number(number) => number.as_u64().map_or(value.clone(), |size| self.size(name, size).into()),
            Value::Array(list) => self.list(name, list).into(),
            Value::Object(parts) if matches!(name, "attn_config" | "ffn_config") => {
                parts.iter().map(|(name, part)| (name.clone(), self.of_key(name, part))).collect()
            }
            Value::Bool(true) if name == "output_router_logits" => false.into(),
            // Some classes cannot be made without these.
            Value::Null if name == "head_dim" => self.head.into(),
            Value::Null if name == "num_key_value_heads" => self.small_kv_heads.into(),
            // The class has these types for as many layers as it has by default.
            Value::Null if name == "attention_types" => {
                self.list(name, &[json!([["global", "local"], self.layers / 2])]).into()
            }
            other => other.clone(),
        }
    }

    fn size(&self, name: &str, size: u64) -> u64 {
        match name {
            "vocab_size" | "vocab_size_per_layer_input" => size.min(VOCABULARY),
            "pad_token_id" => size.min(VOCABULARY - 1),
            "hidden_size" | "n_embd" | "d_model" | "lru_width" => self.small_hidden,
            // Rows of the embedding that are not as large as the stream differ from it, and from what the head reads.
            "embedding_size" | "input_embedding_size" if size == self.hidden => self.small_hidden,
            "embedding_size" | "input_embedding_size" => size.min(WIDTH - 16),
            "output_embedding_size" => size.min(WIDTH + 16),
            "num_hidden_layers" | "n_layer" | "n_layers" | "num_layers" | "decoder_layers" => self.small_layers,
            "num_nextn_predict_layers" => 0,
            "moe_layer_end_index" => size.min(self.small_layers - 1),
            "num_attention_heads"
            | "n_head"
            | "n_heads"
            | "num_heads"
            | "decoder_attention_heads"
            | "attention_heads" => self.small_heads,
            "num_key_value_heads" | "num_kv_heads" | "kv_n_heads" => self.small_kv_heads,
            // A state space has a number of values for each of the stream.
            "mamba_n_heads" | "mamba_num_heads" | "linear_num_heads" => self.small_heads,
            "mamba_d_ssm" => 2 * self.small_hidden,
            "mamba_n_groups" | "n_groups" | "linear_num_key_heads" | "linear_num_value_heads" => size.min(KV_HEADS),
            "num_experts" | "num_local_experts" | "n_routed_experts" | "moe_num_experts" => size.min(EXPERTS),
            "num_experts_per_tok" | "moe_top_k" | "moe_topk" | "moe_k" | "n_group" | "num_expert_group" => {
                size.min(CHOSEN)
            }
            "topk_group" => 1,
            "mamba_head_dim" | "linear_key_head_dim" | "linear_value_head_dim" | "linear_head_dim" => {
                size.min(self.most)
            }
            "mamba_d_state" | "ssm_state_size" | "state_size" => size.min(RANK),
            "head_dim" | "rotary_dim" | "qk_nope_head_dim" | "qk_rope_head_dim" | "v_head_dim" => size.min(self.most),
            "q_lora_rank" | "kv_lora_rank" | "hidden_size_per_layer_input" => size.min(RANK),
            "index_topk" => size.min(WINDOW),
            "index_head_dim" => size.min(self.most),
            "sliding_window" | "attention_window_size" | "window_size" | "attention_chunk_size" => size.min(WINDOW),
            "local_attention" => size.min(2 * WINDOW),
            "floor_scale" => size.min(WINDOW - 2),
            _ if is_width(name) => size.min(WIDTH),
            _ => size,
        }
    }

    /// Values by layer, and numbers of layers.
    fn list(&self, name: &str, list: &[Value]) -> Vec<Value> {
        let layers = self.small_layers as usize;
        match name {
            "moe_layers" | "mlp_only_layers" => {
                list.iter().filter(|at| at.as_u64().is_some_and(|at| at < self.small_layers)).cloned().collect()
            }
            "num_attention_heads_per_layer" => vec![self.small_heads.into(); layers],
            "attention_types" => vec![json!([expanded(list).into_iter().take(layers).collect::<Vec<_>>(), 1])],
            _ if list.len() as u64 >= self.layers => list[..layers].to_vec(),
            _ => list.to_vec(),
        }
    }
}

/// Heads of a state space that has several values for each of the stream (Mamba-2).
fn state_heads(keys: Keys, file: &Map<String, Value>) -> Option<u64> {
    let values: BTreeMap<&str, Value> = values(keys, file).into_iter().collect();
    let [expand, hidden, head] =
        ["expand", "hidden_size", "head_dim"].map(|name| values.get(name).and_then(Value::as_u64));
    Some(expand? * hidden? / head?)
}

/// True for the width of a net.
fn is_width(name: &str) -> bool {
    name.contains("intermediate_size")
        || matches!(name, "n_inner" | "ffn_dim" | "decoder_ffn_dim" | "ffn_hidden_size" | "dff")
}

/// The types of layers of runs: lists that repeat.
fn expanded(runs: &[Value]) -> Vec<Value> {
    let parts = runs.iter().filter_map(|run| Some((run.get(0)?.as_array()?, run.get(1)?.as_u64()?)));
    parts.flat_map(|(types, times)| types.iter().cycle().take(types.len() * times as usize)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::families::FAMILIES;

    /// A configuration without its numbers, and without the layers of each kind.
    fn kinds(config: &ModelConfig) -> Value {
        let mut value = serde_json::to_value(config).unwrap();
        without_numbers(&mut value);
        value
    }

    fn without_numbers(value: &mut Value) {
        match value {
            Value::Number(_) => *value = 0.into(),
            Value::Array(list) => list.iter_mut().for_each(without_numbers),
            Value::Object(parts) => {
                for (name, part) in parts {
                    if matches!(name.as_str(), "nope" | "full" | "dense" | "shared" | "layers" | "still" | "netless") {
                        *part = 0.into()
                    } else {
                        without_numbers(part)
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }

    /// The keys that a file must state.
    fn needed(family: &str) -> Value {
        match family {
            "dots1" | "deepseek_v2" => json!({"num_experts_per_tok": 6, "n_routed_experts": 64, "n_shared_experts": 1}),
            "minicpm3" => json!({"v_head_dim": 64}),
            "cohere_compass_text" => json!({"rope_parameters": {"full_attention": null}}),
            _ => json!({}),
        }
    }

    #[test]
    fn every_family_has_a_small_model_of_its_kinds() {
        for (family, head) in FAMILIES.iter().flat_map(|family| [u64::MAX, 8].map(|head| (family, head))) {
            let mut file = needed(family.model_type).as_object().unwrap().clone();
            file.insert("model_type".to_string(), family.model_type.into());
            let large = read(&file).unwrap();
            let smaller = small(&file, head).unwrap_or_else(|why| panic!("{}: {why}", family.model_type));
            let little = read(&smaller).unwrap();
            // Of a head of few elements no part may be left that does not turn.
            assert!(head == 8 || kinds(&little) == kinds(&large), "{}", family.model_type);
            assert_eq!(blocks(&little).unwrap(), blocks(&large).unwrap(), "{}", family.model_type);
            let count = little.build(&Batch { batch: 1, seq: 1, dtype: DType::F32 }).unwrap().parameter_count();
            assert!(head == u64::MAX || count < 5_000_000, "{}: {count} parameters", family.model_type);
        }
    }

    /// Lists by layer end with the layers, and the last layer that a file needs is there.
    #[test]
    fn lists_by_layer_fit() {
        let types = json!(["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]);
        let file = json!({"model_type": "laguna", "num_hidden_layers": 4, "sliding_window": 512, "layer_types": types,
            "attention_dropout": 0.5, "router_counts": true, "num_attention_heads": 12, "num_key_value_heads": 12,
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]});
        let small = small(file.as_object().unwrap(), 8).unwrap();
        let expected = json!({"num_hidden_layers": 3, "sliding_window": 5, "attention_dropout": 0.0, "num_attention_heads": 4,
            "num_key_value_heads": 4, "head_dim": 8, "mlp_layer_types": ["dense", "sparse", "sparse"],
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]});
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(small[key], *value, "{key}");
        }
        assert!(!small.contains_key("router_counts"));
    }
}
