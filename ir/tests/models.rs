//! Model families: published sizes, configurations read and refused, structure of what is built.

use meshwright_ir::graph::{ArgKind, Init, Model, SectionKind, Stmt};
use meshwright_ir::models::{
    Batch, ConfigError, Experts, LayerSet, LlamaConfig, ModelConfig, Window, from_config, preset, presets, read_config,
};
use meshwright_ir::ops::{Dropout, GroupLimit, KernelOp, Op, Rope, Scaling};
use meshwright_ir::types::DType;
use serde_json::{Value, json};

const BATCH: Batch = Batch { batch: 2, seq: 16, dtype: DType::F32 };

fn built(name: &str) -> Model {
    preset(name).unwrap().config.build(&BATCH).unwrap()
}

/// Sizes as the model cards and `transformers` count them; a tied matrix counts once.
#[test]
fn parameter_counts_are_the_published_ones() {
    let published = [
        ("gpt2", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        ("llama2-7b", 6_738_415_616),
        ("llama3-8b", 8_030_261_248),
        ("llama3.1-70b", 70_553_706_496),
        ("llama3.1-405b", 405_853_388_800),
        ("llama2-13b", 13_015_864_320),
        ("llama2-70b", 68_976_648_192),
        ("llama3.2-1b", 1_235_814_400),
        ("llama3.2-3b", 3_212_749_824),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-14b", 14_770_033_664),
        ("qwen2.5-32b", 32_763_876_352),
        ("qwen2.5-72b", 72_706_203_648),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-1.7b", 1_720_574_976),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-14b", 14_768_307_200),
        ("qwen3-32b", 32_762_123_264),
        ("mixtral-8x7b", 46_702_792_704),
        ("mixtral-8x22b", 140_620_634_112),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("qwen3-235b-a22b", 235_093_634_560),
        ("deepseek-v2-lite", 15_706_484_224),
        ("deepseek-v2", 235_741_434_880),
        ("deepseek-v3", 671_026_419_200),
        ("deepseek-v3.2", 671_877_944_064),
        ("gemma2-2b", 2_614_341_888),
        ("gemma2-9b", 9_241_705_984),
        ("gemma2-27b", 27_227_128_320),
        ("gemma3-270m", 268_098_176),
        ("gemma3-1b", 999_885_952),
        ("gemma3-4b", 3_880_263_168),
        ("gemma3-12b", 11_766_034_176),
        ("gemma3-27b", 27_009_346_304),
        ("mistral-7b", 7_241_732_096),
        ("mistral-7b-v0.3", 7_248_023_552),
        ("mistral-nemo-12b", 12_247_782_400),
        ("mistral-small-24b", 23_572_403_200),
        ("mistral-large-123b", 122_610_069_504),
        ("olmo2-1b", 1_484_916_736),
        ("olmo2-7b", 7_298_617_344),
        ("olmo2-13b", 13_716_198_400),
        ("olmo2-32b", 32_234_279_936),
        ("phi3-mini", 3_821_079_552),
        ("phi3-medium", 13_960_238_080),
        ("phi4", 14_659_507_200),
        ("gpt-neox-20b", 20_554_567_680),
        ("pythia-160m", 162_322_944),
        ("pythia-410m", 405_334_016),
        ("pythia-1b", 1_011_781_632),
        ("pythia-1.4b", 1_414_647_808),
        ("pythia-2.8b", 2_775_208_960),
        ("pythia-6.9b", 6_857_302_016),
        ("pythia-12b", 11_846_072_320),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-1.5b", 1_543_714_304),
        ("qwen2.5-3b", 3_085_938_688),
        ("qwen1.5-moe-a2.7b", 14_315_784_192),
        ("qwen2-57b-a14b", 57_408_658_944),
        ("glm-4.5", 352_797_829_024),
        ("glm-4.5-air", 106_852_251_264),
        ("olmo3-7b", 7_298_011_136),
        ("granite-3.3-8b", 8_170_864_640),
        ("apertus-8b", 8_053_338_176),
        ("command-r7b", 8_028_033_024),
        ("qwen3-coder-480b-a35b", 480_154_875_392),
        ("minimax-m2", 228_689_764_864),
        ("dots.llm1", 142_774_381_696),
        ("kimi-k2", 1_026_408_232_448),
    ];
    for (name, count) in published {
        assert_eq!(built(name).parameter_count(), count, "{name}");
    }
}

