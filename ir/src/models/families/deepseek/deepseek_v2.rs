//! DeepSeek-V2: latent attention, and many small experts.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "deepseek_v2",
    class: "DeepseekV2ForCausalLM",
    keys: Keys { class: "DeepseekV2Config", lists: &[KEYS, ONE_TYPE, FIXED_NET, ROUTED, DEEPSEEK, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        inner: &[NORMS, LATENT, NET, ROUTED_WEIGHTS, SHARED_WEIGHTS],
        pairs: Pairs::Adjacent,
        turned: TURNING,
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "102400", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "11008", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", "the number of query heads"),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-6", LATENT_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::read(&["n_routed_experts"], "64", EXPERTS),
    Key::alias(&["num_experts"], "n_routed_experts"),
    Key::read(&["num_experts_per_tok"], "", CHOSEN),
    Key::read(&["moe_intermediate_size"], "1407", EXPERT_SIZE),
    Key::read(&["n_shared_experts"], "2", SHARED),
    Key::only(&["norm_topk_prob"], "false", "the class does not read it, DeepSeek's own code does"),
    Key::read(&["routed_scaling_factor"], "1.0", SCALE),
    Key::read(&["n_group"], "null", GROUPS),
    Key::read(&["topk_group"], "null", OPEN_GROUPS),
    Key::read(&["topk_method"], "\"greedy\"", "greedy or group_limited_greedy"),
    Key::only(&["scoring_func"], "\"softmax\"", "the class has no other"),
    Key::read(&["first_k_dense_replace"], "0", DENSE_FIRST),
    Key::nothing(&["num_nextn_predict_layers", "num_mtp_layers"], UNREAD),
    WHOLE_HEADS,
];

/// The keys of DeepSeek-V2 and V3.
pub(in crate::models::families) const DEEPSEEK: &[Key] = &[
    Key::nothing(&["head_dim", "qk_head_dim"], "the class sets it by the sizes of the parts of a head"),
    Key::nothing(&["rope_interleave"], "the order of elements in a head; training does not depend on it"),
    Key::only(&["moe_layer_freq"], "1", UNREAD),
    Key::read(&["q_lora_rank"], "1536", "size of the vector that queries come from; null: none"),
    Key::read(&["kv_lora_rank"], "512", "size of the vector that keys and values come from"),
    Key::read(&["qk_nope_head_dim"], "128", "size of the part of a head without positions"),
    Key::read(&["qk_rope_head_dim"], "64", "size of the part with positions"),
    Key::read(&["v_head_dim"], "128", "size of values"),
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
    Key::nothing(&["aux_loss_alpha", "seq_aux", "ep_size"], UNREAD),
];

/// Parameters that positions turn.
pub(in crate::models::families) const TURNING: &[&str] = &["wqr", "wkr"];

/// Latent attention. Each head has its rows without positions, then those with them.
pub(in crate::models::families) const LATENT: &[HubTensor] = &[
    HubTensor::linear("self_attn.q_a_proj.weight", &["wdq"]),
    HubTensor::vector("self_attn.q_a_layernorm.weight", &["q_norm"]),
    HubTensor::linear("self_attn.q_b_proj.weight", &["wqn", "wqr"]).joined(Join::Heads).when(When::Param("wdq")),
    HubTensor::linear("self_attn.q_proj.weight", &["wqn", "wqr"]).joined(Join::Heads),
    HubTensor::linear("self_attn.kv_a_proj_with_mqa.weight", &["wdkv", "wkr"]),
    HubTensor::vector("self_attn.kv_a_layernorm.weight", &["kv_norm"]),
    HubTensor::linear("self_attn.kv_b_proj.weight", &["wkn", "wv"]).joined(Join::Heads),
    HubTensor::linear("self_attn.o_proj.weight", &["wo"]).of_inputs(3),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = latent(fields)?;
    let experts = match experts(fields, base.layers)? {
        Some(experts) => Some(Experts { renormalise: false, ..limited(fields, limit(fields)?, experts)? }),
        None => None,
    };
    Ok(LlamaConfig { experts, ..base }.into())
}

/// The groups of experts that are open to a token.
fn limit(fields: &Fields) -> Result<Option<GroupLimit>, ConfigError> {
    match fields.get::<String>("topk_method")?.as_str() {
        "greedy" => Ok(None),
        "group_limited_greedy" => groups(fields, 1).map(Some),
        method => {
            let why = format!("{method} is not supported, only greedy and group_limited_greedy");
            Err(unsupported("topk_method", why))
        }
    }
}

/// Reads what the families with latent attention share.
pub(in crate::models::families) fn latent(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    windows::one_type(fields)?;
    latent_with(fields, kv_heads(fields, fields.get("num_attention_heads")?)?)
}

/// Reads a file whose key heads and types of layers are known.
pub(in crate::models::families) fn latent_with(fields: &Fields, kv_heads: u64) -> Result<LlamaConfig, ConfigError> {
    let sizes = ModelSizes::read(fields)?;
    let mut latent = Latent {
        query_rank: fields.optional("q_lora_rank")?,
        key_rank: fields.get("kv_lora_rank")?,
        plain: fields.get("qk_nope_head_dim")?,
        turned: fields.get("qk_rope_head_dim")?,
        value: fields.get("v_head_dim")?,
        score_factor: 1.0,
        gated: false,
    };
    let rotary = Base::USUAL.rope.read(fields, Head { size: latent.turned, is_latent: true })?;
    latent.score_factor = rotary.score_factor;
    let heads = Heads { size: latent.plain.saturating_add(latent.turned), kv_heads, rotary };
    let base = Base::USUAL.read_with(fields, sizes, heads)?;
    Ok(LlamaConfig { latent: Some(latent), ..base })
}

/// Key and value heads: each query head has its own, and where none are stated that is meant.
fn kv_heads(fields: &Fields, heads: u64) -> Result<u64, ConfigError> {
    if !fields.states("num_key_value_heads") {
        return Ok(heads);
    }
    let stated = fields.optional("num_key_value_heads")?.unwrap_or(heads);
    if stated != heads {
        let why = format!("{stated} is not supported, only the number of query heads, {heads}");
        return Err(unsupported("num_key_value_heads", why));
    }
    Ok(stated)
}

/// The experts of all layers but the first `first_k_dense_replace`, chosen by a softmax over all of them.
pub(in crate::models::families) fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let dense: u32 = fields.get("first_k_dense_replace")?;
    if dense >= layers {
        return Ok(None);
    }
    let dense = if dense == 0 { LayerSet::None } else { LayerSet::First(dense) };
    Ok(Some(Experts { dense, ..softmax(fields, "n_routed_experts", "moe_intermediate_size")? }))
}

