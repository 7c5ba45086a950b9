//! Seed-OSS: a bias of queries, keys and values.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "seed_oss",
    class: "SeedOssForCausalLM",
    keys: Keys { class: "SeedOssConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: USUAL,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "155136", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "27648", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "64", LAYERS),
    Key::read(&["num_attention_heads"], "80", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "524288", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["pad_token_id"], "1", PAD),
    Key::read(&["attention_bias"], "true", QKV_BIAS),
    Key::read(&["attention_out_bias"], "false", "the result of attention has a bias"),
    Key::read(&["attention_dropout"], "0.1", DROPOUT),
    Key::read(&["residual_dropout"], "0.1", DROPOUT),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        qkv_bias: fields.get("attention_bias")?,
        out_bias: fields.get("attention_out_bias")?,
        net_bias: fields.get("mlp_bias")?,
        residual_dropout: fields.get("residual_dropout")?,
        ..base
    }
    .into())
}
