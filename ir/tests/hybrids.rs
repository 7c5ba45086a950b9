//! Models whose layers carry a state: their parameters are as many as those of their classes in `transformers` 5.24, on PyTorch's `meta`
//! device.

use meshwright_ir::models::{Batch, from_config};
use meshwright_ir::types::DType;

/// The parameters of the model of a `config.json`.
fn count(text: &str) -> u64 {
    let config = from_config(text).unwrap_or_else(|why| panic!("{text}: {why}"));
    config.build(&Batch { batch: 1, seq: 64, dtype: DType::F32 }).unwrap().parameter_count()
}

/// Each at the defaults of its class.
#[test]
fn defaults_have_the_parameters_of_their_classes() {
    for (family, parameters) in [
        ("qwen3_next", 79_674_391_296),
        ("qwen3_5_text", 8_953_803_264),
        ("qwen3_5_moe_text", 34_660_610_688),
        ("kimi_linear", 49_133_081_120),
        ("olmo_hybrid", 7_430_870_688),
        ("mamba", 159_308_544),
        ("falcon_mamba", 159_308_544),
        ("mamba2", 7_285_403_648),
        ("bamba", 9_992_765_440),
        ("granitemoehybrid", 38_601_064_448),
        ("jamba", 51_570_323_328),
        ("falcon_h1", 8_514_961_408),
        ("nemotron_h", 1_968_355_720),
        ("lfm2", 2_705_497_600),
    ] {
        assert_eq!(count(&format!(r#"{{"model_type": "{family}"}}"#)), parameters, "{family}");
    }
}

/// The keys of `config.json` of Qwen/Qwen3-Next-80B-A3B-Instruct, tiiuae/Falcon-H1-7B-Base and nvidia/Nemotron-H-8B-Base-8K that differ from
/// the defaults of their classes.
#[test]
fn published_models_have_their_parameters() {
    let next =
        r#"{"model_type": "qwen3_next", "intermediate_size": 5120, "rope_theta": 10000000, "mlp_only_layers": []}"#;
    let falcon = r#"{"model_type": "falcon_h1", "hidden_size": 3072, "intermediate_size": 12288, "mamba_d_state": 256,
        "mamba_d_ssm": 3072, "mamba_n_heads": 24, "mamba_d_head": 128, "num_attention_heads": 12, "num_hidden_layers": 44,
        "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 130048}"#;
    let nemotron = r#"{"model_type": "nemotron_h", "attention_head_dim": 128, "num_hidden_layers": 52,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"}"#;
    assert_eq!([next, falcon, nemotron].map(count), [79_674_391_296, 7_585_513_568, 8_100_852_736]);
}
