//! Kimi Linear: gated delta rules with a decay for each element of a key, latent attention without positions, and experts.

use super::deepseek::deepseek_v2::LATENT;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "kimi_linear",
    class: "KimiLinearForCausalLM",
    keys: Keys { class: "KimiLinearConfig", lists: &[KEYS, FIXED_NET, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, DELTA_IN_ATTENTION, LATENT, EXPERTS_OF_KIMI, NET], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "163840", VOCABULARY),
    Key::read(&["hidden_size"], "2304", HIDDEN),
    Key::read(&["intermediate_size"], "9216", FEED_FORWARD),
    Key::read(&["moe_intermediate_size"], "1024", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "27", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", "the number of query heads"),
    Key::read(&["q_lora_rank"], "null", "size of the vector that queries come from; null: none"),
    Key::read(&["kv_lora_rank"], "512", "size of the vector that keys and values come from"),
    Key::read(&["qk_nope_head_dim"], "128", "size of the part of a key that each head has"),
    Key::read(&["qk_rope_head_dim"], "64", "size of the part that all heads share"),
    Key::read(&["v_head_dim"], "128", "size of values"),
    Key::read(&["rms_norm_eps"], "1e-5", LATENT_EPS),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::nothing(&["head_dim", "qk_head_dim", "mla_use_nope"], "the class sets it"),
    Key::nothing(&["max_position_embeddings", "model_max_length", "rope_theta"], "attention has no positions"),
    Key::nothing(&["rope_parameters", "rope_scaling", "partial_rotary_factor"], "attention has no positions"),
    Key::read(&["layer_types"], "null", "linear_attention or full_attention, by layer"),
    Key::read(&["linear_attn_config"], "null", "sizes and layers of delta rules, over the keys below"),
    Key::read(&["linear_head_dim"], "128", "size of a delta rule's keys and values"),
    Key::read(&["linear_num_heads"], "32", "its heads"),
    Key::read(&["linear_conv_kernel_dim"], "4", "taps of its convolutions"),
    Key::read(&["mlp_layer_types"], "null", SPARSE_LAYERS),
    Key::read(&["first_k_dense_replace"], "1", DENSE_FIRST),
    Key::only(&["moe_layer_freq"], "1", UNREAD),
    Key::read(&["num_experts"], "256", EXPERTS),
    Key::alias(&["num_local_experts"], "num_experts"),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::alias(&["num_experts_per_token"], "num_experts_per_tok"),
    Key::read(&["n_shared_experts"], "1", SHARED),
    Key::alias(&["num_shared_experts"], "n_shared_experts"),
    Key::read(&["routed_scaling_factor"], "2.446", SCALE),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::alias(&["moe_renormalize"], "norm_topk_prob"),
    Key::read(&["n_group"], "1", GROUPS),
    Key::alias(&["num_expert_group"], "n_group"),
    Key::read(&["topk_group"], "1", OPEN_GROUPS),
    Key::only(&["moe_router_activation_func"], "\"sigmoid\"", "the class has no other"),
    Key::nothing(&["use_grouped_topk"], "`n_group` says it"),
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
    Key::nothing(&["num_nextn_predict_layers"], "the class computes no layers that predict further tokens"),
    Key::read(&["pad_token_id"], "163839", PAD),
];

/// In files that have the tensors of a module of decay.
const IN_MODULE: When = When::File("self_attn.forget_gate.A_log");
/// In files of whose convolutions a tensor has all.
const IN_ONE: When = When::File("self_attn.conv1d.weight");

