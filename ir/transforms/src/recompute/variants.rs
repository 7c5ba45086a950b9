//! Recomputation of the first layers of each stage only: two variants of one block.

use super::{RECOMPUTED, is_layer};
use ir::graph::{Block, Call, Model, Repeat};
use ir::ids::{BlockId, ModelValue};

/// Adds a variant of each layer's block, for the caller to change; no call uses it yet.
pub fn add_variants(model: &mut Model) -> Vec<BlockId> {
    let layers: Vec<BlockId> = model.blocks.keys().filter(|&id| is_layer(&model.blocks[id])).collect();
    let mut variants = Vec::new();
    for id in layers {
        let block = model.blocks[id].clone();
        let name = format!("{}{RECOMPUTED}", block.name);
        variants.push(model.blocks.push(Block { name, comments: Vec::new(), ..block }));
    }
    variants
}

/// The number of layers that call the recomputed variant; `None` if there are no variants.
pub fn recomputed_layers(model: &Model) -> Option<u32> {
    model.blocks.values().any(|block| block.name.ends_with(RECOMPUTED)).then(|| {
        let calls = model.calls.iter().filter(|call| call.slice.unwrap_or(0) == 0);
        calls.filter(|call| model.blocks[call.block].name.ends_with(RECOMPUTED)).map(Call::instances).sum()
    })
}

/// Makes the first `n` layers of each stage call the recomputed variants, and the others the original blocks. A stage begins
/// at a block instance, counted over all calls and their instances.
pub fn call_variants(model: &mut Model, layers: u32, starts: &[usize]) {
    let (mut run, mut of_stage) = (0, 0);
    for call in std::mem::take(&mut model.calls) {
        let variants = variants_of(model, call.block);
        let (offload, mut parts): (bool, Vec<CallPart>) = (call.offload, Vec::new());
        for _ in 0..call.instances() {
            of_stage = if starts.contains(&run) { 0 } else { of_stage };
            of_stage += u32::from(variants.is_some() && call.slice.unwrap_or(0) == 0);
            let block = variants
                .map_or(call.block, |[original, recomputed]| if of_stage <= layers { recomputed } else { original });
            match parts.last_mut() {
                Some(last) if last.block == block => last.instances += 1,
                _ => parts.push(CallPart { block, offload, instances: 1 }),
            }
            run += 1;
        }
        let split = split(model, &call, &parts);
        model.calls.extend(split);
    }
}

/// The calls of a block and of its variant, if any; once stages are known, each may call either.
pub fn calls_of(model: &Model, id: BlockId) -> impl Iterator<Item = &Call> + '_ {
    let blocks = variants_of(model, id).unwrap_or([id; 2]);
    model.calls.iter().filter(move |call| blocks.contains(&call.block))
}

/// A layer's block and its variant, given either.
pub fn variants_of(model: &Model, id: BlockId) -> Option<[BlockId; 2]> {
    let name = &model.blocks[id].name;
    let original = name.strip_suffix(RECOMPUTED).unwrap_or(name);
    let recomputed = format!("{original}{RECOMPUTED}");
    let (original, _) = model.blocks.iter().find(|(_, block)| block.name == original)?;
    let (recomputed, _) = model.blocks.iter().find(|(_, block)| block.name == recomputed)?;
    Some([original, recomputed])
}

/// Some consecutive instances of a call.
pub(crate) struct CallPart {
    pub(crate) block: BlockId,
    /// True if their saved activations are offloaded.
    pub(crate) offload: bool,
    pub(crate) instances: u32,
}

/// Splits a call into its parts; the carried values pass from one to the next.
pub(crate) fn split(model: &mut Model, call: &Call, parts: &[CallPart]) -> Vec<Call> {
    let (mut calls, mut done): (Vec<Call>, u32) = (Vec::new(), 0);
    for (place, &CallPart { block, offload, instances: runs }) in parts.iter().enumerate() {
        let first = call.index(done);
        done += runs;
        let mut args = call.args.clone();
        if let Some(before) = calls.last() {
            args.iter_mut().zip(&before.results).for_each(|(arg, &value)| *arg = value);
        }
        let results: Vec<ModelValue> = match place + 1 == parts.len() {
            true => call.results.clone(),
            false => call.results.iter().map(|&value| between(model, value, first + runs)).collect(),
        };
        let repeat = call.repeat.as_ref().map(|repeat| Repeat { range: first..first + runs, ..repeat.clone() });
        let comments = if place == 0 { call.comments.clone() } else { Vec::new() };
        calls.push(Call { results, block, repeat, args, offload, comments, ..call.clone() });
    }
    calls
}

/// A new value of the model: the carried value of a repeat before an instance of its block.
fn between(model: &mut Model, value: ModelValue, index: u32) -> ModelValue {
    let mut name = format!("{}.before.{index}", model.values[value]);
    while model.values.values().any(|known| *known == name) {
        name.push('_');
    }
    model.values.push(name)
}
