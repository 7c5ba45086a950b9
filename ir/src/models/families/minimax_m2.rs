//! MiniMax-M2: experts chosen by sigmoids, norms of queries and keys as a whole, and part of a head turns.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "minimax_m2",
    class: "MiniMaxM2ForCausalLM",
    keys: Keys { class: "MiniMaxM2Config", lists: &[KEYS, ONE_TYPE, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, EXPERTS_OF_MINIMAX], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "200064", VOCABULARY),
    Key::read(&["hidden_size"], "3072", HIDDEN),
    Key::read(&["intermediate_size"], "1536", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "62", LAYERS),
    Key::read(&["num_attention_heads"], "48", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "196608", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::read(&["num_local_experts"], "256", EXPERTS),
    Key::read(
        &["router_jitter_noise"],
        "0.0",
        "random factors of what experts read in training, at most this far from 1",
    ),
    Key::read(&["rope_theta"], "5000000.0", THETA),
    Key::alias(&["num_experts"], "num_local_experts"),
    Key::read(&["rotary_dim"], "null", "elements of a head that turn; null: `partial_rotary_factor` counts"),
    Key::read(&["partial_rotary_factor"], "1.0", TURNED),
    Key::only(&["use_qk_norm", "use_routing_bias"], "true", "the class always has them"),
    Key::only(&["qk_norm_type"], "\"per_layer\"", "the class norms all heads together"),
    Key::only(&["scoring_func"], "\"sigmoid\"", "the class has no other"),
    Key::only(&["shared_intermediate_size"], "0", "the class has no expert that all tokens take"),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::only(&["sliding_window"], "null", "a token sees all before it"),
    Key::nothing(&["attn_type_list", "layernorm_full_attention_beta", "mlp_intermediate_size"], UNREAD),
    Key::nothing(&["mtp_transformer_layers", "num_mtp_modules", "use_mtp"], "the class computes none of these layers"),
];

/// Routers and experts, in files of two versions.
const EXPERTS_OF_MINIMAX: &[HubTensor] = &[
    HubTensor::linear("mlp.gate.weight", &["router"]).when(When::File("mlp.gate.weight")),
    HubTensor::vector("mlp.e_score_correction_bias", &["router_bias"]).when(When::File("mlp.e_score_correction_bias")),
    HubTensor::linear("mlp.experts.gate_up_proj", &["expert_gate", "expert_up"]).of_experts().when(IN_ONE),
    HubTensor::linear("mlp.experts.down_proj", &["expert_down"]).of_experts().when(IN_ONE),
    HubTensor::linear("block_sparse_moe.gate.weight", &["router"]),
    HubTensor::vector("block_sparse_moe.e_score_correction_bias", &["router_bias"]),
    HubTensor::linear("block_sparse_moe.experts.{}.w1.weight", &["expert_gate"]),
    HubTensor::linear("block_sparse_moe.experts.{}.w3.weight", &["expert_up"]),
    HubTensor::linear("block_sparse_moe.experts.{}.w2.weight", &["expert_down"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { part: Some("partial_rotary_factor"), ..Rope::USUAL };
    let mut base = Base { rope, ..Base::USUAL }.read(fields)?;
    windows::one_type(fields)?;
    if let Some(turned) = fields.optional("rotary_dim")? {
        base.rotation.turned = Some(turned).filter(|turned| *turned != base.head);
    }
    let experts = jittered(fields, sigmoid(fields, "num_local_experts", "intermediate_size")?)?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        qk_norm: QkNorm::Whole,
        experts: Some(experts),
        ..base
    }
    .into())
}

pub(super) const PRESETS: &[Preset] = &[Preset::llama(
    "minimax-m2",
    "MiniMax-M2, 229B parameters, 8 of 256 experts",
    196_608,
    // config.json of MiniMaxAI/MiniMax-M2.
    LlamaConfig {
        vocabulary: 200_064,
        hidden: 3072,
        feed_forward: 1536,
        layers: 62,
        heads: 48,
        norm_eps: 1e-6,
        rotation: Rotation { theta: 5_000_000.0, turned: Some(64), ..PLAIN },
        qk_norm: QkNorm::Whole,
        experts: Some(Experts { sigmoid: true, bias: true, ..Experts::softmax(256, 8, 1536) }),
        ..LLAMA3_8B
    },
)];
