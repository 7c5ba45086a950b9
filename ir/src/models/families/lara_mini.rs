//! Lara Mini: gated delta rules, windows, layers of attention without positions, and experts.

use super::prelude::*;
use super::qwen::qwen3_5::DELTA_WEIGHTS;

pub(super) const FAMILY: Family = Family {
    model_type: "lara_mini",
    class: "LaraMiniForCausalLM",
    keys: Keys { class: "LaraMiniConfig", lists: &[KEYS, FIXED_NET, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, DELTA_OF_LARA, QKV, ATTENTION, EXPERTS_OF_LARA], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "151936", VOCABULARY),
    Key::read(&["hidden_size"], "1024", HIDDEN),
    Key::read(&["num_hidden_layers"], "34", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-6", NORM_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["sliding_window"], "512", WINDOW),
    Key::read(&["layer_types"], "null", "linear_attention, sliding_attention or full_attention, by layer"),
    Key::read(&["linear_conv_kernel_dim"], "4", "taps of the convolutions of a delta rule"),
    Key::read(&["linear_key_head_dim"], "128", "size of a delta rule's keys"),
    Key::read(&["linear_value_head_dim"], "128", "size of its values"),
    Key::read(&["linear_num_key_heads"], "8", "its heads of keys"),
    Key::read(&["linear_num_value_heads"], "16", "its heads of values"),
    Key::read(&["moe_intermediate_size"], "512", EXPERT_SIZE),
    Key::read(&["shared_expert_intermediate_size"], "512", "size of the expert that all tokens take"),
    Key::read(&["num_experts_per_tok"], "4", CHOSEN),
    Key::read(&["num_experts"], "128", EXPERTS),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    WHOLE_HEADS,
];

/// In files with the names that the class has in memory.
const IN_MEMORY: When = When::File("linear_attn.in_proj_qkv.weight");

/// The delta rule: one matrix has all that its layer reads.
const DELTA_OF_LARA: &[HubTensor] = &[
    DELTA_WEIGHTS[0].when(IN_MEMORY),
    DELTA_WEIGHTS[1].when(IN_MEMORY),
    DELTA_WEIGHTS[2].when(IN_MEMORY),
    DELTA_WEIGHTS[3].when(IN_MEMORY),
    HubTensor::linear("linear_attn.in_proj.weight", &["wmq", "wmk", "wmv", "wgate", "wbeta", "wdecay"]),
    HubTensor::vector("linear_attn.norm.weight", &["scan_norm"]).when(When::File("linear_attn.norm.weight")),
    HubTensor::vector("linear_attn.out_norm.weight", &["scan_norm"]),
    DELTA_WEIGHTS[4],
    DELTA_WEIGHTS[5],
    DELTA_WEIGHTS[6],
    DELTA_WEIGHTS[8],
];

/// Experts, of which a tensor has all matrices of one kind.
const EXPERTS_OF_LARA: &[HubTensor] = &[
    HubTensor::linear("mlp.gate.weight", &["router"]),
    HubTensor::linear("mlp.experts.gate_up_proj", &["expert_gate", "expert_up"]).of_experts(),
    HubTensor::linear("mlp.experts.down_proj", &["expert_down"]).of_experts(),
    HubTensor::linear("mlp.shared_expert.gate_proj.weight", &["shared_gate"]),
    HubTensor::linear("mlp.shared_expert.up_proj.weight", &["shared_up"]),
    HubTensor::linear("mlp.shared_expert.down_proj.weight", &["shared_down"]),
];

/// The types of layers where none are stated, over and over.
const PATTERN: [&str; 5] =
    ["linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention"];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "moe_intermediate_size", ..Base::USUAL }.read(fields)?;
    let base = biased(fields, base)?;
    let typed =
        mixers::typed(fields, base.layers, "linear_attention", |layer| PATTERN[layer as usize % PATTERN.len()])?;
    let heads = [fields.get("linear_num_key_heads")?, fields.get("linear_num_value_heads")?];
    let sizes = [fields.get("linear_key_head_dim")?, fields.get("linear_value_head_dim")?];
    let mixer = Mixer::Delta(DeltaNet::of_heads(heads, sizes, fields.get("linear_conv_kernel_dim")?)?);
    let experts = softmax(fields, "num_experts", "moe_intermediate_size")?;
    Ok(LlamaConfig {
        scanned: typed.state.map(|layers| Scanned::of(mixer, layers)),
        nope: typed.window.map_or(LayerSet::First(base.layers), |window| window.full),
        window: typed.window,
        qk_norm: QkNorm::Heads,
        experts: Some(Experts {
            shared: fields.get("shared_expert_intermediate_size")?,
            renormalise: fields.get("norm_topk_prob")?,
            ..experts
        }),
        ..base
    }
    .into())
}
