//! OLMo: layer norms without gains and biases.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "olmo",
    class: "OlmoForCausalLM",
    keys: Keys { class: "OlmoConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        outer: &[
            HubTensor::table("model.embed_tokens.weight", &["emb"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[QKV, ATTENTION, NET],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50304", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "11008", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["pad_token_id"], "1", PAD),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["clip_qkv"], "null", CLIP),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::only(&["layer_norm_eps"], "1e-5", "the class has no other"),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base { norm_eps: "layer_norm_eps", ..Base::USUAL }.read(fields)?)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        norm: Norm::LayerPlain,
        clip: fields.optional("clip_qkv")?,
        ..base
    }
    .into())
}
