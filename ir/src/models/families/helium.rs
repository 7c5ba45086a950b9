//! Helium: pairs of neighbours turn.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "helium",
    class: "HeliumForCausalLM",
    keys: Keys { class: "HeliumConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { pairs: Pairs::Adjacent, turned: &["wq", "wk", "bq", "bk"], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "48000", VOCABULARY),
    Key::read(&["hidden_size"], "2560", HIDDEN),
    Key::read(&["intermediate_size"], "7040", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "24", LAYERS),
    Key::read(&["num_attention_heads"], "20", HEADS),
    Key::read(&["num_key_value_heads"], "20", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "4096", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-08", NORM_EPS),
    Key::read(&["pad_token_id"], "3", PAD),
    Key::read(&["attention_bias"], "false", QKV_BIAS),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::read(&["rope_theta"], "100000.0", THETA),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        qkv_bias: fields.get("attention_bias")?,
        net_bias: fields.get("mlp_bias")?,
        ..base
    }
    .into())
}
