//! MiniMax-Text-01: linear attention with fixed decays in some layers, norms of the stream itself, and experts.

use super::mixtral;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "minimax",
    class: "MiniMaxForCausalLM",
    keys: Keys { class: "MiniMaxConfig", lists: &[KEYS, FIXED_NET, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, LIGHTNING, QKV, ATTENTION, mixtral::ROUTED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "14336", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["rope_theta"], "1000000.0", THETA),
    Key::read(&["sliding_window"], "null", WINDOW),
    Key::read(&["layer_types"], "null", "linear_attention or full_attention, by layer; null: in turn"),
    Key::read(&["block_size"], "256", "rows of linear attention that are computed together"),
    Key::read(&["full_attn_alpha_factor"], "1", "factor of the stream where attention is added to it"),
    Key::read(&["full_attn_beta_factor"], "1", "factor of attention there"),
    Key::read(&["linear_attn_alpha_factor"], "1", "the same for linear attention"),
    Key::read(&["linear_attn_beta_factor"], "1", "the same for linear attention"),
    Key::read(&["mlp_alpha_factor"], "1", "the same for experts"),
    Key::read(&["mlp_beta_factor"], "1", "the same for experts"),
    Key::read(&["num_local_experts"], "8", EXPERTS),
    Key::alias(&["num_experts"], "num_local_experts"),
    Key::read(&["num_experts_per_tok"], "2", CHOSEN),
    Key::read(
        &["router_jitter_noise"],
        "0.0",
        "random factors of what experts read in training, at most this far from 1",
    ),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    WHOLE_HEADS,
];

/// Linear attention: each head has its queries, keys and values together.
const LIGHTNING: &[HubTensor] = &[
    HubTensor::linear("self_attn.qkv_proj.weight", &["wmq", "wmk", "wmv"]).joined(Join::Groups),
    HubTensor::linear("self_attn.output_gate.weight", &["wgate"]),
    HubTensor::vector("self_attn.norm.weight", &["scan_norm"]),
    HubTensor::linear("self_attn.out_proj.weight", &["wmo"]).of_inputs(3),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    let scanned =
        LayerTypes::USUAL.scanned(fields, base.layers, "layer_types", |layer| (layer + 1).is_multiple_of(2))?;
    let lightning =
        Lightning { heads: base.heads, head: base.head, chunk: fields.get("block_size")?, layers: base.layers };
    let tokens: Option<u64> = fields.optional("sliding_window")?;
    Ok(LlamaConfig {
        norms: Norms::Stream,
        sum_factors: SumFactors {
            attention: [fields.get("full_attn_alpha_factor")?, fields.get("full_attn_beta_factor")?],
            state: [fields.get("linear_attn_alpha_factor")?, fields.get("linear_attn_beta_factor")?],
            net: [fields.get("mlp_alpha_factor")?, fields.get("mlp_beta_factor")?],
        },
        scanned: scanned.map(|layers| Scanned::of(Mixer::Lightning(lightning), layers)),
        window: tokens.map(Window::of_all),
        experts: Some(jittered(fields, softmax(fields, "num_local_experts", "intermediate_size")?)?),
        ..base
    }
    .into())
}
