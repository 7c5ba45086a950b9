//! BitNet: norms of what heads give and of what the second matrix of the feed-forward net reads.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "bitnet",
    class: "BitNetForCausalLM",
    keys: Keys { class: "BitNetConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[INNER_NORMS, NORMS, QKV, ATTENTION, NET], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "128256", VOCABULARY),
    Key::read(&["hidden_size"], "2560", HIDDEN),
    Key::read(&["intermediate_size"], "6912", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "30", LAYERS),
    Key::read(&["num_attention_heads"], "20", HEADS),
    Key::read(&["num_key_value_heads"], "5", KV_HEADS),
    Key::read(&["hidden_act"], "\"relu2\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "500000.0", THETA),
    WHOLE_HEADS,
];

const INNER_NORMS: &[HubTensor] = &[
    HubTensor::vector("self_attn.attn_sub_norm.weight", &["heads_norm"]),
    HubTensor::vector("mlp.ffn_sub_norm.weight", &["net_norm"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig { activation: activation(fields, "hidden_act")?, inner_norms: true, ..base }.into())
}
