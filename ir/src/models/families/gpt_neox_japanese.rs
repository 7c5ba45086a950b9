//! GPT-NeoX Japanese: the last layer alone has a bias of what attention gives.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "gpt_neox_japanese",
    class: "GPTNeoXJapaneseForCausalLM",
    keys: Keys { class: "GPTNeoXJapaneseConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "gpt_neox_japanese.",
        head: "embed_out.weight",
        embedding: "gpt_neox_japanese.embed_in.weight",
        outer: &[
            HubTensor::table("gpt_neox_japanese.embed_in.weight", &["emb"]),
            HubTensor::vector("gpt_neox_japanese.final_layer_norm.weight", &["final_norm"]),
            HubTensor::vector("gpt_neox_japanese.final_layer_norm.bias", &["final_norm_bias"]),
            HubTensor::linear("embed_out.weight", &["out"]),
        ],
        inner: &[LAYER_NORMS, LAYER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "2560", HIDDEN),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["intermediate_multiple_size"], "4", "size of the feed-forward net over that of the stream"),
    Key::read(&["hidden_act"], "\"gelu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["layer_norm_eps"], "1e-05", LAYER_NORM_EPS),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["attention_dropout"], "0.1", DROPOUT),
    Key::read(&["hidden_dropout"], "0.0", DROPOUT),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::alias(&["rotary_emb_base"], "rope_theta"),
    Key::read(&["rotary_pct"], "1.0", TURNED),
    Key::alias(&["partial_rotary_factor"], "rotary_pct"),
];

const LAYER: &[HubTensor] = &[
    HubTensor::linear("attention.query_key_value.weight", &["wq", "wk", "wv"]).joined(Join::Heads),
    HubTensor::linear("attention.dense.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("attention.dense_bias", &["bo"]),
    HubTensor::linear("mlp.dense_h_to_4h.weight", &["up"]),
    HubTensor::linear("mlp.dense_4h_to_h.weight", &["down"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { part: Some("rotary_pct"), ..Rope::USUAL };
    let base = Base { feed_forward: "hidden_size", norm_eps: "layer_norm_eps", rope }.read(fields)?;
    let times: f64 = fields.get("intermediate_multiple_size")?;
    Ok(LlamaConfig {
        feed_forward: (base.hidden as f64 * times) as u64,
        gated: false,
        activation: activation(fields, "hidden_act")?,
        norm: Norm::Layer,
        pad: None,
        out_bias: true,
        last_bias: true,
        residual_dropout: fields.get("hidden_dropout")?,
        ..base
    }
    .into())
}
