//! Files of Megatron-Bridge.

use super::*;
use crate::flag_table::MEGATRON_BRIDGE;

const FILE: &str = "
model:
  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider
  num_layers: 32
  hidden_size: 4096
  num_attention_heads: 32
  num_query_groups: 8
  kv_channels: 128
  ffn_hidden_size: 14336
  vocab_size: 128256
  seq_length: 8192
  normalization: RMSNorm
  add_bias_linear: false
  gated_linear_unit: true
  activation_func: {_call_: false, _target_: torch.nn.functional.silu}
  position_embedding_type: rope
  rotary_base: 500000
  share_embeddings_and_output_weights: false
  hidden_dropout: 0.0
  attention_dropout: 0.0
  cross_entropy_loss_fusion: true
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: 2
  sequence_parallel: true
  recompute_granularity: selective
  recompute_modules: [core_attn, mlp]
  fp8_margin: 0
train: {global_batch_size: 128, micro_batch_size: 1}
ddp: {use_distributed_optimizer: true, overlap_grad_reduce: true, grad_reduce_in_fp32: false}
optimizer: {optimizer: adam, exp_avg_dtype: {_call_: false, _target_: torch.float32}}
mixed_precision: {bf16: true, grad_reduce_in_fp32: false, fp8: hybrid, fp8_recipe: tensorwise}
comm_overlap: {tp_comm_overlap: true, overlap_grad_reduce: null}
";

#[test]
fn files_of_megatron_bridge_are_flags_of_megatron() {
    let read = megatron_bridge::read(FILE, Some(64)).unwrap();
    assert_eq!(
        read.parallel,
        "tp=2,pp=4,sp=true,schedule=interleaved-1f1b,vp=2,zero=1,dp_overlap=true,tp_overlap=true,\
         recompute=selective:core_attn+mlp,mbs=1"
    );
    assert_eq!((read.seq, read.global_batch, read.precision.as_str()), (Some(8192), Some(128), "fp8-tensor"));
    assert_eq!((read.grad_dtype.as_deref(), read.optimizer.as_str()), (Some("bf16"), "adamw"));
    assert!(read.model.is_some_and(|model| model.contains("\"llama\"") && model.contains("14336")));
    assert_eq!(read.warnings, [""; 0]);
    let of_data = FILE.replace("  seq_length: 8192\n", "") + "dataset: {seq_length: 4096}\n";
    assert_eq!(megatron_bridge::read(&of_data, Some(64)).unwrap().seq, Some(4096));
}

#[test]
fn a_recipe_may_be_a_name() {
    let named = |name: &str| {
        let at = FILE.find("mixed_precision").unwrap();
        let text = format!("{}mixed_precision: {name}\n", &FILE[..at]);
        megatron_bridge::read(&text, None).unwrap().precision
    };
    let recipes =
        ["bf16_mixed", "bf16_with_fp8_current_scaling_mixed", "bf16_with_mxfp8_mixed", "bf16_with_nvfp4_mixed"];
    assert_eq!(recipes.map(named), ["bf16", "fp8-tensor", "mxfp8", "nvfp4"]);
}

#[test]
fn wrong_fields_are_named() {
    let wrong = |from: &str, to: &str| megatron_bridge::read(&FILE.replace(from, to), None).unwrap_err().to_string();
    assert_eq!(
        wrong("num_layers:", "num_layer:"),
        "Megatron-Bridge has no key model.num_layer (did you mean `model.num_layers`?)"
    );
    assert!(wrong("gpt_provider.GPTModelProvider", "hybrid.HybridModelProvider").contains("predictions know GPTs"));
    assert!(wrong("model:", "models:").contains("no section `model`"));
    assert!(wrong("pipeline_model_parallel_size: 4", "pipeline_model_parallel_size: four").contains("whole number"));
    let narrow = FILE.replace("fp8_margin: 0", "fp8_multi_head_attention: true");
    let told = "not modelled: model.fp8_multi_head_attention=true touches attention: products of 8 bits";
    assert_eq!(megatron_bridge::read(&narrow, None).unwrap().warnings, [told]);
}

#[test]
fn every_field_is_judged() {
    assert_eq!(FlagTable::of_nothing(&[&MEGATRON_BRIDGE]), [""; 0]);
    let unsaid: Vec<&str> =
        MEGATRON_BRIDGE.unsaid().filter(|field| !megatron_bridge::is_judged_by_flag(field)).collect();
    assert_eq!(unsaid, [""; 0]);
}

#[test]
fn values_of_another_kind_are_refused() {
    let wrong = |from: &str, to: &str| megatron_bridge::read(&FILE.replace(from, to), None).unwrap_err().to_string();
    assert!(wrong("tensor_model_parallel_size: 2", "tensor_model_parallel_size: [2, 4]").contains("is a list"));
    assert!(wrong("tensor_model_parallel_size: 2", "tensor_model_parallel_size: {a: 2}").contains("is a section"));
    assert!(wrong("sequence_parallel: true", "sequence_parallel: maybe").contains("it is true or false"));
    let at = FILE.find("mixed_precision").unwrap();
    let named = format!("{}mixed_precision: foo_mixed\n", &FILE[..at]);
    assert!(megatron_bridge::read(&named, None).unwrap_err().to_string().contains("no recipe"));
    let spoken =
        FILE.replace("sequence_parallel: true", "sequence_parallel: yes").replace("optimizer: true", "optimizer: 1");
    assert_eq!(
        megatron_bridge::read(&spoken, None).unwrap().parallel,
        megatron_bridge::read(FILE, None).unwrap().parallel
    );
}

#[test]
fn presets_of_equal_sizes_are_told_apart() {
    let other = |from: &str, to: &str| {
        let file = FILE.replace("add_bias_linear: false", "add_bias_linear: true").replace(from, to);
        megatron_bridge::read(&file, None).unwrap().stated.preset()
    };
    assert_eq!(other("", ""), Some("llama3-8b"));
    assert_eq!(other("vocab_size: 128256", "vocab_size: 100"), None);
    assert_eq!(other("output_weights: false", "output_weights: true"), None);
    assert_eq!(other("gated_linear_unit: true", "gated_linear_unit: false"), None);
    assert_eq!(other("position_embedding_type: rope", "position_embedding_type: none"), None);
}
