//! Flags of a model's sizes.

use ir::models::{
    Activation, Balance, BalanceLoss, BalanceScope, Branches, EmbeddingNorm, EmbeddingScale, Experts, Gpt2Config,
    HeadGate, Latent, LayerSet, LlamaConfig, ModelConfig, Norm, Norms, QkNorm, Rotation, Sinks,
};
use ir::ops::Scaling;

/// Flags of a model, and its parts that they do not state.
#[derive(Default)]
pub(super) struct ModelFlags {
    pub(super) flags: Vec<String>,
    /// Parts that Megatron-LM has no flag for, in words.
    pub(super) unstated: Vec<&'static str>,
}

/// The flags of a model for sequences of `seq` tokens.
pub(super) fn flags(model: &ModelConfig, seq: u64) -> ModelFlags {
    let mut flags = ModelFlags::default();
    match model {
        ModelConfig::Llama(config) => flags.llama(config, seq),
        ModelConfig::Gpt2(config) => flags.gpt2(config, seq),
    }
    flags
}

impl ModelFlags {
    fn set(&mut self, flag: &str) {
        self.flags.push(format!("--{flag}"));
    }

    fn set_if(&mut self, wanted: bool, flag: &str) {
        if wanted {
            self.set(flag);
        }
    }

    fn put(&mut self, flag: &str, value: impl std::fmt::Display) {
        self.flags.push(format!("--{flag} {value}"));
    }

    fn lacks(&mut self, has: bool, what: &'static str) {
        if has {
            self.unstated.push(what);
        }
    }

    fn gpt2(&mut self, config: &Gpt2Config, seq: u64) {
        self.put("num-layers", config.layers);
        self.put("hidden-size", config.hidden);
        self.put("ffn-hidden-size", config.feed_forward);
        self.put("num-attention-heads", config.heads);
        self.put("max-position-embeddings", config.positions.unwrap_or(seq).max(seq));
        self.put("position-embedding-type", "learned_absolute");
        self.put("norm-epsilon", config.norm_eps);
        self.put("vocab-size", config.vocabulary);
        self.lacks(config.post_norm, "norms behind the sums");
        // The kernel that adds a bias has GELU by tanh.
        self.set_if(config.exact_gelu, "no-bias-gelu-fusion");
    }

    fn llama(&mut self, config: &LlamaConfig, seq: u64) {
        self.put("num-layers", config.layers);
        self.put("hidden-size", config.hidden);
        self.put("ffn-hidden-size", config.feed_forward);
        self.put("num-attention-heads", config.heads);
        self.put("max-position-embeddings", seq);
        self.put("vocab-size", config.vocabulary);
        let is_layer_norm = matches!(config.norm, Norm::Layer | Norm::LayerUnbiased | Norm::LayerPlain);
        self.put("normalization", if is_layer_norm { "LayerNorm" } else { "RMSNorm" });
        self.lacks(!matches!(config.norm, Norm::Rms | Norm::Layer), "norms without gains or biases");
        self.put("norm-epsilon", config.norm_eps);
        self.put("init-method-std", config.deviation);
        self.set_if(!config.tied, "untie-embeddings-and-output-weights");
        self.activation(config);
        self.biases(config);
        match &config.latent {
            Some(latent) => self.latent(latent, &config.rotation),
            None => self.heads(config),
        }
        self.attention(config);
        if let Some(experts) = &config.experts {
            self.experts(experts, config.layers);
        }
        if let Some(further) = &config.mtp {
            self.put("mtp-num-layers", further.depth);
            self.put("mtp-loss-scaling-factor", further.loss_factor);
        }
        self.lacks(config.norms != Norms::Before, "norms of what branches give, or of sums");
        self.lacks(config.branches != Branches::InTurn, "attention and feed-forward net side by side");
        self.lacks(config.embedding_scale != EmbeddingScale::One, "scaled embeddings");
        self.lacks(config.residual_scale != 1.0 || config.logit_scale != 1.0, "factors of branches or logits");
        let has_inner = config.embedding_norm != EmbeddingNorm::None || config.inner_norms;
        self.lacks(has_inner, "norms of embeddings or within branches");
        self.lacks(config.embedding_size.is_some() || config.head_layer.is_some(), "layers at the ends");
        self.lacks(config.kinds != [0; 2], "kinds of tokens");
        self.lacks(config.unpredicted > 0, "tokens that are read and never predicted");
        self.lacks(!config.causal, "attention that sees later tokens");
        self.lacks(config.cross.is_some(), "parameters of attention to another sequence");
        self.lacks(config.learned.is_some() || config.waves.is_some(), "learned positions, or waves of them");
        self.lacks(config.rotary_table.is_some(), "a table of rotary positions");
        self.lacks(config.head_bias, "a bias of logits");
        self.lacks(config.clip.is_some(), "bounds of queries, keys and values");
        self.lacks(config.head_gate != HeadGate::None, "gates of heads");
        self.lacks(config.scanned.is_some(), "layers that carry a state");
        let branches = [config.still, config.netless];
        self.lacks(branches != [LayerSet::None; 2], "layers of one branch");
        self.lacks(config.key_scale != 1.0 || config.net_scales != [1.0; 2], "factors of keys or nets");
        self.lacks(config.alibi, "biases of scores by distance");
        self.lacks(config.bare_first || config.last_bias, "a layer that differs from the others");
        self.lacks(config.softcap.is_some() || config.logit_softcap.is_some(), "bounds of scores or logits");
        self.lacks(config.score_size.is_some(), "the factor of scores");
        self.lacks(config.local_rotation.is_some(), "a rotation of layers with a window");
        self.lacks(config.temperature.is_some(), "the temperature of attention");
    }

