//! The `config.json` of LLaMA's family, under the names that each `model_type` has for the same things.

use super::attention::Latent;
use super::config::{ConfigError, Fields, only, positive};
use super::experts::Experts;
use super::llama::LlamaConfig;
use crate::ops::{GroupLimit, Scaling};

/// The values of `model_type` that are of this family.
pub(super) const FAMILIES: [&str; 9] =
    ["llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3"];

/// Reads a `config.json` of a family; defaults are those of its class in `transformers`. `hidden_act` may be `relu2`, for a
/// feed-forward net without a gate; `capacity_factor` and `routing_group` are additions. Layers that predict further tokens
/// (`num_nextn_predict_layers`) are left out, as `transformers` does.
pub(super) fn read(family: &str, fields: &Fields<'_>) -> Result<LlamaConfig, ConfigError> {
    let gated = refuse_options(family, fields)?;
    let hidden = fields.required("hidden_size")?;
    let heads = fields.required("num_attention_heads")?;
    let latent = if family.starts_with("deepseek") { Some(latent(fields)?) } else { None };
    let experts = experts(family, fields)?;
    let rotary = rotary(fields, latent.is_some())?;
    let head = match (fields.optional("head_dim")?, &latent) {
        (_, Some(latent)) => latent.plain.saturating_add(latent.turned),
        (Some(head), None) => head,
        // The default of these classes; those of the others divide.
        (None, None) if family.starts_with("qwen3") => 128,
        (None, None) => head_size(hidden, heads)?,
    };
    let config = LlamaConfig {
        vocabulary: fields.required("vocab_size")?,
        hidden,
        // Mixtral has no other size than that of its experts.
        feed_forward: fields.required("intermediate_size")?,
        gated,
        layers: fields.required("num_hidden_layers")?,
        heads,
        // The default of `LlamaConfig`; those of the other classes are the counts of one published model.
        kv_heads: match &latent {
            Some(_) => heads,
            None if family == "llama" => fields.or("num_key_value_heads", heads)?,
            None => fields.required("num_key_value_heads")?,
        },
        head,
        norm_eps: fields.or("rms_norm_eps", if family == "mixtral" { 1e-5 } else { 1e-6 })?,
        rope_theta: rotary.theta,
        rope_scaling: rotary.scaling,
        score_factor: rotary.score_factor,
        tied: fields.or("tie_word_embeddings", false)?,
        qkv_bias: family.starts_with("qwen2") && fields.or("qkv_bias", true)?,
        qk_norm: family.starts_with("qwen3"),
        deviation: fields.or("initializer_range", 0.02)?,
        latent,
        experts,
    };
    config.check()?;
    Ok(config)
}

/// Refuses what is not supported; whether the feed-forward net has a gate.
fn refuse_options(family: &str, fields: &Fields<'_>) -> Result<bool, ConfigError> {
    let activation: String = fields.or("hidden_act", "silu".to_string())?;
    let gated = activation != "relu2" || family != "llama";
    if gated {
        only("hidden_act", &activation, "silu".to_string())?;
    }
    only("attention_dropout", &fields.or("attention_dropout", 0.0)?, 0.0)?;
    only("mlp_bias", &fields.or("mlp_bias", false)?, false)?;
    if !family.starts_with("qwen2") {
        only("attention_bias", &fields.or("attention_bias", false)?, false)?;
    }
    only("decoder_sparse_step", &fields.or("decoder_sparse_step", 1)?, 1)?;
    only("moe_layer_freq", &fields.or("moe_layer_freq", 1)?, 1)?;
    if !fields.or("mlp_only_layers", Vec::<u32>::new())?.is_empty() {
        let why = "layers without experts are supported in front only".to_string();
        return Err(ConfigError::Unsupported { field: "mlp_only_layers", why });
    }
    refuse_window(family, fields).map(|()| gated)
}