/// Groups that are open to a token by the sum of their best `by` scores.
pub(in crate::models::families) fn groups(fields: &Fields, by: u64) -> Result<GroupLimit, ConfigError> {
    Ok(GroupLimit { groups: fields.get("n_group")?, from: fields.get("topk_group")?, by })
}

/// Experts of which only some groups are open to a token, with shared ones.
pub(in crate::models::families) fn limited(
    fields: &Fields,
    limit: Option<GroupLimit>,
    experts: Experts,
) -> Result<Experts, ConfigError> {
    if let Some(limit) = limit {
        check_limit(&limit, &experts)?;
    }
    let key = "n_shared_experts";
    let shared: u64 = if fields.has(key) { fields.get(key)? } else { 0 };
    Ok(Experts {
        shared: shared.saturating_mul(experts.feed_forward),
        limit: limit.filter(|limit| limit.groups > 1),
        scale: fields.get("routed_scaling_factor")?,
        ..experts
    })
}

/// Checks that the groups open to a token have enough experts.
fn check_limit(limit: &GroupLimit, experts: &Experts) -> Result<(), ConfigError> {
    let GroupLimit { groups, from, by } = *limit;
    positive("n_group", groups)?;
    if !experts.experts.is_multiple_of(groups) {
        let why = format!("`n_group` {groups} does not divide {} experts", experts.experts);
        return Err(ConfigError::Contradiction(why));
    }
    let size = experts.experts / groups;
    if !(1..=groups).contains(&from) {
        return Err(invalid("topk_group", format!("{from} of {groups} groups cannot be open")));
    }
    if size < by || from.saturating_mul(size) < experts.chosen {
        let why = format!(
            "`num_experts_per_tok` {} and scores of {by} do not go with {from} open groups of {size} experts",
            experts.chosen
        );
        return Err(ConfigError::Contradiction(why));
    }
    Ok(())
}

/// `config.json` of deepseek-ai/DeepSeek-V2-Lite, trained as here before YaRN lengthened its context.
pub(in crate::models::families) const DEEPSEEK_V2_LITE: LlamaConfig = LlamaConfig {
    vocabulary: 102_400,
    hidden: 2048,
    feed_forward: 10_944,
    layers: 27,
    heads: 16,
    kv_heads: 16,
    head: 192,
    norm_eps: 1e-6,
    rotation: PLAIN,
    latent: Some(Latent {
        query_rank: None,
        key_rank: 512,
        plain: 128,
        turned: 64,
        value: 128,
        score_factor: 1.0,
        gated: false,
    }),
    experts: Some(Experts {
        shared: 2 * 1408,
        dense: LayerSet::First(1),
        renormalise: false,
        ..Experts::softmax(64, 6, 1408)
    }),
    ..LLAMA3_8B
};

/// Latent attention with queries of a rank of their own: `config.json` of deepseek-ai/DeepSeek-V2 and DeepSeek-V3.
pub(in crate::models::families) const LARGE: Option<Latent> = Some(Latent {
    query_rank: Some(1536),
    key_rank: 512,
    plain: 128,
    turned: 64,
    value: 128,
    score_factor: 1.0,
    gated: false,
});

pub(in crate::models::families) const PRESETS: &[Preset] = &[
    Preset::llama("deepseek-v2-lite", "DeepSeek-V2, 16B parameters, 6 of 64 experts", 32_768, DEEPSEEK_V2_LITE),
    Preset::llama(
        "deepseek-v2",
        "DeepSeek-V2, 236B parameters, 6 of 160 experts",
        131_072,
        // config.json of deepseek-ai/DeepSeek-V2.
        LlamaConfig {
            hidden: 5120,
            feed_forward: 12_288,
            layers: 60,
            heads: 128,
            kv_heads: 128,
            latent: LARGE,
            experts: Some(Experts {
                shared: 2 * 1536,
                dense: LayerSet::First(1),
                limit: Some(GroupLimit { groups: 8, from: 3, by: 1 }),
                renormalise: false,
                scale: 16.0,
                ..Experts::softmax(160, 6, 1536)
            }),
            ..DEEPSEEK_V2_LITE
        },
    ),
];
