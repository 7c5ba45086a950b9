//! Sequence slices, which run one after the other (Li et al. 2021, TeraPipe; Sun et al. 2024, Seq1F1B).
//!
//! The sequence is the dim of that role, which is split evenly; its size becomes that of a slice. Every block becomes one block
//! per slice, and every block instance one call per slice:
//!
//! The backward recomputes the `concat` of keys, so that each key is saved once. Dropout draws by the position in the
//! unsliced sequence. Only `partition`, which puts the slices of an instance together, and the items of a schedule
//! (`2F3:1`) know of slices.
//!
//! ```text
//! block @layer.1(%x: f32[b, s, h], %pos: input i32[b, t], .., %k.0: f32[b, 16, g, d], %v.0: ..; ..) -> (%y, %k, %v) {
//!   %k.t: f32[b, 32, g, d] = concat(%k.0, %k, dim=1)
//! ```
//!
//! Inputs keep the entire sequence, and each block takes its rows. An op may read operands of earlier slices: the keys and
//! values of causal attention, [`ir::ops::OpFacts::causal_operands`]. The blocks of those slices pass them on as ordinary values,
//! so later passes need no knowledge of slices. The cotangent of a key is the sum of the contributions of its own slice and
//! all later slices, which therefore run first in the backward.
//!
//! Slices compute the same values as the entire sequence if attention is causal in the order of rows: within a segment,
//! later rows must have later positions.

mod along;
mod block;
mod unsliced;

use along::Along;
use ir::catalogue::Code;
use ir::diag::Coded;
use ir::dim_role::DimRole;
use ir::entity::PrimaryMap;
use ir::graph::{Block, Call, Model, Repeat, ResultKind};
use ir::ids::{BlockId, DimId, ModelValue};
use ir::types::{DimName, Type};
use std::collections::HashMap;
use std::fmt;
use unsliced::Unsliced;

/// Error: the sequences of a model cannot be sliced.
#[derive(Clone, PartialEq, Debug)]
pub enum SliceError {
    /// No dim is the sequence.
    NoSequence,
    /// The slices would differ in length.
    Uneven {
        /// The requested number of slices.
        slices: u32,
        /// The length of a sequence.
        size: u64,
    },
    /// A block mixes the positions of a sequence.
    Block {
        /// The block.
        block: String,
        /// The reason.
        why: String,
    },
}

impl fmt::Display for SliceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SliceError::NoSequence => {
                f.write_str("no dim of the model has the role `sequence`: there is no sequence to split into slices")
            }
            SliceError::Uneven { slices, size } => {
                write!(f, "slices of a sequence are equal, but {slices} of them do not divide one of {size}")
            }
            SliceError::Block { block, why } => {
                write!(f, "block `@{block}` cannot run on a slice of the sequence: {why}")
            }
        }
    }
}

impl std::error::Error for SliceError {}

impl Coded for SliceError {
    fn code(&self) -> Option<Code> {
        Some(Code::UnsuitedSchedule)
    }

    fn help(&self) -> Option<String> {
        match self {
            SliceError::Uneven { size, .. } => {
                let divisors: Vec<String> =
                    (1..=*size.min(&64)).filter(|d| size.is_multiple_of(*d)).map(|d| d.to_string()).collect();
                Some(format!("numbers of slices that divide it: {}", divisors.join(", ")))
            }
            _ => Some("use a schedule without sequence slices: meshwright schedules".to_string()),
        }
    }
}

/// The blocks of all slices of a block.
struct SlicedParts {
    blocks: Vec<Block>,
    /// The names of the values that each slice passes to later ones.
    passed: Vec<String>,
}

impl SlicedParts {
    fn of(block: &Block, split: &SequenceSplit) -> Result<SlicedParts, Unsliced> {
        let along = Along::of(block, split)?;
        let blocks = (0..split.slices).map(|slice| block::sliced(block, &along, split, slice));
        let passed = along.passed.iter().map(|&value| block.value_name(value).to_string()).collect();
        Ok(SlicedParts { blocks: blocks.collect::<Result<_, _>>()?, passed })
    }
}

/// The split of the sequence.
#[derive(Clone, Copy)]
struct SequenceSplit {
    /// The dim of a slice: the model's sequence.
    dim: DimId,
    /// The new dim of the entire sequence, unless the model has a dim of its role.
    whole: Option<DimId>,
    /// Its size.
    size: u64,
    /// The size of a slice.
    length: u64,
    slices: u32,
}

impl SequenceSplit {
    /// The type of a value with the entire sequence.
    fn whole(&self, ty: &Type) -> Type {
        let mut ty = ty.clone();
        ty.dims.iter_mut().filter(|dim| dim.name == Some(self.dim)).for_each(|dim| dim.name = self.whole);
        ty
    }
}

