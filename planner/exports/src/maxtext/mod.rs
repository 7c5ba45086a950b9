//! MaxText: the YAML file of a job, on top of its `base.yml`, and the reading of such files.

mod assumptions;
mod axes;
mod keys;
mod layout;
mod model;
mod presets;
mod read_keys;
mod reader;
mod remat;

#[cfg(test)]
pub(crate) use reader::asked;
pub use reader::{Devices, read};

use crate::job::Job;
use crate::launch::Nodes;
use crate::notes::{Notes, Written};
use ir::models::{LayerSet, ModelConfig, from_config};
use std::fmt::Write;

/// A file with the keys of a job.
pub(crate) fn write(job: &Job) -> Written {
    let mut notes = Notes::default();
    let model = job.config.as_ref().map(|config| model::lines(config, job.seq)).unwrap_or_default();
    if !job.config.as_ref().is_some_and(|config| states(&model, config)) {
        notes.near("model", &job.model, "MaxText's keys do not state all of it: give model_name yourself");
    }
    let layout = layout::lines(job, &mut notes);
    let assumed = assumptions::assumptions(job);
    let mut text = String::new();
    let nodes = Nodes::of(job);
    let _ = writeln!(text, "# On each of {} nodes: {COMMAND}", nodes.count);
    text.push_str("base_config: \"base.yml\"\n");
    section(&mut text, "The model.", &model);
    section(&mut text, "The layout.", &layout);
    for assumption in &assumed {
        section(&mut text, &format!("{}; without: {}", assumption.name, assumption.without), &assumption.flags);
    }
    section(&mut text, "Made-up data, for a first measurement.", &MEASUREMENT.map(String::from));
    Written { body: text, notes: notes.0, assumed }
}

/// The command that starts a job.
const COMMAND: &str =
    "python3 -m maxtext.trainers.pre_train.train THIS_FILE run_name=planned base_output_directory=DIRECTORY";

/// Keys of a job without data of one's own.
const MEASUREMENT: [&str; 3] = ["dataset_type: \"synthetic\"", "steps: 50", "enable_checkpointing: false"];

/// True if keys state a model as it is, but for values at the first step, dropout and a row that is not trained.
fn states(keys: &[String], config: &ModelConfig) -> bool {
    let read = keys::FileKeys::of_lines(keys).and_then(|keys| model::of_keys(&keys));
    match (read.and_then(|json| from_config(&json.to_string()).ok()), config) {
        (Some(ModelConfig::Llama(mut read)), ModelConfig::Llama(own)) => {
            read.deviation = own.deviation;
            (read.attention_dropout, read.residual_dropout) = (own.attention_dropout, own.residual_dropout);
            (read.embedding_dropout, read.pad) = (own.embedding_dropout, own.pad);
            if let (Some(experts), Some(wanted)) = (&mut read.experts, &own.experts) {
                (experts.capacity, experts.group) = (wanted.capacity, wanted.group);
                if wanted.dense == LayerSet::None {
                    // No layer has a net of this size.
                    read.feed_forward = own.feed_forward;
                }
            }
            read == *own
        }
        (Some(ModelConfig::Gpt2(read)), ModelConfig::Gpt2(own)) => {
            (read.vocabulary, read.hidden, read.feed_forward, read.layers, read.heads, read.tied, read.post_norm)
                == (own.vocabulary, own.hidden, own.feed_forward, own.layers, own.heads, own.tied, own.post_norm)
        }
        _ => false,
    }
}

fn section(text: &mut String, about: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "# {about}");
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
}
