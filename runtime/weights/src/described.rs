//! The `config.json` of a model that was not read from one: a preset. Each family's keys are filled in, and a file counts
//! only if it reads back as the same model.

use crate::description::differences;
use ir::models::{
    Activation, Balance, BalanceScope, Branches, Done, EmbeddingScale, FAMILIES, Gpt2Config, Key, LlamaConfig,
    ModelConfig, Rotation, read_config,
};
use ir::ops::Scaling;
use serde_json::{Map, Value, json};

/// The keys of a `config.json` that reads as this model of sequences of `seq` tokens; none if no class has such a model.
pub fn described(config: &ModelConfig, seq: u64) -> Option<Map<String, Value>> {
    let keys = match config {
        ModelConfig::Llama(config) => llama(config),
        ModelConfig::Gpt2(config) => gpt2(config, seq),
    };
    FAMILIES.iter().find_map(|family| {
        let mut own = keys.clone();
        own.retain(|name, value| family.keys.row(name).is_some_and(|row| can_state(row, value)));
        own.insert("model_type".into(), family.model_type.into());
        let (read, unknown) = read_config(&Value::Object(own.clone()).to_string()).ok()?;
        (differences(config, &read, seq).is_empty() && unknown.is_empty()).then_some(own)
    })
}

/// True if a file may state a value of a key. One that the class refuses is left out: the model may have it by another key.
fn can_state(row: &Key, value: &Value) -> bool {
    row.done != Done::Only || row.absent().as_ref() == Some(value)
}