/// Returns the model with its sequences split into `count` slices.
///
/// # Errors
/// There is no sequence, its length is not a multiple of the number of slices, or an op needs rows after the end of a
/// slice.
pub fn slice(model: &Model, slices: u32) -> Result<Model, SliceError> {
    let sequence = model.dims.iter().find(|(_, dim)| dim.role == Some(DimRole::Sequence));
    let (dim, &DimName { size, .. }) = sequence.ok_or(SliceError::NoSequence)?;
    if slices == 0 || !size.is_multiple_of(slices.into()) {
        return Err(SliceError::Uneven { slices, size });
    }
    let mut sliced = Model { values: PrimaryMap::new(), calls: Vec::new(), blocks: PrimaryMap::new(), ..model.clone() };
    let whole = DimName::new(&free_dim(&sliced, "t"), size, Some(DimRole::Tokens));
    let whole = sliced.dim_of(DimRole::Tokens).is_none().then(|| sliced.dims.push(whole));
    let length = size / u64::from(slices);
    sliced.dims[dim].size = length;
    let split = SequenceSplit { dim, whole, size, length, slices };
    for param in sliced.params.values_mut() {
        param.ty = split.whole(&param.ty);
    }
    let mut blocks: HashMap<BlockId, SlicedBlock> = HashMap::new();
    for (id, block) in &model.blocks {
        let parts = SlicedParts::of(block, &split);
        let parts = parts.map_err(|why| SliceError::Block { block: block.name.clone(), why: why.to_string() })?;
        let ids = parts.blocks.into_iter().map(|block| sliced.blocks.push(block)).collect();
        blocks.insert(id, SlicedBlock { ids, passed: parts.passed });
    }
    let mut calls = Calls { model, sliced, known: HashMap::new(), blocks: &blocks };
    calls.inputs(&split);
    for call in &model.calls {
        calls.call(call);
    }
    Ok(calls.sliced)
}

/// The name, or a longer form that no dim of the model has.
fn free_dim(model: &Model, name: &str) -> String {
    let mut name = name.to_string();
    while model.dims.values().any(|dim| dim.name == name) {
        name.push('_');
    }
    name
}

/// The slice blocks of one block, in order, and the names of the values that each passes to later slices.
struct SlicedBlock {
    ids: Vec<BlockId>,
    passed: Vec<String>,
}

struct Calls<'a> {
    model: &'a Model,
    sliced: Model,
    /// The new values of a value: an input itself, or one value per slice.
    known: HashMap<ModelValue, Vec<ModelValue>>,
    blocks: &'a HashMap<BlockId, SlicedBlock>,
}

impl Calls<'_> {
    fn inputs(&mut self, split: &SequenceSplit) {
        for (place, input) in self.model.inputs.iter().enumerate() {
            let value = self.sliced.values.push(self.model.values[input.value].clone());
            self.sliced.inputs[place].value = value;
            self.sliced.inputs[place].ty = split.whole(&input.ty);
            self.known.insert(input.value, vec![value]);
        }
    }

    fn of_slice(&self, value: ModelValue, slice: usize) -> Option<ModelValue> {
        let values = self.known.get(&value)?;
        values.get(slice).or(values.first()).copied()
    }

    /// One call per slice for each instance, in the order of instances. Carried values of a repeat pass from call to call.
    fn call(&mut self, call: &Call) {
        let block = &self.model.blocks[call.block];
        let sliced = &self.blocks[&call.block];
        let values = block.results.iter().filter(|kind| **kind == ResultKind::Value).count();
        let mut carried: Vec<Vec<ModelValue>> = vec![Vec::new(); sliced.ids.len()];
        for instance in 0..call.instances() {
            let mut earlier: Vec<ModelValue> = Vec::new();
            for (slice, &id) in sliced.ids.iter().enumerate() {
                let mut args: Vec<ModelValue> =
                    call.args.iter().filter_map(|&value| self.of_slice(value, slice)).collect();
                args.iter_mut().zip(&carried[slice]).for_each(|(arg, &value)| *arg = value);
                args.extend(&earlier);
                let index = call.index(instance);
                let suffix = if call.repeat.is_some() { format!("{slice}.{index}") } else { slice.to_string() };
                let named = call.results.iter().map(|&value| self.model.values[value].as_str());
                let passed = if slice + 1 < sliced.ids.len() { &sliced.passed[..] } else { &[] };
                let names: Vec<String> =
                    named.chain(passed.iter().map(String::as_str)).map(|name| format!("{name}.{suffix}")).collect();
                let results: Vec<ModelValue> = names.into_iter().map(|name| self.value(name, &block.name)).collect();
                earlier.extend(&results[values.min(results.len())..]);
                carried[slice] = results[..values.min(results.len())].to_vec();
                self.sliced.calls.push(Call {
                    results,
                    block: id,
                    repeat: call.repeat.as_ref().map(|repeat| Repeat { range: index..index + 1, ..repeat.clone() }),
                    args,
                    slice: Some(slice as u32),
                    offload: call.offload,
                    comments: if instance == 0 && slice == 0 { call.comments.clone() } else { Vec::new() },
                    ..call.clone()
                });
            }
        }
        for (place, &result) in call.results.iter().enumerate() {
            self.known.insert(result, carried.iter().filter_map(|values| values.get(place).copied()).collect());
        }
    }

    /// A new value of the model. If two blocks pass values of one name, the second gets the name of its block as prefix.
    fn value(&mut self, mut name: String, block: &str) -> ModelValue {
        while self.sliced.values.values().any(|known| *known == name) {
            name = format!("{block}.{name}");
        }
        self.sliced.values.push(name)
    }
}

#[cfg(test)]
mod tests;
