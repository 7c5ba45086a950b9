//! Models whose layers carry a state: memory, seconds and FLOPs of an estimate against compiled programs and closed forms.

use codegen::buffers::report;
use cost::PROGRAM;
use meshwright::compiler::compile::{CompileRequest, compile_source};
use meshwright::compiler::model_source::ModelSource;
use meshwright::estimator::{EstimateReport, EstimateRequest, Estimator};
use meshwright::predicting::predict;

/// Bytes of a GiB.
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

const SEQ: u64 = 2048;

/// A delta rule with a decay for each head, and attention.
const DELTA: &str = r#"{"model_type": "qwen3_5_text", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 8,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "linear_num_key_heads": 16,
    "linear_num_value_heads": 16, "vocab_size": 32000, "tie_word_embeddings": false}"#;

/// A delta rule with a decay for each row of a state, and attention.
const BY_KEY: &str = r#"{"model_type": "kimi_linear", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 8,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention",
    "linear_attention", "linear_attention", "full_attention"], "mlp_layer_types": ["dense", "dense", "dense", "dense",
    "dense", "dense", "dense", "dense"], "pad_token_id": null, "num_attention_heads": 16, "num_key_value_heads": 16,
    "linear_num_heads": 16, "vocab_size": 32000, "tie_word_embeddings": false}"#;

/// A decay for each head.
const HEADS: &str = r#"{"model_type": "mamba2", "hidden_size": 2048, "num_heads": 64, "head_dim": 64, "n_groups": 8, "state_size": 128,
    "num_hidden_layers": 8, "vocab_size": 32000, "tie_word_embeddings": false}"#;

/// Rates for each row of a state.
const RATES: &str = r#"{"model_type": "falcon_mamba", "hidden_size": 2048, "intermediate_size": 4096, "num_hidden_layers": 8,
    "vocab_size": 32000, "tie_word_embeddings": false}"#;

/// Convolutions between gates, and attention.
const CONV: &str = r#"{"model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 32,
    "num_key_value_heads": 8, "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv",
    "full_attention"], "pad_token_id": null, "vocab_size": 32000, "tie_word_embeddings": false}"#;

const KINDS: [(&str, &str); 5] =
    [("delta", DELTA), ("by key", BY_KEY), ("heads", HEADS), ("rates", RATES), ("convolutions", CONV)];

fn estimated(model: &str, cluster: &str, parallel: &str) -> EstimateReport {
    let request = EstimateRequest {
        model: model.into(),
        cluster: cluster.into(),
        stack: "meshwright".into(),
        gpus: Some(8),
        seq: SEQ,
        global_batch: 16,
        parallel: parallel.into(),
        ..EstimateRequest::default()
    };
    Estimator::new().estimate(&request).unwrap_or_else(|why| panic!("{model} {parallel}: {why}"))
}

/// The bytes that `estimate` predicts for the fullest rank, over those of the largest arena of the program with the same stages.
fn of_arena(model: &str, parallel: &str) -> f64 {
    let estimate = estimated(model, "h100", parallel);
    let starts: Vec<String> = estimate.stages.iter().skip(1).map(|stage| stage.start.to_string()).collect();
    let stages = if starts.is_empty() { String::new() } else { format!(",stages={}", starts.join(",")) };
    let order = CompileRequest {
        parallel: format!("{parallel}{stages}"),
        seq: SEQ,
        global_batch: Some(16),
        precision: "bf16".into(),
        ..CompileRequest::default()
    };
    let source = ModelSource::open(model).unwrap();
    let file = compile_source(&source, &order, None, &mut |_, _| {}).unwrap_or_else(|why| panic!("{parallel}: {why}"));
    let classes = report(&file.model, file.program.as_ref().expect("a program"));
    let ranks = estimate.predicted.memory_gib.per_stage.iter();
    let bytes = ranks.map(|rank| rank.allocated * GIB).fold(0.0, f64::max);
    bytes / classes.iter().map(|class| class.arena).max().unwrap_or(0) as f64
}

#[test]
fn arenas_are_predicted() {
    let mut far = Vec::new();
    for (name, model) in KINDS {
        // The backward of a selective scan has more values of rates and steps in f32 at once than an estimate counts.
        let within = if name == "rates" { 0.06 } else { 0.03 };
        for parallel in ["dp=8,zero=1", "dp=4,tp=2,sp=true,zero=3", "dp=4,cp=2,zero=1", "dp=4,pp=2,schedule=zb-h1"] {
            let ratio = of_arena(model, parallel);
            if (ratio - 1.0).abs() > within {
                far.push(format!("{name} {parallel}: predicted {ratio:.4} of the arena"));
            }
        }
    }
    assert!(far.is_empty(), "{}", far.join("\n"));
}

/// A compiled program on clocks, and the estimate of its stack, which hides no communication.
#[test]
fn an_estimate_and_a_simulated_program_agree() {
    let mut far = Vec::new();
    for (name, model) in KINDS {
        for (parallel, devices) in [("dp=1,mbs=1", 1), ("tp=2,sp=true,mbs=1", 2), ("cp=2,mbs=1", 2)] {
            let order = CompileRequest {
                parallel: parallel.into(),
                seq: 512,
                global_batch: Some(4),
                ..CompileRequest::default()
            };
            let file = compile_source(&ModelSource::open(model).unwrap(), &order, None, &mut |_, _| {}).unwrap();
            let (step, _) = predict(&file, &PROGRAM).unwrap();
            let estimate = meshwright::estimate(model).on("cpu", devices).stack("meshwright-threads").precision("f32");
            let seconds = estimate.batch(4, 512).parallel(parallel).run().unwrap().predicted.step_time_s;
            let ratio = step.program_s / seconds;
            if !(0.92..1.01).contains(&ratio) {
                far.push(format!("{name}, {parallel}: {} and {seconds}", step.program_s));
            }
        }
    }
    assert!(far.is_empty(), "{}", far.join("\n"));
}

/// FLOPs of a token beside its products: three times those of the scans by the field's count, 7 or 8 for each element of a state, those of
/// convolutions, which are none, and causal attention.
#[test]
fn flops_are_those_of_the_field() {
    let table = 32_000.0 * 2048.0;
    let causal = |layers: f64, width: f64| 6.0 * layers * width * SEQ as f64 / 2.0;
    let scans = |layers: f64, by: f64, state: f64| 3.0 * layers * by * state;
    for ((name, model), own) in KINDS.into_iter().zip([
        scans(6.0, 8.0, 16.0 * 128.0 * 128.0) + 2.0 * causal(2.0, 8.0 * 256.0),
        scans(6.0, 8.0, 16.0 * 128.0 * 128.0) + causal(2.0, 16.0 * (192.0 + 128.0)),
        scans(8.0, 7.0, 64.0 * 64.0 * 128.0),
        scans(8.0, 7.0, 4096.0 * 16.0),
        2.0 * causal(3.0, 2048.0),
    ]) {
        let predicted = estimated(model, "h100", "dp=8").predicted;
        let products = predicted.parameters as f64 - table;
        let theirs = 6.0 * products + own;
        let ours = predicted.flops_per_token;
        assert!((ours / theirs - 1.0).abs() < 0.01, "{name}: {ours:e}, {theirs:e}");
    }
}
