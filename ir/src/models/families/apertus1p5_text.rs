//! Apertus 1.5, its text models.

use super::apertus::{self, read};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "apertus1p5_text",
    class: "Apertus1p5TextForCausalLM",
    keys: Keys { class: "Apertus1p5TextConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: apertus::FAMILY.weights,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "266752", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "14336", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"xielu\"", "xielu, silu, gelu, gelu_pytorch_tanh, quick_gelu, relu or relu2"),
    Key::read(&["max_position_embeddings"], "65536", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["pad_token_id"], "3", PAD),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::only(&["output_vocab_size"], "null", "logits are of all tokens"),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "12000000.0", THETA),
    WHOLE_HEADS,
];
