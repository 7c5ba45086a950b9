//! IQuest-Coder, which Llama's class computes.

use super::exaone::read;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "iquestcoder",
    class: "LlamaForCausalLM",
    keys: Keys { class: "IQuestCoderConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: USUAL,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "76800", VOCABULARY),
    Key::read(&["hidden_size"], "5120", HIDDEN),
    Key::read(&["intermediate_size"], "27648", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "80", LAYERS),
    Key::read(&["num_attention_heads"], "40", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];
