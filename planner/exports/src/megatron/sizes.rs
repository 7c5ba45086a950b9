//! Sizes of a model in flags of Megatron-LM.

use super::reader::Reader;
use ir::models::{Activation, LlamaConfig, ModelConfig};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Flags of sizes with their values.
pub type Sizes = BTreeMap<&'static str, u64>;

/// Flags of sizes that a model states too.
const SIZES: [&str; 16] = [
    "num-layers",
    "hidden-size",
    "ffn-hidden-size",
    "num-attention-heads",
    "num-query-groups",
    "kv-channels",
    "num-experts",
    "moe-router-topk",
    "moe-ffn-hidden-size",
    "moe-shared-expert-intermediate-size",
    "q-lora-rank",
    "kv-lora-rank",
    "qk-head-dim",
    "qk-pos-emb-head-dim",
    "v-head-dim",
    "mtp-num-layers",
];

/// A part of a model that a flag states, and that no configuration made from flags has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// A window of attention.
    Window,
    /// A gate whose operands are bounded.
    Clamp,
    /// An activation that is the square of a rectified number.
    SquaredRelu,
    /// A sink of each head.
    Sinks,
}

/// Flags of such parts.
const SPECIAL: [(&str, Special); 7] = [
    ("window-size", Special::Window),
    ("window-attn-skip-freq", Special::Window),
    ("quick-geglu", Special::Clamp),
    ("glu-linear-offset", Special::Clamp),
    ("activation-func-clamp-value", Special::Clamp),
    ("squared-relu", Special::SquaredRelu),
    ("softmax-type", Special::Sinks),
];

impl Special {
    /// True if a model has the part.
    fn is_in(self, model: &ModelConfig) -> bool {
        let ModelConfig::Llama(config) = model else { return false };
        match self {
            Special::Window => config.window.is_some(),
            Special::Clamp => config.experts.as_ref().is_some_and(|experts| experts.clamp.is_some()),
            Special::SquaredRelu => config.activation == Activation::ReluSquared,
            Special::Sinks => config.sinks,
        }
    }
}

/// What flags state of a model.
pub(super) struct Stated {
    pub(super) sizes: Sizes,
    pub(super) special: Vec<(&'static str, Special)>,
    /// The model as the text of a `config.json`, if a family has all of it.
    pub(super) model: Option<String>,
}

/// Reads what flags state of a model.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Stated, String> {
    let mut sizes = Sizes::new();
    for flag in SIZES {
        if let Some(size) = reader.number(flag)? {
            sizes.insert(flag, size);
        }
    }
    let vocabulary = match reader.number("padded-vocab-size")? {
        None => reader.number("vocab-size")?,
        padded => padded,
    };
    for flag in [
        "make-vocab-size-divisible-by",
        "max-position-embeddings",
        "norm-epsilon",
        "init-method-std",
        "mtp-loss-scaling-factor",
    ] {
        reader.value(flag)?;
    }
    let traits = Traits::read(reader)?;
    let mut special = Vec::new();
    for (flag, part) in SPECIAL {
        let is_default = matches!(reader.values(flag), Some([value]) if value == "vanilla" || value == "0.0");
        if reader.has(flag) && !is_default {
            special.push((flag, part));
        }
    }
    let model = vocabulary.filter(|_| special.is_empty()).and_then(|vocabulary| traits.config(&sizes, vocabulary));
    Ok(Stated { sizes, special, model: model.map(|model| model.to_string()) })
}

/// What flags state of a model besides its sizes.
struct Traits {
    is_latent: bool,
    is_gated: bool,
    has_rms_norm: bool,
    has_rotation: bool,
    has_qk_norm: bool,
    has_qkv_bias: bool,
    has_bias: bool,
    is_tied: bool,
    shares_keys: bool,
    /// Layers with a feed-forward net in place of experts, if they are the first ones.
    dense: Option<u64>,
    scores: Scores,
    theta: f64,
}

/// Scores of a router.
struct Scores {
    is_sigmoid: bool,
    is_pre_softmax: bool,
    has_bias: bool,
    groups: Option<u64>,
    open_groups: Option<u64>,
    scale: f64,
}

