//! StableLM: layer norms, and a quarter of a head turns.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "stablelm",
    class: "StableLmForCausalLM",
    keys: Keys { class: "StableLmConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { outer: LAYER_NORM_OUTER, inner: &[LAYER_NORMS, QKV, ATTENTION, NET], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50304", VOCABULARY),
    Key::read(&["intermediate_size"], "6912", FEED_FORWARD),
    Key::read(&["hidden_size"], "2560", HIDDEN),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "32", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "4096", CONTEXT),
    Key::read(&["layer_norm_eps"], "1e-05", LAYER_NORM_EPS),
    Key::read(&["use_qkv_bias"], "false", QKV_BIAS),
    Key::only(&["qk_layernorm"], "false", "norms with a tensor for each head are not read"),
    Key::read(&["use_parallel_residual"], "false", PARALLEL),
    Key::read(&["hidden_dropout"], "0.0", "dropout of the feed-forward net alone, which is not supported but for 0"),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["partial_rotary_factor"], "0.25", TURNED),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { part: Some("partial_rotary_factor"), ..Rope::USUAL };
    let base = Base { norm_eps: "layer_norm_eps", rope, ..Base::USUAL }.read(fields)?;
    windows::one_type(fields)?;
    if base.head.checked_mul(base.heads) != Some(base.hidden) {
        let why = format!("{} is not supported, only `hidden_size` over the heads", base.head);
        return Err(unsupported("head_dim", why));
    }
    let is_parallel: bool = fields.get("use_parallel_residual")?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        norm: Norm::Layer,
        branches: if is_parallel { Branches::Shared } else { Branches::InTurn },
        qkv_bias: fields.get("use_qkv_bias")?,
        ..base
    }
    .into())
}
