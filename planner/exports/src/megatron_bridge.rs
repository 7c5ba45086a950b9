//! Megatron-Bridge: a Python module that makes its configuration. Its classes have the fields of Megatron Core, so that each flag of
//! Megatron-LM is a field here. Places are those of 0.6.2.

use crate::job::Job;
use crate::launch;
use crate::megatron::JobFlags;
use crate::notes::Written;
use std::fmt::Write;

/// A flag of Megatron-LM, with the fields that mean the same.
struct Row {
    flag: &'static str,
    fields: &'static [(&'static str, Given)],
}

/// Value of a field.
#[derive(Clone, Copy)]
enum Given {
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
const ROWS: [Row; 49] = [
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

/// The flag of the other order of ranks.
const ORDER: &str = "--use-tp-pp-dp-mapping";

pub(crate) fn write(job: &Job) -> Written {
    let mut flags = JobFlags::of(job);
    for assumed in &mut flags.assumed {
        let lines = assumed.flags.iter().flat_map(|flag| assignments(flag));
        let variables = assumed.environment.iter().map(|variable| match &variable.value {
            Some(value) => format!("cfg.env_vars[\"{}\"] = {value}", variable.name),
            None => format!("os.environ.pop(\"{}\", None)", variable.name),
        });
        assumed.flags = lines.chain(variables).collect();
        assumed.environment.clear();
    }
    let is_turned = flags.layout.iter().any(|flag| flag == ORDER);
    if is_turned && job.parallel.zero >= 2 {
        flags.layout.retain(|flag| flag != ORDER);
        let text = "Megatron-Bridge orders ranks as pp,dp,cp,tp under Megatron-FSDP (config.py)";
        flags.notes.lost("rank_order", job.parallel.rank_order.join(","), text);
    }
    let body = module(job, &flags);
    flags.written(body)
}

/// A flag with its value: `--seq-length 4096`.
struct Flag<'a> {
    name: &'a str,
    value: &'a str,
}

impl Flag<'_> {
    fn of(line: &str) -> Flag<'_> {
        let (name, value) =
            line.trim_start_matches("--").split_once(' ').unwrap_or((line.trim_start_matches("--"), ""));
        Flag { name, value: value.trim_matches('\'') }
    }

    /// The value in Python: numbers and lists stand as they are.
    fn python(&self) -> String {
        match self.value {
            "" => "True".to_string(),
            value if value.parse::<f64>().is_ok() || value.starts_with(['(', '[']) => value.to_string(),
            value => format!("\"{value}\""),
        }
    }

    fn given(&self, given: Given) -> String {
        match given {
            Text(text) => text.to_string(),
            Value => self.python(),
            Words => {
                let words: Vec<String> = self.value.split_whitespace().map(|word| format!("\"{word}\"")).collect();
                format!("[{}]", words.join(", "))
            }
            Dtype => format!("torch.{}", if self.value == "bf16" { "bfloat16" } else { "float32" }),
        }
    }
}

impl JobFlags {
    /// True if the model has a flag.
    fn has(&self, flag: &str) -> bool {
        self.model.iter().any(|line| Flag::of(line).name == flag)
    }
}

/// The assignments that mean what a flag of Megatron-LM means.
fn assignments(line: &str) -> Vec<String> {
    let flag = Flag::of(line);
    match ROWS.iter().find(|row| row.flag == flag.name) {
        Some(row) => row.fields.iter().map(|(field, given)| format!("cfg.{field} = {}", flag.given(*given))).collect(),
        None if flag.name == "attention-backend" => {
            vec![format!("cfg.model.attention_backend = AttnBackend.{}", flag.value)]
        }
        None => vec![format!("cfg.model.{} = {}", flag.name.replace('-', "_"), flag.python())],
    }
}

/// Assignments of what Megatron-LM does by itself, and Megatron-Bridge where a field says so.
fn defaults(job: &Job, flags: &JobFlags) -> Vec<String> {
    let is_fused = flags.has("swiglu") || !(flags.has("disable-bias-linear") || flags.has("squared-relu"));
    let is_interleaved = job.parallel.pp > 1 && job.stages_of_rank() > 1;
    let (element, is_wide) = match job.precision.as_str() {
        "f32" => ("float32", true),
        "fp16" => ("float16", false),
        _ => ("bfloat16", true),
    };
    let fields = [
        ("model.bias_activation_fusion", is_fused),
        ("model.bias_dropout_fusion", true),
        ("model.apply_rope_fusion", true),
        ("model.masked_softmax_fusion", true),
        ("model.gradient_accumulation_fusion", true),
        ("model.cross_entropy_loss_fusion", false),
        ("model.persist_layer_norm", true),
        ("model.should_pad_vocab", true),
        ("model.overlap_p2p_comm", is_interleaved),
        ("model.batch_p2p_comm", !is_interleaved),
        ("mixed_precision.grad_reduce_in_fp32", is_wide),
        ("ddp.grad_reduce_in_fp32", is_wide),
        ("ddp.use_distributed_optimizer", false),
        ("optimizer.use_distributed_optimizer", false),
    ];
    let fields = fields.map(|(field, value)| format!("cfg.{field} = {}", if value { "True" } else { "False" }));
    let elements = ["params_dtype", "pipeline_dtype"];
    let elements = elements.map(|field| format!("cfg.mixed_precision.{field} = torch.{element}"));
    fields.into_iter().chain(elements).collect()
}

