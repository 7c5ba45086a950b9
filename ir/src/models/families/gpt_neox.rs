//! GPT-NeoX: layer norms, biases, branches side by side.

use super::Family;
use super::common::{
    ACTIVATION, BIAS, CONTEXT, EVERY, FEED_FORWARD, HEADS, HIDDEN, LAYERS, NORM_EPS, ROTARY, THETA, TURNED, VOCABULARY,
};
use super::llama::{LLAMA3_8B, PLAIN};
use super::presets::Preset;
use crate::models::config::{ConfigError, ModelConfig};
use crate::models::feed_forward::Activation;
use crate::models::fields::Fields;
use crate::models::keys::{Key, Keys};
use crate::models::llama::LlamaConfig;
use crate::models::read::{Base, Rope, activation};
use crate::models::rotation::Rotation;

pub(super) const FAMILY: Family = Family {
    model_type: "gpt_neox",
    class: "GPTNeoXForCausalLM",
    keys: Keys { class: "GPTNeoXConfig", lists: &[KEYS, ROTARY, EVERY] },
    whole: None,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["hidden_act"], "\"gelu\"", ACTIVATION),
    Key::read(&["rotary_pct"], "0.25", TURNED),
    Key::read(&["attention_bias"], "true", BIAS),
    Key::nothing(&["pad_token_id"], "the embedding has no padding"),
    Key::read(&["vocab_size"], "50432", VOCABULARY),
    Key::read(&["hidden_size"], "6144", HIDDEN),
    Key::read(&["intermediate_size"], "24576", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "44", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["layer_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["rotary_emb_base"], "10000.0", THETA),
    Key::only(&["hidden_dropout"], "0.0", "nothing is dropped"),
    Key::nothing(&["classifier_dropout"], "not of the language model"),
    Key::read(&["use_parallel_residual"], "true", "attention and the feed-forward net read the same"),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { theta: "rotary_emb_base", part: Some("rotary_pct"), ..Rope::USUAL };
    let base = Base { norm_eps: "layer_norm_eps", rope, ..Base::USUAL }.read(fields)?;
    let has_bias = fields.get("attention_bias")?;
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "hidden_act")?,
        layer_norm: true,
        parallel: fields.get("use_parallel_residual")?,
        qkv_bias: has_bias,
        out_bias: has_bias,
        net_bias: true,
        ..base
    }
    .into())
}

/// The common fields of the models: `config.json` of EleutherAI/gpt-neox-20b.
const NEOX_20B: LlamaConfig = LlamaConfig {
    vocabulary: 50_432,
    hidden: 6144,
    feed_forward: 24_576,
    gated: false,
    activation: Activation::GeluTanh,
    layers: 44,
    heads: 64,
    kv_heads: 64,
    head: 96,
    layer_norm: true,
    parallel: true,
    rotation: Rotation { turned: Some(24), ..PLAIN },
    qkv_bias: true,
    out_bias: true,
    net_bias: true,
    ..LLAMA3_8B
};

/// A Pythia: `config.json` of EleutherAI/pythia-410m and its likes. A quarter of a head turns.
const fn pythia(name: &'static str, about: &'static str, vocabulary: u64, [layers, hidden, heads]: [u64; 3]) -> Preset {
    let head = hidden / heads;
    let config = LlamaConfig {
        vocabulary,
        hidden,
        feed_forward: 4 * hidden,
        activation: Activation::GeluErf,
        layers: layers as u32,
        heads,
        kv_heads: heads,
        head,
        rotation: Rotation { turned: Some(head / 4), ..PLAIN },
        ..NEOX_20B
    };
    Preset { name, about, context: 2048, config: ModelConfig::Llama(config) }
}

pub(super) const PRESETS: &[Preset] = &[
    Preset {
        name: "gpt-neox-20b",
        about: "GPT-NeoX, 21B parameters",
        context: 2048,
        config: ModelConfig::Llama(NEOX_20B),
    },
    pythia("pythia-160m", "Pythia, 0.2B parameters", 50_304, [12, 768, 12]),
    pythia("pythia-410m", "Pythia, 0.4B parameters", 50_304, [24, 1024, 16]),
    pythia("pythia-1b", "Pythia, 1.0B parameters", 50_304, [16, 2048, 8]),
    pythia("pythia-1.4b", "Pythia, 1.4B parameters", 50_304, [24, 2048, 16]),
    pythia("pythia-2.8b", "Pythia, 2.8B parameters", 50_304, [32, 2560, 32]),
    pythia("pythia-6.9b", "Pythia, 6.9B parameters", 50_432, [32, 4096, 32]),
    pythia("pythia-12b", "Pythia, 12B parameters", 50_688, [36, 5120, 40]),
];
