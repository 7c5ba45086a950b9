//! Llama 1 to 3, and what is built like them.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "llama",
    class: "LlamaForCausalLM",
    keys: Keys { class: "LlamaConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[Composite::of("llava")],
    weights: USUAL,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "11008", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-6", LATENT_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", "the products of the feed-forward net have biases"),
    Key::read(&["mlp_gate"], "true", "an addition: false for a feed-forward net of `relu2` without a gate"),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig {
        gated: fields.get("mlp_gate")?,
        activation: activation(fields, "hidden_act")?,
        net_bias: fields.get("mlp_bias")?,
        ..base
    }
    .into())
}

/// Whole heads turn, by unscaled frequencies of the base of Su et al. 2021, section 3.3.
pub(super) const PLAIN: Rotation =
    Rotation { theta: 10_000.0, scaling: None, gain: 1.0, turned: None, backwards: false, sections: None };

/// The common fields of the Llama 3 models: `config.json` of meta-llama/Meta-Llama-3-8B.
pub(super) const LLAMA3_8B: LlamaConfig = LlamaConfig {
    vocabulary: 128_256,
    unpredicted: 0,
    hidden: 4096,
    feed_forward: 14_336,
    gated: true,
    activation: Activation::Silu,
    layers: 32,
    heads: 32,
    kv_heads: 8,
    local_kv_heads: None,
    local_head: None,
    keys_are_values: false,
    value_norm: false,
    layer_scale: false,
    sum_factors: SumFactors::NONE,
    sums_by_depth: false,
    differential: false,
    pooler: false,
    norm_gate: None,
    net_clamp: None,
    layer_embedding: None,
    longest: None,
    head: 128,
    value: None,
    value_scale: 1.0,
    key_scale: 1.0,
    net_scales: [1.0; 2],
    norm_eps: 1e-5,
    norm: Norm::Rms,
    norms: Norms::Before,
    bare_first: false,
    branches: Branches::InTurn,
    residual_scale: 1.0,
    embedding_norm: EmbeddingNorm::None,
    embedding_size: None,
    kinds: [0; 2],
    inner_norms: false,
    learned: None,
    fixed_positions: None,
    rotary_table: None,
    alibi: false,
    waves: None,
    causal: true,
    rotation: Rotation { theta: 500_000.0, ..PLAIN },
    local_rotation: None,
    nope: LayerSet::None,
    temperature: None,
    score_size: None,
    softcap: None,
    logit_softcap: None,
    logit_scale: 1.0,
    window: None,
    pad: None,
    tied: false,
    head_bias: false,
    head_layer: None,
    embedding_scale: EmbeddingScale::One,
    qkv_bias: false,
    plain_keys: false,
    out_bias: false,
    last_bias: false,
    net_bias: false,
    sinks: Sinks::None,
    clip: None,
    head_gate: HeadGate::None,
    qk_norm: QkNorm::None,
    attention_dropout: 0.0,
    residual_dropout: 0.0,
    embedding_dropout: 0.0,
    deviation: 0.02,
    latent: None,
    indexer: None,
    cross: None,
    scanned: None,
    still: LayerSet::None,
    netless: LayerSet::None,
    experts: None,
    mtp: None,
    vision: None,
};

/// The same sizes as `config.json` of meta-llama/Meta-Llama-3-70B has them.
const LLAMA3_70B: LlamaConfig = LlamaConfig { hidden: 8192, feed_forward: 28_672, layers: 80, heads: 64, ..LLAMA3_8B };

/// The rotation of the Llama 3.1 models: `config.json` of meta-llama/Llama-3.1-8B.
const LONG: Rotation = Rotation {
    theta: 500_000.0,
    scaling: Some(Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 8192 }),
    ..PLAIN
};

/// `config.json` of meta-llama/Llama-2-7b-hf.
const LLAMA2_7B: LlamaConfig =
    LlamaConfig { vocabulary: 32_000, feed_forward: 11_008, kv_heads: 32, rotation: PLAIN, ..LLAMA3_8B };

/// `config.json` of meta-llama/Llama-3.2-1B.
const LLAMA32_1B: LlamaConfig = LlamaConfig {
    hidden: 2048,
    feed_forward: 8192,
    layers: 16,
    head: 64,
    rotation: Rotation {
        theta: 500_000.0,
        scaling: Some(Scaling::Llama3 { factor: 32.0, low: 1.0, high: 4.0, context: 8192 }),
        ..PLAIN
    },
    tied: true,
    ..LLAMA3_8B
};

/// `scripts/scaling_benchmarks.py` of huggingface/nanotron: one key head per query head, tied where the feed-forward net
/// is below 10,000.
const PLAYBOOK_8B: LlamaConfig = LlamaConfig { vocabulary: 131_072, kv_heads: 32, rotation: PLAIN, ..LLAMA3_8B };

