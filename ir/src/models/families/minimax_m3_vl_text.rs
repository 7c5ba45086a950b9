//! MiniMax-M3, its text model where all layers attend to all tokens: nets whose gates are bounded, and experts chosen by sigmoids.

use super::prelude::*;
use super::qwen::qwen3_next::{QWEN_GAINS, QWEN_OUTER};

pub(super) const FAMILY: Family = Family {
    model_type: "minimax_m3_vl_text",
    class: "MiniMaxM3VLForCausalLM",
    keys: Keys { class: "MiniMaxM3VLTextConfig", lists: &[KEYS, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { outer: QWEN_OUTER, inner: &[QWEN_GAINS, QKV, ATTENTION, NETS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "200064", VOCABULARY),
    Key::read(&["hidden_size"], "6144", HIDDEN),
    Key::read(&["intermediate_size"], "3072", EXPERT_SIZE),
    Key::read(&["dense_intermediate_size"], "12288", FEED_FORWARD),
    Key::read(&["shared_intermediate_size"], "3072", "size of the expert that all tokens take"),
    Key::read(&["num_hidden_layers"], "60", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["max_position_embeddings"], "524288", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["rope_theta"], "5000000.0", THETA),
    Key::read(&["partial_rotary_factor"], "1.0", TURNED),
    Key::nothing(&["rotary_dim"], "the class reads `partial_rotary_factor`"),
    Key::read(&["num_experts_per_tok"], "4", CHOSEN),
    Key::read(&["num_local_experts"], "128", EXPERTS),
    Key::alias(&["num_experts"], "num_local_experts"),
    Key::read(&["routed_scaling_factor"], "2.0", SCALE),
    Key::read(&["swiglu_alpha"], "1.702", "the factor within the sigmoid of gates"),
    Key::read(&["swiglu_limit"], "7.0", "the bound of gates, and of what they multiply"),
    Key::read(&["mlp_layer_types"], "null", "dense or sparse, by layer; null: all are sparse"),
    Key::read(&["moe_layer_freq"], "null", "0 for dense layers, where `mlp_layer_types` does not list them"),
    Key::read(&["layer_types"], "null", "full_attention for all layers; a choice of blocks of keys is not supported"),
    Key::only(&["sparse_attention_config"], "null", "a choice of blocks of keys is not supported"),
    Key::nothing(&["hidden_act"], "the class has its own function"),
    Key::nothing(&["router_jitter_noise"], UNREAD),
    Key::nothing(&["index_n_heads", "index_head_dim"], "no layer chooses blocks of keys"),
    Key::nothing(&["index_block_size", "index_topk_blocks", "index_local_blocks"], "no layer chooses blocks of keys"),
    Key::only(&["attention_bias"], "false", NO_BIAS),
];

/// Nets and experts, of which a tensor has gates and what they multiply.
const NETS: &[HubTensor] = &[
    HubTensor::linear("mlp.gate_up_proj.weight", &["gate", "up"]),
    HubTensor::linear("mlp.down_proj.weight", &["down"]),
    HubTensor::linear("mlp.gate.weight", &["router"]),
    HubTensor::vector("mlp.gate.e_score_correction_bias", &["router_bias"]),
    HubTensor::linear("mlp.experts.gate_up_proj", &["expert_gate", "expert_up"]).of_experts(),
    HubTensor::linear("mlp.experts.down_proj", &["expert_down"]).of_experts(),
    HubTensor::linear("mlp.shared_experts.gate_up_proj.weight", &["shared_gate", "shared_up"]),
    HubTensor::linear("mlp.shared_experts.down_proj.weight", &["shared_down"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    windows::one_type(fields)?;
    let rope = Rope { part: Some("partial_rotary_factor"), ..Rope::USUAL };
    let base = Base { feed_forward: "dense_intermediate_size", rope, ..Base::USUAL }.read(fields)?;
    let clamp = Clamp { alpha: fields.get("swiglu_alpha")?, limit: fields.get("swiglu_limit")? };
    Ok(LlamaConfig {
        qk_norm: QkNorm::Heads,
        net_clamp: Some(clamp),
        experts: experts(fields, base.layers, clamp)?,
        ..base
    }
    .into())
}

fn experts(fields: &Fields, layers: u32, clamp: Clamp) -> Result<Option<Experts>, ConfigError> {
    const KEY: &str = "moe_layer_freq";
    let listed: Option<Vec<u8>> = fields.optional(KEY)?;
    let found = match listed.filter(|_| fields.optional::<Vec<String>>("mlp_layer_types").is_ok_and(|it| it.is_none()))
    {
        Some(list) if list.len() != layers as usize => {
            let why = format!("`{KEY}` has {} numbers, but `num_hidden_layers` is {layers}", list.len());
            return Err(ConfigError::Contradiction(why));
        }
        Some(list) => dense(layers, KEY, |layer| list[layer as usize] == 0)?,
        None => dense_types(fields, layers, 0)?,
    };
    let Some(dense) = found else { return Ok(None) };
    let chosen = sigmoid(fields, "num_local_experts", "intermediate_size")?;
    let (shared, scale) = (fields.get("shared_intermediate_size")?, fields.get("routed_scaling_factor")?);
    Ok(Some(Experts { dense, shared, scale, clamp: Some(clamp), ..chosen }))
}
