//! GPT-2 and what is built like it.

use super::prelude::*;
use crate::models::gpt2::Gpt2Config;

pub(super) const FAMILY: Family = Family {
    model_type: "gpt2",
    class: "GPT2LMHeadModel",
    keys: Keys { class: "GPT2Config", lists: &[KEYS, EVERY] },
    wholes: &[],
    weights: WEIGHTS,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50257", VOCABULARY),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["n_positions"], "1024", "positions of the table"),
    Key::read(&["n_embd"], "768", HIDDEN),
    Key::read(&["n_layer"], "12", LAYERS),
    Key::read(&["n_head"], "12", HEADS),
    Key::read(&["n_inner"], "null", "size of the feed-forward net; null: four times `n_embd`"),
    Key::alias(&["hidden_size"], "n_embd"),
    Key::alias(&["max_position_embeddings"], "n_positions"),
    Key::alias(&["num_attention_heads"], "n_head"),
    Key::alias(&["num_hidden_layers"], "n_layer"),
    Key::read(&["activation_function"], "\"gelu_new\"", "gelu, or gelu_new, which gelu_pytorch_tanh is too"),
    Key::read(&["attn_pdrop", "resid_pdrop", "embd_pdrop"], "0.1", "dropout, drawn from our own numbers"),
    Key::read(&["layer_norm_epsilon"], "1e-5", NORM_EPS),
    Key::only(&["scale_attn_weights"], "true", "scores are scaled"),
    Key::only(&["scale_attn_by_inverse_layer_idx", "add_cross_attention"], "false", "attention has no such option"),
    Key::nothing(&["reorder_and_upcast_attn"], "in f32 it is the order of two products"),
    Key::nothing(
        &[
            "n_ctx",
            "summary_type",
            "summary_use_proj",
            "summary_activation",
            "summary_proj_to_labels",
            "summary_first_dropout",
        ],
        "not of the language model",
    ),
    Key::read(&["post_norm"], "false", "an addition: norms stand behind each sum"),
    Key::nothing(&["pad_token_id"], "the embedding has no padding"),
];

const WEIGHTS: Weights = Weights {
    base: "transformer.",
    layers: "h.",
    head: "lm_head.weight",
    embedding: "transformer.wte.weight",
    outer: &[
        HubTensor::table("transformer.wte.weight", &["wte"]),
        HubTensor::table("transformer.wpe.weight", &["wpe"]),
        HubTensor::vector("transformer.ln_f.weight", &["final_norm"]),
        HubTensor::vector("transformer.ln_f.bias", &["final_bias"]),
        HubTensor::linear("lm_head.weight", &["out"]),
    ],
    inner: &[LAYER],
    pairs: Pairs::Apart,
    turned: &[],
    constants: &[],
    further: 0,
};