/// The delta rule, whose tensors are among those of attention.
const DELTA_IN_ATTENTION: &[HubTensor] = &[
    HubTensor::linear("self_attn.q_proj.weight", &["wmq"]).when(When::Param("wmq")),
    HubTensor::linear("self_attn.k_proj.weight", &["wmk"]),
    HubTensor::linear("self_attn.v_proj.weight", &["wmv"]),
    HubTensor::vector("self_attn.conv1d.weight", &["conv_mq", "conv_mk", "conv_mv"])
        .shaped(FileShape::Taps)
        .when(IN_ONE),
    HubTensor::vector("self_attn.q_conv1d.weight", &["conv_mq"]).shaped(FileShape::Taps),
    HubTensor::vector("self_attn.k_conv1d.weight", &["conv_mk"]).shaped(FileShape::Taps),
    HubTensor::vector("self_attn.v_conv1d.weight", &["conv_mv"]).shaped(FileShape::Taps),
    HubTensor::linear("self_attn.forget_gate.f_a_proj.weight", &["wdecay_a"]).when(IN_MODULE),
    HubTensor::linear("self_attn.forget_gate.f_b_proj.weight", &["wdecay_b"]).when(IN_MODULE),
    HubTensor::vector("self_attn.forget_gate.dt_bias", &["dt_bias"]).when(IN_MODULE),
    HubTensor::vector("self_attn.forget_gate.A_log", &["a_log"]).shaped(FileShape::OfHeads).when(IN_MODULE),
    HubTensor::linear("self_attn.f_a_proj.weight", &["wdecay_a"]),
    HubTensor::linear("self_attn.f_b_proj.weight", &["wdecay_b"]),
    HubTensor::vector("self_attn.dt_bias", &["dt_bias"]),
    HubTensor::vector("self_attn.A_log", &["a_log"]).shaped(FileShape::OfHeads),
    HubTensor::linear("self_attn.b_proj.weight", &["wbeta"]),
    HubTensor::linear("self_attn.g_a_proj.weight", &["wgate_a"]),
    HubTensor::linear("self_attn.g_b_proj.weight", &["wgate_b"]),
    HubTensor::vector("self_attn.o_norm.weight", &["scan_norm"]),
    HubTensor::linear("self_attn.o_proj.weight", &["wmo"]).of_inputs(3).when(When::Param("wmo")),
];

/// In files with the names that the class has in memory.
const IN_MEMORY: When = When::File("mlp.gate.weight");
/// In files that the class has saved, which give the net of a dense layer the name of experts.
const SAVED: When = When::File("block_sparse_moe.gate_proj.weight");

const EXPERTS_OF_KIMI: &[HubTensor] = &[
    HubTensor::linear("block_sparse_moe.gate_proj.weight", &["gate"]).when(SAVED),
    HubTensor::linear("block_sparse_moe.up_proj.weight", &["up"]).when(SAVED),
    HubTensor::linear("block_sparse_moe.down_proj.weight", &["down"]).when(SAVED),
    HubTensor::linear("mlp.gate.weight", &["router"]).when(IN_MEMORY),
    HubTensor::vector("mlp.gate.e_score_correction_bias", &["router_bias"]).when(IN_MEMORY),
    HubTensor::linear("mlp.experts.gate_up_proj", &["expert_gate", "expert_up"]).of_experts().when(IN_MEMORY),
    HubTensor::linear("mlp.experts.down_proj", &["expert_down"]).of_experts().when(IN_MEMORY),
    HubTensor::linear("mlp.shared_experts.gate_proj.weight", &["shared_gate"]).when(IN_MEMORY),
    HubTensor::linear("mlp.shared_experts.up_proj.weight", &["shared_up"]).when(IN_MEMORY),
    HubTensor::linear("mlp.shared_experts.down_proj.weight", &["shared_down"]).when(IN_MEMORY),
    HubTensor::linear("block_sparse_moe.gate.weight", &["router"]),
    HubTensor::vector("block_sparse_moe.gate.e_score_correction_bias", &["router_bias"]),
    HubTensor::linear("block_sparse_moe.experts.{}.w1.weight", &["expert_gate"]),
    HubTensor::linear("block_sparse_moe.experts.{}.w3.weight", &["expert_up"]),
    HubTensor::linear("block_sparse_moe.experts.{}.w2.weight", &["expert_down"]),
    HubTensor::linear("block_sparse_moe.shared_experts.gate_proj.weight", &["shared_gate"]),
    HubTensor::linear("block_sparse_moe.shared_experts.up_proj.weight", &["shared_up"]),
    HubTensor::linear("block_sparse_moe.shared_experts.down_proj.weight", &["shared_down"]),
];

