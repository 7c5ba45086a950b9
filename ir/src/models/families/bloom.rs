//! BLOOM: biases of scores by distance, and a norm of embeddings.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "bloom",
    class: "BloomForCausalLM",
    keys: Keys { class: "BloomConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "transformer.",
        layers: "h.",
        embedding: "transformer.word_embeddings.weight",
        outer: &[
            HubTensor::table("transformer.word_embeddings.weight", &["emb"]),
            HubTensor::vector("transformer.word_embeddings_layernorm.weight", &["emb_norm"]),
            HubTensor::vector("transformer.word_embeddings_layernorm.bias", &["emb_norm_bias"]),
            HubTensor::vector("transformer.ln_f.weight", &["final_norm"]),
            HubTensor::vector("transformer.ln_f.bias", &["final_norm_bias"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[LAYER_NORMS, LAYER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "250880", VOCABULARY),
    Key::read(&["hidden_size"], "64", HIDDEN),
    Key::alias(&["n_embed"], "hidden_size"),
    Key::alias(&["n_layer"], "num_hidden_layers"),
    Key::alias(&["n_head"], "num_attention_heads"),
    Key::read(&["num_hidden_layers"], "2", LAYERS),
    Key::read(&["num_attention_heads"], "8", HEADS),
    Key::read(&["layer_norm_epsilon"], "1e-5", LAYER_NORM_EPS),
    Key::only(&["apply_residual_connection_post_layernorm"], "false", "norms are those of what branches read"),
    Key::read(&["hidden_dropout"], "0.0", DROPOUT),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::only(&["rope_theta"], "10000.0", "the class has no rotary positions"),
    Key::nothing(&["slow_but_exact"], "how a product is summed up"),
    Key::nothing(
        &["seq_length", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv", "attention_softmax_in_fp32"],
        UNREAD,
    ),
    Key::nothing(&["masked_softmax_fusion", "bias_dropout_fusion", "unk_token_id"], UNREAD),
];

const LAYER: &[HubTensor] = &[
    HubTensor::linear("self_attention.query_key_value.weight", &["wq", "wk", "wv"]).joined(Join::Heads),
    HubTensor::vector("self_attention.query_key_value.bias", &["bq", "bk", "bv"]).joined(Join::Heads),
    HubTensor::linear("self_attention.dense.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("self_attention.dense.bias", &["bo"]),
    HubTensor::linear("mlp.dense_h_to_4h.weight", &["up"]),
    HubTensor::vector("mlp.dense_h_to_4h.bias", &["up_bias"]),
    HubTensor::linear("mlp.dense_4h_to_h.weight", &["down"]),
    HubTensor::vector("mlp.dense_4h_to_h.bias", &["down_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "hidden_size", norm_eps: "layer_norm_epsilon", ..Base::USUAL }.read(fields)?;
    Ok(LlamaConfig {
        feed_forward: base.hidden.saturating_mul(4),
        gated: false,
        activation: Activation::GeluTanh,
        norm: Norm::Layer,
        embedding_norm: EmbeddingNorm::Sum,
        alibi: true,
        nope: LayerSet::First(base.layers),
        pad: None,
        qkv_bias: true,
        out_bias: true,
        net_bias: true,
        residual_dropout: fields.get("hidden_dropout")?,
        ..base
    }
    .into())
}
