//! Keys of a model's sizes, and the `config.json` that keys state.

use super::keys::FileKeys;
use ir::models::{Clamp, Experts, Gpt2Config, Latent, LayerSet, LlamaConfig, ModelConfig, QkNorm, Rotation, Sinks};
use ir::ops::Scaling;
use serde_json::{Value, json};

/// The lines of a model for sequences of `seq` tokens, as far as MaxText has keys for it.
pub(super) fn lines(config: &ModelConfig, seq: u64) -> Vec<String> {
    match config {
        ModelConfig::Llama(config) => of_llama(config),
        ModelConfig::Gpt2(config) => of_gpt2(config, seq),
    }
}

fn of_gpt2(config: &Gpt2Config, seq: u64) -> Vec<String> {
    let mut lines = Lines::default();
    lines.put("decoder_block", "\"gpt3\"");
    lines.sizes(config.layers, config.hidden, config.heads, config.heads);
    lines.put("base_mlp_dim", config.feed_forward);
    lines.put("head_dim", config.hidden / config.heads.max(1));
    lines.put("vocab_size", config.vocabulary);
    lines.put("mlp_activations", "[\"gelu\"]");
    lines.put("trainable_position_size", config.positions.unwrap_or(seq).max(seq));
    lines.put("normalization_layer_epsilon", format_args!("{:?}", config.norm_eps));
    lines.put("logits_via_embedding", config.tied);
    lines.put("normalize_embedding_logits", false);
    lines.put("fused_qkv", true);
    lines.put("use_iota_embed", true);
    lines.0
}

fn of_llama(config: &LlamaConfig) -> Vec<String> {
    let mut lines = Lines::default();
    let experts = config.experts.as_ref();
    lines.put("decoder_block", format_args!("\"{}\"", block(config)));
    lines.sizes(config.layers, config.hidden, config.heads, config.kv_heads);
    let has_nets = experts.is_none_or(|experts| experts.dense != LayerSet::None);
    // Where all layers have experts, both sizes are theirs (configs/types.py, base_moe_mlp_dim).
    let net = experts.filter(|_| !has_nets).map_or(config.feed_forward, |experts| experts.feed_forward);
    lines.put("base_mlp_dim", net);
    lines.put("vocab_size", config.vocabulary);
    lines.put("normalization_layer_epsilon", format_args!("{:?}", config.norm_eps));
    lines.put("logits_via_embedding", config.tied);
    lines.put("normalize_embedding_logits", false);
    lines.put("rope_max_timescale", config.rotation.theta.round());
    match &config.latent {
        Some(latent) => lines.latent(latent),
        None => lines.put("head_dim", config.head),
    }
    if config.qk_norm == QkNorm::Heads {
        lines.put("use_qk_norm", true);
    }
    lines.put("attention_bias", config.qkv_bias);
    lines.rotation(&config.rotation, config.latent.as_ref());
    if config.sinks != Sinks::None {
        lines.put("attention_sink", true);
    }
    if let Some(window) = &config.window {
        lines.put("sliding_window_size", window.tokens);
        if window.full == LayerSet::None {
            lines.put("attention_type", "\"local_sliding\"");
        }
    }
    let clamp = experts.and_then(|experts| experts.clamp.as_ref());
    lines.put("mlp_activations", if clamp.is_some() { "[\"sigmoid\", \"linear\"]" } else { "[\"silu\", \"linear\"]" });
    if let Some(Clamp { limit, .. }) = clamp {
        lines.put("mlp_activations_limit", format_args!("{limit:?}"));
        lines.put("inhomogeneous_layer_cycle_interval", 2);
    }
    if let Some(experts) = experts {
        lines.experts(experts);
    }
    if let Some(further) = &config.mtp {
        lines.put("mtp_num_layers", further.depth);
        lines.put("mtp_loss_scaling_factor", format_args!("{:?}", further.loss_factor));
    }
    lines.0
}

/// The decoder of MaxText whose layers are nearest.
fn block(config: &LlamaConfig) -> &'static str {
    match &config.experts {
        Some(_) if config.latent.is_some() => "deepseek",
        Some(_) if config.sinks != Sinks::None => "gpt_oss",
        Some(_) if config.qk_norm == QkNorm::Heads => "qwen3_moe",
        Some(_) => "mixtral",
        None if config.qk_norm == QkNorm::Heads => "qwen3",
        None if config.qkv_bias => "qwen2",
        None => "llama2",
    }
}

/// Keys with their values.
#[derive(Default)]
struct Lines(Vec<String>);

impl Lines {
    fn put(&mut self, key: &str, value: impl std::fmt::Display) {
        self.0.push(format!("{key}: {value}"));
    }

    fn sizes(&mut self, layers: u32, hidden: u64, heads: u64, kv_heads: u64) {
        self.put("base_num_decoder_layers", layers);
        self.put("base_emb_dim", hidden);
        self.put("base_num_query_heads", heads);
        self.put("base_num_kv_heads", kv_heads);
    }

