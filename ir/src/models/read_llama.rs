//! The `config.json` of LLaMA's family, under the names that each `model_type` has for the same things.

use super::attention::{Latent, QkNorm};
use super::config::{ConfigError, Fields, depth, invalid, positive, unsupported};
use super::experts::{Clamp, Experts};
use super::feed_forward::Activation;
use super::layers::{LayerSet, Window};
use super::llama::{LlamaConfig, Norms, Temperature};
use super::mtp::Mtp;
use super::read_rope::{Head, rotary};
use crate::ops::GroupLimit;
use serde_json::Value;

/// Reads a `config.json` of a family. Keys inside that no family has join `unknown`.
pub(super) fn read(fields: &Fields, unknown: &mut Vec<String>) -> Result<LlamaConfig, ConfigError> {
    let family = fields.family;
    let (hidden, heads, layers) =
        (fields.get("hidden_size")?, fields.get("num_attention_heads")?, fields.layers("num_hidden_layers")?);
    let mut latent = if family.starts_with("deepseek") { Some(latent(fields)?) } else { None };
    let head = match &latent {
        Some(latent) => latent.plain.saturating_add(latent.turned),
        None if family == "gpt_neox" => head_size(hidden, heads)?,
        None => match fields.optional("head_dim")? {
            Some(head) => head,
            None => head_size(hidden, heads)?,
        },
    };
    let turning = latent.as_ref().map_or(head, |latent| latent.turned);
    let rotary = rotary(fields, Head { size: turning, is_latent: latent.is_some() }, unknown)?;
    if let Some(latent) = &mut latent {
        latent.score_factor = rotary.score_factor;
    }
    let (is_gemma, is_neox) = (family.starts_with("gemma"), family == "gpt_neox");
    let ([qkv_bias, out_bias], nope) = (biases(fields)?, without_positions(fields, layers)?);
    let window = window(fields, layers, nope)?;
    let config = LlamaConfig {
        vocabulary: fields.get("vocab_size")?,
        hidden,
        // Mixtral has no other size than that of its experts.
        feed_forward: fields.get(if family == "llama4_text" {
            "intermediate_size_mlp"
        } else {
            "intermediate_size"
        })?,
        gated: !is_neox && (family != "llama" || fields.get("mlp_gate")?),
        activation: activation(fields)?,
        layers,
        heads,
        kv_heads: kv_heads(fields, heads, latent.is_some())?,
        head,
        norm_eps: fields.get(if is_neox { "layer_norm_eps" } else { "rms_norm_eps" })?,
        layer_norm: is_neox,
        norms: match family {
            "olmo2" => Norms::After,
            _ if is_gemma => Norms::Both,
            _ => Norms::Before,
        },
        parallel: is_neox && fields.get("use_parallel_residual")?,
        rotation: rotary.rotation,
        local_rotation: rotary.local.filter(|_| window.is_some()),
        nope,
        temperature: temperature(fields)?,
        score_size: if is_gemma { Some(fields.get("query_pre_attn_scalar")?) } else { None },
        softcap: if family == "gemma2" { fields.optional("attn_logit_softcapping")? } else { None },
        logit_softcap: if is_gemma { fields.optional("final_logit_softcapping")? } else { None },
        window,
        pad: if is_neox { None } else { pad(fields)? },
        tied: fields.get("tie_word_embeddings")?,
        scaled_embeddings: is_gemma,
        qkv_bias,
        out_bias,
        net_bias: is_neox || (matches!(family, "llama" | "smollm3") && fields.get("mlp_bias")?),
        qk_norm: match family {
            "qwen3" | "qwen3_moe" | "gemma3_text" => QkNorm::Heads,
            "olmo2" => QkNorm::Whole,
            "glm4_moe" if fields.get("use_qk_norm")? => QkNorm::Heads,
            "llama4_text" if fields.get("use_qk_norm")? => QkNorm::Turned,
            _ => QkNorm::None,
        },
        sinks: family == "gpt_oss",
        deviation: fields.get("initializer_range")?,
        latent,
        experts: experts(fields, layers)?,
        mtp: mtp(fields)?,
    };
    config.check()?;
    Ok(config)
}