impl Traits {
    fn read(reader: &mut Reader<'_>) -> Result<Traits, String> {
        let kind = reader.value("position-embedding-type")?;
        let has_rotation =
            kind.is_some_and(|kind| matches!(kind, "rope" | "yarn")) | reader.has("use-rotary-position-embeddings");
        reader.has("no-position-embedding");
        reader.value("rotary-percent")?;
        let theta = reader.value("rotary-base")?.unwrap_or("10000");
        let theta = theta.parse().map_err(|_| format!("--rotary-base {theta}: it takes a number"))?;
        let scale = reader.value("moe-router-topk-scaling-factor")?.unwrap_or("1");
        let scores = Scores {
            is_sigmoid: reader.value("moe-router-score-function")? == Some("sigmoid"),
            is_pre_softmax: reader.has("moe-router-pre-softmax"),
            has_bias: reader.has("moe-router-enable-expert-bias"),
            groups: reader.number("moe-router-num-groups")?,
            open_groups: reader.number("moe-router-group-topk")?,
            scale: scale.parse().map_err(|_| format!("--moe-router-topk-scaling-factor {scale}: it takes a number"))?,
        };
        reader.has("moe-shared-expert-gate");
        reader.has("moe-apply-probs-on-input");
        reader.has("qk-l2-norm");
        let dense = reader.value("moe-layer-freq")?;
        Ok(Traits {
            is_latent: reader.has("multi-latent-attention"),
            is_gated: reader.has("swiglu"),
            has_rms_norm: reader.value("normalization")? == Some("RMSNorm"),
            has_rotation,
            has_qk_norm: reader.has("qk-layernorm"),
            has_qkv_bias: reader.has("add-qkv-bias"),
            has_bias: !reader.has("disable-bias-linear"),
            is_tied: !reader.has("untie-embeddings-and-output-weights"),
            shares_keys: reader.has("group-query-attention"),
            dense: dense.map_or(Some(0), first_dense),
            scores,
            theta,
        })
    }

    /// The configuration of a family that has these traits, if there is one.
    fn config(&self, sizes: &Sizes, vocabulary: u64) -> Option<Value> {
        let size = |flag| sizes.get(flag).copied();
        let (layers, hidden, heads) = (size("num-layers")?, size("hidden-size")?, size("num-attention-heads")?);
        let default = if self.is_gated { hidden * 8 / 3 / 64 * 64 } else { 4 * hidden };
        let mut config = json!({
            "vocab_size": vocabulary, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "intermediate_size": size("ffn-hidden-size").unwrap_or(default), "tie_word_embeddings": self.is_tied,
        });
        if !self.is_gated
            && self.has_bias
            && !self.has_rms_norm
            && !self.has_rotation
            && !sizes.contains_key("num-experts")
        {
            return Some(json!({
                "model_type": "gpt2", "vocab_size": vocabulary, "n_embd": hidden, "n_layer": layers, "n_head": heads,
                "n_inner": config["intermediate_size"], "n_positions": null,
            }));
        }
        if !self.is_gated || self.has_bias || !self.has_rms_norm || !self.has_rotation {
            return None;
        }
        config["rope_theta"] = json!(self.theta);
        config["num_key_value_heads"] = json!(if self.shares_keys { size("num-query-groups")? } else { heads });
        if let Some(head) = size("kv-channels") {
            config["head_dim"] = json!(head);
        }
        let family = match size("num-experts") {
            Some(experts) => self.experts(&mut config, sizes, experts)?,
            None if self.is_latent => return None,
            None if self.has_qk_norm => "qwen3",
            None if self.has_qkv_bias => "qwen2",
            None => "llama",
        };
        config["model_type"] = json!(family);
        Some(config)
    }

