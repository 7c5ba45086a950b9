//! MiMo-V2-Flash: layers with a window have other numbers of key and value heads, and sinks; values are smaller than keys.

use super::deepseek::deepseek_v2;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "mimo_v2_flash",
    class: "MiMoV2FlashForCausalLM",
    keys: Keys { class: "MiMoV2FlashConfig", lists: &[KEYS, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, SINK, NET, ROUTED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "152576", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "16384", FEED_FORWARD),
    Key::read(&["moe_intermediate_size"], "2048", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "48", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["num_key_value_heads"], "4", "key and value heads; layers with a window have two for each of them"),
    Key::read(&["head_dim"], "192", HEAD_SIZE),
    Key::read(&["v_head_dim"], "128", "size of a head's values"),
    Key::read(&["attention_value_scale"], "0.707", "factor of values; null: none"),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["attention_bias"], "false", QKV_BIAS),
    Key::read(&["sliding_window"], "129", WINDOW),
    Key::read(&["sliding_window_size"], "", "the tokens of the window before a query's own, over `sliding_window`"),
    Key::read(&["layer_types"], "null", "sliding_attention or full_attention; null: the first and each sixth see all"),
    Key::read(&["mlp_layer_types"], "null", "dense or sparse, by layer; null: the first is dense"),
    Key::alias(&["num_local_experts"], "n_routed_experts"),
    Key::read(&["n_routed_experts"], "256", EXPERTS),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::read(&["routed_scaling_factor"], "1.0", SCALE),
    Key::read(&["n_group"], "1", GROUPS),
    Key::read(&["topk_group"], "1", OPEN_GROUPS),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::only(&["partial_rotary_factor"], "0.334", "the class has it in `rope_parameters`"),
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
];

/// Sinks, in memory and in files.
const SINK: &[HubTensor] = &[
    HubTensor::vector("self_attn.sinks", &["sink"]).when(When::File("self_attn.sinks")),
    HubTensor::vector("self_attn.attention_sink_bias", &["sink"]),
];

/// The positions of a file that states none.
const TURNS: &str = r#"{
    "full_attention": {"rope_type": "default", "rope_theta": 5000000.0, "partial_rotary_factor": 0.334},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.334}
}"#;

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope {
        local_theta: Some("rope_theta"),
        part: Some("partial_rotary_factor"),
        default: Some(TURNS),
        ..Rope::USUAL
    };
    let base = Base { rope, ..Base::USUAL }.read(fields)?;
    let before: Option<u64> = fields.optional("sliding_window_size")?;
    let layers = Limited { is_needed: true, ..Limited::sliding(fields, base.layers)? };
    let layers = Limited { tokens: before.map(|before| before.saturating_add(1)).or(layers.tokens), ..layers };
    let window = layers.read(fields, |layer| layer == 0 || (layer + 1).is_multiple_of(6))?;
    let full = window.map_or(base.layers, |window| window.full.count(base.layers));
    for (kind, is_there) in [("full_attention", full > 0), ("sliding_attention", window.is_some())] {
        if fields.object("rope_parameters")?.is_some() && !positions::turn(fields, kind, is_there)? && is_there {
            return Err(unsupported("rope_parameters", format!("`{kind}` without positions is not supported")));
        }
    }
    let value: u64 = fields.get("v_head_dim")?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        local_kv_heads: window.map(|_| base.kv_heads.saturating_mul(2)),
        value: (value != base.head).then_some(value),
        value_scale: fields.optional("attention_value_scale")?.unwrap_or(1.0),
        qkv_bias: fields.get("attention_bias")?,
        local_rotation: base.local_rotation.clone().filter(|_| window.is_some()),
        sinks: Sinks::Local,
        experts: experts(fields, base.layers)?,
        window,
        ..base
    }
    .into())
}

fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let Some(dense) = dense_types(fields, layers, 1)? else { return Ok(None) };
    let chosen = sigmoid(fields, "n_routed_experts", "moe_intermediate_size")?;
    let limited = deepseek_v2::limited(fields, Some(deepseek_v2::groups(fields, 2)?), chosen)?;
    let scale = fields.optional("routed_scaling_factor")?.unwrap_or(1.0);
    Ok(Some(Experts { dense, scale, renormalise: fields.get("norm_topk_prob")?, ..limited }))
}
