//! GLM-4 of 2025: norms of what branches give, too.

use super::glm;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "glm4",
    class: "Glm4ForCausalLM",
    keys: Keys { class: "Glm4Config", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        inner: &[NORMS, POST_NORMS, QKV, ATTENTION, glm::JOINED],
        pairs: Pairs::Adjacent,
        turned: glm::TURNING,
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "151552", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "13696", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "40", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "2", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1.5625e-07", NORM_EPS),
    Key::read(&["pad_token_id"], "151329", PAD),
    Key::read(&["attention_bias"], "true", QKV_BIAS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["partial_rotary_factor"], "0.5", TURNED),
];

const POST_NORMS: &[HubTensor] = &[
    HubTensor::vector("post_self_attn_layernorm.weight", &["post_norm1"]),
    HubTensor::vector("post_mlp_layernorm.weight", &["post_norm2"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(LlamaConfig { norms: Norms::Both, ..glm::glm(fields)? }.into())
}