/// The function of the feed-forward net.
fn activation(fields: &Fields) -> Result<Activation, ConfigError> {
    let key = match fields.family {
        "llama" | "olmo2" | "phi3" | "gpt_neox" | "smollm3" | "llama4_text" => "hidden_act",
        "gemma2" | "gemma3_text" => "hidden_activation",
        _ => return Ok(Activation::Silu),
    };
    let named: String = fields.get(key)?;
    match named.as_str() {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu" => Ok(Activation::GeluErf),
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => Ok(Activation::GeluTanh),
        "relu2" => Ok(Activation::ReluSquared),
        _ => Err(unsupported(key, format!("{named} is not supported, only silu, gelu, gelu_pytorch_tanh and relu2"))),
    }
}

/// Flags of the biases of queries, keys and values, and of the result of attention.
fn biases(fields: &Fields) -> Result<[bool; 2], ConfigError> {
    Ok(match fields.family {
        "qwen2" => [true, false],
        "qwen2_moe" => [fields.get("qkv_bias")?, false],
        "glm4_moe" => [fields.get("attention_bias")?, false],
        "llama" | "qwen3" | "qwen3_moe" | "gemma2" | "gemma3_text" | "olmo2" | "gpt_neox" | "gpt_oss" | "smollm3"
        | "llama4_text" => [fields.get("attention_bias")?; 2],
        _ => [false; 2],
    })
}

/// The layers whose queries and keys have no positions.
fn without_positions(fields: &Fields, layers: u32) -> Result<LayerSet, ConfigError> {
    if !matches!(fields.family, "smollm3" | "llama4_text") {
        return Ok(LayerSet::None);
    }
    let stated: Option<Vec<u8>> = fields.optional("no_rope_layers")?;
    // An empty list is none for Llama 4.
    let stated = stated.filter(|list| fields.family == "smollm3" || !list.is_empty());
    if let Some(list) = stated.as_ref().filter(|list| list.len() < layers as usize) {
        let why = format!("`no_rope_layers` has {} numbers, but `num_hidden_layers` is {layers}", list.len());
        return Err(ConfigError::Contradiction(why));
    }
    let every: u32 = fields.get("no_rope_layer_interval")?;
    positive("no_rope_layer_interval", every.into())?;
    let is_in = |layer: u32| match &stated {
        Some(list) => list[layer as usize] == 0,
        None => (layer + 1).is_multiple_of(every),
    };
    let set = LayerSet::of(layers, is_in);
    set.ok_or_else(|| unsupported("no_rope_layers", "of more than 128 layers they must follow a rule".to_string()))
}

/// Layers that predict further tokens, where the file states their number.
fn mtp(fields: &Fields) -> Result<Option<Mtp>, ConfigError> {
    let depth = if matches!(fields.family, "deepseek_v3" | "glm4_moe") {
        depth("num_nextn_predict_layers", fields.optional("num_nextn_predict_layers")?.unwrap_or(0))?
    } else {
        0
    };
    if depth == 0 {
        return Ok(None);
    }
    let loss_factor: f64 = fields.get("mtp_loss_scaling_factor")?;
    Ok((loss_factor != 0.0).then_some(Mtp { depth, loss_factor }))
}

/// The temperature of attention without positions. The first files of Llama 4 have a number for true.
fn temperature(fields: &Fields) -> Result<Option<Temperature>, ConfigError> {
    if fields.family != "llama4_text" {
        return Ok(None);
    }
    let is_used = match fields.get("attn_temperature_tuning")? {
        Value::Bool(used) => used,
        Value::Number(number) => number.as_f64() != Some(0.0),
        _ => return Err(invalid("attn_temperature_tuning", "must be true or false".to_string())),
    };
    let temperature = Temperature { every: fields.get("floor_scale")?, by: fields.get("attn_scale")? };
    Ok(is_used.then_some(temperature))
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
    if fields.family == "gpt_neox" || latent && !fields.states("num_key_value_heads") {
        return Ok(heads);
    }
    let stated = fields.optional("num_key_value_heads")?.unwrap_or(heads);
    if latent && stated != heads {
        let why = format!("{stated} is not supported, only the number of query heads, {heads}");
        return Err(unsupported("num_key_value_heads", why));
    }
    Ok(stated)
}

