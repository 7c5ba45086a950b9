//! GPT-Neo: learned positions, scores that are not scaled, windows in every second layer.

use super::prelude::*;
use std::iter::repeat_n;

pub(super) const FAMILY: Family = Family {
    model_type: "gpt_neo",
    class: "GPTNeoForCausalLM",
    keys: Keys { class: "GPTNeoConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "transformer.",
        layers: "h.",
        embedding: "transformer.wte.weight",
        outer: &[
            HubTensor::table("transformer.wte.weight", &["emb"]),
            HubTensor::table("transformer.wpe.weight", &["wpe"]),
            HubTensor::vector("transformer.ln_f.weight", &["final_norm"]),
            HubTensor::vector("transformer.ln_f.bias", &["final_norm_bias"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[LAYER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50257", VOCABULARY),
    Key::read(&["max_position_embeddings"], "2048", POSITIONS),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::alias(&["num_layers"], "num_hidden_layers"),
    Key::read(&["attention_types"], "null", "runs of global and local layers; null: both in turn, twelve times"),
    Key::alias(&["num_heads"], "num_attention_heads"),
    Key::read(&["intermediate_size"], "null", "size of the feed-forward net; null: four times `hidden_size`"),
    Key::read(&["window_size"], "256", "tokens that local layers see, the last ones"),
    Key::read(&["activation_function"], "\"gelu_new\"", ACTIVATION),
    Key::read(&["resid_dropout"], "0.0", DROPOUT),
    Key::read(&["embed_dropout"], "0.0", DROPOUT),
    Key::nothing(&["classifier_dropout"], "not of the language model"),
    Key::read(&["layer_norm_epsilon"], "1e-05", LAYER_NORM_EPS),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["num_hidden_layers"], "24", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::only(&["rope_theta"], "10000.0", "the class has no rotary positions"),
    Key::nothing(&["attention_layers"], "it follows from `attention_types`"),
    Key::nothing(
        &["summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"],
        UNREAD,
    ),
];

const LAYER: &[HubTensor] = &[
    HubTensor::vector("ln_1.weight", &["norm1"]),
    HubTensor::vector("ln_1.bias", &["norm1_bias"]),
    HubTensor::vector("ln_2.weight", &["norm2"]),
    HubTensor::vector("ln_2.bias", &["norm2_bias"]),
    HubTensor::linear("attn.attention.q_proj.weight", &["wq"]),
    HubTensor::linear("attn.attention.k_proj.weight", &["wk"]),
    HubTensor::linear("attn.attention.v_proj.weight", &["wv"]),
    HubTensor::linear("attn.attention.out_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("attn.attention.out_proj.bias", &["bo"]),
    HubTensor::linear("mlp.c_fc.weight", &["up"]),
    HubTensor::vector("mlp.c_fc.bias", &["up_bias"]),
    HubTensor::linear("mlp.c_proj.weight", &["down"]),
    HubTensor::vector("mlp.c_proj.bias", &["down_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "hidden_size", norm_eps: "layer_norm_epsilon", ..Base::USUAL }.read(fields)?;
    Ok(LlamaConfig {
        feed_forward: fields.optional("intermediate_size")?.unwrap_or(base.hidden.saturating_mul(4)),
        gated: false,
        activation: activation(fields, "activation_function")?,
        norm: Norm::Layer,
        learned: Some(Learned { positions: fields.get("max_position_embeddings")?, unread: 0 }),
        nope: LayerSet::First(base.layers),
        score_size: Some(1.0),
        window: window(fields, base.layers)?,
        pad: None,
        out_bias: true,
        net_bias: true,
        residual_dropout: fields.get("resid_dropout")?,
        embedding_dropout: fields.get("embed_dropout")?,
        ..base
    }
    .into())
}

/// The window of local layers.
fn window(fields: &Fields, layers: u32) -> Result<Option<Window>, ConfigError> {
    const KEY: &str = "attention_types";
    let in_turn = (vec!["global".to_string(), "local".to_string()], 12);
    let runs: Vec<(Vec<String>, usize)> = fields.optional(KEY)?.unwrap_or_else(|| vec![in_turn]);
    let all = runs.iter().flat_map(|(types, times)| repeat_n(types, *times).flatten());
    let types: Vec<&String> = all.take(layers as usize + 1).collect();
    if types.len() != layers as usize {
        let why = format!("`{KEY}` has {} types, but `num_layers` is {layers}", types.len());
        return Err(ConfigError::Contradiction(why));
    }
    if let Some(kind) = types.iter().find(|kind| !matches!(kind.as_str(), "global" | "local")) {
        return Err(unsupported(KEY, format!("{kind} is not supported, only global and local")));
    }
    let limited = Limited { layers, limit: Limit::Sliding, tokens: Some(fields.get("window_size")?), is_needed: false };
    limited.read(fields, |layer| types[layer as usize] == "global")
}
