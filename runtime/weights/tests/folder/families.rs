//! A small configuration of every family, with the options that change the names or shapes of tensors.

/// Keys that all families but those of GPT share.
const COMMON: &str = r#""vocab_size": 32, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2"#;

/// Latent attention and DeepSeek's experts.
const LATENT: &str = r#""vocab_size": 32, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
    "num_attention_heads": 4, "kv_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5,
    "n_routed_experts": 4, "n_shared_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
    "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1"#;

/// Experts of Qwen.
const EXPERTS: &str = r#""num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8"#;

/// The texts of all configurations.
pub(crate) fn all() -> Vec<String> {
    let with = |family: &str, base: &str, more: &str| {
        let more = if more.is_empty() { String::new() } else { format!(", {more}") };
        format!(r#"{{"model_type": "{family}", {base}{more}}}"#)
    };
    let gpt2 = r#""vocab_size": 32, "n_embd": 12, "n_head": 4, "n_layer": 2, "n_positions": 16"#;
    let glm = format!(
        r#"{COMMON}, "head_dim": 6, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
        "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1"#
    );
    let llama4 = r#""head_dim": 6, "intermediate_size_mlp": 24, "num_local_experts": 4, "no_rope_layer_interval": 2"#;
    vec![
        with("llama", COMMON, r#""attention_bias": true, "mlp_bias": true, "head_dim": 6"#),
        with("llama", COMMON, r#""tie_word_embeddings": true, "head_dim": 6"#),
        with("mistral", COMMON, r#""head_dim": 6"#),
        with("qwen2", COMMON, r#""num_hidden_layers": 2, "hidden_size": 16"#),
        with("qwen3", COMMON, r#""head_dim": 6"#),
        with("mixtral", COMMON, r#""num_local_experts": 4, "head_dim": 6"#),
        with("qwen2_moe", COMMON, &format!(r#"{EXPERTS}, "shared_expert_intermediate_size": 10, "hidden_size": 16"#)),
        with("qwen3_moe", COMMON, &format!(r#"{EXPERTS}, "head_dim": 6, "mlp_only_layers": [1]"#)),
        with("deepseek_v2", LATENT, r#""q_lora_rank": null, "topk_method": "group_limited_greedy""#),
        with("deepseek_v3", LATENT, r#""q_lora_rank": 8"#),
        with("deepseek_v3", LATENT, r#""q_lora_rank": 8, "rope_interleave": false"#),
        with("gemma2", COMMON, r#""head_dim": 6, "sliding_window": 4"#),
        with("gemma3_text", COMMON, r#""head_dim": 6, "sliding_window": 4, "sliding_window_pattern": 2"#),
        with("olmo2", COMMON, r#""hidden_size": 16"#),
        with(
            "olmo3",
            COMMON,
            r#""hidden_size": 16, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]"#,
        ),
        with("arcee", COMMON, r#""attention_bias": true, "mlp_bias": true, "head_dim": 6"#),
        with("phi3", COMMON, r#""hidden_size": 16, "pad_token_id": 2"#),
        with("gpt_neox", COMMON, r#""hidden_size": 16, "rotary_pct": 1.0"#)
            .replace(r#", "num_key_value_heads": 2"#, ""),
        with("glm4_moe", &glm, r#""use_qk_norm": true, "attention_bias": true, "partial_rotary_factor": 1.0"#),
        with("gpt_oss", COMMON, r#""num_local_experts": 4, "head_dim": 6, "num_experts_per_tok": 2"#),
        with(
            "glm4_moe",
            &glm,
            r#""num_nextn_predict_layers": 2, "tie_word_embeddings": true, "partial_rotary_factor": 1.0"#,
        ),
        with("deepseek_v3", LATENT, r#""q_lora_rank": 8, "num_nextn_predict_layers": 1"#),
        with("smollm3", COMMON, r#""hidden_size": 16, "no_rope_layers": [0, 1], "pad_token_id": 2"#),
        with("llama4_text", COMMON, llama4),
        with("llama4_text", COMMON, &format!(r#"{llama4}, "attention_bias": true, "interleave_moe_layer_step": 2"#)),
        with("gpt2", gpt2, ""),
        with("gpt2", gpt2, r#""tie_word_embeddings": false, "n_inner": 20"#),
    ]
}