/// The window of attention, and the layers that have it; `nope` are those without positions. Mistral, Mixtral, Qwen3-MoE and Phi-3 have one for all layers; Qwen's
/// counts only where `use_sliding_window` says so.
fn window(fields: &Fields, layers: u32, nope: LayerSet) -> Result<Option<Window>, ConfigError> {
    let is_optional = fields.family.starts_with("qwen") || fields.family == "smollm3";
    let is_used = !is_optional || fields.get("use_sliding_window")?;
    let chunked = fields.family == "llama4_text";
    let tokens = match fields.family {
        "mistral" | "mixtral" | "qwen2" | "qwen3" | "qwen2_moe" | "qwen3_moe" | "gemma2" | "gemma3_text" | "phi3"
        | "gpt_oss" | "smollm3"
            if is_used =>
        {
            fields.optional("sliding_window")?
        }
        "llama4_text" => fields.optional("attention_chunk_size")?,
        _ => None,
    };
    let stated = types(fields, layers)?;
    let most: u64 = match fields.family {
        "qwen2" | "qwen3" | "qwen2_moe" => fields.optional("max_window_layers")?.unwrap_or(0),
        _ => 0,
    };
    let pattern: u32 = if fields.family == "gemma3_text" { fields.get("sliding_window_pattern")? } else { 2 };
    let is_full = |layer: u32| match (&stated, fields.family) {
        (Some(types), _) => types[layer as usize] == "full_attention",
        (None, "qwen2" | "qwen3") => u64::from(layer) < most,
        (None, "qwen2_moe") => !layer.is_multiple_of(2) || u64::from(layer) >= most,
        (None, "llama4_text") => nope.contains(layer),
        (None, "smollm3") => !nope.contains(layer),
        (None, "gemma2" | "gemma3_text" | "gpt_oss") => pattern == 0 || (layer + 1).is_multiple_of(pattern),
        _ => false,
    };
    let Some(tokens) = tokens else {
        // Without a window, layers of its type are none of the class, or turn otherwise.
        let is_typed = stated.is_some() || matches!(fields.family, "gemma3_text" | "llama4_text");
        let needs = if chunked {
            "chunked_attention needs an `attention_chunk_size`"
        } else {
            "sliding_attention needs a `sliding_window`"
        };
        return match (0..layers).find(|&layer| is_typed && !is_full(layer)) {
            Some(_) => Err(unsupported("layer_types", needs.to_string())),
            None => Ok(None),
        };
    };
    match LayerSet::of(layers, is_full) {
        Some(full) if full.count(layers) == layers => Ok(None),
        Some(full) => Ok(Some(Window { tokens, chunked, full })),
        None => Err(unsupported("layer_types", "of more than 128 layers they must follow a rule".to_string())),
    }
}

/// The types of the layers' attention, where they are stated and the class reads them.
fn types(fields: &Fields, layers: u32) -> Result<Option<Vec<String>>, ConfigError> {
    let reads = matches!(
        fields.family,
        "qwen2" | "qwen3" | "qwen2_moe" | "gemma2" | "gemma3_text" | "gpt_oss" | "smollm3" | "llama4_text"
    );
    let Some(types): Option<Vec<String>> = fields.optional("layer_types")? else { return Ok(None) };
    if reads && types.len() != layers as usize {
        let why = format!("`layer_types` has {} types, but `num_hidden_layers` is {layers}", types.len());
        return Err(ConfigError::Contradiction(why));
    }
    let (known, list): (&[&str], _) = if fields.family == "llama4_text" {
        (&["full_attention", "chunked_attention"], "full_attention and chunked_attention")
    } else if reads {
        (&["full_attention", "sliding_attention"], "full_attention and sliding_attention")
    } else {
        (&["full_attention"], "full_attention")
    };
    match types.iter().find(|kind| !known.contains(&kind.as_str())) {
        Some(kind) => Err(unsupported("layer_types", format!("{kind} is not supported, only {list}"))),
        None => Ok(reads.then_some(types)),
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
        score_factor: 1.0,
    })
}

