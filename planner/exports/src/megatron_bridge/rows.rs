//! Flags of Megatron-LM with the fields of Megatron-Bridge that mean the same.

/// A flag of Megatron-LM, with the fields that mean the same.
pub(super) struct Row {
    pub(super) flag: &'static str,
    pub(super) fields: &'static [(&'static str, Given)],
}

/// Value of a field.
#[derive(Clone, Copy)]
pub(super) enum Given {
    /// A text of Python, whatever the flag's value.
    Text(&'static str),
    /// The value of the flag.
    Value,
    /// A list of the words of the value.
    Words,
    /// The element type that the value names.
    Dtype,
}

use Given::{Dtype, Text, Value, Words};

const TRUE: Given = Text("True");
const FALSE: Given = Text("False");

/// Flags whose field is not that of `model` with the same name. A few have no field: the class of the model states them.
pub(super) const ROWS: [Row; 49] = [
    Row {
        flag: "accumulate-allreduce-grads-in-fp32",
        fields: &[("mixed_precision.grad_reduce_in_fp32", TRUE), ("ddp.grad_reduce_in_fp32", TRUE)],
    },
    Row { flag: "bf16", fields: &[("mixed_precision.bf16", TRUE)] },
    Row { flag: "ckpt-format", fields: &[("checkpoint.ckpt_format", Value)] },
    Row {
        flag: "cpu-offloading-num-layers",
        fields: &[("model.cpu_offloading", TRUE), ("model.cpu_offloading_num_layers", Value)],
    },
    Row { flag: "cuda-graph-impl", fields: &[("model.cuda_graph_impl", Value), ("model.use_te_rng_tracker", TRUE)] },
    Row { flag: "cuda-graph-modules", fields: &[("model.cuda_graph_modules", Words)] },
    Row { flag: "data-parallel-sharding-strategy", fields: &[("ddp.data_parallel_sharding_strategy", Value)] },
    Row { flag: "disable-bias-linear", fields: &[("model.add_bias_linear", FALSE)] },
    Row { flag: "exp-avg-dtype", fields: &[("optimizer.exp_avg_dtype", Dtype)] },
    Row { flag: "exp-avg-sq-dtype", fields: &[("optimizer.exp_avg_sq_dtype", Dtype)] },
    Row { flag: "fp16", fields: &[("mixed_precision.fp16", TRUE)] },
    Row { flag: "fp8-format", fields: &[("mixed_precision.fp8", Value)] },
    Row { flag: "fp8-recipe", fields: &[("mixed_precision.fp8_recipe", Value)] },
    Row { flag: "global-batch-size", fields: &[("train.global_batch_size", Value)] },
    Row {
        flag: "grad-reduce-in-bf16",
        fields: &[("mixed_precision.grad_reduce_in_fp32", FALSE), ("ddp.grad_reduce_in_fp32", FALSE)],
    },
    Row { flag: "group-query-attention", fields: &[] },
    Row { flag: "max-position-embeddings", fields: &[] },
    Row { flag: "megatron-fsdp-grad-comm-dtype", fields: &[("ddp.megatron_fsdp_grad_comm_dtype", Dtype)] },
    Row { flag: "megatron-fsdp-main-grads-dtype", fields: &[("ddp.megatron_fsdp_main_grads_dtype", Dtype)] },
    Row { flag: "micro-batch-size", fields: &[("train.micro_batch_size", Value)] },
    Row {
        flag: "microbatch-group-size-per-virtual-pipeline-stage",
        fields: &[("model.microbatch_group_size_per_vp_stage", Value)],
    },
    Row { flag: "no-bias-dropout-fusion", fields: &[("model.bias_dropout_fusion", FALSE)] },
    Row { flag: "no-bias-gelu-fusion", fields: &[("model.bias_activation_fusion", FALSE)] },
    Row { flag: "no-bias-swiglu-fusion", fields: &[("model.bias_activation_fusion", FALSE)] },
    Row { flag: "no-gradient-accumulation-fusion", fields: &[("model.gradient_accumulation_fusion", FALSE)] },
    Row { flag: "no-masked-softmax-fusion", fields: &[("model.masked_softmax_fusion", FALSE)] },
    Row { flag: "no-rope-fusion", fields: &[("model.apply_rope_fusion", FALSE)] },
    Row {
        flag: "no-yarn-correction-range-round-to-int",
        fields: &[("model.yarn_correction_range_round_to_int", FALSE)],
    },
    Row { flag: "norm-epsilon", fields: &[("model.layernorm_epsilon", Value)] },
    Row { flag: "num-distributed-optimizer-instances", fields: &[("ddp.num_distributed_optimizer_instances", Value)] },
    Row { flag: "num-experts", fields: &[("model.num_moe_experts", Value)] },
    Row {
        flag: "num-virtual-stages-per-pipeline-rank",
        fields: &[("model.virtual_pipeline_model_parallel_size", Value)],
    },
    Row { flag: "optimizer", fields: &[("optimizer.optimizer", Value)] },
    Row { flag: "optimizer-cpu-offload", fields: &[("optimizer.optimizer_cpu_offload", TRUE)] },
    Row { flag: "overlap-grad-reduce", fields: &[("ddp.overlap_grad_reduce", TRUE)] },
    Row {
        flag: "overlap-param-gather",
        fields: &[("ddp.overlap_param_gather", TRUE), ("optimizer.overlap_param_gather", TRUE)],
    },
    Row {
        flag: "quick-geglu",
        fields: &[("model.gated_linear_unit", TRUE), ("model.activation_func", Text("quick_gelu"))],
    },
    Row { flag: "recompute-modules", fields: &[("model.recompute_modules", Words)] },
    Row { flag: "rotary-seq-len-interpolation-factor", fields: &[("model.seq_len_interpolation_factor", Value)] },
    Row { flag: "seq-length", fields: &[("model.seq_length", Value), ("dataset.seq_length", Value)] },
    Row { flag: "sgd-momentum", fields: &[("optimizer.sgd_momentum", Value)] },
    Row { flag: "squared-relu", fields: &[("model.activation_func", Text("squared_relu"))] },
    Row {
        flag: "swiglu",
        fields: &[("model.gated_linear_unit", TRUE), ("model.activation_func", Text("torch.nn.functional.silu"))],
    },
    Row {
        flag: "untie-embeddings-and-output-weights",
        fields: &[("model.share_embeddings_and_output_weights", FALSE)],
    },
    Row {
        flag: "use-distributed-optimizer",
        fields: &[("ddp.use_distributed_optimizer", TRUE), ("optimizer.use_distributed_optimizer", TRUE)],
    },
    Row { flag: "use-megatron-fsdp", fields: &[("ddp.use_megatron_fsdp", TRUE), ("dist.use_megatron_fsdp", TRUE)] },
    Row { flag: "use-precision-aware-optimizer", fields: &[("optimizer.use_precision_aware_optimizer", TRUE)] },
    Row { flag: "use-rope-scaling", fields: &[("model.rope_scaling", TRUE)] },
    Row { flag: "use-tp-pp-dp-mapping", fields: &[("dist.use_tp_pp_dp_mapping", TRUE)] },
];
