//! GPT: norms of sums, learned positions, no norm at the end.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "openai-gpt",
    class: "OpenAIGPTLMHeadModel",
    keys: Keys { class: "OpenAIGPTConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "transformer.",
        layers: "h.",
        embedding: "transformer.tokens_embed.weight",
        outer: &[
            HubTensor::table("transformer.tokens_embed.weight", &["emb"]),
            HubTensor::table("transformer.positions_embed.weight", &["wpe"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[LAYER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "40478", VOCABULARY),
    Key::alias(&["n_positions"], "max_position_embeddings"),
    Key::alias(&["n_embd"], "hidden_size"),
    Key::alias(&["n_layer"], "num_hidden_layers"),
    Key::alias(&["n_head"], "num_attention_heads"),
    Key::read(&["hidden_size"], "768", HIDDEN),
    Key::read(&["num_hidden_layers"], "12", LAYERS),
    Key::read(&["num_attention_heads"], "12", HEADS),
    Key::read(&["max_position_embeddings"], "512", POSITIONS),
    Key::read(&["afn"], "\"gelu\"", "gelu (by tanh), relu, silu or swish"),
    Key::read(&["resid_pdrop"], "0.1", DROPOUT),
    Key::read(&["embd_pdrop"], "0.1", DROPOUT),
    Key::read(&["attn_pdrop"], "0.1", DROPOUT),
    Key::read(&["layer_norm_epsilon"], "1e-5", LAYER_NORM_EPS),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::only(&["rope_theta"], "10000.0", "the class has no rotary positions"),
    Key::nothing(&["n_ctx"], UNREAD),
    Key::nothing(
        &["summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"],
        "not of the language model",
    ),
];

const LAYER: &[HubTensor] = &[
    HubTensor::table("attn.c_attn.weight", &["wq", "wk", "wv"]),
    HubTensor::vector("attn.c_attn.bias", &["bq", "bk", "bv"]),
    HubTensor::table("attn.c_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("attn.c_proj.bias", &["bo"]),
    HubTensor::vector("ln_1.weight", &["norm1"]),
    HubTensor::vector("ln_1.bias", &["norm1_bias"]),
    HubTensor::table("mlp.c_fc.weight", &["up"]),
    HubTensor::vector("mlp.c_fc.bias", &["up_bias"]),
    HubTensor::table("mlp.c_proj.weight", &["down"]),
    HubTensor::vector("mlp.c_proj.bias", &["down_bias"]),
    HubTensor::vector("ln_2.weight", &["norm2"]),
    HubTensor::vector("ln_2.bias", &["norm2_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "hidden_size", norm_eps: "layer_norm_epsilon", ..Base::USUAL }.read(fields)?;
    let named: String = fields.get("afn")?;
    Ok(LlamaConfig {
        feed_forward: base.hidden.saturating_mul(4),
        gated: false,
        activation: if named == "gelu" { Activation::GeluTanh } else { activation(fields, "afn")? },
        norm: Norm::Layer,
        norms: Norms::Sums,
        learned: Some(Learned { positions: fields.get("max_position_embeddings")?, unread: 0 }),
        nope: LayerSet::First(base.layers),
        pad: None,
        qkv_bias: true,
        out_bias: true,
        net_bias: true,
        attention_dropout: fields.get("attn_pdrop")?,
        residual_dropout: fields.get("resid_pdrop")?,
        embedding_dropout: fields.get("embd_pdrop")?,
        ..base
    }
    .into())
}
