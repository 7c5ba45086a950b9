//! The text model of Emu3: a Llama that drops what branches give.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "emu3_text_model",
    class: "Emu3ForCausalLM",
    keys: Keys { class: "Emu3TextConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[Composite { tied: Tied::Whole, ..Composite::of("emu3") }],
    weights: USUAL,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "184622", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "14336", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "9216", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["rope_theta"], "1000000.0", THETA),
    Key::read(
        &["attention_dropout"],
        "0.1",
        "dropout of attention and of what branches give, drawn from our own numbers",
    ),
    Key::read(&["pad_token_id"], "151643", PAD),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        net_bias: fields.get("mlp_bias")?,
        residual_dropout: base.attention_dropout,
        ..base
    }
    .into())
}