/// An object within the file that states the delta rules.
#[derive(serde::Deserialize, Default)]
struct Stated {
    head_dim: Option<u64>,
    num_heads: Option<u64>,
    short_conv_kernel_size: Option<u64>,
    /// The layers with attention, from 1.
    full_attn_layers: Option<Vec<u32>>,
}

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let sizes = ModelSizes::read(fields)?;
    let latent = Latent {
        query_rank: fields.optional("q_lora_rank")?,
        key_rank: fields.get("kv_lora_rank")?,
        plain: fields.get("qk_nope_head_dim")?,
        turned: fields.get("qk_rope_head_dim")?,
        value: fields.get("v_head_dim")?,
        score_factor: 1.0,
        gated: false,
    };
    let heads = Heads {
        size: latent.plain.saturating_add(latent.turned),
        kv_heads: sizes.heads,
        rotary: mixers::no_positions(),
    };
    if fields.optional("num_key_value_heads")?.is_some_and(|stated: u64| stated != sizes.heads) {
        let why = format!("only the number of query heads is supported, {}", sizes.heads);
        return Err(unsupported("num_key_value_heads", why));
    }
    let base = Base::USUAL.read_with(fields, sizes, heads)?;
    Ok(LlamaConfig {
        latent: Some(latent),
        nope: LayerSet::First(base.layers),
        scanned: delta(fields, base.layers)?,
        experts: experts(fields, base.layers)?,
        ..base
    }
    .into())
}

impl Stated {
    /// True for a layer without attention, which files count from 1.
    fn has_state(&self, layer: u32) -> bool {
        match &self.full_attn_layers {
            Some(attending) => !attending.contains(&(layer + 1)),
            None => layer == 0 || !layer.is_multiple_of(4),
        }
    }
}

/// A number of the object within the file, or that of a key.
fn stated_or(stated: Option<u64>, fields: &Fields, key: &'static str) -> Result<u64, ConfigError> {
    stated.map_or_else(|| fields.get(key), Ok)
}

/// The delta rules, in the layers that do not have attention.
fn delta(fields: &Fields, layers: u32) -> Result<Option<Scanned>, ConfigError> {
    let stated: Stated = fields.optional("linear_attn_config")?.unwrap_or_default();
    let scanned = LayerTypes::USUAL.scanned(fields, layers, "layer_types", |layer| stated.has_state(layer))?;
    let heads = stated_or(stated.num_heads, fields, "linear_num_heads")?;
    let size = stated_or(stated.head_dim, fields, "linear_head_dim")?;
    let taps = stated_or(stated.short_conv_kernel_size, fields, "linear_conv_kernel_dim")?;
    let delta = DeltaNet { decay: DeltaDecay::Key, ..DeltaNet::of_heads([heads; 2], [size; 2], taps)? };
    Ok(scanned.map(|layers| Scanned::of(Mixer::Delta(delta), layers)))
}

fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let Some(dense) = dense_types(fields, layers, fields.get("first_k_dense_replace")?)? else { return Ok(None) };
    let chosen = sigmoid(fields, "num_experts", "moe_intermediate_size")?;
    let (groups, from): (u64, u64) = (fields.get("n_group")?, fields.get("topk_group")?);
    let shared: u64 = fields.get("n_shared_experts")?;
    Ok(Some(Experts {
        dense,
        shared: shared.saturating_mul(chosen.feed_forward),
        renormalise: fields.get("norm_topk_prob")?,
        scale: fields.get("routed_scaling_factor")?,
        limit: (groups > 1).then_some(GroupLimit { groups, from, by: 2 }),
        ..chosen
    }))
}