#[test]
fn every_preset_builds_in_every_float_type() {
    for preset in presets() {
        for dtype in [DType::F32, DType::BF16] {
            let model = preset.config.build(&Batch { dtype, ..BATCH }).unwrap();
            // Two ends, and layers of one to four kinds: dense or with experts, limited or not in what they attend to.
            assert!((3..=6).contains(&model.blocks.len()), "{}", preset.name);
            assert!(model.calls.iter().all(|call| call_fits(&model, call)), "{}", preset.name);
        }
    }
}

fn call_fits(model: &Model, call: &meshwright_ir::graph::Call) -> bool {
    let block = &model.blocks[call.block];
    let count = |kinds: &[ArgKind]| block.args.iter().filter(|arg| kinds.contains(&arg.kind)).count();
    let types: Vec<_> = block.args_of(ArgKind::Param).map(|param| block.ty(param)).collect();
    let passed = model.call_params(call, 0);
    count(&[ArgKind::Value, ArgKind::Input]) == call.args.len()
        && types.len() == passed.len()
        && types.iter().zip(passed).all(|(ty, (id, _))| ty.same_tensor(&model.params[id].ty))
}

#[test]
fn a_llama_layer_keeps_heads_apart() {
    let model = built("llama3-8b");
    let block = model.blocks.values().find(|block| block.name == "layer").unwrap();
    let sizes = |name: &str| block.ty(block.find(name).unwrap()).sizes();
    assert_eq!(sizes("wq"), [4096, 8, 4, 128]);
    assert_eq!(sizes("wk"), [4096, 8, 128]);
    assert_eq!(sizes("wo"), [8, 4, 128, 4096]);
    assert_eq!(sizes("x"), [2, 16, 4096]);
    let exact: Vec<&str> = model.dims.values().filter(|dim| dim.indivisible).map(|dim| dim.name.as_str()).collect();
    assert_eq!(exact, ["g", "r"]);
    assert_eq!(model.calls[1].instances(), 32);
}

#[test]
fn what_writes_to_the_residual_stream_starts_smaller() {
    let model = built("gpt2");
    let init = |field: &str| model.params.values().find(|p| p.field.as_deref() == Some(field)).unwrap().init;
    assert_eq!(init("wq"), Init::Normal(0.02));
    assert_eq!(init("wo"), Init::Normal(0.02 / 24f64.sqrt()));
    assert_eq!(init("down"), Init::Normal(0.02 / 24f64.sqrt()));
    assert_eq!(init("norm1"), Init::Constant(1.0));
    let decaying: Vec<bool> = model.params.values().map(|p| p.decay).collect();
    assert!(decaying.contains(&true) && decaying.contains(&false));
}

