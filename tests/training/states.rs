//! States that layers carry along a sequence, on ranks that share it: the numbers of one device, with several documents in a sequence.

use crate::as_alone::trains_as_alone;
use crate::meshes::record::{Record, sgd};
use crate::meshes::trained::alone;
use crate::meshes::training::Recipe;
use ir::models::from_config;
use ir::optimizer::Optimizer;
use std::sync::LazyLock;

/// Sequences of a micro-batch over all ranks: four micro-batches a step.
const SEQUENCES: u64 = 4;

/// A delta rule with a decay for each head, and attention; with experts.
const DELTA: &str = r#"{"model_type": "qwen3_next", "layer_types": ["linear_attention", "full_attention"],
    "intermediate_size": 40, "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 4,
    "partial_rotary_factor": 0.5, "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 6, "linear_value_head_dim": 4,
    "linear_conv_kernel_dim": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16"#;

/// A delta rule with a decay for each row of a state.
const BY_KEY: &str = r#"{"model_type": "kimi_linear", "layer_types": ["linear_attention", "full_attention"], "pad_token_id": null,
    "intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 4, "kv_lora_rank": 8,
    "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4, "mlp_layer_types": ["dense", "dense"],
    "linear_conv_kernel_dim": 3, "linear_head_dim": 6, "linear_num_heads": 4, "num_experts": 4,
    "num_experts_per_token": 2, "moe_intermediate_size": 16, "num_shared_experts": 1"#;

/// A decay for each head.
const HEADS: &str = r#"{"model_type": "mamba2", "num_heads": 16, "head_dim": 6, "expand": 2, "n_groups": 4, "state_size": 6,
    "conv_kernel": 4"#;

/// Rates for each row of a state.
const RATES: &str = r#"{"model_type": "falcon_mamba", "intermediate_size": 96, "state_size": 4, "time_step_rank": 3,
    "conv_kernel": 4"#;

/// Convolutions between gates, and attention.
const CONV: &str = r#"{"model_type": "lfm2", "layer_types": ["conv", "full_attention"], "pad_token_id": null,
    "num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 48, "conv_L_cache": 3"#;

fn recipes() -> Vec<Recipe> {
    let recipe = |config: &str| {
        let common = r#""vocab_size": 257, "hidden_size": 48, "num_hidden_layers": 2, "initializer_range": 0.1}"#;
        let config = from_config(&format!("{config}, {common}")).expect("a model");
        Recipe { config, optimizer: sgd(), lr: 0.1, steps: 3, precision: "f32" }
    };
    let mut recipes: Vec<Recipe> = [DELTA, BY_KEY, HEADS, RATES, CONV].map(recipe).into();
    recipes[2].optimizer = Optimizer { clip: Some(0.5), ..Optimizer::default() };
    recipes[2].lr = 5e-3;
    recipes
}

/// Every recipe on one device.
static ALONE: LazyLock<Vec<(Recipe, Record)>> = LazyLock::new(|| alone(recipes(), SEQUENCES));

fn trains_as_on_one_device(meshes: &[&str]) {
    trains_as_alone(&ALONE, meshes, SEQUENCES);
}

#[test]
fn ranks_hand_on_states() {
    trains_as_on_one_device(&["cp=2", "cp=4"]);
}

#[test]
fn whatever_attention_exchanges() {
    trains_as_on_one_device(&["cp=2,cp_kind=ring", "cp=4,cp_kind=ulysses", "cp=4,cp_kind=ring"]);
}

#[test]
fn beside_other_axes() {
    trains_as_on_one_device(&[
        "cp=2,tp=2",
        "cp=2,tp=2,sp=true,zero=1",
        "dp=2,cp=2,zero=3",
        "dp=2,cp=2,tp=2,sp=true,zero=2,recompute=full",
        "cp=2,pp=2,schedule=zb-h1",
        "cp=2,recompute=selective:core_attn+mlp",
    ]);
}