/// The experts of a family that has them; none if no layer does.
fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let softmax = |experts: &'static str, size: &'static str| {
        Ok(Experts::softmax(fields.get(experts)?, fields.get("num_experts_per_tok")?, fields.get(size)?))
    };
    let plain = match fields.family {
        "mixtral" => softmax("num_local_experts", "intermediate_size")?,
        "gpt_oss" => Experts {
            biases: true,
            clamp: Some(Clamp { alpha: fields.get("swiglu_alpha")?, limit: fields.get("swiglu_limit")? }),
            ..softmax("num_local_experts", "intermediate_size")?
        },
        "llama4_text" => {
            let Some(dense) = between_experts(fields, layers)? else { return Ok(None) };
            let size = fields.get("intermediate_size")?;
            let plain = softmax("num_local_experts", "intermediate_size")?;
            Experts { dense, shared: size, scaled_inputs: true, renormalise: false, ..plain }
        }
        "qwen2_moe" | "qwen3_moe" => {
            let Some(dense) = without_experts(fields, layers)? else { return Ok(None) };
            let second = fields.family == "qwen2_moe";
            Experts {
                dense,
                shared: if second { fields.get("shared_expert_intermediate_size")? } else { 0 },
                shared_gate: second,
                renormalise: fields.get("norm_topk_prob")?,
                ..softmax("num_experts", "moe_intermediate_size")?
            }
        }
        "deepseek_v2" | "deepseek_v3" | "glm4_moe" => {
            let dense: u32 = fields.get("first_k_dense_replace")?;
            if dense >= layers {
                return Ok(None);
            }
            let dense = if dense == 0 { LayerSet::None } else { LayerSet::First(dense) };
            Experts { dense, ..deepseek(fields, softmax("n_routed_experts", "moe_intermediate_size")?)? }
        }
        _ => return Ok(None),
    };
    let (capacity, group) = (fields.optional("capacity_factor")?, fields.optional("routing_group")?);
    Ok(Some(Experts { capacity, group, ..plain }))
}

/// The layers of a Qwen without experts, those that `mlp_only_layers` names, and all but each one of `decoder_sparse_step`;
/// `None` if no layer has experts.
fn without_experts(fields: &Fields, layers: u32) -> Result<Option<LayerSet>, ConfigError> {
    let (step, experts): (u64, u64) = (fields.get("decoder_sparse_step")?, fields.get("num_experts")?);
    positive("decoder_sparse_step", step)?;
    let only: Vec<u32> = fields.optional("mlp_only_layers")?.unwrap_or_default();
    let is_dense = |layer: u32| experts == 0 || only.contains(&layer) || !(u64::from(layer) + 1).is_multiple_of(step);
    match LayerSet::of(layers, is_dense) {
        Some(dense) => Ok((dense.count(layers) < layers).then_some(dense)),
        None => Err(unsupported("mlp_only_layers", "of more than 128 layers they must follow a rule".to_string())),
    }
}

/// The layers of a Llama 4 without experts; `None` if no layer has experts.
fn between_experts(fields: &Fields, layers: u32) -> Result<Option<LayerSet>, ConfigError> {
    let step: u32 = fields.get("interleave_moe_layer_step")?;
    positive("interleave_moe_layer_step", step.into())?;
    let listed: Option<Vec<u32>> = fields.optional("moe_layers")?;
    let is_dense = |layer: u32| match &listed {
        Some(list) => !list.contains(&layer),
        None => !(layer + 1).is_multiple_of(step),
    };
    match LayerSet::of(layers, is_dense) {
        Some(dense) => Ok((dense.count(layers) < layers).then_some(dense)),
        None => Err(unsupported("moe_layers", "of more than 128 layers they must follow a rule".to_string())),
    }
}

/// DeepSeek's and GLM's options of experts in addition to those of `plain`.
fn deepseek(fields: &Fields, plain: Experts) -> Result<Experts, ConfigError> {
    let third = fields.family != "deepseek_v2";
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