    fn activation(&mut self, config: &LlamaConfig) {
        let clamps = config.experts.as_ref().and_then(|experts| experts.clamp);
        match (config.gated, config.activation, clamps) {
            (true, _, Some(clamp)) => {
                self.set("quick-geglu");
                self.put("activation-func-clamp-value", clamp.limit);
                self.put("glu-linear-offset", "1.0");
            }
            (true, Activation::Silu, None) => self.set("swiglu"),
            (false, Activation::ReluSquared, None) => self.set("squared-relu"),
            (false, Activation::GeluErf, None) => self.set("no-bias-gelu-fusion"),
            (false, Activation::GeluTanh, None) if config.net_bias => {}
            _ => self.unstated.push("its activation"),
        }
    }

    /// Megatron-LM has a bias in all products, or in none but those of queries, keys and values.
    fn biases(&mut self, config: &LlamaConfig) {
        let of_experts = config.experts.as_ref().is_none_or(|experts| experts.biases);
        let has_nets = config.experts.as_ref().is_none_or(|experts| experts.dense != LayerSet::None);
        if config.out_bias && (config.net_bias || !has_nets) && of_experts {
            self.lacks(!config.qkv_bias || config.plain_keys, "products of queries or keys without a bias");
            return;
        }
        self.set("disable-bias-linear");
        self.set_if(config.qkv_bias, "add-qkv-bias");
        self.lacks(config.out_bias || config.net_bias || config.plain_keys, "biases of some products");
        self.lacks(config.experts.as_ref().is_some_and(|experts| experts.biases), "biases of experts");
    }

    fn heads(&mut self, config: &LlamaConfig) {
        if config.kv_heads < config.heads {
            self.set("group-query-attention");
            self.put("num-query-groups", config.kv_heads);
        }
        self.put("kv-channels", config.head);
        self.rotation(&config.rotation, config.head);
    }

    /// The base is a whole number there.
    fn base(&mut self, theta: f64) {
        self.put("rotary-base", theta.round());
        self.lacks(theta.fract() != 0.0, "a base of frequencies that is no whole number");
    }

    fn rotation(&mut self, rotation: &Rotation, head: u64) {
        self.base(rotation.theta);
        if let Some(turned) = rotation.turned {
            self.put("rotary-percent", turned as f64 / head as f64);
        }
        let mut kind = "rope";
        match rotation.scaling {
            None => {}
            Some(Scaling::Llama3 { factor, low: 1.0, high: 4.0, context: 8192 }) => {
                self.set("use-rope-scaling");
                self.put("rope-scaling-factor", factor);
            }
            Some(Scaling::Linear { factor }) if factor.fract() == 0.0 => {
                self.put("rotary-seq-len-interpolation-factor", factor);
            }
            Some(Scaling::Yarn { factor, low, high, context, fractional }) => {
                kind = "yarn";
                self.put("rotary-scaling-factor", factor);
                self.put("yarn-original-max-position-embeddings", context);
                self.put("yarn-beta-fast", high);
                self.put("yarn-beta-slow", low);
                self.set_if(fractional, "no-yarn-correction-range-round-to-int");
            }
            Some(_) => self.unstated.push("the scaling of its rotary frequencies"),
        }
        self.put("position-embedding-type", kind);
    }

    /// Multi-head latent attention has fields of its own for the rotation (`MLATransformerConfig`).
    fn latent(&mut self, latent: &Latent, rotation: &Rotation) {
        self.set("multi-latent-attention");
        if let Some(rank) = latent.query_rank {
            self.put("q-lora-rank", rank);
        }
        self.put("kv-lora-rank", latent.key_rank);
        self.put("qk-head-dim", latent.plain);
        self.put("qk-pos-emb-head-dim", latent.turned);
        self.put("v-head-dim", latent.value);
        self.base(rotation.theta);
        self.put("position-embedding-type", "rope");
        match rotation.scaling {
            None => self.put("rope-type", "rope"),
            Some(Scaling::Yarn { factor, .. }) => {
                self.put("rope-type", "yarn");
                self.put("rotary-scaling-factor", factor);
                let of_scores = latent.score_factor.sqrt();
                self.put("mscale", mscale(rotation.gain * of_scores, factor));
                self.put("mscale-all-dim", mscale(of_scores, factor));
            }
            Some(_) => self.unstated.push("the scaling of its rotary frequencies"),
        }
    }