/// The text of the module.
fn module(job: &Job, flags: &JobFlags) -> String {
    let (file, class) = match flags.has("multi-latent-attention") {
        true => ("mla_provider", "MLAModelProvider"),
        false => ("gpt_provider", "GPTModelProvider"),
    };
    let mut text = String::new();
    for line in launch::bash(job, "THIS_FILE").lines() {
        let _ = writeln!(text, "# {}", line.trim_start_matches("# "));
    }
    let _ = write!(
        text,
        "import os\n\nimport torch\nfrom megatron.bridge.models.{} import {}\n{IMPORTS}\n\
         STACK = {:?}  # whose prediction this is\n\n\n\
         def planned():\n    \"\"\"Makes the planned configuration, with made-up data, which is yours as the learning rate.\"\"\"\n{}",
        file,
        class,
        job.stack,
        CONTAINER
            .replace("PROVIDER", class)
            .replace("VOCABULARY", &vocabulary(flags))
            .replace("SEQUENCE", &job.seq.to_string()),
    );
    section(&mut text, "Defaults of Megatron-LM.", &defaults(job, flags));
    let mut model: Vec<String> = flags.model.iter().flat_map(|flag| assignments(flag)).collect();
    if !flags.has("multi-latent-attention") {
        // YaRN has fields of its own without latent attention.
        model
            .iter_mut()
            .for_each(|line| *line = line.replace("model.rotary_scaling_factor", "model.yarn_rotary_scaling_factor"));
    }
    section(&mut text, if model.is_empty() { "The model is yours." } else { "The model." }, &model);
    let layout: Vec<String> = flags.layout.iter().flat_map(|flag| assignments(flag)).collect();
    section(&mut text, "The layout.", &layout);
    for assumed in &flags.assumed {
        section(&mut text, &format!("{}; without: {}", assumed.name, assumed.without), &assumed.flags);
    }
    text.push_str(MAIN);
    text
}

fn section(text: &mut String, about: &str, lines: &[String]) {
    let _ = writeln!(text, "    # {about}");
    for line in lines {
        let _ = writeln!(text, "    {line}");
    }
}

/// The size of the vocabulary, which a tokenizer without words has; `None` if the model states none.
fn vocabulary(flags: &JobFlags) -> String {
    let size = flags.model.iter().map(|line| Flag::of(line)).find(|flag| flag.name == "vocab-size");
    size.map_or("None".to_string(), |flag| flag.value.to_string())
}

const IMPORTS: &str = "\
from megatron.bridge.training.config import (
    CheckpointConfig,
    ConfigContainer,
    DistributedDataParallelConfig,
    DistributedInitConfig,
    GPTDatasetConfig,
    LoggerConfig,
    OptimizerConfig,
    SchedulerConfig,
    TokenizerConfig,
    TrainingConfig,
    ValidationConfig,
)
from megatron.bridge.training.mixed_precision import MixedPrecisionConfig
from megatron.core.activations import squared_relu
from megatron.core.fusions.fused_bias_geglu import quick_gelu
from megatron.core.transformer.enums import AttnBackend
";

const CONTAINER: &str = "    cfg = ConfigContainer(
        model=PROVIDER(),
        train=TrainingConfig(train_iters=50),
        validation=ValidationConfig(eval_iters=0),
        optimizer=OptimizerConfig(lr=1e-4, min_lr=1e-4),
        scheduler=SchedulerConfig(lr_decay_style=\"constant\", lr_warmup_iters=0),
        ddp=DistributedDataParallelConfig(),
        dist=DistributedInitConfig(),
        dataset=GPTDatasetConfig(
            seq_length=SEQUENCE,
            random_seed=1234,
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            dataloader_type=\"single\",
            skip_getting_attention_mask_from_dataset=True,
        ),
        logger=LoggerConfig(log_interval=1),
        tokenizer=TokenizerConfig(tokenizer_type=\"NullTokenizer\", vocab_size=VOCABULARY),
        checkpoint=CheckpointConfig(),
        mixed_precision=MixedPrecisionConfig(autocast_enabled=False),
    )
";

const MAIN: &str = "    return cfg


if __name__ == \"__main__\":
    from megatron.bridge.training.gpt_step import forward_step
    from megatron.bridge.training.pretrain import pretrain

    pretrain(planned(), forward_step)
";
