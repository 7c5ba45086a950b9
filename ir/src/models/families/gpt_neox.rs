//! GPT-NeoX: layer norms, biases, branches side by side.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "gpt_neox",
    class: "GPTNeoXForCausalLM",
    keys: Keys { class: "GPTNeoXConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: WEIGHTS,
    read,
};

const KEYS: &[Key] = &[
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
    Key::read(&["hidden_act"], "\"gelu\"", ACTIVATION),
    Key::read(&["rotary_pct"], "0.25", TURNED),
    Key::read(&["attention_bias"], "true", BIAS),
];

const WEIGHTS: Weights = Weights {
    base: "gpt_neox.",
    head: "embed_out.weight",
    embedding: "gpt_neox.embed_in.weight",
    outer: &[
        HubTensor::table("gpt_neox.embed_in.weight", &["emb"]),
        HubTensor::vector("gpt_neox.final_layer_norm.weight", &["final_norm"]),
        HubTensor::vector("gpt_neox.final_layer_norm.bias", &["final_norm_bias"]),
        HubTensor::linear("lm_head.weight", &["out"]).when(When::File("lm_head.weight")),
        HubTensor::linear("embed_out.weight", &["out"]),
    ],
    inner: &[LAYER],
    ..USUAL
};

/// The tensors of a layer.
const LAYER: &[HubTensor] = &[
    HubTensor::linear("attention.query_key_value.weight", &["wq", "wk", "wv"]).joined(Join::Heads),
    HubTensor::vector("attention.query_key_value.bias", &["bq", "bk", "bv"]).joined(Join::Heads),
    HubTensor::linear("attention.dense.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("attention.dense.bias", &["bo"]),
    HubTensor::vector("input_layernorm.weight", &["norm1"]),
    HubTensor::vector("input_layernorm.bias", &["norm1_bias"]),
    HubTensor::vector("post_attention_layernorm.weight", &["norm2"]),
    HubTensor::vector("post_attention_layernorm.bias", &["norm2_bias"]),
    HubTensor::linear("mlp.dense_h_to_4h.weight", &["up"]),
    HubTensor::vector("mlp.dense_h_to_4h.bias", &["up_bias"]),
    HubTensor::linear("mlp.dense_4h_to_h.weight", &["down"]),
    HubTensor::vector("mlp.dense_4h_to_h.bias", &["down_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { theta: "rotary_emb_base", part: Some("rotary_pct"), ..Rope::USUAL };
    let base = biased(fields, Base { norm_eps: "layer_norm_eps", rope, ..Base::USUAL }.read(fields)?)?;
    let is_parallel: bool = fields.get("use_parallel_residual")?;
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "hidden_act")?,
        norm: Norm::Layer,
        branches: if is_parallel { Branches::Parallel } else { Branches::InTurn },
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
    norm: Norm::Layer,
    branches: Branches::Parallel,
    rotation: Rotation { turned: Some(24), ..PLAIN },
    qkv_bias: true,
    out_bias: true,
    net_bias: true,
    ..LLAMA3_8B
};

/// The sizes in which the models of Pythia differ.
struct Size {
    vocabulary: u64,
    layers: u32,
    hidden: u64,
    heads: u64,
}

/// A Pythia: `config.json` of EleutherAI/pythia-410m and its likes. A quarter of a head turns.
const fn pythia(name: &'static str, about: &'static str, size: Size) -> Preset {
    let Size { vocabulary, layers, hidden, heads } = size;
    let head = hidden / heads;
    let config = LlamaConfig {
        vocabulary,
        hidden,
        feed_forward: 4 * hidden,
        activation: Activation::GeluErf,
        layers,
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
    pythia("pythia-160m", "Pythia, 0.2B parameters", Size { vocabulary: 50_304, layers: 12, hidden: 768, heads: 12 }),
    pythia("pythia-410m", "Pythia, 0.4B parameters", Size { vocabulary: 50_304, layers: 24, hidden: 1024, heads: 16 }),
    pythia("pythia-1b", "Pythia, 1.0B parameters", Size { vocabulary: 50_304, layers: 16, hidden: 2048, heads: 8 }),
    pythia("pythia-1.4b", "Pythia, 1.4B parameters", Size { vocabulary: 50_304, layers: 24, hidden: 2048, heads: 16 }),
    pythia("pythia-2.8b", "Pythia, 2.8B parameters", Size { vocabulary: 50_304, layers: 32, hidden: 2560, heads: 32 }),
    pythia("pythia-6.9b", "Pythia, 6.9B parameters", Size { vocabulary: 50_432, layers: 32, hidden: 4096, heads: 32 }),
    pythia("pythia-12b", "Pythia, 12B parameters", Size { vocabulary: 50_688, layers: 36, hidden: 5120, heads: 40 }),
];
