//! Falcon: branches side by side, and groups of heads that are one matrix.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "falcon",
    class: "FalconForCausalLM",
    keys: Keys { class: "FalconConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "transformer.",
        layers: "h.",
        embedding: "transformer.word_embeddings.weight",
        outer: &[
            HubTensor::table("transformer.word_embeddings.weight", &["emb"]),
            HubTensor::vector("transformer.ln_f.weight", &["final_norm"]),
            HubTensor::vector("transformer.ln_f.bias", &["final_norm_bias"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[LAYER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "65024", VOCABULARY),
    Key::read(&["hidden_size"], "4544", HIDDEN),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "71", HEADS),
    Key::read(
        &["num_ln_in_parallel_attn"],
        "null",
        "norms of a layer, in the new architecture: 1, or 2 where it is null",
    ),
    Key::read(&["layer_norm_epsilon"], "1e-05", LAYER_NORM_EPS),
    Key::only(&["hidden_dropout"], "0.0", "it would drop the sum of both branches"),
    Key::read(
        &["num_kv_heads"],
        "null",
        "key and value heads of the new architecture; null: the number of query heads",
    ),
    Key::only(&["alibi"], "false", "positions turn; a score has none of its own"),
    Key::read(&["new_decoder_architecture"], "false", "grouped heads of keys, and two norms"),
    Key::read(&["multi_query"], "true", "in the old architecture, all query heads have one of keys and values"),
    Key::only(&["parallel_attn"], "true", PARALLEL),
    Key::read(&["bias"], "false", "products have biases"),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["ffn_hidden_size"], "null", "size of the feed-forward net; null: four times `hidden_size`"),
    Key::read(&["activation"], "\"gelu\"", ACTIVATION),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::nothing(&["apply_residual_connection_post_layernorm", "n_head", "n_layer", "multi_query_group_num"], UNREAD),
    WHOLE_HEADS,
];

/// A layer has two norms, or one.
const TWO: When = When::Param("norm2");

const LAYER: &[HubTensor] = &[
    HubTensor::vector("ln_attn.weight", &["norm1"]).when(TWO),
    HubTensor::vector("ln_attn.bias", &["norm1_bias"]).when(TWO),
    HubTensor::vector("ln_mlp.weight", &["norm2"]),
    HubTensor::vector("ln_mlp.bias", &["norm2_bias"]),
    HubTensor::vector("input_layernorm.weight", &["norm1"]),
    HubTensor::vector("input_layernorm.bias", &["norm1_bias"]),
    HubTensor::linear("self_attention.query_key_value.weight", &["wq", "wk", "wv"]).joined(Join::Groups),
    HubTensor::vector("self_attention.query_key_value.bias", &["bq", "bk", "bv"]).joined(Join::Groups),
    HubTensor::linear("self_attention.dense.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("self_attention.dense.bias", &["bo"]),
    HubTensor::linear("mlp.dense_h_to_4h.weight", &["up"]),
    HubTensor::vector("mlp.dense_h_to_4h.bias", &["up_bias"]),
    HubTensor::linear("mlp.dense_4h_to_h.weight", &["down"]),
    HubTensor::vector("mlp.dense_4h_to_h.bias", &["down_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "hidden_size", norm_eps: "layer_norm_epsilon", ..Base::USUAL }.read(fields)?;
    let (is_new, has_one): (bool, bool) = (fields.get("new_decoder_architecture")?, fields.get("multi_query")?);
    let has_bias = fields.get("bias")?;
    let norms: u32 = fields.optional("num_ln_in_parallel_attn")?.unwrap_or(2);
    Ok(LlamaConfig {
        feed_forward: fields.optional("ffn_hidden_size")?.unwrap_or(base.hidden.saturating_mul(4)),
        gated: false,
        activation: activation(fields, "activation")?,
        kv_heads: match (is_new, has_one) {
            (true, _) => fields.optional("num_kv_heads")?.unwrap_or(base.heads),
            (false, true) => 1,
            (false, false) => base.heads,
        },
        norm: Norm::Layer,
        branches: if is_new && norms == 2 { Branches::Parallel } else { Branches::Shared },
        pad: None,
        qkv_bias: has_bias,
        out_bias: has_bias,
        net_bias: has_bias,
        ..base
    }
    .into())
}