    fn latent(&mut self, latent: &Latent) {
        self.put("attention_type", "\"mla\"");
        self.put("q_lora_rank", latent.query_rank.unwrap_or(0));
        self.put("kv_lora_rank", latent.key_rank);
        self.put("qk_nope_head_dim", latent.plain);
        self.put("qk_rope_head_dim", latent.turned);
        self.put("v_head_dim", latent.value);
    }

    fn rotation(&mut self, rotation: &Rotation, latent: Option<&Latent>) {
        match rotation.scaling {
            // The numbers of Llama 3.1 are in the code (embeddings.py, LLaMARotaryEmbedding).
            Some(Scaling::Llama3 { .. }) => self.put("rope_type", "\"llama3.1\""),
            Some(Scaling::Yarn { factor, low, high, context, fractional }) => {
                self.put("rope_type", "\"yarn\"");
                self.put("rope_factor", factor);
                self.put("original_max_position_embeddings", context);
                self.put("max_position_embeddings", (context as f64 * factor).round());
                self.put("beta_fast", high);
                self.put("beta_slow", low);
                self.put("rope_truncate", !fractional);
                self.put("rope_interleave", latent.is_some());
                self.put("rope_attention_scaling", latent.is_none() && rotation.gain != 1.0);
                if let Some(latent) = latent {
                    self.put("mscale", crate::megatron::mscale(latent.score_factor.sqrt(), factor));
                }
            }
            Some(Scaling::Linear { factor }) => self.put("rope_linear_scaling_factor", format_args!("{factor:?}")),
            _ => {}
        }
    }

    fn experts(&mut self, experts: &Experts) {
        self.put("num_experts", experts.experts);
        self.put("num_experts_per_tok", experts.chosen);
        self.put("base_moe_mlp_dim", experts.feed_forward);
        if let LayerSet::First(count) = experts.dense {
            self.put("first_num_dense_layers", count);
        }
        if experts.shared > 0 {
            self.put("shared_experts", experts.shared / experts.feed_forward.max(1));
        }
        if experts.clamp.is_some() {
            self.put("mlp_bias", true);
            self.put("routed_bias", true);
        } else if experts.sigmoid || experts.shared > 0 {
            self.put("routed_score_func", if experts.sigmoid { "\"sigmoid\"" } else { "\"softmax\"" });
            self.put("routed_bias", experts.bias);
            self.put("routed_scaling_factor", format_args!("{:?}", experts.scale));
        } else {
            self.put("norm_topk_prob", experts.renormalise);
        }
        if let Some(limit) = experts.limit {
            self.put("n_routing_groups", limit.groups);
            self.put("topk_routing_group", limit.from);
        }
        if let Some(loss) = experts.balance.loss {
            self.put("load_balance_loss_weight", loss.factor);
        }
        if let Some(rate) = experts.balance.bias_rate {
            self.put("routed_bias_update_rate", rate);
        }
    }
}

/// The `config.json` of the model that keys state; `None` if they state none that is known.
pub(super) fn of_keys(keys: &FileKeys) -> Option<Value> {
    let (layers, hidden) = (keys.size("base_num_decoder_layers")?, keys.size("base_emb_dim")?);
    let heads = keys.size("base_num_query_heads")?;
    let block = keys.text("decoder_block").unwrap_or("llama2".to_string());
    // A net of another activation, or norms that the decoder does not have, are no known model.
    if block != "gpt3" && block != "gpt_oss" && !keys.has_items("mlp_activations", &["silu", "linear"])
        || keys.is_set("use_qk_norm") && !matches!(block.as_str(), "qwen3" | "qwen3_moe")
    {
        return None;
    }
    if block == "gpt3" {
        return Some(json!({
            "model_type": "gpt2", "vocab_size": keys.size("vocab_size")?, "n_embd": hidden, "n_layer": layers, "n_head": heads,
            "n_inner": keys.size("base_mlp_dim")?, "n_positions": keys.size("trainable_position_size")?, "tie_word_embeddings": keys.is_set("logits_via_embedding"),
        }));
    }
    let mut config = json!({
        "vocab_size": keys.size("vocab_size")?, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": keys.size("base_num_kv_heads")?, "intermediate_size": keys.size("base_mlp_dim")?,
        "rms_norm_eps": keys.number("normalization_layer_epsilon").unwrap_or(1e-5),
        "rope_theta": keys.number("rope_max_timescale").unwrap_or(10_000.0), "tie_word_embeddings": keys.is_set("logits_via_embedding"),
    });
    if block != "deepseek" {
        config["head_dim"] = json!(keys.size("head_dim").unwrap_or(128));
    }
    if let Some(scaling) = scaling(keys) {
        config["rope_scaling"] = scaling;
    }
    config["model_type"] = json!(family(keys, &block, &mut config)?);
    Some(config)
}

