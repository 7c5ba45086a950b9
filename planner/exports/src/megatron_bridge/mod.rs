//! Megatron-Bridge: a Python module that makes its configuration. Its classes have the fields of Megatron Core, so that each flag of
//! Megatron-LM is a field here. Places are those of 0.6.2.

mod fields;
mod reader;
mod rows;

pub use reader::read;
#[cfg(test)]
pub(crate) use reader::{flag_of, is_judged_by_flag};

use crate::job::Job;
use crate::launch;
use crate::megatron::JobFlags;
use crate::notes::Written;
use rows::Given::{self, Dtype, Text, Value, Words};
use rows::ROWS;
use std::fmt::Write;

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
