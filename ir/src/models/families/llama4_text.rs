//! Llama 4, its text models: chunks, layers without positions, experts whose inputs are scaled.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;
use serde_json::Value;

pub(super) const FAMILY: Family = Family {
    model_type: "llama4_text",
    class: "Llama4ForCausalLM",
    keys: Keys { class: "Llama4TextConfig", lists: &[KEYS, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[Composite { tied: Tied::Text, ..Composite::of("llama4") }],
    weights: Weights {
        inner: &[NORMS, QKV, ATTENTION, NETS],
        pairs: Pairs::Adjacent,
        turned: &["wq", "wk", "bq", "bk"],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["layer_types"], "null", "chunked_attention or full_attention, by layer"),
    Key::read(
        &["no_rope_layers"],
        "null",
        "by layer, 0 for those without positions; else `no_rope_layer_interval` counts",
    ),
    Key::read(&["no_rope_layer_interval"], "4", "one layer in this number has no positions"),
    Key::read(&["vocab_size"], "202048", VOCABULARY),
    Key::read(&["hidden_size"], "5120", HIDDEN),
    Key::read(
        &["intermediate_size"],
        "8192",
        "size between the matrices of an expert, also of the one that all tokens take",
    ),
    Key::read(&["intermediate_size_mlp"], "16384", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "48", LAYERS),
    Key::read(&["num_attention_heads"], "40", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-5", "added in norms, also of queries and keys"),
    Key::read(&["rope_theta"], "500000.0", THETA),
    Key::read(&["use_qk_norm"], "true", "turned queries and keys are normed head by head, without gains"),
    Key::read(&["attention_chunk_size"], "8192", "tokens of a chunk of sequences, beyond which attention does not see"),
    Key::read(&["attn_temperature_tuning"], "true", "queries without positions grow with their place"),
    Key::read(&["floor_scale"], "8192", "tokens from one such factor to the next"),
    Key::read(&["attn_scale"], "0.1", "how strongly these factors grow"),
    Key::read(&["num_local_experts"], "16", EXPERTS),
    Key::alias(&["num_experts"], "num_local_experts"),
    Key::read(&["num_experts_per_tok"], "1", CHOSEN),
    Key::read(&["moe_layers"], "null", "the layers with experts, from 0; else `interleave_moe_layer_step` counts"),
    Key::read(&["interleave_moe_layer_step"], "1", "one layer in this number has experts"),
    Key::only(&["output_router_logits"], "false", "the loss of the class has no term of the router"),
    Key::only(&["router_jitter_noise"], "0.0", "the router has no noise"),
    Key::nothing(&["cache_implementation", "for_llm_compressor"], UNREAD),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["attention_bias"], "false", BIAS),
    WHOLE_HEADS,
];

/// Feed-forward nets and experts: matrices of experts have inputs in rows.
const NETS: &[HubTensor] = &[
    HubTensor::linear("feed_forward.gate_proj.weight", &["gate"]),
    HubTensor::linear("feed_forward.up_proj.weight", &["up"]),
    HubTensor::linear("feed_forward.down_proj.weight", &["down"]),
    HubTensor::linear("feed_forward.router.weight", &["router"]),
    HubTensor::table("feed_forward.experts.gate_up_proj", &["expert_gate", "expert_up"]).of_experts(),
    HubTensor::table("feed_forward.experts.down_proj", &["expert_down"]).of_experts(),
    HubTensor::linear("feed_forward.shared_expert.gate_proj.weight", &["shared_gate"]),
    HubTensor::linear("feed_forward.shared_expert.up_proj.weight", &["shared_up"]),
    HubTensor::linear("feed_forward.shared_expert.down_proj.weight", &["shared_down"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base { feed_forward: "intermediate_size_mlp", ..Base::USUAL }.read(fields)?)?;
    let stated: Option<Vec<u8>> = fields.optional("no_rope_layers")?;
    let nope = positions::absent(fields, base.layers, stated.filter(|list| !list.is_empty()))?;
    let layers = Limited {
        layers: base.layers,
        limit: Limit::Chunked,
        tokens: fields.optional("attention_chunk_size")?,
        is_needed: true,
    };
    let has_norms: bool = fields.get("use_qk_norm")?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        nope,
        temperature: temperature(fields)?,
        window: layers.read(fields, |layer| nope.contains(layer))?,
        qk_norm: if has_norms { QkNorm::Turned } else { QkNorm::None },
        experts: experts(fields, base.layers)?,
        ..base
    }
    .into())
}

/// The temperature of attention without positions. The first files have a number for true.
fn temperature(fields: &Fields) -> Result<Option<Temperature>, ConfigError> {
    let is_used = match fields.get("attn_temperature_tuning")? {
        Value::Bool(used) => used,
        Value::Number(number) => number.as_f64() != Some(0.0),
        _ => return Err(invalid("attn_temperature_tuning", "must be true or false".to_string())),
    };
    let (every, by) = (fields.get("floor_scale")?, fields.get("attn_scale")?);
    let temperature = Temperature { growth: Growth::Steps, every, by, ahead: 1, turned: false };
    Ok(is_used.then_some(temperature))
}

fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let step: u32 = fields.get("interleave_moe_layer_step")?;
    positive("interleave_moe_layer_step", step.into())?;
    let listed: Option<Vec<u32>> = fields.optional("moe_layers")?;
    let dense = match &listed {
        Some(list) => dense(layers, "moe_layers", |layer| !list.contains(&layer))?,
        None => dense(layers, "moe_layers", |layer| !(layer + 1).is_multiple_of(step))?,
    };
    let Some(dense) = dense else { return Ok(None) };
    let shared = fields.get("intermediate_size")?;
    let plain = softmax(fields, "num_local_experts", "intermediate_size")?;
    Ok(Some(Experts { dense, shared, scaled_inputs: true, renormalise: false, ..plain }))
}

