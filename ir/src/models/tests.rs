//! Families whose layers differ by their place, positions by the length of sequences, and files with more than a text model.

use super::{
    Batch, ConfigError, EmbeddingScale, Growth, LayerSet, LlamaConfig, ModelConfig, Mtp, QkNorm, Temperature, Window,
    from_config, read_config,
};
use crate::graph::{Model, ParamIndex, ResultKind, SectionKind};
use crate::ops::{AttentionSettings, KernelOp, Op, Rope, Scaling};
use crate::types::DType;
use serde_json::{Value, json};

fn joined(family: &str, mut file: Value, more: Value) -> Value {
    let object = file.as_object_mut().expect("an object");
    object.insert("model_type".to_string(), family.into());
    object.extend(more.as_object().expect("an object").clone());
    file
}

/// A small file of a family.
fn small(family: &str, more: Value) -> Value {
    let file = json!({"vocab_size": 32, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 4,
        "num_attention_heads": 2, "num_key_value_heads": 2, "pad_token_id": null});
    joined(family, file, more)
}

fn read(file: &Value) -> LlamaConfig {
    match from_config(&file.to_string()) {
        Ok(ModelConfig::Llama(config)) => config,
        other => panic!("{file}: {other:?}"),
    }
}

fn refused(file: &Value) -> String {
    from_config(&file.to_string()).expect_err("is wrong").to_string()
}

fn built(file: &Value, seq: u64) -> Model {
    let batch = Batch { batch: 1, seq, dtype: DType::F32 };
    from_config(&file.to_string()).and_then(|config| config.build(&batch)).unwrap_or_else(|why| panic!("{file}: {why}"))
}

/// The names of the layers' blocks in order, each once for a run of them.
fn kinds(model: &Model) -> Vec<&str> {
    model.calls.iter().filter(|call| call.repeat.is_some()).map(|call| model.blocks[call.block].name.as_str()).collect()
}

fn ropes<'a>(model: &'a Model, block: &str) -> Vec<&'a Rope> {
    let block = model.blocks.values().find(|found| found.name == block).expect("the block");
    let of = |op: &'a Op| if let Op::Kernel(KernelOp::Rope(rope)) = op { Some(rope) } else { None };
    block[SectionKind::F].stmts.iter().filter_map(|stmt| of(&stmt.op)).collect()
}

fn attention<'a>(model: &'a Model, block: &str) -> &'a AttentionSettings {
    let block = model.blocks.values().find(|found| found.name == block).expect("the block");
    let of = |op: &'a Op| if let Op::Kernel(KernelOp::Attention(op)) = op { Some(&op.0) } else { None };
    block[SectionKind::F].stmts.iter().find_map(|stmt| of(&stmt.op)).expect("an attention")
}