/// Qwen states a window that counts only where `use_sliding_window` says so; `MistralConfig` has one of 4096 where the file
/// does not state it.
fn refuse_window(family: &str, fields: &Fields<'_>) -> Result<(), ConfigError> {
    if family.starts_with("qwen") {
        return only("use_sliding_window", &fields.or("use_sliding_window", false)?, false);
    }
    let default = (family == "mistral" && !fields.states("sliding_window")).then_some(4096);
    match fields.optional("sliding_window")?.or(default) {
        None => Ok(()),
        Some::<u64>(window) => {
            let why = format!("a window of {window} is not supported; null means full attention");
            Err(ConfigError::Unsupported { field: "sliding_window", why })
        }
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

fn latent(fields: &Fields<'_>) -> Result<Latent, ConfigError> {
    Ok(Latent {
        query_rank: fields.optional("q_lora_rank")?,
        key_rank: fields.required("kv_lora_rank")?,
        plain: fields.required("qk_nope_head_dim")?,
        turned: fields.required("qk_rope_head_dim")?,
        value: fields.required("v_head_dim")?,
    })
}

/// The experts of a family that has them.
fn experts(family: &str, fields: &Fields<'_>) -> Result<Option<Experts>, ConfigError> {
    let chosen = || fields.required("num_experts_per_tok");
    let size = || fields.required("moe_intermediate_size");
    let plain = match family {
        "mixtral" => {
            let experts = Experts::softmax(fields.required("num_local_experts")?, chosen()?, 0);
            Experts { feed_forward: fields.required("intermediate_size")?, ..experts }
        }
        "qwen2_moe" | "qwen3_moe" => Experts {
            shared: if family == "qwen2_moe" { fields.required("shared_expert_intermediate_size")? } else { 0 },
            shared_gate: family == "qwen2_moe",
            renormalise: fields.or("norm_topk_prob", false)?,
            ..Experts::softmax(fields.required("num_experts")?, chosen()?, size()?)
        },
        "deepseek_v2" | "deepseek_v3" => deepseek(family, fields, size()?, chosen()?)?,
        _ => return Ok(None),
    };
    let capacity = fields.or("capacity_factor", plain.capacity)?;
    Ok(Some(Experts { capacity, group: fields.optional("routing_group")?, ..plain }))
}

fn deepseek(family: &str, fields: &Fields<'_>, size: u64, chosen: u64) -> Result<Experts, ConfigError> {
    let third = family == "deepseek_v3";
    let scores: String = fields.or("scoring_func", if third { "sigmoid" } else { "softmax" }.to_string())?;
    if !["sigmoid", "softmax"].contains(&scores.as_str()) {
        let why = format!("{scores} is not supported, only softmax and sigmoid");
        return Err(ConfigError::Unsupported { field: "scoring_func", why });
    }
    let method: String = fields.or("topk_method", if third { "noaux_tc" } else { "greedy" }.to_string())?;
    let groups: u64 = fields.or("n_group", 1)?;
    let from = fields.or("topk_group", groups)?;
    let limit = match method.as_str() {
        "greedy" => None,
        "group_limited_greedy" => Some(GroupLimit { groups, from, by: 1 }),
        "noaux_tc" => Some(GroupLimit { groups, from, by: 2 }),
        _ => {
            let why = format!("{method} is not supported, only greedy, group_limited_greedy and noaux_tc");
            return Err(ConfigError::Unsupported { field: "topk_method", why });
        }
    };
    Ok(Experts {
        shared: fields.or("n_shared_experts", 0u64)?.saturating_mul(size),
        dense_layers: fields.or("first_k_dense_replace", 0)?,
        sigmoid: scores == "sigmoid",
        bias: method == "noaux_tc",
        limit: limit.filter(|limit| limit.groups > 1),
        renormalise: fields.or("norm_topk_prob", third)?,
        scale: fields.or("routed_scaling_factor", 1.0)?,
        ..Experts::softmax(fields.required("n_routed_experts")?, chosen, size)
    })
}

/// How queries and keys turn.
struct Rotary {
    theta: f64,
    scaling: Option<Scaling>,
    score_factor: f64,
}

/// The base of the frequencies and how they are scaled: `rope_theta` and `rope_scaling`, or in newer files both in
/// `rope_parameters`. Where a file has both, `rope_scaling` counts, as in `transformers`.
fn rotary(fields: &Fields<'_>, latent: bool) -> Result<Rotary, ConfigError> {
    let theta = fields.or("rope_theta", 10_000.0)?;
    for field in ["rope_scaling", "rope_parameters"] {
        if let Some(rope) = fields.object(field)? {
            let scaling = scaling(field, &rope)?;
            let score_factor = match scaling {
                Some(Scaling::Yarn { factor, .. }) => yarn_scores(&rope, factor, latent)?,
                _ => 1.0,
            };
            return Ok(Rotary { theta: rope.or("rope_theta", theta)?, scaling, score_factor });
        }
    }
    Ok(Rotary { theta, scaling: None, score_factor: 1.0 })
}

/// The kind stands under `rope_type`, in older files under `type`.
fn scaling(field: &'static str, rope: &Fields<'_>) -> Result<Option<Scaling>, ConfigError> {
    let kind: String = match rope.optional("rope_type")? {
        Some(kind) => kind,
        None => rope.or("type", "default".to_string())?,
    };
    match kind.as_str() {
        "default" => Ok(None),
        "linear" => Ok(Some(Scaling::Linear { factor: rope.required("factor")? })),
        "llama3" => Ok(Some(Scaling::Llama3 {
            factor: rope.required("factor")?,
            low: rope.required("low_freq_factor")?,
            high: rope.required("high_freq_factor")?,
            context: rope.required("original_max_position_embeddings")?,
        })),
        "yarn" => Ok(Some(Scaling::Yarn {
            factor: rope.required("factor")?,
            low: rope.or("beta_slow", 1.0)?,
            high: rope.or("beta_fast", 32.0)?,
            context: rope.required("original_max_position_embeddings")?,
        })),
        _ => {
            let why = format!("{kind} is not supported, only default, linear, llama3 and yarn");
            Err(ConfigError::Unsupported { field, why })
        }
    }
}

/// What YaRN multiplies attention scores by, as `_compute_yarn_parameters` and `DeepseekV3Attention` in `transformers` do.
/// Where only a part of a head turns, a factor on that part alone is not supported.
fn yarn_scores(rope: &Fields<'_>, factor: f64, latent: bool) -> Result<f64, ConfigError> {
    let grown = |by: f64| 0.1 * by * factor.max(1.0).ln() + 1.0;
    let (by, all): (Option<f64>, Option<f64>) = (rope.optional("mscale")?, rope.optional("mscale_all_dim")?);
    let on_turned = match (rope.optional("attention_factor")?, by, all) {
        (Some(given), ..) => given,
        (None, Some(by), Some(all)) => grown(by) / grown(all),
        _ => grown(1.0),
    };
    if !latent {
        return Ok(on_turned * on_turned);
    }
    only("mscale", &on_turned, 1.0)?;
    let all = grown(all.unwrap_or(0.0));
    Ok(all * all)
}
