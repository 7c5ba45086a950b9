//! Model families: published sizes, configurations read and refused, structure of what is built.

use meshwright_ir::graph::{ArgKind, Init, Model, SectionKind};
use meshwright_ir::models::{Batch, ConfigError, ModelConfig, from_config, preset, presets};
use meshwright_ir::ops::{Dropout, KernelOp, Op, Rope, Scaling};
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
            assert!([3, 4].contains(&model.blocks.len()), "{}", preset.name);
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
    let exact: Vec<&str> = model.dims.values().filter(|dim| dim.exact).map(|dim| dim.name.as_str()).collect();
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
    let weights = Some(Dropout { p: 0.3, path: "layer.o".to_string() });
    assert!(stmts.iter().any(|stmt| matches!(&stmt.op, Op::Kernel(KernelOp::Attention(op)) if op.dropout == weights)));
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
    assert_eq!((config.head, config.kv_heads, config.rope_theta, config.tied), (4, 2, 500_000.0, false));
    let newer = with(llama(), "rope_parameters", json!({"rope_type": "default", "rope_theta": 1000.0}));
    let Ok(ModelConfig::Llama(config)) = newer else { panic!("a LLaMA") };
    assert_eq!(config.rope_theta, 1000.0);
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
        ("rope_scaling", published.clone(), Some(llama3)),
        ("rope_parameters", published, Some(llama3)),
        ("rope_scaling", json!({"type": "linear", "factor": 2}), Some(Scaling::Linear { factor: 2.0 })),
        ("rope_scaling", json!({"type": "default"}), None),
    ];
    for (field, value, scaling) in cases {
        let config = with(llama(), field, value).unwrap();
        let model = config.build(&BATCH).unwrap();
        let ModelConfig::Llama(config) = config else { panic!("a LLaMA") };
        assert_eq!((config.rope_theta, config.rope_scaling), (500_000.0, scaling));
        let layer = model.blocks.values().find(|block| block.name == "layer").unwrap();
        let rope = Op::from(Rope { theta: 500_000.0, scaling, inverse: false });
        assert_eq!(layer[SectionKind::F].stmts.iter().filter(|stmt| stmt.op == rope).count(), 2);
    }
    for name in ["llama3.1-70b", "llama3.1-405b"] {
        let Some(ModelConfig::Llama(config)) = preset(name).map(|preset| &preset.config) else { panic!("a LLaMA") };
        assert_eq!(config.rope_scaling, Some(llama3), "{name}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let mut missing = llama();
    missing.as_object_mut().unwrap().remove("intermediate_size");
    assert_eq!(from_config(&missing.to_string()), Err(ConfigError::Missing { field: "intermediate_size" }));
    let said = |field: &str, value: Value| with(llama(), field, value).unwrap_err().to_string();
    let cases = [
        (said("hidden_size", json!(25)), "`hidden_size` 25 is not divisible by `num_attention_heads` 6"),
        (said("num_key_value_heads", json!(4)), "`num_attention_heads` 6 is not a multiple of `num_key_value_heads` 4"),
        (said("num_key_value_heads", json!(0)), "`num_key_value_heads`: must be at least 1"),
        (said("num_attention_heads", json!(0)), "`num_attention_heads`: must be at least 1"),
        (said("head_dim", json!(5)), "`head_dim`: 5 is odd"),
        (said("model_type", json!("mamba")), "no builder for `model_type` `mamba`"),
        (said("sliding_window", json!(512)), "`sliding_window`: a window of 512 is not supported"),
        (
            said("rope_scaling", json!({"rope_type": "longrope"})),
            "`rope_scaling`: longrope is not supported, only default, linear, llama3 and yarn",
        ),
        (said("rope_parameters", json!({"type": "dynamic"})), "`rope_parameters`: dynamic is not supported"),
        (said("rope_scaling", json!({"rope_type": "llama3", "factor": 8.0})), "`low_freq_factor` is missing"),
        (said("rope_scaling", json!({"type": "linear", "factor": 0.5})), "`rope_scaling`: the factor 0.5"),
        (said("vocab_size", json!("many")), "`vocab_size`: invalid type"),
        (said("hidden_act", json!("relu")), "`hidden_act`: relu is not supported, only silu"),
    ];
    for (message, part) in cases {
        assert!(message.contains(part), "{message}");
    }
    let mistral = with(llama(), "model_type", json!("mistral")).unwrap_err().to_string();
    assert!(mistral.contains("a window of 4096"), "{mistral}");
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
