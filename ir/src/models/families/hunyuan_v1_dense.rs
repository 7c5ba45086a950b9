//! Hunyuan: norms of heads behind their rotation.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "hunyuan_v1_dense",
    class: "HunYuanDenseV1ForCausalLM",
    keys: Keys { class: "HunYuanDenseV1Config", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[HEADS_OF_HUNYUAN, NORMS, QKV, ATTENTION, NET], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "290943", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "11008", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::nothing(&["eod_token_id"], "the text determines the tokens"),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
    Key::only(&["use_qk_norm"], "true", ALWAYS_NORMED),
    Key::only(&["use_cla"], "false", "each layer has its own keys"),
    Key::only(&["mlp_bias"], "false", "the feed-forward net has no bias"),
];

/// The norms of queries and keys.
pub(super) const HEADS_OF_HUNYUAN: &[HubTensor] = &[
    HubTensor::vector("self_attn.query_layernorm.weight", &["q_norm"]),
    HubTensor::vector("self_attn.key_layernorm.weight", &["k_norm"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(hunyuan(fields)?.into())
}

/// Reads what Hunyuan's models share.
pub(super) fn hunyuan(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig { activation: activation(fields, "hidden_act")?, qk_norm: QkNorm::HeadsTurned, ..base })
}