/// The family of a decoder, whose further keys are put.
fn family(keys: &FileKeys, block: &str, config: &mut Value) -> Option<&'static str> {
    let has_bias = keys.is_set("attention_bias");
    Some(match block {
        "llama2" | "mistral" if !has_bias && keys.text("attention_type").as_deref() == Some("local_sliding") => {
            config["sliding_window"] = json!(keys.size("sliding_window_size")?);
            "mistral"
        }
        "llama2" | "mistral" if !has_bias => "llama",
        "qwen2" if has_bias => "qwen2",
        "qwen3" if !has_bias => "qwen3",
        "mixtral" => {
            config["num_local_experts"] = json!(keys.size("num_experts")?);
            config["num_experts_per_tok"] = json!(keys.size("num_experts_per_tok")?);
            config["intermediate_size"] = json!(of_expert(keys)?);
            "mixtral"
        }
        "qwen3_moe" => {
            config["num_experts"] = json!(keys.size("num_experts")?);
            config["num_experts_per_tok"] = json!(keys.size("num_experts_per_tok")?);
            config["moe_intermediate_size"] = json!(of_expert(keys)?);
            config["norm_topk_prob"] = json!(keys.is_set("norm_topk_prob"));
            "qwen3_moe"
        }
        "gpt_oss" => {
            config["num_local_experts"] = json!(keys.size("num_experts")?);
            config["num_experts_per_tok"] = json!(keys.size("num_experts_per_tok")?);
            config["intermediate_size"] = json!(of_expert(keys)?);
            config["sliding_window"] = json!(keys.size("sliding_window_size")?);
            config["swiglu_limit"] = json!(keys.number("mlp_activations_limit")?);
            "gpt_oss"
        }
        "deepseek" => deepseek(keys, config)?,
        _ => return None,
    })
}

fn deepseek(keys: &FileKeys, config: &mut Value) -> Option<&'static str> {
    let sizes = [
        ("n_routed_experts", "num_experts", 1),
        ("num_experts_per_tok", "num_experts_per_tok", 1),
        ("n_shared_experts", "shared_experts", 0),
        ("first_k_dense_replace", "first_num_dense_layers", 0),
        ("kv_lora_rank", "kv_lora_rank", 512),
        ("qk_nope_head_dim", "qk_nope_head_dim", 128),
        ("qk_rope_head_dim", "qk_rope_head_dim", 64),
        ("v_head_dim", "v_head_dim", 128),
        ("num_nextn_predict_layers", "mtp_num_layers", 0),
    ];
    for (own, key, default) in sizes {
        config[own] = json!(keys.size(key).unwrap_or(default));
    }
    config["moe_intermediate_size"] = json!(of_expert(keys)?);
    let rank = keys.size("q_lora_rank").filter(|&rank| rank > 0);
    config["q_lora_rank"] = json!(rank);
    config["routed_scaling_factor"] = json!(keys.number("routed_scaling_factor").unwrap_or(1.0));
    let groups = keys.size("n_routing_groups").filter(|&groups| groups > 0);
    config["n_group"] = json!(groups.unwrap_or(1));
    config["topk_group"] = json!(keys.size("topk_routing_group").filter(|&groups| groups > 0).unwrap_or(1));
    if keys.text("routed_score_func").as_deref() == Some("sigmoid") {
        config["norm_topk_prob"] = json!(true);
        return Some("deepseek_v3");
    }
    config["norm_topk_prob"] = json!(false);
    config["topk_method"] = json!(if groups.is_some() { "group_limited_greedy" } else { "greedy" });
    Some("deepseek_v2")
}

/// Size of an expert: that of all nets, if no other is stated.
fn of_expert(keys: &FileKeys) -> Option<u64> {
    keys.size("base_moe_mlp_dim").filter(|&size| size > 0).or(keys.size("base_mlp_dim"))
}

fn scaling(keys: &FileKeys) -> Option<Value> {
    match keys.text("rope_type").as_deref() {
        Some("llama3.1") => Some(json!({
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        })),
        Some("yarn") => {
            let mut scaling = json!({
                "rope_type": "yarn", "factor": keys.number("rope_factor").unwrap_or(40.0),
                "beta_fast": keys.number("beta_fast").unwrap_or(32.0), "beta_slow": keys.number("beta_slow").unwrap_or(1.0),
                "original_max_position_embeddings": keys.size("original_max_position_embeddings").unwrap_or(4096),
                "truncate": keys.truth("rope_truncate").unwrap_or(true),
            });
            if keys.text("attention_type").as_deref() == Some("mla") {
                let mscale = keys.number("mscale").unwrap_or(1.0);
                (scaling["mscale"], scaling["mscale_all_dim"]) = (json!(mscale), json!(mscale));
            }
            Some(scaling)
        }
        _ => keys
            .number("rope_linear_scaling_factor")
            .filter(|&factor| factor != 1.0)
            .map(|factor| json!({"rope_type": "linear", "factor": factor})),
    }
}