/// `config.json` of meta-llama/Llama-4-Scout-17B-16E, its `text_config`: each fourth layer has no positions and sees all.
const SCOUT: LlamaConfig = LlamaConfig {
    vocabulary: 202_048,
    hidden: 5120,
    feed_forward: 16_384,
    layers: 48,
    heads: 40,
    rotation: Rotation {
        theta: 500_000.0,
        scaling: Some(Scaling::Llama3 { factor: 16.0, low: 1.0, high: 1.0, context: 8192 }),
        ..PLAIN
    },
    nope: LayerSet::Every(4),
    temperature: Some(Temperature { growth: Growth::Steps, every: 8192, by: 0.1, ahead: 1, turned: false }),
    window: Some(Window { chunked: true, full: LayerSet::Every(4), ..Window::of_all(8192) }),
    pad: Some(200_018),
    qk_norm: QkNorm::Turned,
    experts: Some(routed(16, LayerSet::None)),
    ..LLAMA3_8B
};

const fn routed(experts: u64, dense: LayerSet) -> Experts {
    Experts { dense, shared: 8192, scaled_inputs: true, renormalise: false, ..Experts::softmax(experts, 1, 8192) }
}

pub(super) const PRESETS: &[Preset] = &[
    Preset::llama(
        "llama4-scout",
        "Llama 4 Scout, 108B parameters, 1 of 16 experts: chunks of 8192 in three of four layers",
        10_485_760,
        SCOUT,
    ),
    Preset::llama(
        "llama4-maverick",
        "Llama 4 Maverick, 401B parameters, 1 of 128 experts in every second layer: chunks of 8192 in three of four layers",
        1_048_576,
        // config.json of meta-llama/Llama-4-Maverick-17B-128E, its text_config.
        LlamaConfig {
            rotation: Rotation { theta: 500_000.0, ..PLAIN },
            qk_norm: QkNorm::None,
            experts: Some(routed(128, LayerSet::AllBut(2))),
            ..SCOUT
        },
    ),
];
