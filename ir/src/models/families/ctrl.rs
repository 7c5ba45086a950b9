//! CTRL: waves of positions, and scaled embeddings.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "ctrl",
    class: "CTRLLMHeadModel",
    keys: Keys { class: "CTRLConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "transformer.",
        layers: "h.",
        embedding: "transformer.w.weight",
        outer: &[
            HubTensor::table("transformer.w.weight", &["emb"]),
            HubTensor::vector("transformer.layernorm.weight", &["final_norm"]),
            HubTensor::vector("transformer.layernorm.bias", &["final_norm_bias"]),
            HubTensor::linear("lm_head.weight", &["out"]),
            HubTensor::vector("lm_head.bias", &["out_bias"]),
        ],
        inner: &[LAYER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "246534", VOCABULARY),
    Key::alias(&["n_positions"], "max_position_embeddings"),
    Key::alias(&["n_embd"], "hidden_size"),
    Key::alias(&["n_layer"], "num_hidden_layers"),
    Key::alias(&["n_head"], "num_attention_heads"),
    Key::read(&["hidden_size"], "1280", HIDDEN),
    Key::read(&["num_hidden_layers"], "48", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(
        &["max_position_embeddings"],
        "",
        "positions of a table that follows from a rule, however many there are",
    ),
    Key::read(&["dff"], "8192", FEED_FORWARD),
    Key::read(&["resid_pdrop"], "0.1", DROPOUT),
    Key::read(&["embd_pdrop"], "0.1", DROPOUT),
    Key::only(&["attention_dropout"], "0.0", UNREAD),
    Key::only(&["layer_norm_epsilon"], "1e-6", "the norms of layers have no other"),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::only(&["rope_theta"], "10000.0", "the class has no rotary positions"),
];

const LAYER: &[HubTensor] = &[
    HubTensor::linear("multi_head_attention.Wq.weight", &["wq"]),
    HubTensor::vector("multi_head_attention.Wq.bias", &["bq"]),
    HubTensor::linear("multi_head_attention.Wk.weight", &["wk"]),
    HubTensor::vector("multi_head_attention.Wk.bias", &["bk"]),
    HubTensor::linear("multi_head_attention.Wv.weight", &["wv"]),
    HubTensor::vector("multi_head_attention.Wv.bias", &["bv"]),
    HubTensor::linear("multi_head_attention.dense.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("multi_head_attention.dense.bias", &["bo"]),
    HubTensor::linear("ffn.0.weight", &["up"]),
    HubTensor::vector("ffn.0.bias", &["up_bias"]),
    HubTensor::linear("ffn.2.weight", &["down"]),
    HubTensor::vector("ffn.2.bias", &["down_bias"]),
    HubTensor::vector("layernorm1.weight", &["norm1"]),
    HubTensor::vector("layernorm1.bias", &["norm1_bias"]),
    HubTensor::vector("layernorm2.weight", &["norm2"]),
    HubTensor::vector("layernorm2.bias", &["norm2_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "dff", norm_eps: "layer_norm_epsilon", ..Base::USUAL }.read(fields)?;
    Ok(LlamaConfig {
        gated: false,
        activation: Activation::Relu,
        norm: Norm::Layer,
        embedding_scale: EmbeddingScale::Root,
        waves: Some(Waves { first: 0, fall: 2.0 * WAVES.ln() / base.hidden as f64 }),
        nope: LayerSet::First(base.layers),
        pad: None,
        head_bias: true,
        qkv_bias: true,
        out_bias: true,
        net_bias: true,
        residual_dropout: fields.get("resid_pdrop")?,
        embedding_dropout: fields.get("embd_pdrop")?,
        ..base
    }
    .into())
}
