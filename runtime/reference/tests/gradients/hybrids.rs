//! Models with carried state, tiny: every kind of scan, its convolutions and its norms, with layers of attention between.

use super::assert_gradients;
use super::models::{model_of, spread, tokens};
use ir::optimizer::Optimizer;
use meshwright_reference::Reference;

const QWEN: &str = r#"{"model_type": "qwen3_next", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 10,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
    "layer_types": ["linear_attention", "full_attention"], "linear_conv_kernel_dim": 3, "linear_key_head_dim": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_value_head_dim": 3, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 5, "shared_expert_intermediate_size": 6, "partial_rotary_factor": 0.5}"#;

/// A decay for each element of a key, and latent attention without positions.
const KIMI: &str = r#"{"model_type": "kimi_linear", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 10,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "kv_lora_rank": 5,
    "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 3, "layer_types": ["linear_attention", "full_attention"],
    "mlp_layer_types": ["dense", "dense"], "linear_conv_kernel_dim": 3, "linear_head_dim": 16, "pad_token_id": null, "linear_num_heads": 2,
    "num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 5, "num_shared_experts": 1}"#;

/// Only layers of state, and no networks.
const MAMBA2: &str = r#"{"model_type": "mamba2", "vocab_size": 11, "hidden_size": 6, "num_hidden_layers": 2, "num_heads": 4,
    "head_dim": 3, "expand": 2, "n_groups": 2, "state_size": 4, "conv_kernel": 3}"#;

/// Rows that decay at rates of their own.
const FALCON: &str = r#"{"model_type": "falcon_mamba", "vocab_size": 11, "hidden_size": 6, "intermediate_size": 12,
    "num_hidden_layers": 2, "state_size": 3, "time_step_rank": 2, "conv_kernel": 3}"#;

#[test]
fn models_with_state_follow_central_differences() {
    for (what, config) in [("qwen3_next", QWEN), ("kimi_linear", KIMI), ("mamba2", MAMBA2), ("falcon_mamba", FALCON)] {
        let model = model_of(config, 2, &Optimizer::default());
        let mut reference = Reference::new(&model, 3);
        spread(&mut reference);
        assert_gradients(what, &mut reference, &[tokens(0..2), tokens(2..4)], 5);
    }
}