#[test]
fn a_norm_behind_each_sum_and_dropout() {
    let json = json!({"model_type": "gpt2", "vocab_size": 11, "n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2,
        "post_norm": true, "attn_pdrop": 0.3, "resid_pdrop": 0.1, "embd_pdrop": 0.2, "activation_function": "gelu"});
    let model = from_config(&json.to_string()).unwrap().build(&BATCH).unwrap();
    let ops: Vec<Vec<&str>> = model
        .blocks
        .values()
        .map(|block| block[SectionKind::F].stmts.iter().map(|stmt| stmt.op.name()).collect())
        .collect();
    assert_eq!(ops[0], ["embedding", "embedding", "add", "dropout"]);
    assert_eq!(ops[1].last(), Some(&"layer_norm"));
    assert_eq!(ops[1].iter().filter(|name| **name == "dropout").count(), 2);
    assert!(ops[1].contains(&"gelu_erf"));
    let stmts = &model.blocks.values().nth(1).unwrap()[SectionKind::F].stmts;
    let weights = Some(Dropout { p: 0.3, path: "layer.o".to_string(), piece: None });
    assert!(
        stmts.iter().any(|stmt| matches!(&stmt.op, Op::Kernel(KernelOp::Attention(op)) if op.0.dropout == weights))
    );
    let refused = from_config(&json.to_string().replace("0.3", "1.0")).unwrap_err().to_string();
    assert!(refused.contains("`attn_pdrop`"), "{refused}");
    assert_eq!(ops[2], ["einsum", "cross_entropy"]);
}

