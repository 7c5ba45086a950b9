//! InternLM 3, which Llama's class computes.

use super::exaone::read;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "internlm3",
    class: "LlamaForCausalLM",
    keys: Keys { class: "InternLM3Config", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: USUAL,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "128512", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "10240", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "48", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "2", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "32768", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["pad_token_id"], "2", PAD),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::alias(&["qkv_bias"], "attention_bias"),
    Key::alias(&["bias"], "mlp_bias"),
    WHOLE_HEADS,
];
