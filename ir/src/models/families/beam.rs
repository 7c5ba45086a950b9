//! Beam: sums whose factors depend on the layer, gates of heads with biases, windows, and layers without positions.

use super::deepseek::deepseek_v2;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "beam",
    class: "BeamForCausalLM",
    keys: Keys { class: "BeamConfig", lists: &[KEYS, FIXED_NET, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[BOTH, GATES, QKV, ATTENTION, NET, ROUTED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "151936", VOCABULARY),
    Key::read(&["hidden_size"], "5120", HIDDEN),
    Key::read(&["intermediate_size"], "20480", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "52", LAYERS),
    Key::read(&["num_attention_heads"], "48", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["max_position_embeddings"], "8192", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-6", NORM_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["sliding_window"], "512", WINDOW),
    LAYER_TYPES,
    Key::read(&["mlp_layer_types"], "null", SPARSE_LAYERS),
    Key::read(&["moe_intermediate_size"], "2560", EXPERT_SIZE),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::read(&["num_experts"], "256", EXPERTS),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::read(&["n_group"], "8", GROUPS),
    Key::read(&["topk_group"], "4", OPEN_GROUPS),
    Key::read(&["routed_scaling_factor"], "2.5", SCALE),
    Key::read(&["final_logit_softcapping"], "30.0", LOGIT_BOUND),
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
    WHOLE_HEADS,
];

/// Norms of what branches read and give.
const BOTH: &[HubTensor] = &[
    HubTensor::vector("input_layernorm.weight", &["norm1"]),
    HubTensor::vector("post_attention_layernorm.weight", &["post_norm1"]),
    HubTensor::vector("pre_feedforward_layernorm.weight", &["norm2"]),
    HubTensor::vector("post_feedforward_layernorm.weight", &["post_norm2"]),
];

/// Gates of heads.
const GATES: &[HubTensor] =
    &[HubTensor::linear("self_attn.gate_proj.weight", &["wg"]), HubTensor::vector("self_attn.gate_bias", &["wg_bias"])];

/// The growth of queries without positions, whatever a file states.
const TEMPERATURE: Temperature = Temperature { growth: Growth::Power, every: 2048, by: 0.1, ahead: 1, turned: false };

/// Layers in front without experts, where no types are stated.
const DENSE: u32 = 3;

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { local_theta: Some("rope_theta"), ..Rope::USUAL };
    let base = biased(fields, Base { rope, ..Base::USUAL }.read(fields)?)?;
    let last = base.layers - 1;
    let layers = Limited { is_needed: true, ..Limited::sliding(fields, base.layers)? };
    let window = layers.read(fields, |layer| (layer + 1).is_multiple_of(6) || layer == last)?;
    let nope = nope(fields, base.layers, window)?;
    Ok(LlamaConfig {
        norms: Norms::Both,
        qk_norm: QkNorm::Heads,
        head_gate: HeadGate::SigmoidBiased,
        sums_by_depth: true,
        temperature: Some(TEMPERATURE),
        logit_softcap: fields.optional("final_logit_softcapping")?,
        local_rotation: base.local_rotation.clone().filter(|_| window.is_some()),
        experts: experts(fields, base.layers)?,
        nope,
        window,
        ..base
    }
    .into())
}

/// The layers without positions: where nothing is stated, those without a window.
fn nope(fields: &Fields, layers: u32, window: Option<Window>) -> Result<LayerSet, ConfigError> {
    let full = window.map_or(LayerSet::First(layers), |window| window.full);
    if fields.object("rope_parameters")?.is_none() {
        return Ok(full);
    }
    let full_turn = positions::turn(fields, "full_attention", full.count(layers) > 0)?;
    let local_turn = positions::turn(fields, "sliding_attention", window.is_some())?;
    let nope = LayerSet::of(layers, |layer| if full.contains(layer) { !full_turn } else { !local_turn });
    nope.ok_or_else(|| unsupported("layer_types", "of more than 128 layers they must follow a rule".to_string()))
}

fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let Some(dense) = dense_types(fields, layers, DENSE)? else { return Ok(None) };
    let chosen = sigmoid(fields, "num_experts", "moe_intermediate_size")?;
    let limited = deepseek_v2::limited(fields, Some(deepseek_v2::groups(fields, 2)?), chosen)?;
    Ok(Some(Experts { dense, renormalise: fields.get("norm_topk_prob")?, ..limited }))
}
