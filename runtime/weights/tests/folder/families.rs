//! A small configuration of every family, with the options that change the names or shapes of tensors.

use ir::models::{FAMILIES, Family, small};

/// Keys that all families but those of GPT share.
const COMMON: &str = r#""vocab_size": 32, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2"#;

/// Latent attention and DeepSeek's experts.
const LATENT: &str = r#""vocab_size": 32, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
    "num_attention_heads": 4, "kv_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5,
    "n_routed_experts": 4, "n_shared_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
    "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1"#;

/// Latent attention without experts.
const LATENT_ALONE: &str = r#""vocab_size": 32, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
    "v_head_dim": 5"#;

/// An indexer of keys.
const INDEXER: &str = r#""q_lora_rank": 8, "index_topk": 4, "index_n_heads": 3, "index_head_dim": 6"#;

/// Experts of Qwen.
const EXPERTS: &str = r#""num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8"#;

/// A configuration of a family.
fn with(family: &str, base: &str, more: &str) -> String {
    let more = if more.is_empty() { String::new() } else { format!(", {more}") };
    format!(r#"{{"model_type": "{family}", {base}{more}}}"#)
}

/// Families of Llama's kind without experts.
fn dense() -> Vec<String> {
    let windows = r#""hidden_size": 16, "sliding_window": 4"#;
    vec![
        with("granite", COMMON, r#""hidden_size": 16, "attention_bias": true, "mlp_bias": true"#),
        with("granite_swa", COMMON, windows),
        with("hyperclovax", COMMON, r#""head_dim": 6"#),
        with("cohere", COMMON, r#""hidden_size": 16, "use_qk_norm": true, "attention_bias": true"#),
        with("cohere2", COMMON, windows),
        with("olmo", COMMON, r#""hidden_size": 16"#),
        with("exaone", COMMON, r#""head_dim": 6"#),
        with("exaone4", COMMON, windows),
        with("glm", COMMON, r#""head_dim": 8, "pad_token_id": 2"#),
        with("glm4", COMMON, r#""head_dim": 8, "pad_token_id": 2"#),
        with("ernie4_5", COMMON, r#""head_dim": 6, "use_bias": true"#),
        with("internlm3", COMMON, r#""head_dim": 6"#),
        with("iquestcoder", COMMON, r#""head_dim": 6"#),
        with("seed_oss", COMMON, r#""head_dim": 6, "attention_out_bias": true, "mlp_bias": true"#),
        with("helium", COMMON, r#""head_dim": 6"#),
        with("ministral", COMMON, r#""head_dim": 6, "sliding_window": 4"#),
        with("cwm", COMMON, r#""head_dim": 6, "sliding_window": 4"#),
        with("jais2", COMMON, r#""hidden_size": 16"#),
        with("nemotron", COMMON, r#""head_dim": 8, "mlp_bias": true"#),
        with("gemma", COMMON, r#""head_dim": 6"#),
        with("vaultgemma", COMMON, r#""head_dim": 6, "sliding_window": 4"#),
        with("starcoder2", COMMON, r#""hidden_size": 16"#),
        with("phi", COMMON, r#""hidden_size": 16, "qk_layernorm": true"#),
        with("stablelm", COMMON, r#""hidden_size": 32, "use_qkv_bias": true"#),
        with("apertus", COMMON, r#""hidden_size": 16, "pad_token_id": 2"#),
        with("hunyuan_v1_dense", COMMON, r#""head_dim": 6"#),
        with("apertus1p5_text", COMMON, r#""hidden_size": 16, "pad_token_id": 2"#),
        with("nanochat", COMMON, r#""hidden_size": 16, "pad_token_id": 2"#),
        with("bitnet", COMMON, r#""hidden_size": 16"#),
        with("ministral3", COMMON, r#""head_dim": 6, "pad_token_id": 2"#),
        with("persimmon", COMMON, r#""hidden_size": 16"#).replace(r#", "num_key_value_heads": 2"#, ""),
    ]
}

/// Families of Llama's kind with experts.
fn sparse() -> Vec<String> {
    let local = r#""num_local_experts": 4, "num_experts_per_tok": 2, "hidden_size": 16"#;
    let routed =
        r#""n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 8"#;
    let windows = r#""num_hidden_layers": 4, "sliding_window": 4, "head_dim": 6"#;
    vec![
        with("granitemoe", COMMON, local),
        with("granitemoeshared", COMMON, &format!(r#"{local}, "shared_intermediate_size": 10"#)),
        with("granitemoe_swa", COMMON, &format!(r#"{local}, "shared_intermediate_size": 10, "sliding_window": 4"#)),
        with("minimax_m2", COMMON, &format!(r#"{local}, "head_dim": 8, "rotary_dim": 4"#)),
        with("dots1", COMMON, &format!(r#"{routed}, "head_dim": 6, "first_k_dense_replace": 1"#)),
        with("olmoe", COMMON, &format!(r#"{EXPERTS}, "hidden_size": 16"#))
            .replace(r#", "moe_intermediate_size": 8"#, ""),
        with(
            "flex_olmo",
            COMMON,
            r#""num_experts": 4, "num_experts_per_tok": 2, "hidden_size": 16, "pad_token_id": 2"#,
        ),
        with("exaone_moe", COMMON, &format!(r#"{EXPERTS}, {windows}, "n_group": 2"#)),
        with("glm4_moe_lite", &LATENT.replace(r#""first_k_dense_replace": 1, "#, ""), r#""q_lora_rank": 8"#),
        with(
            "ernie4_5_moe",
            COMMON,
            r#""hidden_size": 16, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 8, "moe_num_shared_experts": 1"#,
        ),
        with("afmoe", COMMON, &format!(r#"{EXPERTS}, {windows}, "num_shared_experts": 1"#)),
        with("solar_open", COMMON, &format!(r#"{routed}, "head_dim": 6"#)).replace(r#""intermediate_size": 20, "#, ""),
        with("hy_v3", COMMON, &format!(r#"{EXPERTS}, "head_dim": 6"#)),
        with("aria_text", COMMON, r#""moe_num_experts": 4, "moe_topk": 2, "head_dim": 6"#),
        with("flint", COMMON, &format!(r#"{EXPERTS}, {windows}, "shared_expert_intermediate_size": 10"#)),
        with("kolibri1", COMMON, &format!(r#"{EXPERTS}, {windows}, "shared_expert_intermediate_size": 10"#))
            .replace(r#""intermediate_size": 20, "#, ""),
        with("mellum", COMMON, &format!(r#"{EXPERTS}, "head_dim": 6"#)),
        with("hunyuan_v1_moe", COMMON, r#""num_experts": 4, "moe_topk": 2, "head_dim": 6"#),
    ]
}

/// Families with learned positions, and others of the years before Llama.
fn early() -> Vec<String> {
    let gpt = r#""vocab_size": 32, "n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 16"#;
    let falcon = r#""vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4"#;
    let opt = r#""vocab_size": 32, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 16"#;
    let neo = r#""vocab_size": 32, "hidden_size": 12, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 16"#;
    vec![
        with("gptj", gpt, r#""rotary_dim": 4"#),
        with("gpt_bigcode", gpt, ""),
        with("gpt_neo", neo, r#""window_size": 4, "attention_types": [[["global", "local"], 1]]"#),
        with("opt", opt, r#""ffn_dim": 20"#),
        with("biogpt", opt, r#""intermediate_size": 20"#),
        with("youtu", LATENT_ALONE, r#""q_lora_rank": 8"#),
        with("minicpm3", LATENT_ALONE, r#""q_lora_rank": 8"#),
        with("falcon", falcon, ""),
        with("falcon", falcon, r#""new_decoder_architecture": true, "num_kv_heads": 2, "bias": true"#),
    ]
}

/// BERT and its likes.
fn berts() -> Vec<String> {
    let bert = r#""vocab_size": 32, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20,
        "max_position_embeddings": 20"#;
    let modern = r#""head_dim": 6, "pad_token_id": 2, "local_attention": 8, "num_hidden_layers": 4, "norm_bias": true"#;
    vec![
        with("bert", bert, r#""is_decoder": true"#),
        with("bert-generation", bert, ""),
        with("roberta", bert, ""),
        with("camembert", bert, ""),
        with("data2vec-text", bert, ""),
        with("xlm-roberta", bert, ""),
        with("electra", bert, r#""embedding_size": 6"#),
        with("electra", bert, r#""embedding_size": 12, "tie_word_embeddings": false"#),
        with("ernie", bert, r#""use_task_id": true"#),
        with("megatron-bert", bert, ""),
        with("rembert", bert, r#""input_embedding_size": 6, "output_embedding_size": 10"#),
        with("roberta-prelayernorm", bert, ""),
        with("xlm-roberta-xl", bert, ""),
        with(
            "roformer",
            &bert.replace(r#""num_attention_heads": 4"#, r#""num_attention_heads": 2"#),
            r#""embedding_size": 6"#,
        ),
        with("modernbert-decoder", COMMON, modern)
            .replace(r#", "num_key_value_heads": 2"#, "")
            .replace(r#""head_dim": 6, "#, r#""hidden_size": 16, "#),
    ]
}

/// Decoders of models with an encoder.
fn decoders() -> Vec<String> {
    let bart = r#""vocab_size": 32, "d_model": 12, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 20,
        "pad_token_id": 1"#;
    let positions = r#""max_position_embeddings": 16"#;
    let mut all = vec![
        with("whisper", bart, r#""max_target_positions": 16"#),
        with("trocr", bart, &format!(r#"{positions}, "cross_attention_hidden_size": 10"#)),
        with("bigbird_pegasus", bart, &format!(r#"{positions}, "use_bias": true"#)),
    ];
    let plain =
        ["bart", "plbart", "mbart", "mvp", "blenderbot", "blenderbot-small", "bigbird_pegasus", "pegasus", "marian"];
    all.extend(plain.map(|family| with(family, bart, positions)));
    all
}

/// Families whose layers carry a state.
fn scanned() -> Vec<String> {
    let delta = r#""head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6,
        "linear_value_head_dim": 4, "layer_types": ["linear_attention", "full_attention"]"#;
    let mamba = r#""hidden_size": 16, "pad_token_id": 2, "mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_d_state": 6,
        "mamba_proj_bias": true"#;
    let alone = r#""vocab_size": 32, "hidden_size": 12, "num_hidden_layers": 2"#;
    let ssd = r#""num_heads": 4, "head_dim": 6, "n_groups": 2, "state_size": 6, "use_bias": true"#;
    let shared = r#""shared_expert_intermediate_size": 10"#;
    let conv = r#""hidden_size": 16, "pad_token_id": 2, "layer_types": ["conv", "full_attention"], "conv_bias": true"#;
    let kimi = LATENT.replace(r#""n_routed_experts": 4, "n_shared_experts": 2, "#, r#""num_experts": 4, "#);
    let nemotron = r#""mamba_num_heads": 4, "mamba_head_dim": 6, "ssm_state_size": 6, "n_groups": 2, "head_dim": 6,
        "n_routed_experts": 4, "moe_intermediate_size": 8, "moe_shared_expert_intermediate_size": 10"#;
    let jamba = r#""hidden_size": 16, "pad_token_id": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 6,
        "num_experts": 4, "mamba_proj_bias": true"#;
    vec![
        with("qwen3_next", COMMON, &format!("{EXPERTS}, {delta}, {shared}")),
        with("qwen3_5_text", COMMON, delta),
        with("qwen3_5_moe_text", COMMON, &format!("{EXPERTS}, {delta}, {shared}")),
        with("olmo_hybrid", COMMON, &delta.replace(r#""head_dim": 8, "#, r#""hidden_size": 16, "pad_token_id": 2, "#)),
        with(
            "kimi_linear",
            &kimi,
            r#""linear_num_heads": 2, "linear_head_dim": 6, "layer_types": ["linear_attention", "full_attention"], "pad_token_id": 2"#,
        ),
        with("mamba", alone, r#""state_size": 6, "use_bias": true"#),
        with("falcon_mamba", alone, r#""state_size": 6"#),
        with("jamba", COMMON, jamba),
        with("mamba2", alone, ssd),
        with("bamba", COMMON, &format!(r#"{mamba}, "attn_layer_indices": [1]"#)),
        with(
            "granitemoehybrid",
            COMMON,
            &format!(r#"{mamba}, "num_local_experts": 4, "layer_types": ["linear_attention", "full_attention"]"#),
        ),
        with("falcon_h1", COMMON, &format!(r#"{mamba}, "mamba_d_ssm": 24, "mamba_rms_norm": true"#)),
        with("nemotron_h", COMMON, nemotron),
        with("lfm2", COMMON, conv),
        with("lfm2_moe", COMMON, &format!(r#"{EXPERTS}, {conv}, "num_dense_layers": 1"#)),
    ]
}

/// Families with parts of their own.
fn further() -> Vec<String> {
    let gpt = r#""vocab_size": 32, "n_embd": 16, "n_head": 4, "n_layer": 2, "n_positions": 16"#;
    let waved = r#""vocab_size": 32, "d_model": 12, "num_layers": 2, "attention_heads": 4, "ffn_dim": 20"#;
    let routed = r#""n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "head_dim": 6"#;
    let cohere = r#""num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 1, "head_dim": 6, "first_k_dense_replace": 1"#;
    let laguna = format!(r#"{EXPERTS}, "head_dim": 8, "shared_expert_intermediate_size": 10"#);
    vec![
        with("codegen", gpt, r#""rotary_dim": 4"#),
        with("openai-gpt", gpt, ""),
        with("ctrl", gpt, r#""dff": 20"#),
        with("xglm", waved, ""),
        with("emu3_text_model", COMMON, r#""hidden_size": 16, "pad_token_id": 2"#),
        with("sarvam_mla", LATENT, ""),
        with("sarvam_moe", COMMON, &format!(r#"{routed}, "first_k_dense_replace": 1, "use_qk_norm": true"#)),
        with("axk1", &LATENT.replace(r#""first_k_dense_replace": 1, "#, ""), r#""q_lora_rank": 8"#),
        with("cohere2_moe", COMMON, cohere),
        with(
            "cohere2_moe",
            COMMON,
            &format!(r#"{cohere}, "rms_norm_eps": 1e-5, "prefix_dense_intermediate_size": 10"#),
        ),
        with("bloom", gpt, "").replace("n_embd", "hidden_size").replace(r#", "n_positions": 16"#, ""),
        with("mpt", r#""vocab_size": 32, "d_model": 12, "n_heads": 6, "n_layers": 2"#, ""),
        with("gpt_neox_japanese", COMMON, r#""hidden_size": 16, "intermediate_multiple_size": 2"#)
            .replace(r#", "num_key_value_heads": 2"#, "")
            .replace(r#""intermediate_size": 20, "#, ""),
        with("laguna", COMMON, &laguna),
        with(
            "dbrx",
            r#""vocab_size": 32, "d_model": 16, "n_heads": 4, "n_layers": 2"#,
            r#""attn_config": {"kv_n_heads": 2}"#,
        ),
        with(
            "laguna",
            COMMON,
            &format!(r#"{laguna}, "gating": "per-element", "layer_types": ["full_attention", "sliding_attention"]"#),
        ),
    ]
}

/// Families with an embedding, names or heads of a kind of their own.
fn latest() -> Vec<String> {
    let moshi =
        r#""vocab_size": 32, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 20"#;
    let xlm = r#""vocab_size": 32, "emb_dim": 12, "n_layers": 2, "n_heads": 2, "max_position_embeddings": 16"#;
    let types = r#""sliding_window": 4, "layer_types": ["full_attention", "sliding_attention"]"#;
    let compass = r#""rope_parameters": {"full_attention": null, "sliding_attention": {"rope_type": "default"}}"#;
    let mimo = r#""num_attention_heads": 8, "head_dim": 6, "v_head_dim": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 8, "pad_token_id": 2"#;
    vec![
        with("moshi", moshi, ""),
        with("xlm", xlm, ""),
        with("xlm", xlm, r#""tie_word_embeddings": false"#),
        with("cohere_compass_text", COMMON, &format!(r#"{types}, {compass}, "head_dim": 6"#)),
        with("mimo_v2_flash", COMMON, &format!("{types}, {mimo}")),
        with("mimo_v2_flash", COMMON, &format!(r#"{types}, {mimo}, "attention_bias": true, "v_head_dim": 6"#)),
    ]
}

/// The texts of all configurations.
pub(crate) fn all() -> Vec<String> {
    let listed = [dense(), sparse(), early(), berts(), decoders(), scanned(), further(), latest(), first()].concat();
    let is_listed = |family: &&Family| {
        let stated = format!(r#""model_type": "{}""#, family.model_type);
        listed.iter().any(|config| config.contains(&stated))
    };
    let others = FAMILIES.iter().filter(|family| !is_listed(family)).map(at_defaults).collect();
    [listed, others].concat()
}

/// A small model of a family at the defaults of its class.
fn at_defaults(family: &Family) -> String {
    let file = serde_json::Map::from_iter([("model_type".to_string(), family.model_type.into())]);
    let small = small(&file, 8).unwrap_or_else(|why| panic!("{}: {why}", family.model_type));
    serde_json::to_string_pretty(&small).expect("an object of JSON")
}

/// The families that came first here.
fn first() -> Vec<String> {
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
        with("deepseek_v32", LATENT, &format!(r#"{INDEXER}, "num_nextn_predict_layers": 1"#)),
        with("glm_moe_dsa", LATENT, &format!(r#"{INDEXER}, "indexer_types": ["full", "shared"]"#)),
        with("gemma2", COMMON, r#""head_dim": 6, "sliding_window": 4"#),
        with("gemma3_text", COMMON, r#""head_dim": 6, "sliding_window": 4, "sliding_window_pattern": 2"#),
        with("gemma4_unified_text", COMMON, r#""head_dim": 6, "global_head_dim": 8, "sliding_window": 4"#),
        with(
            "gemma4_text",
            COMMON,
            r#""head_dim": 6, "global_head_dim": 8, "sliding_window": 4, "vocab_size_per_layer_input": 32,
            "hidden_size_per_layer_input": 8"#,
        ),
        with(
            "gemma4_unified_text",
            COMMON,
            r#""head_dim": 6, "global_head_dim": 8, "attention_k_eq_v": true, "num_global_key_value_heads": 1,
            "layer_types": ["sliding_attention", "full_attention"]"#,
        ),
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