    fn attention(&mut self, config: &LlamaConfig) {
        match config.qk_norm {
            QkNorm::None => {}
            QkNorm::Heads => self.set("qk-layernorm"),
            QkNorm::Turned => self.set("qk-l2-norm"),
            QkNorm::Whole | QkNorm::HeadsTurned | QkNorm::LayerHeads | QkNorm::LayerEach => {
                self.unstated.push("its norms of queries and keys");
            }
        }
        match config.sinks {
            Sinks::None => {}
            Sinks::All => self.put("softmax-type", "learnable"),
            Sinks::Local => self.unstated.push("its sinks in layers with a window alone"),
        }
        self.lacks(config.local_kv_heads.is_some(), "other numbers of key and value heads in layers with a window");
        self.lacks(config.local_head.is_some(), "other sizes of heads in layers with a window");
        self.lacks(config.keys_are_values || config.value_norm, "values that are keys, or norms of them");
        self.lacks(config.indexer.is_some(), "queries that choose their keys");
        self.lacks(config.layer_scale, "a factor of each layer");
        self.lacks(config.value.is_some(), "values of another size than keys");
        self.lacks(config.value_scale != 1.0, "the factor of values");
        if let Some(window) = config.window {
            self.lacks(window.chunked, "attention in chunks");
            self.put("window-size", format!("'({},0)'", window.tokens.saturating_sub(1)));
            if window.full != LayerSet::None {
                self.put("window-attn-skip-freq", pattern(config.layers, window.full, "0", "1"));
            }
        }
        if config.nope != LayerSet::None {
            self.put("no-rope-freq", pattern(config.layers, config.nope, "1", "0"));
        }
    }

    fn experts(&mut self, experts: &Experts, layers: u32) {
        self.put("num-experts", experts.experts);
        self.put("moe-router-topk", experts.chosen);
        self.put("moe-ffn-hidden-size", experts.feed_forward);
        if experts.dense != LayerSet::None {
            self.put("moe-layer-freq", pattern(layers, experts.dense, "0", "1"));
        }
        if experts.shared > 0 {
            self.put("moe-shared-expert-intermediate-size", experts.shared);
            self.set_if(experts.shared_gate, "moe-shared-expert-gate");
        }
        self.set_if(experts.scaled_inputs, "moe-apply-probs-on-input");
        self.lacks(experts.by_logits, "a choice of experts by logits");
        // Its own jitter is of the router's input alone.
        self.lacks(experts.jitter != 0.0, "jitter that experts see too");
        self.balance(&experts.balance);
        if experts.sigmoid {
            self.put("moe-router-score-function", "sigmoid");
        } else {
            // Megatron-LM's softmax over the chosen logits adds up to 1.
            self.set_if(!experts.renormalise, "moe-router-pre-softmax");
        }
        if experts.bias {
            self.set("moe-router-enable-expert-bias");
        }
        if let Some(limit) = experts.limit {
            self.put("moe-router-num-groups", limit.groups);
            self.put("moe-router-group-topk", limit.from);
        }
        if experts.scale != 1.0 {
            self.put("moe-router-topk-scaling-factor", experts.scale);
        }
    }

    /// Losses and updates that keep routers balanced.
    fn balance(&mut self, balance: &Balance) {
        let kind = match balance.loss {
            None => "none",
            Some(BalanceLoss { scope: BalanceScope::Sequence, .. }) => "seq_aux_loss",
            Some(BalanceLoss { scope: BalanceScope::MicroBatch, .. }) => "aux_loss",
            Some(BalanceLoss { scope: BalanceScope::GlobalBatch, .. }) => "global_aux_loss",
            Some(BalanceLoss { scope: BalanceScope::Layers, .. }) => {
                self.unstated.push("a loss of balance over all layers");
                "none"
            }
        };
        self.put("moe-router-load-balancing-type", kind);
        if let Some(loss) = balance.loss.filter(|_| kind != "none") {
            self.put("moe-aux-loss-coeff", loss.factor);
        }
        if let Some(factor) = balance.z_loss {
            self.put("moe-z-loss-coeff", factor);
        }
        if let Some(rate) = balance.bias_rate {
            self.put("moe-router-bias-update-rate", rate);
        }
    }
}

/// The `mscale` that gives a gain: `0.1 mscale ln(factor) + 1` (`_yarn_get_mscale`, yarn_rotary_pos_embedding.py), to six digits.
pub(crate) fn mscale(gain: f64, factor: f64) -> f64 {
    let exact = if gain == 1.0 { 0.0 } else { (gain - 1.0) / (0.1 * factor.ln()) };
    (exact * 1e6).round() / 1e6
}

/// A list of Python with a word for each layer of a set, and another one for the others: `'[0]*3+[1]*58'`.
fn pattern(layers: u32, set: LayerSet, within: &str, others: &str) -> String {
    let mut runs: Vec<(&str, u32)> = Vec::new();
    for layer in 0..layers {
        let word = if set.contains(layer) { within } else { others };
        match runs.last_mut() {
            Some((last, count)) if *last == word => *count += 1,
            _ => runs.push((word, 1)),
        }
    }
    let runs: Vec<String> = runs.into_iter().map(|(word, count)| format!("[{word}]*{count}")).collect();
    format!("'({})'", runs.join("+"))
}
