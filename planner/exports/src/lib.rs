//! Parallel configurations in the languages of other training frameworks: [`export`] writes a [`Job`] as the flags or the file that
//! the framework's own parser accepts. [`megatron::read`], [`torchtitan_file::read`], [`nanotron_file::read`], [`deepspeed_file::read`]
//! and [`maxtext::read`] read the configuration that a job has now.
//!
//! Each framework is a file: a table of the keys of a configuration. A key that the framework cannot state exactly is a [`Note`]:
//! *near* says what differs, *code* that the code of the model states it, *lost* that it is left out, with the nearest value that can be
//! stated.
//!
//! Field names were read in the sources of the versions in [`Target::version`].

mod assumption;
mod commands;
mod deepspeed;
pub mod deepspeed_file;
mod flag_error;
mod flag_table;
mod job;
mod json_text;
mod launch;
pub mod maxtext;
pub mod megatron;
pub mod megatron_bridge;
mod nanotron;
pub mod nanotron_file;
mod notes;
#[cfg(test)]
mod pages;
mod present;
mod python_config;
mod shell;
mod stage_weights;
mod stated_model;
#[cfg(test)]
mod tests;
mod torch_pipelining;
mod torchtitan;
pub mod torchtitan_file;
mod torchtitan_model;
mod yaml;

pub use assumption::{Assumption, Variable};
pub use flag_error::FlagError;
pub use job::{Job, Stage, TorchOrder, stages};
pub use launch::Launch;
pub use notes::{Export, Grade, Instead, Note, Size};
pub use present::Present;
pub use stage_weights::StageWeights;

pub use stated_model::StatedModel;

use cost::StackExpression;
use ir::models::{LlamaConfig, ModelConfig};
use notes::{Notes, Written};
use serde::Serialize;
use support::one_line::one_line;

/// A training framework that a configuration is written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// Megatron-LM: flags of `pretrain_gpt.py`.
    Megatron,
    /// Megatron-Bridge: a Python file that makes its configuration.
    #[serde(rename = "megatron-bridge")]
    MegatronBridge,
    /// torchtitan: a Python file that changes a configuration, and the same as flags.
    Torchtitan,
    /// nanotron: sections of its YAML file.
    Nanotron,
    /// DeepSpeed: its JSON file.
    Deepspeed,
    /// MaxText: a YAML file on top of `base.yml`.
    Maxtext,
    /// `torch.distributed.pipelining`: a Python file with the stages and their order.
    #[serde(rename = "torch-pipelining")]
    TorchPipelining,
}

impl Target {
    /// All, by name.
    pub const ALL: [(&str, Target); 7] = [
        ("megatron", Target::Megatron),
        ("megatron-bridge", Target::MegatronBridge),
        ("torchtitan", Target::Torchtitan),
        ("nanotron", Target::Nanotron),
        ("deepspeed", Target::Deepspeed),
        ("maxtext", Target::Maxtext),
        ("torch-pipelining", Target::TorchPipelining),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Target::ALL.into_iter().find(|(_, target)| *target == self).map_or("", |(name, _)| name)
    }

    /// The framework and the version whose parser accepts the export.
    pub fn version(self) -> &'static str {
        match self {
            Target::Megatron => "Megatron-LM, megatron-core 0.19",
            Target::MegatronBridge => "Megatron-Bridge 0.6.2",
            Target::Torchtitan => "torchtitan 0.3",
            Target::Nanotron => "nanotron 0.4",
            Target::Deepspeed => "DeepSpeed 0.19",
            Target::Maxtext => "MaxText 0.2.5",
            Target::TorchPipelining => "torch.distributed.pipelining, PyTorch 2.9 to 2.15",
        }
    }

    /// The stack that predicts the framework; none if there is none for its version.
    pub fn stack(self) -> Option<&'static str> {
        match self {
            Target::Megatron | Target::MegatronBridge => Some("megatron-core-2025"),
            Target::Torchtitan => Some("fsdp-compile-2026"),
            Target::Nanotron => Some("nanotron-0.4"),
            Target::Maxtext => Some("jax-2024"),
            Target::Deepspeed | Target::TorchPipelining => None,
        }
    }

    /// True if a preset stack is of another framework. Of a file's stack that is not known.
    fn is_foreign(self, stack: &str) -> bool {
        let own: &[&str] = match self {
            Target::Megatron | Target::MegatronBridge => &["megatron-core", "megatron-20", "nemo"],
            Target::Torchtitan => &["fsdp", "automodel"],
            Target::Nanotron => &["nanotron"],
            Target::Maxtext => &["jax"],
            Target::Deepspeed | Target::TorchPipelining => return false,
        };
        let stack = StackExpression::of(stack);
        stack.is_of_preset() && !own.iter().any(|beginning| stack.base.starts_with(beginning))
    }

    /// The mark that begins a comment line of its files; `None` for JSON, which has none.
    fn comment(self) -> Option<&'static str> {
        (self != Target::Deepspeed).then_some("#")
    }
}

/// Writes a job for a framework. `size` predicts what the framework does instead of a key, if it can.
pub fn export(job: &Job, target: Target, size: &dyn Fn(&Instead) -> Option<Size>) -> Export {
    let Written { body, notes, assumed } = match target {
        Target::Megatron => megatron::write(job),
        Target::MegatronBridge => megatron_bridge::write(job),
        Target::Torchtitan => torchtitan::write(job),
        Target::Nanotron => nanotron::write(job),
        Target::Deepspeed => deepspeed::write(job),
        Target::Maxtext => maxtext::write(job),
        Target::TorchPipelining => torch_pipelining::write(job),
    };
    let mut notes = Notes(notes);
    if let Some(stack) = target.stack().filter(|_| target.is_foreign(&job.stack)) {
        notes.near("stack", &job.stack, &format!("the prediction is of another framework: plan with --stack {stack}"));
    }
    if let Some(adapters) = &job.adapters {
        notes.lost("lora", adapters, "the framework's own settings of fine-tuning state adapters");
    }
    if let Some(ModelConfig::Llama(LlamaConfig { scanned: Some(_), .. })) = &job.config {
        notes.lost("model", "layers that carry a state", "the framework's own code of the model states them");
    }
    if job.config.as_ref().is_some_and(|config| config.vision().is_some()) {
        notes.lost("model", "the encoder of images", "the framework's own code of the model states it, and its stages");
    }
    if job.documents {
        let text = "data of one's own have documents: the framework's settings of its data say where they end";
        notes.near("lengths", "shorter than a sequence", text);
    }
    let Notes(mut notes) = notes;
    for note in &mut notes {
        note.size = note.instead.as_ref().and_then(size);
    }
    let heading = target.comment().map(|mark| {
        let lines = job.heading(target).into_iter().chain(notes.iter().map(Note::to_string));
        let lines = lines.chain(target.commands(job));
        // A model may be named by any text: as a comment it stays on its line.
        lines.map(|line| format!("{mark} {}\n", one_line(&line))).collect::<String>()
    });
    let text = match (target, heading) {
        // A shell reads the first line of a script.
        (Target::Megatron, Some(heading)) => {
            format!("#!/usr/bin/env bash\n{}{heading}{body}", launch::directives(job))
        }
        (_, Some(heading)) => format!("{heading}{body}"),
        (_, None) => body,
    };
    Export { target, text, notes, assumed }
}