/// Parmar et al. 2024 (Nemotron-4 15B), table 1. Its norms are layer norms and only half of a head turns there; neither
/// changes a matrix.
const NEMOTRON_15B: LlamaConfig = LlamaConfig {
    vocabulary: 256_000,
    hidden: 6144,
    feed_forward: 24_576,
    gated: false,
    activation: Activation::ReluSquared,
    heads: 48,
    rotation: PLAIN,
    ..LLAMA3_8B
};

pub(super) const PRESETS: &[Preset] = &[
    Preset::llama("llama2-7b", "Llama 2, 6.7B parameters", 4096, LLAMA2_7B),
    // config.json of meta-llama/Llama-2-13b-hf and Llama-2-70b-hf.
    Preset::llama(
        "llama2-13b",
        "Llama 2, 13B parameters",
        4096,
        LlamaConfig { hidden: 5120, feed_forward: 13_824, layers: 40, heads: 40, kv_heads: 40, ..LLAMA2_7B },
    ),
    Preset::llama(
        "llama2-70b",
        "Llama 2, 69B parameters",
        4096,
        LlamaConfig { hidden: 8192, feed_forward: 28_672, layers: 80, heads: 64, kv_heads: 8, ..LLAMA2_7B },
    ),
    Preset::llama("llama3-8b", "Llama 3, 8.0B parameters", 8192, LLAMA3_8B),
    Preset::llama("llama3-70b", "Llama 3, 71B parameters", 8192, LLAMA3_70B),
    Preset::llama("llama3.1-8b", "Llama 3.1, 8.0B parameters", 131_072, LlamaConfig { rotation: LONG, ..LLAMA3_8B }),
    // Dubey et al. 2024, table 3, as config.json of meta-llama/Llama-3.1-70B and 405B.
    Preset::llama("llama3.1-70b", "Llama 3.1, 71B parameters", 131_072, LlamaConfig { rotation: LONG, ..LLAMA3_70B }),
    Preset::llama(
        "llama3.1-405b",
        "Llama 3.1, 406B parameters",
        131_072,
        LlamaConfig { hidden: 16_384, feed_forward: 53_248, layers: 126, heads: 128, rotation: LONG, ..LLAMA3_8B },
    ),
    Preset::llama("llama3.2-1b", "Llama 3.2, 1.2B parameters", 131_072, LLAMA32_1B),
    // config.json of meta-llama/Llama-3.2-3B.
    Preset::llama(
        "llama3.2-3b",
        "Llama 3.2, 3.2B parameters",
        131_072,
        LlamaConfig { hidden: 3072, layers: 28, heads: 24, head: 128, ..LLAMA32_1B },
    ),
    Preset::llama(
        "playbook-1b",
        "a Llama of the Ultra-Scale Playbook, 1.3B parameters",
        4096,
        LlamaConfig { hidden: 2048, feed_forward: 8192, layers: 16, head: 64, tied: true, ..PLAYBOOK_8B },
    ),
    Preset::llama(
        "playbook-3b",
        "a Llama of the Ultra-Scale Playbook, 3.6B parameters",
        4096,
        LlamaConfig { hidden: 3072, feed_forward: 8192, layers: 28, head: 96, tied: true, ..PLAYBOOK_8B },
    ),
    Preset::llama("playbook-8b", "a Llama of the Ultra-Scale Playbook, 8.8B parameters", 4096, PLAYBOOK_8B),
    Preset::llama(
        "playbook-80b",
        "a Llama of the Ultra-Scale Playbook, 80B parameters",
        4096,
        LlamaConfig { hidden: 8192, feed_forward: 28_672, layers: 80, heads: 64, kv_heads: 64, ..PLAYBOOK_8B },
    ),
    Preset::llama("nemotron4-15b", "Nemotron-4, 16B parameters: squared ReLU", 4096, NEMOTRON_15B),
    // Nemotron-3 8B and 22B as NeMo trains them; config.json of nvidia/Nemotron-4-340B-Base for the last.
    Preset::llama(
        "nemotron-8b",
        "Nemotron, 8.6B parameters: squared ReLU",
        4096,
        LlamaConfig { hidden: 4096, feed_forward: 16_384, heads: 32, kv_heads: 32, ..NEMOTRON_15B },
    ),
    Preset::llama(
        "nemotron-22b",
        "Nemotron, 21B parameters: squared ReLU",
        4096,
        LlamaConfig { layers: 40, kv_heads: 48, ..NEMOTRON_15B },
    ),
    Preset::llama(
        "nemotron4-340b",
        "Nemotron-4, 341B parameters: squared ReLU",
        4096,
        LlamaConfig { hidden: 18_432, feed_forward: 73_728, layers: 96, heads: 96, head: 192, ..NEMOTRON_15B },
    ),
];
