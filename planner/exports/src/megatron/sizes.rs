//! Sizes of a model in flags of Megatron-LM.

use super::reader::Reader;
use crate::flag_error::FlagError;
use crate::stated_model::{Looks, Special, SpecialFlag, StatedModel};
use serde_json::{Value, json};

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

/// Flags of parts that no configuration made from flags has.
const SPECIAL: [SpecialFlag; 7] = [
    SpecialFlag { flag: "window-size", part: Special::Window },
    SpecialFlag { flag: "window-attn-skip-freq", part: Special::Window },
    SpecialFlag { flag: "quick-geglu", part: Special::Clamp },
    SpecialFlag { flag: "glu-linear-offset", part: Special::Clamp },
    SpecialFlag { flag: "activation-func-clamp-value", part: Special::Clamp },
    SpecialFlag { flag: "squared-relu", part: Special::SquaredRelu },
    SpecialFlag { flag: "softmax-type", part: Special::Sinks },
];

/// Model of some flags.
pub(super) struct ModelOfFlags {
    pub(super) stated: StatedModel,
    /// The model as the text of a `config.json`, if a family has all of it.
    pub(super) config: Option<String>,
}

/// Reads the model of some flags.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<ModelOfFlags, FlagError> {
    let mut stated = StatedModel::default();
    for flag in SIZES {
        if let Some(size) = reader.number(flag)? {
            stated.put(flag, size);
        }
    }
    let vocabulary = vocabulary(reader)?;
    let positions = match reader.number("max-position-embeddings")? {
        None => reader.number("seq-length")?,
        positions => positions,
    };
    for flag in ["make-vocab-size-divisible-by", "norm-epsilon", "init-method-std", "mtp-loss-scaling-factor"] {
        reader.value(flag)?;
    }
    let traits = Traits::read(reader)?;
    for special in SPECIAL {
        let is_default =
            matches!(reader.values(special.flag), Some([value]) if value == "vanilla" || value.parse() == Ok(0.0));
        if reader.has(special.flag) && !is_default {
            stated.state(special);
        }
    }
    stated.look(Looks {
        vocabulary,
        tied: traits.is_tied,
        gated: traits.is_gated || reader.has("quick-geglu"),
        rotation: traits.has_rotation,
        qk_norm: traits.has_qk_norm || traits.is_latent || reader.has("qk-l2-norm"),
    });
    let vocabulary = vocabulary.filter(|_| !stated.is_special());
    let ends = vocabulary.map(|vocabulary| Ends { vocabulary, positions });
    let config = ends.and_then(|ends| traits.config(&stated, &ends));
    Ok(ModelOfFlags { stated, config: config.map(|config| config.to_string()) })
}

/// Sizes of tables at the ends of a model.
struct Ends {
    vocabulary: u64,
    /// Positions of a table, for a model that learns them.
    positions: Option<u64>,
}

/// The vocabulary that flags state, by a number or by a tokenizer that has one.
fn vocabulary(reader: &mut Reader<'_>) -> Result<Option<u64>, FlagError> {
    let padded = reader.number("padded-vocab-size")?;
    let stated = reader.number("vocab-size")?;
    let of_tokenizer = match reader.value("tokenizer-type")? {
        // The merges of GPT-2 (gpt2-merges.txt), and Llama 2's model.
        Some("GPT2BPETokenizer") => Some(50257),
        Some("Llama2Tokenizer") => Some(32000),
        _ => None,
    };
    Ok(padded.or(stated).or(of_tokenizer))
}

