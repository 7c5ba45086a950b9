//! ERNIE 4.5: pairs of neighbours turn.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "ernie4_5",
    class: "Ernie4_5ForCausalLM",
    keys: Keys { class: "Ernie4_5Config", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: ERNIE,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "103424", VOCABULARY),
    Key::read(&["hidden_size"], "1024", HIDDEN),
    Key::read(&["intermediate_size"], "3072", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "18", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["num_key_value_heads"], "2", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["use_bias"], "false", "products have biases"),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["rope_theta"], "500000.0", THETA),
    WHOLE_HEADS,
];

/// The names of Llama, where pairs of neighbours turn.
pub(super) const ERNIE: Weights = Weights { pairs: Pairs::Adjacent, turned: &["wq", "wk", "bq", "bk"], ..USUAL };

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(ernie(fields)?.into())
}

/// Reads what ERNIE 4.5 and its mixture share.
pub(super) fn ernie(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    windows::one_type(fields)?;
    let has_bias = fields.get("use_bias")?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        qkv_bias: has_bias,
        out_bias: has_bias,
        net_bias: has_bias,
        ..base
    })
}
