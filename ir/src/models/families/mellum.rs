//! Mellum: Qwen3 with experts, and windows whose layers have frequencies of their own.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "mellum",
    class: "MellumForCausalLM",
    keys: Keys { class: "MellumConfig", lists: &[KEYS, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, NET, ROUTED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "98304", VOCABULARY),
    Key::read(&["hidden_size"], "2304", HIDDEN),
    Key::read(&["intermediate_size"], "7168", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "28", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["sliding_window"], "1024", WINDOW),
    Key::read(&["moe_intermediate_size"], "896", EXPERT_SIZE),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::read(&["num_experts"], "64", EXPERTS),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    LAYER_TYPES,
    Key::read(&["mlp_layer_types"], "null", SPARSE_LAYERS),
    Key::nothing(&["num_mtp_layers"], "the class computes none of these layers"),
    Key::nothing(&["mtp_layer_types"], UNREAD),
    Key::nothing(&["mtp_mlp_layer_types"], UNREAD),
    WHOLE_HEADS,
    Key::read(&["rope_theta"], "500000.0", "base of the rotary frequencies of layers without a window"),
    Key::read(&["rope_local_base_freq"], "10000.0", "the same of layers with a window"),
    Key::nothing(&["num_nextn_predict_layers"], UNREAD),
    Key::only(&["use_qk_norm"], "true", ALWAYS_NORMED),
    Key::alias(&["num_local_experts"], "num_experts"),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { local_theta: Some("rope_local_base_freq"), ..Rope::USUAL };
    let base = biased(fields, Base { rope, ..Base::USUAL }.read(fields)?)?;
    let window = Limited::sliding(fields, base.layers)?.read(fields, |_| true)?;
    let experts = match dense_types(fields, base.layers, 0)? {
        Some(dense) => {
            let renormalise = fields.get("norm_topk_prob")?;
            Some(Experts { dense, renormalise, ..softmax(fields, "num_experts", "moe_intermediate_size")? })
        }
        None => None,
    };
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        local_rotation: base.local_rotation.filter(|_| window.is_some()),
        window,
        qk_norm: QkNorm::Heads,
        experts,
        ..base
    }
    .into())
}