/// The tensors of a layer: matrices have inputs in rows.
const LAYER: &[HubTensor] = &[
    HubTensor::table("attn.c_attn.weight", &["wq", "wk", "wv"]),
    HubTensor::vector("attn.c_attn.bias", &["bq", "bk", "bv"]),
    HubTensor::table("attn.c_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("attn.c_proj.bias", &["bo"]),
    HubTensor::vector("ln_1.weight", &["norm1"]),
    HubTensor::vector("ln_1.bias", &["norm1_bias"]),
    HubTensor::vector("ln_2.weight", &["norm2"]),
    HubTensor::vector("ln_2.bias", &["norm2_bias"]),
    HubTensor::table("mlp.c_fc.weight", &["up"]),
    HubTensor::vector("mlp.c_fc.bias", &["up_bias"]),
    HubTensor::table("mlp.c_proj.weight", &["down"]),
    HubTensor::vector("mlp.c_proj.bias", &["down_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let hidden: u64 = fields.get("n_embd")?;
    let activation: String = fields.get("activation_function")?;
    let exact_gelu = match activation.as_str() {
        "gelu" => true,
        "gelu_new" | "gelu_pytorch_tanh" => false,
        _ => {
            let why = format!("`{activation}` is not supported, only `gelu` and `gelu_new`");
            return Err(unsupported("activation_function", why));
        }
    };
    let config = Gpt2Config {
        vocabulary: fields.get("vocab_size")?,
        positions: Some(fields.get("n_positions")?),
        hidden,
        feed_forward: fields.optional("n_inner")?.unwrap_or(hidden.saturating_mul(4)),
        layers: fields.layers("n_layer")?,
        heads: fields.get("n_head")?,
        norm_eps: fields.get("layer_norm_epsilon")?,
        exact_gelu,
        post_norm: fields.get("post_norm")?,
        attention_dropout: fields.get("attn_pdrop")?,
        residual_dropout: fields.get("resid_pdrop")?,
        embedding_dropout: fields.get("embd_pdrop")?,
        tied: fields.get("tie_word_embeddings")?,
        deviation: fields.get("initializer_range")?,
    };
    Ok(ModelConfig::Gpt2(config))
}

/// The common fields of the GPT-2 models: `config.json` of openai-community/gpt2 on the Hugging Face hub. That file states
/// dropout of 0.1 everywhere; here it is off.
pub(super) const GPT2: Gpt2Config = Gpt2Config {
    vocabulary: 50_257,
    positions: Some(1024),
    hidden: 768,
    feed_forward: 3072,
    layers: 12,
    heads: 12,
    norm_eps: 1e-5,
    exact_gelu: false,
    post_norm: false,
    attention_dropout: 0.0,
    residual_dropout: 0.0,
    embedding_dropout: 0.0,
    tied: true,
    deviation: 0.02,
};

/// A model of these sizes with a feed-forward net of four times the stream and a position for each token of a sequence.
const fn sized(
    name: &'static str,
    about: &'static str,
    context: u64,
    vocabulary: u64,
    layers: u32,
    hidden: u64,
    heads: u64,
) -> Preset {
    let feed_forward = 4 * hidden;
    let config = Gpt2Config { vocabulary, positions: None, layers, hidden, heads, feed_forward, ..GPT2 };
    Preset { name, about, context, config: ModelConfig::Gpt2(config) }
}

/// One of the GPT-2 models.
const fn gpt2(name: &'static str, about: &'static str, layers: u32, hidden: u64, heads: u64) -> Preset {
    let config = Gpt2Config { layers, hidden, heads, feed_forward: 4 * hidden, ..GPT2 };
    Preset { name, about, context: 1024, config: ModelConfig::Gpt2(config) }
}

/// With the vocabulary padded as Megatron does it for tp = 8: 50257 to a multiple of 1024.
const fn padded(name: &'static str, about: &'static str, layers: u32, hidden: u64, heads: u64) -> Preset {
    sized(name, about, 2048, 51_200, layers, hidden, heads)
}

/// A model of llm-foundry: the vocabulary of its yamls in `scripts/train/yamls/pretrain`. Its biases are small compared
/// with the rest, and its positions are learned, or ALiBi, which this family has not.
const fn mpt(name: &'static str, about: &'static str, layers: u32, hidden: u64, heads: u64) -> Preset {
    sized(name, about, 2048, 50_368, layers, hidden, heads)
}

pub(super) const PRESETS: &[Preset] = &[
    // config.json of openai-community/gpt2, gpt2-medium, gpt2-large and gpt2-xl.
    gpt2("gpt2", "GPT-2, 124M parameters", 12, 768, 12),
    gpt2("gpt2-medium", "GPT-2, 355M parameters", 24, 1024, 16),
    gpt2("gpt2-large", "GPT-2, 774M parameters", 36, 1280, 20),
    gpt2("gpt2-xl", "GPT-2, 1.5B parameters", 48, 1600, 25),
    // Brown et al. 2020, table 2.1; 5b, 20b and 40b are NeMo's (Megatron launcher, conf/training/gpt3). Of 1.3b the 16 heads
    // that trainers use, since the 24 of the paper do not divide 2048.
    padded("gpt3-126m", "GPT-3, 126M parameters", 12, 768, 12),
    padded("gpt3-350m", "GPT-3, 350M parameters", 24, 1024, 16),
    padded("gpt3-760m", "GPT-3, 760M parameters", 24, 1536, 16),
    padded("gpt3-1.3b", "GPT-3, 1.3B parameters", 24, 2048, 16),
    padded("gpt3-2.7b", "GPT-3, 2.7B parameters", 32, 2560, 32),
    padded("gpt3-5b", "GPT-3 of NeMo, 5B parameters", 24, 4096, 32),
    padded("gpt3-6.7b", "GPT-3, 6.7B parameters", 32, 4096, 32),
    padded("gpt3-13b", "GPT-3, 13B parameters", 40, 5120, 40),
    padded("gpt3-20b", "GPT-3 of NeMo, 20B parameters", 44, 6144, 48),
    padded("gpt3-40b", "GPT-3 of NeMo, 40B parameters", 48, 8192, 64),
    padded("gpt3-175b", "GPT-3, 175B parameters", 96, 12_288, 96),
    // Narayanan et al. 2021, table 1; 22b is of Korthikanti et al. 2022, table 3.
    padded("megatron-1.7b", "Megatron's GPT, 1.7B parameters", 24, 2304, 24),
    padded("megatron-3.6b", "Megatron's GPT, 3.6B parameters", 30, 3072, 32),
    padded("megatron-7.5b", "Megatron's GPT, 7.5B parameters", 36, 4096, 32),
    padded("megatron-18b", "Megatron's GPT, 18.4B parameters", 40, 6144, 48),
    padded("megatron-22b", "Megatron's GPT, 22B parameters", 48, 6144, 64),
    padded("megatron-39b", "Megatron's GPT, 39.1B parameters", 48, 8192, 64),
    padded("megatron-76b", "Megatron's GPT, 76.1B parameters", 60, 10_240, 80),
    padded("megatron-145b", "Megatron's GPT, 145.6B parameters", 80, 12_288, 96),
    padded("megatron-175b", "Megatron's GPT, 175B parameters", 96, 12_288, 96),
    padded("megatron-310b", "Megatron's GPT, 310.1B parameters", 96, 16_384, 128),
    padded("megatron-530b", "Megatron's GPT, 530B parameters", 105, 20_480, 128),
    padded("megatron-1t", "Megatron's GPT, 1008B parameters", 128, 25_600, 160),
    // Rajbhandari et al. 2020 (ZeRO), table 4 and section 10.4; vocabulary and sequence of GPT-2.
    sized("zero-1.5b", "ZeRO's GPT-2-like, 1.5B parameters", 1024, 50_257, 48, 1600, 16),
    sized("zero-8b", "ZeRO's GPT-2-like, 8B parameters", 1024, 50_257, 72, 3072, 24),
    sized("zero-13b", "ZeRO's GPT-2-like, 13B parameters", 1024, 50_257, 62, 4096, 32),
    sized("zero-40b", "ZeRO's GPT-2-like, 40B parameters", 1024, 50_257, 88, 6144, 32),
    sized("zero-60b", "ZeRO's GPT-2-like, 60B parameters", 1024, 50_257, 132, 6144, 32),
    sized("zero-80b", "ZeRO's GPT-2-like, 80B parameters", 1024, 50_257, 100, 8192, 64),
    sized("zero-100b", "ZeRO's GPT-2-like, 100B parameters", 1024, 50_257, 125, 8192, 64),
    sized("zero-120b", "ZeRO's GPT-2-like, 120B parameters", 1024, 50_257, 150, 8192, 64),
    sized("zero-140b", "ZeRO's GPT-2-like, 140B parameters", 1024, 50_257, 175, 8192, 64),
    sized("zero-170b", "ZeRO's GPT-2-like, 170B parameters", 1024, 50_257, 212, 8192, 64),
    mpt("mpt-125m", "MPT of llm-foundry, 125M parameters", 12, 768, 12),
    mpt("mpt-350m", "MPT of llm-foundry, 350M parameters", 24, 1024, 16),
    mpt("mpt-760m", "MPT of llm-foundry, 760M parameters", 24, 1536, 12),
    mpt("mpt-1b", "MPT of llm-foundry, 1.3B parameters", 24, 2048, 16),
    mpt("mpt-3b", "MPT of llm-foundry, 2.7B parameters", 32, 2560, 20),
    mpt("mpt-7b", "MPT of llm-foundry, 6.7B parameters", 32, 4096, 32),
    mpt("mpt-13b", "MPT of llm-foundry, 13B parameters", 40, 5120, 40),
    mpt("mpt-30b", "MPT of llm-foundry, 30B parameters", 48, 7168, 56),
    mpt("mpt-70b", "MPT of llm-foundry, 65B parameters", 80, 8192, 64),
];