/// A value of a key.
type Pair = (&'static str, Value);

fn map(pairs: Vec<Pair>) -> Map<String, Value> {
    pairs.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

fn gpt2(config: &Gpt2Config, seq: u64) -> Map<String, Value> {
    map(vec![
        ("vocab_size", config.vocabulary.into()),
        ("n_positions", config.positions.unwrap_or(seq).into()),
        ("n_embd", config.hidden.into()),
        ("n_layer", config.layers.into()),
        ("n_head", config.heads.into()),
        ("n_inner", config.feed_forward.into()),
        ("activation_function", if config.exact_gelu { "gelu" } else { "gelu_new" }.into()),
        ("layer_norm_epsilon", config.norm_eps.into()),
        ("attn_pdrop", config.attention_dropout.into()),
        ("resid_pdrop", config.residual_dropout.into()),
        ("embd_pdrop", config.embedding_dropout.into()),
        ("tie_word_embeddings", config.tied.into()),
        ("initializer_range", config.deviation.into()),
    ])
}

/// The keys of all families of this kind; each takes those that it has.
fn llama(config: &LlamaConfig) -> Map<String, Value> {
    let activation = match config.activation {
        Activation::Silu => "silu",
        Activation::GeluTanh => "gelu_pytorch_tanh",
        Activation::GeluErf => "gelu",
        Activation::ReluSquared => "relu2",
        Activation::Relu => "relu",
        Activation::GeluSigmoid => "quick_gelu",
        Activation::Xielu => "xielu",
    };
    let (rotation, part) = (&config.rotation, part(config));
    let mut pairs: Vec<Pair> = vec![
        ("vocab_size", config.vocabulary.into()),
        ("hidden_size", config.hidden.into()),
        ("intermediate_size", config.feed_forward.into()),
        ("num_hidden_layers", config.layers.into()),
        ("num_attention_heads", config.heads.into()),
        ("num_key_value_heads", config.kv_heads.into()),
        ("rms_norm_eps", config.norm_eps.into()),
        ("layer_norm_eps", config.norm_eps.into()),
        ("use_parallel_residual", (config.branches != Branches::InTurn).into()),
        ("hidden_act", activation.into()),
        ("hidden_activation", activation.into()),
        ("attention_bias", config.qkv_bias.into()),
        ("qkv_bias", config.qkv_bias.into()),
        ("mlp_bias", config.net_bias.into()),
        ("pad_token_id", config.pad.into()),
        ("tie_word_embeddings", config.tied.into()),
        ("initializer_range", config.deviation.into()),
        ("attn_logit_softcapping", config.softcap.into()),
        ("final_logit_softcapping", config.logit_softcap.into()),
        ("logit_scale", config.logit_scale.into()),
        ("logits_scaling", config.logit_scale.recip().into()),
        ("residual_multiplier", config.residual_scale.into()),
        ("attention_multiplier", config.score_size.map(|size| size.sqrt().recip()).into()),
        ("query_pre_attn_scalar", whole(config.score_size.unwrap_or(config.head as f64))),
        ("use_qk_norm", (config.qk_norm != ir::models::QkNorm::None).into()),
        ("partial_rotary_factor", part.into()),
        ("rotary_pct", part.into()),
        ("rope_theta", rotation.theta.into()),
        ("rotary_emb_base", rotation.theta.into()),
        ("rope_parameters", ropes(config)),
    ];
    if let EmbeddingScale::By(factor) = config.embedding_scale {
        pairs.push(("embedding_multiplier", factor.into()));
    }
    if let Some(latent) = &config.latent {
        pairs.extend([
            ("q_lora_rank", latent.query_rank.into()),
            ("kv_lora_rank", latent.key_rank.into()),
            ("qk_nope_head_dim", latent.plain.into()),
            ("qk_rope_head_dim", latent.turned.into()),
            ("v_head_dim", latent.value.into()),
        ]);
    } else {
        pairs.push(("head_dim", config.head.into()));
    }
    pairs.extend(indexer(config));
    pairs.extend(positions(config));
    if let Some(window) = &config.window {
        let limited = if window.chunked { "chunked_attention" } else { "sliding_attention" };
        let is_full = (0..config.layers).map(|layer| window.full.contains(layer));
        let types: Vec<&str> = is_full.map(|full| if full { "full_attention" } else { limited }).collect();
        pairs.extend([("sliding_window", window.tokens.into()), ("use_sliding_window", true.into())]);
        pairs.extend([("layer_types", json!(types)), ("attention_chunk_size", window.tokens.into())]);
    } else {
        pairs.extend([("sliding_window", Value::Null), ("use_sliding_window", false.into())]);
    }
    pairs.extend(experts(config));
    pairs.push(("num_nextn_predict_layers", config.mtp.map_or(0, |mtp| mtp.depth).into()));
    pairs.extend(config.mtp.map(|mtp| ("mtp_loss_scaling_factor", mtp.loss_factor.into())));
    map(pairs)
}

/// The keys of an indexer. Classes count the heads that they expand the one key to.
fn indexer(config: &LlamaConfig) -> Vec<Pair> {
    let Some(indexer) = &config.indexer else { return Vec::new() };
    let types = (0..config.layers).map(|layer| if indexer.shared.contains(layer) { "shared" } else { "full" });
    vec![
        ("num_key_value_heads", config.heads.into()),
        ("index_n_heads", indexer.heads.into()),
        ("index_head_dim", indexer.head.into()),
        ("index_topk", indexer.keys.into()),
        ("index_loss_coef", indexer.loss.into()),
        ("indexer_types", json!(types.collect::<Vec<_>>())),
    ]
}

/// A number without a fraction as an integer: classes refuse others where they expect one.
fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < u32::MAX.into() { (number as i64).into() } else { number.into() }
}

/// Keys of the layers that have positions, and of what stands in the place of positions.
fn positions(config: &LlamaConfig) -> Vec<Pair> {
    let turns: Vec<u8> = (0..config.layers).map(|layer| u8::from(!config.nope.contains(layer))).collect();
    let mut pairs =
        vec![("no_rope_layers", json!(turns)), ("attn_temperature_tuning", config.temperature.is_some().into())];
    if let Some(temperature) = config.temperature {
        pairs.extend([("floor_scale", temperature.every.into()), ("attn_scale", temperature.by.into())]);
    }
    if let Some(Scaling::Lengths { context, .. }) = config.rotation.scaling {
        pairs.push(("original_max_position_embeddings", context.into()));
    }
    pairs
}

fn experts(config: &LlamaConfig) -> Vec<Pair> {
    let Some(experts) = &config.experts else { return Vec::new() };
    let (dense, sparse): (Vec<u32>, Vec<u32>) = (0..config.layers).partition(|&layer| experts.dense.contains(layer));
    let mut pairs: Vec<Pair> = vec![
        ("num_local_experts", experts.experts.into()),
        ("num_experts", experts.experts.into()),
        ("n_routed_experts", experts.experts.into()),
        ("num_experts_per_tok", experts.chosen.into()),
        ("moe_intermediate_size", experts.feed_forward.into()),
        ("shared_expert_intermediate_size", experts.shared.into()),
        ("n_shared_experts", (experts.shared / experts.feed_forward.max(1)).into()),
        ("norm_topk_prob", experts.renormalise.into()),
        ("routed_scaling_factor", experts.scale.into()),
        ("first_k_dense_replace", dense.len().into()),
        ("mlp_only_layers", json!(dense)),
        ("moe_layers", json!(sparse)),
        ("intermediate_size_mlp", config.feed_forward.into()),
        ("capacity_factor", experts.capacity.into()),
        ("routing_group", experts.group.into()),
        ("router_jitter_noise", experts.jitter.into()),
    ];
    pairs.extend(balance(&experts.balance));
    if dense.is_empty() || experts.scaled_inputs {
        // Some classes have this one size, of experts.
        pairs.push(("intermediate_size", experts.feed_forward.into()));
    }
    match experts.limit {
        Some(limit) => pairs.extend([
            ("n_group", limit.groups.into()),
            ("topk_group", limit.from.into()),
            ("topk_method", "group_limited_greedy".into()),
        ]),
        None => pairs.extend([("n_group", 1.into()), ("topk_group", 1.into()), ("topk_method", "greedy".into())]),
    }
    if experts.sigmoid {
        pairs.push(("topk_method", "noaux_tc".into()));
    }
    pairs.extend(
        experts
            .clamp
            .iter()
            .flat_map(|clamp| [("swiglu_alpha", clamp.alpha.into()), ("swiglu_limit", clamp.limit.into())]),
    );
    pairs
}

/// Keys of the balance of routers.
fn balance(balance: &Balance) -> Vec<Pair> {
    let scope = balance.loss.map(|loss| BalanceScope::ALL.iter().find(|(_, scope)| *scope == loss.scope));
    let name = scope.flatten().map(|(name, _)| *name);
    vec![
        ("output_router_logits", false.into()),
        ("router_balance", name.into()),
        ("router_balance_coef", balance.loss.map(|loss| loss.factor).into()),
        ("router_z_loss_coef", balance.z_loss.into()),
        ("router_bias_update_rate", balance.bias_rate.into()),
        ("router_counts", balance.counts.into()),
    ]
}

/// The part of a head that turns.
fn part(config: &LlamaConfig) -> f64 {
    config.rotation.turned.map_or(1.0, |turned| turned as f64 / config.head as f64)
}

/// The rotary positions of all layers, or by the type of layers where these turn otherwise.
fn ropes(config: &LlamaConfig) -> Value {
    let rotation = rope(config, &config.rotation);
    let Some(local) = &config.local_rotation else { return rotation };
    let mut both = json!({"full_attention": rotation, "sliding_attention": rope(config, local)});
    if matches!(config.rotation.scaling, Some(Scaling::Yarn { fractional: true, .. })) {
        // The class looks for it here.
        both["truncate"] = false.into();
    }
    both
}

/// The rotary positions of a layer.
fn rope(config: &LlamaConfig, rotation: &Rotation) -> Value {
    let (mut keys, part) = (json!({"rope_type": "default", "rope_theta": rotation.theta}), part(config));
    if part != 1.0 {
        keys["partial_rotary_factor"] = part.into();
    }
    match rotation.scaling {
        None | Some(Scaling::Pairs { .. }) => {}
        Some(Scaling::Lengths { ref short, ref long, context }) => {
            keys["rope_type"] = "longrope".into();
            keys["short_factor"] = json!(short);
            keys["long_factor"] = json!(long);
            keys["attention_factor"] = rotation.gain.into();
            keys["original_max_position_embeddings"] = context.into();
        }
        Some(Scaling::Linear { factor }) => {
            keys["rope_type"] = "linear".into();
            keys["factor"] = factor.into();
        }
        Some(Scaling::Llama3 { factor, low, high, context }) => {
            keys["rope_type"] = "llama3".into();
            keys["factor"] = factor.into();
            keys["low_freq_factor"] = low.into();
            keys["high_freq_factor"] = high.into();
            keys["original_max_position_embeddings"] = context.into();
        }
        Some(Scaling::Yarn { factor, low, high, context, fractional }) => {
            keys["rope_type"] = "yarn".into();
            keys["factor"] = factor.into();
            keys["beta_slow"] = low.into();
            keys["beta_fast"] = high.into();
            keys["original_max_position_embeddings"] = context.into();
            keys["truncate"] = (!fractional).into();
            if rotation.gain != 0.1 * factor.ln() + 1.0 {
                keys["attention_factor"] = rotation.gain.into();
            }
            if let Some(latent) = &config.latent {
                let by = (latent.score_factor.sqrt() - 1.0) / (0.1 * factor.ln());
                keys["mscale_all_dim"] = ((by * 1e6).round() / 1e6).into();
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::models::presets;

    #[test]
    fn numbers_without_a_fraction_are_integers() {
        let gemma = presets().find(|preset| preset.name == "gemma3-4b").unwrap();
        assert_eq!(described(&gemma.config, 64).unwrap()["query_pre_attn_scalar"].to_string(), "256");
        assert_eq!(whole(0.5).to_string(), "0.5");
    }

    #[test]
    fn presets_have_the_configuration_of_a_class() {
        let without: Vec<&str> =
            presets().filter(|preset| described(&preset.config, 64).is_none()).map(|preset| preset.name).collect();
        // Squared ReLU without a gate is an addition, and the small Gemma has options of two versions.
        let is_known = |name: &&str| name.starts_with("nemotron") || *name == "tiny-gemma";
        assert!(without.iter().all(is_known), "{without:?}");
    }
}
