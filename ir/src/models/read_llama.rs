//! The `config.json` of LLaMA's family, under the names that each `model_type` has for the same things.

use super::attention::Latent;
use super::config::{ConfigError, Fields, invalid, positive, unsupported};
use super::experts::Experts;
use super::llama::LlamaConfig;
use super::read_rope::rotary;
use crate::ops::GroupLimit;

/// Reads a `config.json` of a family. Keys inside that no family has join `unknown`.
pub(super) fn read(fields: &Fields, unknown: &mut Vec<String>) -> Result<LlamaConfig, ConfigError> {
    let family = fields.family;
    let gated = gate(fields)?;
    let (hidden, heads, layers) =
        (fields.get("hidden_size")?, fields.get("num_attention_heads")?, fields.get("num_hidden_layers")?);
    let latent = if family.starts_with("deepseek") { Some(latent(fields)?) } else { None };
    let rotary = rotary(fields, latent.is_some(), unknown)?;
    let head = match &latent {
        Some(latent) => latent.plain.saturating_add(latent.turned),
        None => match fields.optional("head_dim")? {
            Some(head) => head,
            None => head_size(hidden, heads)?,
        },
    };
    let config = LlamaConfig {
        vocabulary: fields.get("vocab_size")?,
        hidden,
        // Mixtral has no other size than that of its experts.
        feed_forward: fields.get("intermediate_size")?,
        gated,
        layers,
        heads,
        kv_heads: kv_heads(fields, heads, latent.is_some())?,
        head,
        norm_eps: fields.get("rms_norm_eps")?,
        rope_theta: rotary.theta,
        rope_scaling: rotary.scaling,
        score_factor: rotary.score_factor,
        turned_factor: rotary.turned_factor,
        window: window(fields, layers)?,
        pad: pad(fields)?,
        tied: fields.get("tie_word_embeddings")?,
        qkv_bias: family == "qwen2" || (family == "qwen2_moe" && fields.get("qkv_bias")?),
        qk_norm: family.starts_with("qwen3"),
        deviation: fields.get("initializer_range")?,
        latent,
        experts: experts(fields, layers)?,
    };
    config.check()?;
    Ok(config)
}

/// True if the feed-forward net has a gate. In the class it always has one; `relu2` without one is Nemotron's.
fn gate(fields: &Fields) -> Result<bool, ConfigError> {
    if fields.family != "llama" {
        return Ok(true);
    }
    let (activation, gated): (String, bool) = (fields.get("hidden_act")?, fields.get("mlp_gate")?);
    match (activation.as_str(), gated) {
        ("silu", true) => Ok(true),
        ("relu2", false) => Ok(false),
        (_, true) => Err(unsupported("hidden_act", format!("{activation} is not supported with a gate, only silu"))),
        (_, false) => {
            Err(unsupported("hidden_act", format!("{activation} is not supported without a gate, only relu2")))
        }
    }
}

/// The padding token; a negative one counts from the end of the vocabulary.
fn pad(fields: &Fields) -> Result<Option<u64>, ConfigError> {
    let Some(stated) = fields.optional::<i64>("pad_token_id")? else { return Ok(None) };
    let vocabulary: u64 = fields.get("vocab_size")?;
    let from_end = || vocabulary.checked_sub(stated.unsigned_abs());
    let pad = if stated < 0 { from_end() } else { Some(stated.unsigned_abs()) };
    pad.map(Some).ok_or_else(|| invalid("pad_token_id", format!("{stated} is none of {vocabulary} tokens")))
}

/// Key and value heads. Under latent attention each query head has its own, and where none are stated that is meant.
fn kv_heads(fields: &Fields, heads: u64, latent: bool) -> Result<u64, ConfigError> {
    if latent && !fields.states("num_key_value_heads") {
        return Ok(heads);
    }
    let stated = fields.optional("num_key_value_heads")?.unwrap_or(heads);
    if latent && stated != heads {
        let why = format!("{stated} is not supported, only the number of query heads, {heads}");
        return Err(unsupported("num_key_value_heads", why));
    }
    Ok(stated)
}

/// The tokens that attention looks back over, in any layer; none: all. Mistral and Mixtral have one window for all layers,
/// Qwen's counts only where `use_sliding_window` says so, for some layers.
fn window(fields: &Fields, layers: u32) -> Result<Option<u64>, ConfigError> {
    let kinds: Option<Vec<String>> = fields.optional("layer_types")?;
    let other = |kinds: &Vec<String>| kinds.iter().find(|kind| *kind != "full_attention").cloned();
    let stated = match fields.family {
        "mistral" | "mixtral" => fields.optional("sliding_window")?,
        "qwen2" | "qwen3" | "qwen2_moe" | "qwen3_moe" if fields.get("use_sliding_window")? => {
            let before: u64 = fields.optional("max_window_layers")?.unwrap_or(0);
            let some = match fields.family {
                "qwen3_moe" => true,
                _ if kinds.is_some() => kinds.as_ref().is_some_and(|kinds| other(kinds).is_some()),
                "qwen2_moe" => before > 0,
                _ => before < u64::from(layers),
            };
            let window: Option<u64> = fields.optional("sliding_window")?;
            return Ok(window.filter(|_| some));
        }
        _ => None,
    };
    match kinds.as_ref().and_then(other) {
        Some(kind) => Err(unsupported("layer_types", format!("{kind} is not supported, only full_attention"))),
        None => Ok(stated),
    }
}

