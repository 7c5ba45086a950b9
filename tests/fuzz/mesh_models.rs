//! Small models of many kinds, and how each is trained on one device: what a run on a mesh is compared with.

use crate::models::{self, merged};
use crate::random::Random;
use serde_json::{Value, json};
use std::fmt;

/// Random models of the families that have rules of their own.
const RANDOM: u64 = 24;

/// A model and its optimizer.
pub(crate) struct Recipe {
    /// The text of a `config.json`, perhaps with adapters behind it.
    pub(crate) model: String,
    pub(crate) optimizer: &'static str,
    pub(crate) lr: f64,
}

impl Recipe {
    fn new(model: impl ToString, optimizer: &'static str) -> Recipe {
        let lr = if optimizer == "sgd" { 0.1 } else { 2e-3 };
        Recipe { model: model.to_string(), optimizer, lr }
    }

    /// True if tokens choose experts.
    pub(crate) fn has_experts(&self) -> bool {
        self.model.contains("experts_per_tok")
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recipe { model, optimizer, lr } = self;
        write!(f, "train '{model}' --optimizer {optimizer} --lr {lr}")
    }
}

/// All recipes, in the order of their numbers.
pub(crate) fn all() -> Vec<Recipe> {
    let mut recipes = listed();
    let random =
        |seed| Recipe::new(models::random(&mut Random::new(seed)), ["sgd", "adamw", "muon"][seed as usize % 3]);
    recipes.extend((0..RANDOM).map(random));
    let optimizers = ["sgd", "adamw", "muon"].into_iter().cycle();
    recipes
        .extend(models::others().into_iter().zip(optimizers).map(|(model, optimizer)| Recipe::new(model, optimizer)));
    recipes
}

/// One of each kind: heads enough for every degree, and layers for eight stages.
fn listed() -> Vec<Recipe> {
    let base = json!({"vocab_size": 257, "max_position_embeddings": 64, "hidden_size": 24, "intermediate_size": 26,
        "num_hidden_layers": 6, "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 4,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "initializer_range": 0.1});
    let of = |family: &str, fields: Value| merged(&merged(&base, &json!({"model_type": family})), &fields);
    let gpt2 = |dropout: f64| {
        json!({"model_type": "gpt2", "vocab_size": 257, "n_positions": 64, "n_embd": 24, "n_layer": 6, "n_head": 12,
            "embd_pdrop": dropout, "attn_pdrop": dropout, "resid_pdrop": dropout, "initializer_range": 0.1})
    };
    let llama = || of("llama", json!({}));
    let experts = json!({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16});
    let dropping = json!({"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": null,
        "capacity_factor": 1.5, "routing_group": 12, "num_hidden_layers": 3, "router_jitter_noise": 0.2});
    vec![
        Recipe::new(llama(), "sgd"),
        Recipe::new(llama(), "adamw"),
        Recipe::new(of("llama", json!({"tie_word_embeddings": true})), "muon"),
        Recipe::new(format!("{}+lora=4", llama()), "adamw"),
        Recipe::new(format!("{}+lora=4,alpha=2,q,v", llama()), "sgd"),
        Recipe::new(gpt2(0.0), "sgd"),
        Recipe::new(gpt2(0.1), "adamw"),
        Recipe::new(of("mistral", json!({"sliding_window": 10})), "sgd"),
        Recipe::new(
            of(
                "gemma2",
                json!({"sliding_window": 10, "query_pre_attn_scalar": 4,
            "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}),
            ),
            "sgd",
        ),
        Recipe::new(of("mixtral", dropping), "sgd"),
        Recipe::new(of("qwen3_moe", merged(&experts, &json!({"norm_topk_prob": true, "num_hidden_layers": 3}))), "sgd"),
        Recipe::new(latent(&of("deepseek_v3", json!({"num_hidden_layers": 3, "num_nextn_predict_layers": 1}))), "sgd"),
        Recipe::new(
            latent(&of("deepseek_v3", json!({"num_hidden_layers": 2, "num_nextn_predict_layers": 2}))),
            "adamw",
        ),
    ]
}

/// A model of DeepSeek's kind, with two further layers of tokens at most.
fn latent(model: &Value) -> Value {
    let fields = json!({"kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
        "v_head_dim": 8, "num_key_value_heads": 12, "n_routed_experts": 4, "n_shared_experts": 1,
        "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1, "n_group": 2,
        "topk_group": 1, "routed_scaling_factor": 1.5, "norm_topk_prob": true});
    merged(model, &fields)
}
