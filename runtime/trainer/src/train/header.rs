//! The description of a run, from what is compiled and read.

use super::data::Data;
use super::feed::Feed;
use super::report::{Routed, RunHeader};
use super::request::TrainRequest;
use crate::error::Error;
use cost::Routing;
use ir::graph::Model;
use ir::options::ParallelConfig;
use ir::staged::{Stage, Staged};
use ir::text::File;
use std::ops::Range;

/// The description of a run that begins at its first step.
///
/// # Errors
/// The request has no optimizer or learning rate.
pub(super) fn header(
    request: &TrainRequest,
    parallel: ParallelConfig,
    compiled: &File,
    data: &Data,
    feed: &Feed,
    microbatches: u32,
) -> Result<RunHeader, Error> {
    let model = &compiled.model;
    let axes: Vec<String> = model.mesh.axes.values().map(|axis| format!("{}={}", axis.name, axis.size)).collect();
    let stages = compiled.staged.as_ref().map_or_else(Vec::new, |staged| stage_blocks(model, staged));
    Ok(RunHeader {
        model: request.model.clone(),
        parameters: model.parameter_count(),
        routing: routed(model, request.global_batch * feed.seq),
        precision: request.precision.clone(),
        optimizer: request.optimizer()?,
        learning_rate: request.learning_rate()?,
        unknown_keys: Vec::new(),
        devices: model.mesh.devices(),
        place: String::new(),
        mesh: axes.join(" "),
        parallel,
        stages,
        microbatches,
        global_batch: request.global_batch,
        seq: feed.seq,
        steps: request.steps,
        done: 0,
        resumed: None,
        weights: None,
        data: data.path(),
        blend: data.shared(),
        documents: data.documents(),
        train_tokens: data.train_tokens(),
        valid_tokens: data.valid_tokens(),
        unit: data.unit(),
        examples: data.examples,
        bytes_per_token: data.bytes_per_token(),
        bigram_entropy: data.bigram_entropy(),
    })
}

/// Returns the routing of a model with experts, for the tokens of a step.
fn routed(model: &Model, tokens: u64) -> Option<Routed> {
    // Each slice of a sequence has a call of its own; count the first.
    let calls = model.calls.iter().filter(|call| call.slice.is_none_or(|slice| slice == 0));
    let mut layers =
        calls.filter_map(|call| Some((Routing::of(&model.blocks[call.block])?, u64::from(call.instances()))));
    let (routing, first) = layers.next()?;
    let count = first + layers.map(|(_, count)| count).sum::<u64>();
    let Routing { tokens: group, chosen, experts, capacity } = routing;
    let choices = tokens.saturating_mul(chosen).saturating_mul(count);
    Some(Routed { experts, chosen, group, capacity, expected: routing.dropped(), choices })
}

/// Returns the blocks of each stage: `embed, layer[0..3]`. The slices of a sequence count as one block.
fn stage_blocks(model: &Model, staged: &Staged) -> Vec<String> {
    staged.stages.iter().map(|stage| blocks(model, stage)).collect()
}

fn blocks(model: &Model, stage: &Stage) -> String {
    let mut blocks: Vec<(&str, Option<Range<u32>>)> = Vec::new();
    for part in &stage.parts {
        let call = &model.calls[part.call];
        let name = model.blocks[call.block].name.as_str();
        let name = match call.slice {
            Some(0) => name.strip_suffix(".0").unwrap_or(name),
            Some(_) => continue,
            None => name,
        };
        let range = call.repeat.as_ref().map(|_| call.index(part.instances.start)..call.index(part.instances.end));
        match (blocks.last_mut(), &range) {
            (Some((last, Some(before))), Some(range)) if *last == name && before.end == range.start => {
                before.end = range.end;
            }
            _ => blocks.push((name, range)),
        }
    }
    let texts = blocks.into_iter().map(|(name, range)| match range {
        Some(range) => format!("{name}[{}..{}]", range.start, range.end),
        None => name.to_string(),
    });
    texts.collect::<Vec<_>>().join(", ")
}
