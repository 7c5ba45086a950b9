//! Solar Open: grouped queries with the experts of DeepSeek-V3 in all layers.

use super::deepseek_v3;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "solar_open",
    class: "SolarOpenForCausalLM",
    keys: Keys { class: "SolarOpenConfig", lists: &[KEYS, ONE_TYPE, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, ROUTED_WEIGHTS, SHARED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "196608", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["num_hidden_layers"], "48", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["attention_bias"], "false", QKV_BIAS),
    Key::read(&["moe_intermediate_size"], "1280", EXPERT_SIZE),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::read(&["n_shared_experts"], "1", SHARED),
    Key::read(&["n_routed_experts"], "128", EXPERTS),
    Key::read(&["routed_scaling_factor"], "1.0", SCALE),
    Key::read(&["n_group"], "1", GROUPS),
    Key::read(&["topk_group"], "1", OPEN_GROUPS),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["rope_theta"], "1000000.0", THETA),
    Key::alias(&["num_local_experts"], "n_routed_experts"),
    Key::read(&["partial_rotary_factor"], "1.0", TURNED),
    Key::only(&["first_k_dense_replace"], "0", "all layers have experts"),
    Key::only(&["use_qk_norm"], "false", "the class has no norms of queries and keys"),
    Key::nothing(&["intermediate_size"], UNREAD),
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { part: Some("partial_rotary_factor"), ..Rope::USUAL };
    let base = Base { feed_forward: "moe_intermediate_size", rope, ..Base::USUAL }.read(fields)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        qkv_bias: fields.get("attention_bias")?,
        experts: deepseek_v3::experts(fields, base.layers)?,
        ..base
    }
    .into())
}
