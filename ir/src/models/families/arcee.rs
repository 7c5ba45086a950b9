//! Arcee: Llama with a feed-forward net of `relu2` without a gate.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "arcee",
    class: "ArceeForCausalLM",
    keys: Keys { class: "ArceeConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: USUAL,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "2560", HIDDEN),
    Key::read(&["intermediate_size"], "18432", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["hidden_act"], "\"relu2\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "4096", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", "the products of the feed-forward net have biases"),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "hidden_act")?,
        net_bias: fields.get("mlp_bias")?,
        ..base
    }
    .into())
}