fn head_size(hidden: u64, heads: u64) -> Result<u64, ConfigError> {
    positive("num_attention_heads", heads)?;
    if !hidden.is_multiple_of(heads) {
        let why = format!("`hidden_size` {hidden} is not divisible by `num_attention_heads` {heads}");
        return Err(ConfigError::Contradiction(why));
    }
    Ok(hidden / heads)
}

fn latent(fields: &Fields) -> Result<Latent, ConfigError> {
    Ok(Latent {
        query_rank: fields.optional("q_lora_rank")?,
        key_rank: fields.get("kv_lora_rank")?,
        plain: fields.get("qk_nope_head_dim")?,
        turned: fields.get("qk_rope_head_dim")?,
        value: fields.get("v_head_dim")?,
    })
}

/// The experts of a family that has them; none if no layer does.
fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let softmax = |experts: &'static str, size: &'static str| {
        Ok(Experts::softmax(fields.get(experts)?, fields.get("num_experts_per_tok")?, fields.get(size)?))
    };
    let plain = match fields.family {
        "mixtral" => softmax("num_local_experts", "intermediate_size")?,
        "qwen2_moe" | "qwen3_moe" => {
            let dense_layers = dense_in_front(fields, layers)?;
            if dense_layers >= layers {
                return Ok(None);
            }
            let second = fields.family == "qwen2_moe";
            Experts {
                dense_layers,
                shared: if second { fields.get("shared_expert_intermediate_size")? } else { 0 },
                shared_gate: second,
                renormalise: fields.get("norm_topk_prob")?,
                ..softmax("num_experts", "moe_intermediate_size")?
            }
        }
        "deepseek_v2" | "deepseek_v3" => {
            let dense_layers = fields.get("first_k_dense_replace")?;
            if dense_layers >= layers {
                return Ok(None);
            }
            Experts { dense_layers, ..deepseek(fields, softmax("n_routed_experts", "moe_intermediate_size")?)? }
        }
        _ => return Ok(None),
    };
    let (capacity, group) = (fields.optional("capacity_factor")?, fields.optional("routing_group")?);
    Ok(Some(Experts { capacity, group, ..plain }))
}

/// The number of layers of a Qwen without experts, which must be the first ones: those that `mlp_only_layers` names, and
/// all but each one of `decoder_sparse_step`.
fn dense_in_front(fields: &Fields, layers: u32) -> Result<u32, ConfigError> {
    let (step, experts): (u64, u64) = (fields.get("decoder_sparse_step")?, fields.get("num_experts")?);
    positive("decoder_sparse_step", step)?;
    if experts == 0 {
        return Ok(layers);
    }
    let front_only =
        |field: &str| Err(unsupported(field, "layers without experts are supported in front only".to_string()));
    if step > 1 && step < u64::from(layers) {
        return front_only("decoder_sparse_step");
    }
    let only: Vec<u32> = fields.optional("mlp_only_layers")?.unwrap_or_default();
    let mut front = step.saturating_sub(1).min(u64::from(layers)) as u32;
    while front < layers && only.contains(&front) {
        front += 1;
    }
    if only.iter().any(|layer| (front..layers).contains(layer)) {
        return front_only("mlp_only_layers");
    }
    Ok(front)
}

/// DeepSeek's options of experts in addition to those of `plain`.
fn deepseek(fields: &Fields, plain: Experts) -> Result<Experts, ConfigError> {
    let third = fields.family == "deepseek_v3";
    let group = |by| -> Result<Option<GroupLimit>, ConfigError> {
        Ok(Some(GroupLimit { groups: fields.get("n_group")?, from: fields.get("topk_group")?, by }))
    };
    let limit = if third {
        group(2)?
    } else {
        match fields.get::<String>("topk_method")?.as_str() {
            "greedy" => None,
            "group_limited_greedy" => group(1)?,
            method => {
                let why = format!("{method} is not supported, only greedy and group_limited_greedy");
                return Err(unsupported("topk_method", why));
            }
        }
    };
    if let Some(limit) = limit {
        check_limit(&limit, &plain)?;
    }
    let shared: u64 = fields.get("n_shared_experts")?;
    Ok(Experts {
        shared: shared.saturating_mul(plain.feed_forward),
        sigmoid: third,
        bias: third,
        limit: limit.filter(|limit| limit.groups > 1),
        renormalise: third && fields.get("norm_topk_prob")?,
        scale: fields.get("routed_scaling_factor")?,
        ..plain
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