fn llama() -> Value {
    json!({"model_type": "llama", "vocab_size": 128, "hidden_size": 24, "intermediate_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "rope_scaling": null, "max_position_embeddings": 2048, "tie_word_embeddings": false})
}

fn with(mut config: Value, field: &str, value: Value) -> Result<ModelConfig, ConfigError> {
    config[field] = value;
    from_config(&config.to_string())
}

#[test]
fn a_published_file_is_read() {
    let Ok(ModelConfig::Llama(config)) = from_config(&llama().to_string()) else { panic!("a LLaMA") };
    assert_eq!((config.head, config.kv_heads, config.rotation.theta, config.tied), (4, 2, 500_000.0, false));
    let newer = with(llama(), "rope_parameters", json!({"rope_type": "default", "rope_theta": 1000.0}));
    let Ok(ModelConfig::Llama(config)) = newer else { panic!("a LLaMA") };
    assert_eq!(config.rotation.theta, 1000.0);
    let Ok(qwen) = with(llama(), "model_type", json!("qwen2")) else { panic!("a Qwen2") };
    let biases = qwen.build(&BATCH).unwrap();
    assert!(biases.params.values().any(|param| param.field.as_deref() == Some("bk")));
}

/// The first is `rope_scaling` of meta-llama/Llama-3.1-8B as published.
#[test]
fn scaled_frequencies_are_read() {
    let published = json!({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"});
    let llama3 = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 8192 };
    let cases = [
        ("rope_scaling", published.clone(), Some(llama3.clone())),
        ("rope_parameters", published, Some(llama3.clone())),
        ("rope_scaling", json!({"type": "linear", "factor": 2}), Some(Scaling::Linear { factor: 2.0 })),
        ("rope_scaling", json!({"type": "default"}), None),
    ];
    for (field, value, scaling) in cases {
        let config = with(llama(), field, value).unwrap();
        let model = config.build(&BATCH).unwrap();
        let ModelConfig::Llama(config) = config else { panic!("a LLaMA") };
        assert_eq!((config.rotation.theta, config.rotation.scaling), (500_000.0, scaling.clone()));
        let layer = model.blocks.values().find(|block| block.name == "layer").unwrap();
        let rope = Op::from(Rope { theta: 500_000.0, scaling, turned: None, gain: 1.0, inverse: false });
        assert_eq!(layer[SectionKind::F].stmts.iter().filter(|stmt| stmt.op == rope).count(), 2);
    }
    for name in ["llama3.1-70b", "llama3.1-405b"] {
        let Some(ModelConfig::Llama(config)) = preset(name).map(|preset| &preset.config) else { panic!("a LLaMA") };
        assert_eq!(config.rotation.scaling, Some(llama3.clone()), "{name}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    assert_eq!(from_config("{}"), Err(ConfigError::Missing { field: "model_type" }));
    let said = |field: &str, value: Value| with(llama(), field, value).unwrap_err().to_string();
    let cases = [
        (said("hidden_size", json!(25)), "`hidden_size` 25 is not divisible by `num_attention_heads` 6"),
        (said("num_key_value_heads", json!(4)), "`num_attention_heads` 6 is not a multiple of `num_key_value_heads` 4"),
        (said("num_key_value_heads", json!(0)), "`num_key_value_heads`: must be at least 1"),
        (said("num_attention_heads", json!(0)), "`num_attention_heads`: must be at least 1"),
        (said("head_dim", json!(5)), "`head_dim`: 5 is odd"),
        (said("model_type", json!("xlstm")), "no builder for `model_type` `xlstm`"),
        (said("sliding_window", json!(512)), "`sliding_window`: 512 is not supported: `LlamaConfig` does not read it"),
        (said("rope_scaling", json!({"rope_type": "longrope"})), "`short_factor` is missing"),
        (said("rope_parameters", json!({"type": "dynamic"})), "`rope_parameters`: dynamic is not supported"),
        (said("rope_scaling", json!({"rope_type": "llama3", "factor": 8.0})), "`low_freq_factor` is missing"),
        (said("rope_scaling", json!({"type": "linear", "factor": 0.5})), "`rope_scaling`: the factor 0.5"),
        (said("vocab_size", json!("many")), "`vocab_size`: invalid type"),
        (said("hidden_act", json!("tanh")), "`hidden_act`: tanh is not supported, only silu, gelu"),
    ];
    for (message, part) in cases {
        assert!(message.contains(part), "{message}");
    }
    // Rotary positions have no turns below the base 1, nor norms below 0.
    assert!(said("rope_theta", json!(-1.0)).contains("`rope_theta`: -1 must be above 0"));
    assert!(said("rms_norm_eps", json!(-1.0)).contains("`rms_norm_eps`"));
    assert!(said("pad_token_id", json!(128)).contains("`pad_token_id`: 128 is none of 128 tokens"));
    assert!(matches!(from_config("[1]"), Err(ConfigError::Json(_))));
    assert!(matches!(from_config("{"), Err(ConfigError::Json(_))));
}

#[test]
fn batches_that_do_not_fit_are_refused() {
    let gpt2 = &preset("gpt2").unwrap().config;
    let error = gpt2.build(&Batch { seq: 1025, ..BATCH }).unwrap_err().to_string();
    assert!(error.contains("1025") && error.contains("1024"), "{error}");
    assert!(gpt2.build(&Batch { batch: 0, ..BATCH }).is_err());
    assert!(gpt2.build(&Batch { dtype: DType::I32, ..BATCH }).is_err());
}

fn read(file: Value) -> LlamaConfig {
    match from_config(&file.to_string()) {
        Ok(ModelConfig::Llama(config)) => config,
        other => panic!("{file}: {other:?}"),
    }
}

fn of(family: &str, more: Value) -> Value {
    joined(json!({"model_type": family}), more)
}

fn joined(mut file: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("an object") };
    file.as_object_mut().expect("an object").extend(more);
    file
}

/// The defaults of `MixtralConfig()`, `Qwen3MoeConfig()`, `DeepseekV2Config()` and `DeepseekV3Config()`.
#[test]
fn absent_keys_are_the_defaults_of_the_classes() {
    let mixtral = read(of("mixtral", json!({})));
    assert_eq!((mixtral.rotation.theta, mixtral.norm_eps, mixtral.window), (1e6, 1e-5, None));
    let experts = |config: &LlamaConfig| config.experts.clone().expect("experts");
    assert_eq!(experts(&mixtral), Experts::softmax(8, 2, 14_336));
    let qwen = read(of("qwen3_moe", json!({})));
    assert_eq!((qwen.hidden, qwen.heads, qwen.kv_heads, qwen.head), (2048, 32, 4, 64));
    assert_eq!(experts(&qwen), Experts { renormalise: false, ..Experts::softmax(128, 8, 768) });
    let second = read(of("deepseek_v2", json!({"num_experts_per_tok": 6})));
    let softmax = Experts { shared: 2 * 1407, renormalise: false, ..Experts::softmax(64, 6, 1407) };
    assert_eq!(experts(&second), softmax);
    let third = read(of("deepseek_v3", json!({})));
    let limit = Some(GroupLimit { groups: 8, from: 4, by: 2 });
    let sigmoid = Experts {
        shared: 2048,
        dense: LayerSet::First(3),
        sigmoid: true,
        bias: true,
        limit,
        scale: 2.5,
        ..Experts::softmax(256, 8, 2048)
    };
    assert_eq!(experts(&third), sigmoid);
    assert_eq!((third.kv_heads, third.layers, third.tied), (128, 61, false));
    let Ok(ModelConfig::Gpt2(gpt2)) = from_config(r#"{"model_type": "gpt2"}"#) else { panic!("a GPT-2") };
    assert_eq!([gpt2.attention_dropout, gpt2.residual_dropout, gpt2.embedding_dropout], [0.1; 3]);
    assert_eq!((gpt2.feed_forward, gpt2.positions, gpt2.tied), (3072, Some(1024), true));
}

#[test]
fn one_thing_under_several_names() {
    // Version 5 of `transformers` writes Qwen3-MoE so.
    let qwen = read(of("qwen3_moe", json!({"num_local_experts": 12})));
    assert_eq!(qwen.experts.map(|experts| experts.experts), Some(12));
    let third = read(of("deepseek_v3", json!({"num_local_experts": 16, "num_mtp_layers": 2})));
    assert_eq!(third.experts.map(|experts| experts.experts), Some(16));
    let both = of("qwen3_moe", json!({"num_local_experts": 12, "num_experts": 16})).to_string();
    assert!(matches!(from_config(&both), Err(ConfigError::Invalid { field, .. }) if field == "num_experts"));
}

#[test]
fn keys_without_meaning_are_told_and_slips_refused() {
    let (_, unknown) =
        read_config(&of("llama", json!({"my_tag": 1, "rope_scaling": {"type": "default", "by": "us"}})).to_string())
            .unwrap();
    assert_eq!(unknown, ["my_tag", "rope_scaling.by"]);
    let said = |family: &str, more: Value| from_config(&of(family, more).to_string()).unwrap_err().to_string();
    for (family, more, part) in [
        ("llama", json!({"rope_thetha": 1.0}), "did you mean `rope_theta`?"),
        ("llama", json!({"num_experts": 8}), "`num_experts`: 8 is not supported: `LlamaConfig` does not read it"),
        ("llama", json!({"hidden_act": "mish"}), "mish is not supported, only silu, gelu"),
        ("phi3", json!({"rope_scaling": {"type": "linear"}}), "linear is not supported, only default and longrope"),
        ("phi3", json!({"resid_pdrop": 0.1}), "`resid_pdrop`: 0.1 is not supported"),
        ("llama", json!({"rope_parameters": {"partial_rotary_factor": 0.5}}), "0.5 is not supported, only 1.0"),
        ("gemma2", json!({"layer_types": ["full_attention"]}), "has 1 types, but `num_hidden_layers` is 26"),
        ("gemma2", json!({"use_bidirectional_attention": true}), "a token sees no later ones"),
        ("gemma3_text", json!({"attn_logit_softcapping": 50.0}), "the class does not read it"),
        ("gemma3_text", json!({"sliding_window": null}), "sliding_attention needs a `sliding_window`"),
        ("gpt_neox", json!({"rope_theta": 500.0}), "`GPTNeoXConfig` does not read it"),
        ("glm4_moe", json!({"partial_rotary_factor": 1.5, "head_dim": 8}), "12 of 8 elements of a head cannot turn"),
        ("llama", json!({"partial_rotary_factor": 0.5}), "0.5 is not supported, only 1.0"),
        ("llama", json!({"layer_types": ["sliding_attention"]}), "only full_attention"),
        ("mistral", json!({"attention_bias": true}), "`attention_bias`: true is not supported, only false"),
        ("llama4_text", json!({"router_jitter_noise": 0.1}), "`router_jitter_noise`"),
        ("mixtral", json!({"router_jitter_noise": 1.0}), "1 must be at least 0 and below 1"),
        ("llama4_text", json!({"output_router_logits": true}), "`output_router_logits`"),
        ("mixtral", json!({"router_balance": "tokens", "router_balance_coef": 0.1}), "`tokens` is not sequence"),
        ("mixtral", json!({"router_balance": "sequence"}), "`router_balance_coef` is missing"),
        ("mixtral", json!({"router_balance": "sequence", "router_balance_coef": -0.1}), "-0.1 must be finite"),
        ("mixtral", json!({"router_bias_update_rate": 0.1}), "the routers of this model have no bias"),
        (
            "mixtral",
            json!({"output_router_logits": true, "router_balance": "sequence", "router_balance_coef": 0.1}),
            "leave out one of the two",
        ),
        (
            "deepseek_v3",
            json!({"num_nextn_predict_layers": 1, "router_balance": "layers", "router_balance_coef": 0.1}),
            "no part of a loss over all layers",
        ),
        ("qwen2", json!({"qkv_bias": false}), "the class always has a bias"),
        ("deepseek_v2", json!({"num_experts_per_tok": 2, "norm_topk_prob": true}), "`norm_topk_prob`"),
        ("deepseek_v2", json!({"num_experts_per_tok": 2, "scoring_func": "sigmoid"}), "only softmax"),
        ("deepseek_v2", json!({"num_experts_per_tok": 2, "topk_method": "noaux_tc"}), "only greedy and"),
        ("deepseek_v2", json!({}), "`num_experts_per_tok` is missing"),
        ("deepseek_v3", json!({"topk_method": "greedy"}), "only noaux_tc"),
        ("deepseek_v3", json!({"scoring_func": "softmax"}), "only sigmoid"),
        ("deepseek_v3", json!({"n_group": 256, "topk_group": 8}), "do not go with 8 open groups of 1 experts"),
        ("deepseek_v3", json!({"num_key_value_heads": 8}), "only the number of query heads, 128"),
        ("gpt2", json!({"scale_attn_by_inverse_layer_idx": true}), "`scale_attn_by_inverse_layer_idx`"),
    ] {
        let message = said(family, more.clone());
        assert!(message.contains(part), "{family} {more}: {message}");
    }
    // What turns nothing on is no fault, whoever has the key.
    for (family, more) in [
        (
            "llama",
            json!({"use_sliding_window": false, "sliding_window": null, "norm_topk_prob": false, "moe_layer_freq": 1}),
        ),
        ("qwen2", json!({"attention_bias": true, "output_router_logits": false})),
        (
            "deepseek_v3",
            json!({"scoring_func": "sigmoid", "topk_method": "noaux_tc", "aux_loss_alpha": 0.001, "head_dim": 64}),
        ),
    ] {
        assert_eq!(read_config(&of(family, more).to_string()).map(|(_, unknown)| unknown), Ok(Vec::new()), "{family}");
    }
}

#[test]
fn some_layers_have_no_experts() {
    let dense = |more: Value| {
        let config = read(of("qwen3_moe", joined(json!({"num_hidden_layers": 4}), more)));
        config.experts.map(|experts| experts.dense)
    };
    assert_eq!(dense(json!({})), Some(LayerSet::None));
    assert_eq!(dense(json!({"mlp_only_layers": [1, 0, 9]})), Some(LayerSet::First(2)));
    assert_eq!(dense(json!({"decoder_sparse_step": 4})), Some(LayerSet::First(3)));
    assert_eq!(dense(json!({"decoder_sparse_step": 2})), Some(LayerSet::AllBut(2)));
    assert_eq!(dense(json!({"mlp_only_layers": [1, 2]})), Some(LayerSet::Listed(0b0110)));
    assert_eq!(dense(json!({"decoder_sparse_step": 4, "mlp_only_layers": [3]})), None);
    assert_eq!(dense(json!({"num_experts": 0})), None);
    assert!(read(of("deepseek_v3", json!({"first_k_dense_replace": 61}))).experts.is_none());
}

#[test]
fn windows_are_of_all_layers_or_of_some() {
    let of_all = |tokens| Some(Window::of_all(tokens));
    assert_eq!(read(of("mistral", json!({}))).window, of_all(4096));
    assert_eq!(read(of("mistral", json!({"sliding_window": null}))).window, None);
    assert_eq!(read(of("phi3", json!({"sliding_window": 2047}))).window, of_all(2047));
    // Qwen's counts where it is used, in layers that have one.
    let small = json!({"sliding_window": 16, "num_hidden_layers": 4});
    let qwen = |family: &str, more: Value| read(of(family, joined(small.clone(), more))).window;
    let window = |full| Some(Window { full, ..Window::of_all(16) });
    let used = |more: Value| joined(json!({"use_sliding_window": true}), more);
    assert_eq!(qwen("qwen2", json!({})), None);
    assert_eq!(qwen("qwen2", used(json!({}))), None);
    assert_eq!(qwen("qwen2", used(json!({"max_window_layers": 2}))), window(LayerSet::First(2)));
    assert_eq!(qwen("qwen2_moe", used(json!({}))), window(LayerSet::Every(2)));
    assert_eq!(qwen("qwen2_moe", used(json!({"max_window_layers": 1}))), window(LayerSet::Listed(0b1110)));
    assert_eq!(qwen("qwen3_moe", used(json!({}))), of_all(16));
    let types = ["full_attention", "sliding_attention", "full_attention", "full_attention"];
    assert_eq!(qwen("qwen3", used(json!({"layer_types": types}))), window(LayerSet::Listed(0b1101)));
    let gemma = |more: Value| read(of("gemma3_text", joined(small.clone(), more))).window;
    let local = |full| Some(Window { full, ..Window::of_all(16) });
    assert_eq!(gemma(json!({"sliding_window_pattern": 3})), local(LayerSet::Every(3)));
    assert_eq!(gemma(json!({"layer_types": vec!["full_attention"; 4]})), None);
}

/// The calls go through the layers in order, and each kind has an array of parameters.
#[test]
fn layers_that_alternate_are_calls_in_turn() {
    let file = of("gemma2", json!({"num_hidden_layers": 5, "hidden_size": 16, "intermediate_size": 8, "head_dim": 4}));
    let model = from_config(&file.to_string()).unwrap().build(&BATCH).unwrap();
    let calls: Vec<String> = model
        .calls
        .iter()
        .filter_map(|call| {
            let range = &call.repeat.as_ref()?.range;
            Some(format!("{} {}..{}", model.blocks[call.block].name, range.start, range.end))
        })
        .collect();
    assert_eq!(calls, ["local 0..1", "layer 0..1", "local 1..2", "layer 1..2", "local 2..3"]);
    let counts = |name: &str| model.params.values().find(|param| param.name == name).and_then(|param| param.count);
    assert_eq!([counts("local"), counts("layer")], [Some(3), Some(2)]);
    let windows = model.blocks.values().map(|block| {
        block[SectionKind::F].stmts.iter().find_map(|stmt| match &stmt.op {
            Op::Kernel(KernelOp::Attention(op)) => Some((op.0.window, op.0.softcap)),
            _ => None,
        })
    });
    let windows: Vec<_> = windows.flatten().collect();
    assert_eq!(windows, [(Some(4096), Some(50.0)), (None, Some(50.0))]);
}

/// `_compute_yarn_parameters` and `yarn_apply_mscale` of `transformers` at the factor 4: the gain of what turns, and the factor of all
/// scores of latent attention.
#[test]
fn yarn_scales_what_turns() {
    let grown = 0.1 * 4f64.ln() + 1.0;
    let factors = |family: &str, rope: Value| {
        let rope = joined(json!({"rope_type": "yarn", "factor": 4.0}), rope);
        let config = read(of(family, json!({"rope_parameters": rope})));
        (config.rotation.gain, config.latent.map_or(1.0, |latent| latent.score_factor))
    };
    assert_eq!(factors("llama", json!({})), (grown, 1.0));
    assert_eq!(factors("llama", json!({"attention_factor": 0.5})), (0.5, 1.0));
    assert_eq!(factors("llama", json!({"mscale": 1.0, "mscale_all_dim": 1.0})), (1.0, 1.0));
    // 0 is as good as absent.
    assert_eq!(factors("llama", json!({"mscale": 1.0, "mscale_all_dim": 0})), (grown, 1.0));
    assert_eq!(factors("deepseek_v3", json!({"mscale": 1.0, "mscale_all_dim": 1.0})), (1.0, grown * grown));
    assert_eq!(factors("deepseek_v3", json!({"mscale": 1.0, "mscale_all_dim": 0})), (grown, 1.0));
    let scaling = |more: Value| {
        let rope = joined(json!({"type": "yarn", "factor": null}), more);
        read(of("llama", json!({"max_position_embeddings": 512, "rope_scaling": rope}))).rotation.scaling
    };
    let yarn = |factor, context, fractional| Some(Scaling::Yarn { factor, low: 1.0, high: 32.0, context, fractional });
    assert_eq!(scaling(json!({"original_max_position_embeddings": 128})), yarn(4.0, 128, false));
    assert_eq!(scaling(json!({"beta_fast": null, "beta_slow": 0, "truncate": false})), yarn(1.0, 512, true));
}

/// DeepSeek's code leaves the norms of latent vectors at the default of their class.
#[test]
fn norms_of_latent_vectors_have_an_eps_of_their_own() {
    let small = json!({"num_hidden_layers": 1, "first_k_dense_replace": 1, "rms_norm_eps": 1e-5});
    let model = from_config(&of("deepseek_v3", small).to_string()).unwrap().build(&BATCH).unwrap();
    let layer = model.blocks.values().find(|block| block.name == "layer").unwrap();
    let eps = |stmt: &Stmt| match &stmt.op {
        Op::Kernel(KernelOp::RmsNorm(norm)) => Some((layer.values[stmt.results[0]].name.clone(), norm.eps)),
        _ => None,
    };
    let found: Vec<(String, f64)> = layer[SectionKind::F].stmts.iter().filter_map(eps).collect();
    let want = [("a", 1e-5), ("cq", 1e-6), ("ckv", 1e-6), ("n", 1e-5)];
    assert_eq!(found, want.map(|(name, eps)| (name.to_string(), eps)));
}

#[test]
fn experts_take_all_that_come_unless_a_capacity_is_stated() {
    let places = |config: &ModelConfig| {
        let model = config.build(&BATCH).unwrap();
        model.dims.values().find(|dim| dim.name == "c").map(|dim| dim.size)
    };
    let mixtral = from_config(&of("mixtral", json!({})).to_string()).unwrap();
    assert_eq!(places(&mixtral), Some(16));
    assert_eq!(places(&mixtral.routed_in(4, 16)), Some(4));
    let stated = from_config(&of("mixtral", json!({"capacity_factor": 2.0})).to_string()).unwrap();
    // Two of eight experts for each of 16 tokens, twice.
    assert_eq!(places(&stated), Some(8));
    for preset in presets().filter(|preset| preset.name != "tiny-moe") {
        let ModelConfig::Llama(LlamaConfig { experts: Some(experts), .. }) = &preset.config else { continue };
        assert_eq!(experts.capacity, None, "{}", preset.name);
    }
}