/// Properties of a model besides its sizes.
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
    fn read(reader: &mut Reader<'_>) -> Result<Traits, FlagError> {
        let kind = reader.value("position-embedding-type")?;
        let has_rotation =
            kind.is_some_and(|kind| matches!(kind, "rope" | "yarn")) | reader.has("use-rotary-position-embeddings");
        reader.has("no-position-embedding");
        reader.value("rotary-percent")?;
        let theta = reader.value("rotary-base")?.unwrap_or("10000");
        let theta = theta.parse().map_err(|_| FlagError::Value(format!("--rotary-base {theta}: it takes a number")))?;
        let scale = reader.value("moe-router-topk-scaling-factor")?.unwrap_or("1");
        let scores = Scores {
            is_sigmoid: reader.value("moe-router-score-function")? == Some("sigmoid"),
            is_pre_softmax: reader.has("moe-router-pre-softmax"),
            has_bias: reader.has("moe-router-enable-expert-bias"),
            groups: reader.number("moe-router-num-groups")?,
            open_groups: reader.number("moe-router-group-topk")?,
            scale: scale.parse().map_err(|_| {
                FlagError::Value(format!("--moe-router-topk-scaling-factor {scale}: it takes a number"))
            })?,
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
    fn config(&self, stated: &StatedModel, ends: &Ends) -> Option<Value> {
        let (layers, hidden, heads) =
            (stated.of("num-layers")?, stated.of("hidden-size")?, stated.of("num-attention-heads")?);
        let default = if self.is_gated { hidden * 8 / 3 / 64 * 64 } else { 4 * hidden };
        let mut config = json!({
            "vocab_size": ends.vocabulary, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "intermediate_size": stated.of("ffn-hidden-size").unwrap_or(default), "tie_word_embeddings": self.is_tied,
        });
        if !self.is_gated
            && self.has_bias
            && !self.has_rms_norm
            && !self.has_rotation
            && stated.of("num-experts").is_none()
        {
            let is_gpt2 = self.is_tied && !self.shares_keys;
            return is_gpt2.then(|| {
                json!({
                    "model_type": "gpt2", "vocab_size": ends.vocabulary, "n_embd": hidden, "n_layer": layers, "n_head": heads,
                    "n_inner": config["intermediate_size"], "n_positions": ends.positions,
                })
            });
        }
        if !self.is_gated || self.has_bias || !self.has_rms_norm || !self.has_rotation {
            return None;
        }
        config["rope_theta"] = json!(self.theta);
        config["num_key_value_heads"] = json!(if self.shares_keys { stated.of("num-query-groups")? } else { heads });
        if let Some(head) = stated.of("kv-channels") {
            config["head_dim"] = json!(head);
        }
        let family = match stated.of("num-experts") {
            Some(experts) => self.experts(&mut config, stated, experts)?,
            None if self.is_latent => return None,
            None if self.has_qk_norm => "qwen3",
            None if self.has_qkv_bias => "qwen2",
            None => "llama",
        };
        config["model_type"] = json!(family);
        Some(config)
    }

    /// Puts the keys of experts, and returns the family that has them.
    fn experts(&self, config: &mut Value, stated: &StatedModel, experts: u64) -> Option<&'static str> {
        let of_expert =
            stated.of("moe-ffn-hidden-size").map_or(config["intermediate_size"].clone(), |size| json!(size));
        config["num_experts_per_tok"] = json!(stated.of("moe-router-topk").unwrap_or(2));
        let shared = stated.of("moe-shared-expert-intermediate-size");
        if self.is_latent {
            config["moe_intermediate_size"] = of_expert.clone();
            config["n_routed_experts"] = json!(experts);
            config["n_shared_experts"] = json!(shared.unwrap_or(0) / of_expert.as_u64()?.max(1));
            config["first_k_dense_replace"] = json!(self.dense?);
            config["q_lora_rank"] = json!(stated.of("q-lora-rank"));
            config["kv_lora_rank"] = json!(stated.of("kv-lora-rank").unwrap_or(32));
            config["qk_nope_head_dim"] = json!(stated.of("qk-head-dim").unwrap_or(128));
            config["qk_rope_head_dim"] = json!(stated.of("qk-pos-emb-head-dim").unwrap_or(64));
            config["v_head_dim"] = json!(stated.of("v-head-dim").unwrap_or(128));
            config["routed_scaling_factor"] = json!(self.scores.scale);
            config["num_key_value_heads"] = config["num_attention_heads"].clone();
            config["n_group"] = json!(self.scores.groups.unwrap_or(1));
            config["topk_group"] = json!(self.scores.open_groups.unwrap_or(1));
            config["num_nextn_predict_layers"] = json!(stated.of("mtp-num-layers").unwrap_or(0));
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
    if let Some(list) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).filter(|list| list.contains(','))
    {
        let layers: Vec<&str> = list.split(',').collect();
        let dense = layers.iter().take_while(|layer| **layer == "0").count();
        return layers[dense..].iter().all(|layer| *layer == "1").then_some(dense as u64);
    }
    let (dense, others) = text.split_once('+')?;
    let count = dense.strip_prefix("[0]")?;
    let count = if count.is_empty() { Some(1) } else { count.strip_prefix('*')?.parse().ok() };
    others.strip_prefix("[1]*").and(count)
}