/// Half of a head of 8 turns: two pairs. The growth of the context is 64 / 8, and ln 8 / ln 8 = 1.
#[test]
fn frequencies_depend_on_the_length_of_sequences() {
    let rope = json!({"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0]});
    let more = json!({"rope_scaling": rope, "partial_rotary_factor": 0.5, "original_max_position_embeddings": 8,
        "max_position_embeddings": 64});
    let file = small("phi3", more);
    assert_eq!(read(&file).rotation.gain, 2f64.sqrt());
    let model = built(&file, 8);
    let rope = ropes(&model, "layer")[0];
    let scaling = Scaling::Lengths { short: vec![1.0, 1.5].into(), long: vec![2.0, 4.0].into(), context: 8 };
    assert_eq!((&rope.scaling, rope.turned, rope.gain), (&Some(scaling), Some(4), 2f64.sqrt()));
    let inputs: Vec<&str> = model.inputs.iter().map(|input| model.values[input.value].as_str()).collect();
    assert_eq!(inputs, ["tok", "lab", "pos", "seg", "len"]);
    // Old files have other names of the kind, and others state the growth or the factor.
    let with = |key: &str, value: Value| {
        let mut file = file.clone();
        file["rope_scaling"][key] = value;
        file
    };
    assert_eq!(read(&with("type", json!("su"))), read(&file));
    assert_eq!(read(&with("factor", json!(1.0))).rotation.gain, 1.0);
    assert_eq!(read(&with("attention_factor", json!(1.25))).rotation.gain, 1.25);
    let why = refused(&with("long_factor", json!([2.0])));
    assert!(why.contains("`long_factor`: has 1 numbers, but 2 pairs of a head turn"), "{why}");
    let why = refused(&with("short_factor", json!([1.0, 0.0])));
    assert!(why.contains("`short_factor`: the divisor 0 must be above 0"), "{why}");
}

/// `transformers` multiplies sines and cosines by YaRN's factor, so that scores of layers without positions, or with other ones, lack it.
#[test]
fn the_factor_of_a_rotation_is_that_of_its_layers_alone() {
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "rope_theta": 500.0, "attention_factor": 1.5,
        "original_max_position_embeddings": 8});
    let model = built(&small("smollm3", json!({"rope_parameters": yarn})), 8);
    assert!(ropes(&model, "layer").iter().all(|rope| rope.gain == 1.5) && ropes(&model, "nope").is_empty());
    let root = 8f64.sqrt();
    assert_eq!([attention(&model, "layer").scale, attention(&model, "nope").scale], [1.0 / root; 2]);
    let local = json!({"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0});
    let both = json!({"full_attention": yarn, "sliding_attention": local});
    let gemma = small("gemma3_text", json!({"rope_parameters": both, "head_dim": 8, "sliding_window_pattern": 2}));
    let model = built(&gemma, 8);
    let of = |block| ropes(&model, block).iter().map(|rope| (rope.theta, rope.gain)).collect::<Vec<_>>();
    assert_eq!((of("layer"), of("local")), (vec![(500.0, 1.5); 2], vec![(100.0, 1.0); 2]));
    assert_eq!(ropes(&model, "local")[0].scaling, Some(Scaling::Linear { factor: 2.0 }));
    let llama4 = small("llama4_text", json!({"rope_parameters": yarn, "head_dim": 8, "no_rope_layer_interval": 2}));
    let model = built(&llama4, 8);
    assert!(model.blocks.values().all(|block| !block.name.contains("nope") || ropes(&model, &block.name).is_empty()));
    // Latent attention has the factor on its rotary part, and another one on all scores.
    let rope = json!({"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 8});
    let sizes = json!({"rope_parameters": rope, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "first_k_dense_replace": 1,
        "n_group": 1, "topk_group": 1, "n_routed_experts": 4, "num_experts_per_tok": 2});
    let model = built(&small("deepseek_v3", sizes), 8);
    assert!(ropes(&model, "layer").iter().all(|rope| rope.gain == 1.5));
    let grown = 0.1 * 4f64.ln() + 1.0;
    assert_eq!(attention(&model, "layer").scale, grown * grown / 10f64.sqrt());
}

#[test]
fn layers_without_positions() {
    let model = built(&small("smollm3", json!({})), 8);
    assert_eq!(kinds(&model), ["layer", "nope"]);
    assert_eq!([ropes(&model, "layer").len(), ropes(&model, "nope").len()], [2, 0]);
    let listed = json!({"no_rope_layers": [0, 1, 1, 0], "use_sliding_window": true, "sliding_window": 3});
    let config = read(&small("smollm3", listed));
    assert_eq!(config.nope, LayerSet::Listed(0b1001));
    assert_eq!(config.window, Some(Window { full: LayerSet::Listed(0b0110), ..Window::of_all(3) }));
    let why = refused(&small("smollm3", json!({"no_rope_layers": [1, 1]})));
    assert!(why.contains("`no_rope_layers` has 2 numbers, but `num_hidden_layers` is 4"), "{why}");
}

#[test]
fn llama_4_alternates() {
    let file = |more: Value| {
        let sizes = json!({"head_dim": 8, "intermediate_size_mlp": 24, "num_local_experts": 4, "attention_chunk_size": 4,
            "interleave_moe_layer_step": 2, "attn_temperature_tuning": 4, "no_rope_layers": []});
        small("llama4_text", joined("llama4_text", sizes, more))
    };
    let config = read(&file(json!({})));
    assert_eq!((config.feed_forward, config.qk_norm), (24, QkNorm::Turned));
    assert_eq!(
        config.temperature,
        Some(Temperature { growth: Growth::Steps, every: 8192, by: 0.1, ahead: 1, turned: false })
    );
    let experts = config.experts.expect("experts");
    assert_eq!((experts.feed_forward, experts.shared, experts.chosen, experts.scaled_inputs), (8, 8, 1, true));
    let model = built(&file(json!({})), 8);
    assert_eq!(kinds(&model), ["local_dense", "local", "local_dense", "layer"]);
    assert_eq!([attention(&model, "local").chunk, attention(&model, "layer").chunk], [Some(4), None]);
    assert_eq!([ropes(&model, "local").len(), ropes(&model, "layer").len()], [2, 0]);
    let none = read(&file(json!({"attn_temperature_tuning": false, "moe_layers": []})));
    assert!(none.temperature.is_none() && none.experts.is_none());
    let why = refused(&file(json!({"attention_chunk_size": null})));
    assert!(why.contains("chunked_attention needs an `attention_chunk_size`"), "{why}");
}

/// Each further layer is one more of the last kind, between two blocks of its own.
#[test]
fn further_tokens_are_predicted_by_further_layers() {
    let file = |more: Value| {
        let sizes = json!({"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_group": 1,
            "topk_group": 1, "first_k_dense_replace": 1, "num_nextn_predict_layers": 2});
        small("deepseek_v3", joined("deepseek_v3", sizes, more))
    };
    assert_eq!(read(&file(json!({}))).mtp, Some(Mtp { depth: 2, loss_factor: 0.3 }));
    let model = built(&file(json!({})), 8);
    let calls: Vec<&str> = model.calls.iter().map(|call| model.blocks[call.block].name.as_str()).collect();
    let further = [["mtp", "layer", "mtp_head"], ["mtp_next", "layer", "mtp_head_next"]];
    assert_eq!(calls, [&["embed", "dense", "layer"][..], &further[0], &further[1], &["head"]].concat());
    let layers: Vec<_> = model.calls.iter().filter(|call| model.blocks[call.block].name == "layer").collect();
    let ranges: Vec<_> = layers.iter().filter_map(|call| Some(call.repeat.as_ref()?.range.clone())).collect();
    assert_eq!(ranges, [0..3, 3..4, 4..5]);
    let count = |name: &str| model.params.values().find(|param| param.name == name).and_then(|param| param.count);
    assert_eq!([count("layer"), count("mtp"), count("mtp_head")], [Some(5), Some(2), Some(2)]);
    // The norm of what is given is that of the head before it.
    let second = &model.calls[6].params;
    assert_eq!((second[0].name.as_str(), &second[0].index), ("mtp_head", &ParamIndex::At(0)));
    let results =
        |name: &str| model.blocks.values().find(|block| block.name == name).expect("the block").results.clone();
    assert_eq!([results("mtp_head"), results("head")], [vec![ResultKind::Auxiliary], vec![ResultKind::Loss]]);
    let names: Vec<&str> = model.inputs.iter().map(|input| model.values[input.value].as_str()).collect();
    assert_eq!(names[4..], ["tok1", "lab1", "tok2", "lab2"]);
    for more in [json!({"num_nextn_predict_layers": 0}), json!({"mtp_loss_scaling_factor": 0})] {
        assert_eq!(read(&file(more)).mtp, None);
    }
    assert!(refused(&file(json!({"mtp_loss_scaling_factor": -1.0}))).contains("`mtp_loss_scaling_factor`"));
}

#[test]
fn the_text_model_is_read_of_a_model_that_reads_images() {
    let text = json!({"hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 6, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 32, "model_type": "gemma3_text"});
    let whole = json!({"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": text,
        "vision_config": {"hidden_size": 8}, "mm_tokens_per_image": 4, "eos_token_id": [1], "tie_word_embeddings": false});
    let (config, ignored) = read_config(&whole.to_string()).unwrap();
    let ModelConfig::Llama(config) = config else { panic!("a Gemma") };
    assert_eq!((config.hidden, config.tied, config.embedding_scale), (16, false, EmbeddingScale::Root));
    assert_eq!(ignored, ["mm_tokens_per_image (not of the text model)", "vision_config (not of the text model)"]);
    let with = |key: &str, value: Value| {
        let mut file = whole.clone();
        file[key] = value;
        file
    };
    let missing = from_config(&with("text_config", Value::Null).to_string());
    assert!(matches!(missing, Err(ConfigError::Invalid { field, .. }) if field == "text_config"));
    let why = refused(&with("text_config", json!({"model_type": "llama"})));
    assert!(why.contains("has the `model_type` llama, not gemma3_text"), "{why}");
}

/// The classes write their own defaults into both parts of a file, and each looks at another one.
#[test]
fn the_part_that_counts_says_whether_the_head_is_tied() {
    for (family, tied) in [
        ("gemma3", [false, false, true, true]),
        ("llama4", [false, true, false, true]),
        ("mistral3", [false, true, true, true]),
    ] {
        let of = |whole: bool, text: bool| {
            let text = json!({"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
                "num_hidden_layers": 2, "vocab_size": 32, "pad_token_id": null, "tie_word_embeddings": text});
            read(&json!({"model_type": family, "text_config": text, "tie_word_embeddings": whole})).tied
        };
        assert_eq!([of(false, false), of(false, true), of(true, false), of(true, true)], tied, "{family}");
    }
}

#[test]
fn a_wrong_default_of_a_class_is_told_from_a_field() {
    let file = |more: Value| small("smollm3", more);
    let mut absent = file(json!({}));
    absent.as_object_mut().unwrap().remove("pad_token_id");
    assert!(read(&file(json!({"pad_token_id": null}))).pad.is_none());
    let why = refused(&absent);
    assert!(
        why.contains("`pad_token_id`: 128004 is none of 32 tokens; `SmolLM3Config` has this default, which"),
        "{why}"
    );
    assert!(!refused(&file(json!({"pad_token_id": 99}))).contains("default"));
}

/// Files as the hub has them, with all their keys. Each is read, and what is ignored of it is said.
#[test]
fn published_files_are_read() {
    let common = json!({"architectures": ["X"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "initializer_range": 0.02, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
        "use_cache": true});
    let llama3 = json!({"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"});
    let files = [
        (
            "llama",
            json!({"attention_bias": false, "head_dim": 64, "hidden_size": 2048, "intermediate_size": 8192,
            "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 32, "num_hidden_layers": 16,
            "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-5, "rope_scaling": llama3,
            "rope_theta": 500000.0, "tie_word_embeddings": true, "vocab_size": 128256}),
            vec![],
        ),
        (
            "qwen2",
            json!({"hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 131072,
            "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
            "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
            "use_mrope": false, "use_sliding_window": false, "vocab_size": 152064}),
            vec!["use_mrope"],
        ),
        (
            "qwen3",
            json!({"attention_bias": false, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288,
            "max_position_embeddings": 40960, "max_window_layers": 36, "num_attention_heads": 32,
            "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-6, "rope_scaling": null,
            "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": false,
            "use_sliding_window": false, "vocab_size": 151936}),
            vec![],
        ),
        (
            "phi3",
            json!({"attention_bias": false, "auto_map": {}, "embd_pdrop": 0.0, "full_attn_mod": 1,
            "hidden_size": 3072, "intermediate_size": 8192, "interpolate_factor": 1, "lm_head_bias": false,
            "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 24, "num_hidden_layers": 32,
            "num_key_value_heads": 8, "original_max_position_embeddings": 4096, "pad_token_id": 199999,
            "partial_rotary_factor": 0.75, "resid_pdrop": 0.0, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "rope_scaling": {"long_factor": vec![2.0; 48], "short_factor": vec![1.0; 48], "type": "longrope"},
            "sliding_window": 262144, "tie_word_embeddings": true, "vocab_size": 200064}),
            vec!["full_attn_mod", "interpolate_factor", "lm_head_bias"],
        ),
        (
            "glm4_moe",
            json!({"attention_bias": true, "first_k_dense_replace": 1, "head_dim": 128, "hidden_size": 4096,
            "intermediate_size": 10944, "max_position_embeddings": 131072, "moe_intermediate_size": 1408, "n_group": 1,
            "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 96,
            "num_experts_per_tok": 8, "num_hidden_layers": 46, "num_key_value_heads": 8,
            "num_nextn_predict_layers": 1, "pad_token_id": 151329, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5,
            "rope_scaling": null, "rope_theta": 1000000, "routed_scaling_factor": 1.0, "tie_word_embeddings": false,
            "topk_group": 1, "use_qk_norm": false, "vocab_size": 151552}),
            vec![],
        ),
        (
            "deepseek_v3",
            json!({"attention_bias": false, "auto_map": {}, "ep_size": 1, "first_k_dense_replace": 3,
            "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
            "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
            "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128, "num_experts_per_tok": 8,
            "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "quantization_config": {"fmt": "e4m3"},
            "rms_norm_eps": 1e-6, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
            "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "tie_word_embeddings": false, "topk_group": 4,
            "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 129280}),
            vec![],
        ),
        (
            "smollm3",
            json!({"attention_bias": false, "hidden_size": 2048, "intermediate_size": 11008,
            "layer_types": vec!["full_attention"; 36], "max_position_embeddings": 65536, "max_window_layers": 28,
            "mlp_bias": false, "no_rope_layer_interval": 4, "num_attention_heads": 16, "num_hidden_layers": 36,
            "num_key_value_heads": 4, "pad_token_id": 128004, "pretraining_tp": 2, "rms_norm_eps": 1e-6,
            "rope_scaling": null, "rope_theta": 5000000.0, "sliding_window": null, "use_sliding_window": false,
            "vocab_size": 128256}),
            vec![],
        ),
    ];
    for (family, keys, ignored) in files {
        let file = joined(family, common.clone(), keys).to_string();
        let (_, found) = read_config(&file).unwrap_or_else(|why| panic!("{family}: {why}"));
        assert_eq!(found, ignored, "{family}");
    }
    for family in ["xlstm", "rwkv", "zamba2"] {
        assert!(refused(&json!({"model_type": family})).contains("there is no builder"), "{family}");
    }
}

#[test]
fn the_published_file_of_llama_4_is_read() {
    let text = json!({"model_type": "llama4_text", "attention_bias": false, "attention_chunk_size": 8192,
        "attn_scale": 0.1, "attn_temperature_tuning": true, "cache_implementation": "hybrid", "floor_scale": 8192,
        "for_llm_compressor": false, "head_dim": 128, "hidden_size": 5120, "interleave_moe_layer_step": 1,
        "intermediate_size": 8192, "intermediate_size_mlp": 16384, "no_rope_layers": [], "num_attention_heads": 40,
        "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8, "num_local_experts": 16,
        "output_router_logits": false, "pad_token_id": 200018, "rms_norm_eps": 1e-5, "rope_scaling": {"factor": 16.0,
        "high_freq_factor": 1.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3"}, "rope_theta": 500000.0, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0,
        "use_cache": true, "use_qk_norm": true, "vocab_size": 202048});
    let whole = json!({"model_type": "llama4", "text_config": text, "vision_config": {}, "boi_token_index": 200080,
        "torch_dtype": "bfloat16"});
    let (_, ignored) = read_config(&whole.to_string()).unwrap();
    assert_eq!(ignored, ["boi_token_index (not of the text model)", "vision_config (not of the text model)"]);
}

/// Numbers of layers that no model has are refused before anything goes through all of them.
#[test]
fn depths_are_limited_when_they_are_read() {
    let many = 1u64 << 31;
    for family in ["llama", "gemma3_text", "smollm3", "glm4_moe"] {
        let why = refused(&small(family, json!({"num_hidden_layers": many})));
        assert_eq!(why, format!("`num_hidden_layers` is {many}, more than 1024 layers"), "{family}");
    }
    assert!(refused(&json!({"model_type": "gpt2", "n_layer": many})).contains("more than 1024 layers"));
    let further = small("glm4_moe", json!({"num_nextn_predict_layers": many}));
    assert!(refused(&further).contains("`num_nextn_predict_layers` is 2147483648"), "{}", refused(&further));
}

/// Keys whose values change some parts of the class and not others, or parts that are not built.
#[test]
fn values_that_are_not_built_are_refused() {
    let why = refused(&small("stablelm", json!({"head_dim": 12})));
    assert!(why.contains("`head_dim`: 12 is not supported, only `hidden_size` over the heads"), "{why}");
    let why = refused(&small("hy_v3", json!({"mlp_bias": true, "moe_intermediate_size": 8})));
    assert!(why.contains("`mlp_bias`: true is not supported"), "{why}");
    let compass = json!({"layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"],
        "rope_parameters": {"full_attention": null}});
    let why = refused(&small("cohere_compass_text", compass));
    assert!(why.contains("`rope_parameters`: has no `sliding_attention`"), "{why}");
    let why = refused(&small("moshi", json!({"ffn_dim": 7, "intermediate_size": null})));
    assert!(why.contains("`ffn_dim`: 7 is odd"), "{why}");
}

/// Layers with a window have twice the key and value heads, and sinks; values have a size of their own.
#[test]
fn layers_with_a_window_have_heads_of_their_own() {
    let more = json!({"num_attention_heads": 8, "head_dim": 8, "v_head_dim": 6, "num_hidden_layers": 3, "sliding_window_size": 4,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"], "n_routed_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 8, "partial_rotary_factor": 0.334});
    let file = small("mimo_v2_flash", more);
    let config = read(&file);
    assert_eq!((config.kv_heads, config.local_kv_heads, config.window.unwrap().tokens), (2, Some(4), 5));
    assert_eq!((config.rotation.theta, config.local_rotation.unwrap().theta), (5e6, 1e4));
    let model = built(&file, 8);
    let sizes = |block: &str, name: &str| {
        let block = model.blocks.values().find(|found| found.name == block).expect("the block");
        block.find(name).map(|value| block.ty(value).sizes())
    };
    assert_eq!(sizes("dense", "wk"), Some(vec![16, 2, 8]));
    assert_eq!((sizes("local", "wk"), sizes("local", "wv")), (Some(vec![16, 4, 8]), Some(vec![16, 4, 6])));
    assert_eq!((sizes("local", "sink"), sizes("dense", "sink")), (Some(vec![4, 2]), None));
}