    /// Puts the keys of experts, and returns the family that has them.
    fn experts(&self, config: &mut Value, sizes: &Sizes, experts: u64) -> Option<&'static str> {
        let size = |flag| sizes.get(flag).copied();
        let of_expert = size("moe-ffn-hidden-size").map_or(config["intermediate_size"].clone(), |size| json!(size));
        config["num_experts_per_tok"] = json!(size("moe-router-topk").unwrap_or(2));
        let shared = size("moe-shared-expert-intermediate-size");
        if self.is_latent {
            config["moe_intermediate_size"] = of_expert.clone();
            config["n_routed_experts"] = json!(experts);
            config["n_shared_experts"] = json!(shared.unwrap_or(0) / of_expert.as_u64()?.max(1));
            config["first_k_dense_replace"] = json!(self.dense?);
            config["q_lora_rank"] = json!(size("q-lora-rank"));
            config["kv_lora_rank"] = json!(size("kv-lora-rank").unwrap_or(32));
            config["qk_nope_head_dim"] = json!(size("qk-head-dim").unwrap_or(128));
            config["qk_rope_head_dim"] = json!(size("qk-pos-emb-head-dim").unwrap_or(64));
            config["v_head_dim"] = json!(size("v-head-dim").unwrap_or(128));
            config["routed_scaling_factor"] = json!(self.scores.scale);
            config["num_key_value_heads"] = config["num_attention_heads"].clone();
            config["n_group"] = json!(self.scores.groups.unwrap_or(1));
            config["topk_group"] = json!(self.scores.open_groups.unwrap_or(1));
            config["num_nextn_predict_layers"] = json!(size("mtp-num-layers").unwrap_or(0));
            config.as_object_mut()?.remove("head_dim");
            return (self.scores.is_sigmoid && self.scores.has_bias).then_some("deepseek_v3");
        }
        if self.scores.is_sigmoid || shared.is_some() || self.dense != Some(0) || self.has_qkv_bias {
            return None;
        }
        if self.has_qk_norm {
            config["moe_intermediate_size"] = of_expert;
            config["num_experts"] = json!(experts);
            config["norm_topk_prob"] = json!(!self.scores.is_pre_softmax);
            return Some("qwen3_moe");
        }
        config["intermediate_size"] = of_expert;
        config["num_local_experts"] = json!(experts);
        (!self.scores.is_pre_softmax).then_some("mixtral")
    }
}

/// The number of first layers without experts of `([0]*3+[1]*58)`; `None` if others have none either.
fn first_dense(pattern: &str) -> Option<u64> {
    if pattern == "1" {
        return Some(0);
    }
    let text: String = pattern.chars().filter(|character| !matches!(character, '(' | ')' | ' ' | '\'')).collect();
    let (dense, others) = text.split_once('+')?;
    let count = dense.strip_prefix("[0]")?;
    let count = if count.is_empty() { Some(1) } else { count.strip_prefix('*')?.parse().ok() };
    others.strip_prefix("[1]*").and(count)
}

/// Sizes of flags that contradict a model, as sentences.
pub fn contradictions(sizes: &Sizes, model: &ModelConfig) -> Vec<String> {
    let wrong = sizes.iter().filter_map(|(flag, &stated)| {
        let own = of_model(model, flag)?;
        (own != stated).then(|| format!("--{flag} {stated}: MODEL has {own}"))
    });
    wrong.collect()
}

/// Parts that flags state and a model does not have, as warnings.
pub fn unstated(special: &[(&'static str, Special)], model: &ModelConfig) -> Vec<String> {
    let missing = special.iter().filter(|(_, part)| !part.is_in(model));
    missing.map(|(flag, _)| format!("not modelled: --{flag} states what MODEL does not have")).collect()
}

/// A size of a model by its flag; `None` if the model has no such size.
fn of_model(model: &ModelConfig, flag: &str) -> Option<u64> {
    match model {
        ModelConfig::Llama(config) => of_llama(config, flag),
        ModelConfig::Gpt2(config) => match flag {
            "num-layers" => Some(u64::from(config.layers)),
            "hidden-size" => Some(config.hidden),
            "ffn-hidden-size" => Some(config.feed_forward),
            "num-attention-heads" => Some(config.heads),
            _ => None,
        },
    }
}

fn of_llama(config: &LlamaConfig, flag: &str) -> Option<u64> {
    let (experts, latent) = (config.experts.as_ref(), config.latent.as_ref());
    match flag {
        "num-layers" => Some(u64::from(config.layers)),
        "hidden-size" => Some(config.hidden),
        "num-attention-heads" => Some(config.heads),
        "num-query-groups" if latent.is_none() => Some(config.kv_heads),
        "kv-channels" if latent.is_none() => Some(config.head),
        "ffn-hidden-size" if experts.is_none() => Some(config.feed_forward),
        "num-experts" => Some(experts.map_or(0, |experts| experts.experts)),
        "moe-router-topk" => experts.map(|experts| experts.chosen),
        "moe-ffn-hidden-size" => experts.map(|experts| experts.feed_forward),
        "moe-shared-expert-intermediate-size" => experts.map(|experts| experts.shared),
        "q-lora-rank" => latent.and_then(|latent| latent.query_rank),
        "kv-lora-rank" => latent.map(|latent| latent.key_rank),
        "qk-head-dim" => latent.map(|latent| latent.plain),
        "qk-pos-emb-head-dim" => latent.map(|latent| latent.turned),
        "v-head-dim" => latent.map(|latent| latent.value),
        _ => None,
    }
}
