//! Ling 3: gated delta rules with a bounded decay for each element of a key, latent attention with gates of heads, and experts.

use super::deepseek::deepseek_v2::{self, TURNING};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "bailing_hybrid",
    class: "BailingHybridForCausalLM",
    keys: Keys { class: "BailingHybridConfig", lists: &[KEYS, FIXED_NET, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        embedding: "model.word_embeddings.weight",
        outer: &[
            HubTensor::table("model.embed_tokens.weight", &["emb"]).when(When::File("model.embed_tokens.weight")),
            HubTensor::table("model.word_embeddings.weight", &["emb"]),
            HubTensor::vector("model.norm.weight", &["final_norm"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[
            NORMS,
            DELTA_IN_MEMORY,
            DELTA_OF_LING,
            LATENT_OF_LING,
            NET,
            BIAS_OF_LING,
            ROUTED_WEIGHTS,
            SHARED_WEIGHTS,
        ],
        pairs: Pairs::Adjacent,
        turned: TURNING,
        further: 1,
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "157184", VOCABULARY),
    Key::read(&["hidden_size"], "2560", HIDDEN),
    Key::read(&["intermediate_size"], "6144", FEED_FORWARD),
    Key::read(&["moe_intermediate_size"], "768", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "42", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "32", "the number of query heads"),
    Key::read(&["q_lora_rank"], "null", "size of the vector that queries come from; null: none"),
    Key::read(&["kv_lora_rank"], "512", "size of the vector that keys and values come from"),
    Key::read(&["qk_nope_head_dim"], "128", "size of the part of a key that each head has"),
    Key::read(&["qk_rope_head_dim"], "64", "size of the part that all heads share"),
    Key::read(&["v_head_dim"], "128", "size of values"),
    Key::read(&["rms_norm_eps"], "1e-6", LATENT_EPS),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::nothing(&["qk_head_dim"], "the class sets it"),
    Key::read(&["max_position_embeddings"], "262144", CONTEXT),
    Key::alias(&["model_max_length"], "max_position_embeddings"),
    Key::read(&["rope_theta"], "6000000.0", THETA),
    Key::read(&["layer_types"], "null", "linear_attention or full_attention, by layer"),
    Key::read(&["layer_group_size"], "6", "without `layer_types`, one layer in this number has attention"),
    Key::read(
        &["head_dim"],
        "128",
        "size of a delta rule's keys and values, where `linear_head_dim` does not state it",
    ),
    Key::read(&["linear_head_dim"], "", "the same"),
    Key::read(&["linear_num_heads"], "", "a delta rule's heads; absent: query heads"),
    Key::read(&["short_conv_kernel_size"], "4", "taps of its convolutions"),
    Key::read(&["linear_conv_kernel_dim"], "", "the same, over the key before"),
    Key::read(&["kda_safe_gate"], "true", "the logarithm of a decay is a sigmoid times `kda_lower_bound`"),
    Key::read(&["kda_lower_bound"], "-5.0", "the least logarithm of a decay"),
    Key::read(&["mlp_layer_types"], "null", SPARSE_LAYERS),
    Key::read(&["first_k_dense_replace"], "2", DENSE_FIRST),
    Key::read(&["num_local_experts"], "512", EXPERTS),
    Key::alias(&["num_experts"], "num_local_experts"),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::alias(&["num_experts_per_token"], "num_experts_per_tok"),
    Key::read(&["n_shared_experts"], "1", SHARED),
    Key::alias(&["num_shared_experts"], "n_shared_experts"),
    Key::read(&["routed_scaling_factor"], "2.5", SCALE),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::alias(&["moe_renormalize"], "norm_topk_prob"),
    Key::read(&["n_group"], "8", GROUPS),
    Key::alias(&["num_expert_group"], "n_group"),
    Key::read(&["topk_group"], "4", OPEN_GROUPS),
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
    Key::nothing(&["num_mtp_layers"], "the class computes no layers that predict further tokens"),
    Key::nothing(&["num_nextn_predict_layers"], "the class computes no layers that predict further tokens"),
    Key::only(&["mtp_loss_scaling_factor"], "0.0", "the class computes no layers that predict further tokens"),
    Key::read(&["pad_token_id"], "156892", PAD),
    WHOLE_HEADS,
];

/// In files with the names that the class has in memory.
const IN_MEMORY: When = When::File("self_attn.o_proj.weight");

/// The tensors of delta rules and of attention, in memory.
const DELTA_IN_MEMORY: &[HubTensor] = &[
    HubTensor::linear("self_attn.q_proj.weight", &["wmq"]).when(When::File("self_attn.conv1d.weight")),
    HubTensor::linear("self_attn.k_proj.weight", &["wmk"]).when(IN_MEMORY),
    HubTensor::linear("self_attn.v_proj.weight", &["wmv"]).when(IN_MEMORY),
    HubTensor::vector("self_attn.conv1d.weight", &["conv_mq", "conv_mk", "conv_mv"])
        .shaped(FileShape::Taps)
        .when(IN_MEMORY),
    HubTensor::linear("self_attn.forget_gate.f_proj.weight", &["wdecay"]).when(IN_MEMORY),
    HubTensor::vector("self_attn.forget_gate.dt_bias", &["dt_bias"]).when(IN_MEMORY),
    HubTensor::vector("self_attn.forget_gate.A_log", &["a_log"]).when(IN_MEMORY),
    HubTensor::linear("self_attn.b_proj.weight", &["wbeta"]).when(IN_MEMORY),
    HubTensor::linear("self_attn.g_proj.weight", &["wgate"]).when(IN_MEMORY),
    HubTensor::linear("self_attn.g_proj.weight", &["wg"]).when(IN_MEMORY),
    HubTensor::vector("self_attn.o_norm.weight", &["scan_norm"]).when(IN_MEMORY),
    HubTensor::linear("self_attn.o_proj.weight", &["wmo"]).of_inputs(3).when(IN_MEMORY),
    HubTensor::linear("self_attn.q_a_proj.weight", &["wdq"]).when(IN_MEMORY),
    HubTensor::vector("self_attn.q_a_layernorm.weight", &["q_norm"]).when(IN_MEMORY),
    HubTensor::linear("self_attn.q_b_proj.weight", &["wqn", "wqr"])
        .joined(Join::Heads)
        .when(When::File("self_attn.q_b_proj.weight")),
    HubTensor::linear("self_attn.q_proj.weight", &["wqn", "wqr"]).joined(Join::Heads).when(IN_MEMORY),
    HubTensor::linear("self_attn.kv_a_proj_with_mqa.weight", &["wdkv", "wkr"]).when(IN_MEMORY),
    HubTensor::vector("self_attn.kv_a_layernorm.weight", &["kv_norm"]).when(IN_MEMORY),
    HubTensor::linear("self_attn.kv_b_proj.weight", &["wkn", "wv"]).joined(Join::Heads).when(IN_MEMORY),
    HubTensor::linear("self_attn.o_proj.weight", &["wo"]).of_inputs(3).when(IN_MEMORY),
];

/// The delta rule in files.
const DELTA_OF_LING: &[HubTensor] = &[
    HubTensor::linear("attention.q_proj.weight", &["wmq"]),
    HubTensor::linear("attention.k_proj.weight", &["wmk"]),
    HubTensor::linear("attention.v_proj.weight", &["wmv"]),
    HubTensor::vector("attention.q_conv1d.weight", &["conv_mq"]).shaped(FileShape::Taps),
    HubTensor::vector("attention.k_conv1d.weight", &["conv_mk"]).shaped(FileShape::Taps),
    HubTensor::vector("attention.v_conv1d.weight", &["conv_mv"]).shaped(FileShape::Taps),
    HubTensor::linear("attention.f_proj.weight", &["wdecay"]),
    HubTensor::vector("attention.dt_bias", &["dt_bias"]),
    HubTensor::vector("attention.A_log", &["a_log"]),
    HubTensor::linear("attention.b_proj.weight", &["wbeta"]),
    HubTensor::linear("attention.g_proj.weight", &["wgate"]),
    HubTensor::vector("attention.o_norm.weight", &["scan_norm"]),
    HubTensor::linear("attention.dense.weight", &["wmo"]).of_inputs(3),
];

/// Latent attention in files.
const LATENT_OF_LING: &[HubTensor] = &[
    HubTensor::linear("attention.q_a_proj.weight", &["wdq"]),
    HubTensor::vector("attention.q_a_layernorm.weight", &["q_norm"]),
    HubTensor::linear("attention.q_b_proj.weight", &["wqn", "wqr"]).joined(Join::Heads).when(When::Param("wdq")),
    HubTensor::linear("attention.q_proj.weight", &["wqn", "wqr"]).joined(Join::Heads),
    HubTensor::linear("attention.kv_a_proj_with_mqa.weight", &["wdkv", "wkr"]),
    HubTensor::vector("attention.kv_a_layernorm.weight", &["kv_norm"]),
    HubTensor::linear("attention.kv_b_proj.weight", &["wkn", "wv"]).joined(Join::Heads),
    HubTensor::linear("attention.g_proj.weight", &["wg"]),
    HubTensor::linear("attention.dense.weight", &["wo"]).of_inputs(3),
];

/// The bias for the choice, in memory and in files.
const BIAS_OF_LING: &[HubTensor] = &[
    HubTensor::vector("mlp.gate.e_score_correction_bias", &["router_bias"])
        .when(When::File("mlp.gate.e_score_correction_bias")),
    HubTensor::vector("mlp.gate.expert_bias", &["router_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let heads: u64 = fields.get("num_attention_heads")?;
    if fields.optional("num_key_value_heads")?.is_some_and(|stated: u64| stated != heads) {
        let why = format!("only the number of query heads is supported, {heads}");
        return Err(unsupported("num_key_value_heads", why));
    }
    let base = deepseek_v2::latent_with(fields, heads)?;
    Ok(LlamaConfig {
        head_gate: HeadGate::SigmoidOfHead,
        scanned: delta(fields, base.layers, heads)?,
        experts: experts(fields, base.layers)?,
        ..base
    }
    .into())
}

/// The delta rules, in the layers that do not have attention.
fn delta(fields: &Fields, layers: u32, heads: u64) -> Result<Option<Scanned>, ConfigError> {
    let group: u32 = fields.get("layer_group_size")?;
    positive("layer_group_size", group.into())?;
    let scanned =
        LayerTypes::USUAL.scanned(fields, layers, "layer_types", |layer| !(layer + 1).is_multiple_of(group))?;
    let heads = fields.optional("linear_num_heads")?.unwrap_or(heads);
    let size = fields.optional("linear_head_dim")?.map_or_else(|| fields.get("head_dim"), Ok)?;
    let taps = fields.optional("linear_conv_kernel_dim")?.map_or_else(|| fields.get("short_conv_kernel_size"), Ok)?;
    let least: Option<f64> = if fields.get("kda_safe_gate")? { Some(fields.get("kda_lower_bound")?) } else { None };
    if least.is_some_and(|least| least >= 0.0) {
        return Err(invalid("kda_lower_bound", "must be below 0: states do not grow".to_string()));
    }
    let delta = DeltaNet { decay: DeltaDecay::KeyDirect(least), ..DeltaNet::of_heads([heads; 2], [size; 2], taps)? };
    Ok(scanned.map(|layers| Scanned::of(Mixer::Delta(delta), layers)))
}

fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let Some(dense) = dense_types(fields, layers, fields.get("first_k_dense_replace")?)? else { return Ok(None) };
    let chosen = sigmoid(fields, "num_local_experts", "moe_intermediate_size")?;
    let limited = deepseek_v2::limited(fields, Some(deepseek_v2::groups(fields, 2)?), chosen)?;
    Ok(Some(Experts { dense, renormalise: fields.get("norm_topk_prob")?, ..limited }))
}
