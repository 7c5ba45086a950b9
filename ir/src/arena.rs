//! Buffer assignment of a program: every rank has one arena, and every tensor a fixed offset in it.
//!
//! Model states (parameters, optimizer states, gradient sums) have dedicated places, and so have tensors that one
//! instruction of a row passes to a later one. The *frame* of a body assigns its inner values: saved tensors to the *slots* of
//! the bundle, all others to the *scratch* of the run. Both are assigned once per body, and each run states the offsets of
//! its slots and scratch. Tensors that are freed together share a slot: what one section frees leaves no holes in what a later
//! one still reads. The scratch of a run may overlap its slots or results if no two values overlap at the same instruction of
//! the body. The scratch of an async run may not. All numbers are bytes; places are multiples of
//! [`ALIGNMENT`]. Sizes are the bounds of local shapes, so one arena serves all ranks of a class.
//!
//! A rank that offloads has a second arena, in host memory. The copy of a bundle has one place: its tensors are there one
//! after the other ([`SavedLayout`]), on the host and, when it is loaded back, on the device. Offloaded states have dedicated
//! places on the host; on the device they are a bundle of this layout.
//!
//! ```text
//! frame  := 'frame' ('slot' int)* 'scratch' int (%id ('row' | 'slot' int? '+' int | 'scratch' '+' int | '=' %id)),*     at the end of a body; a slot without a number is the first
//! memory := 'memory' int ('host' int)? (%id ('[' int ']' ('.' id)?)? id? 'host'? int),* (';' (id int),*)?    after a class's `params`: its arena, model states, scalars
//! at     := 'at' int,*                                                    at the end of an instruction of a row
//! ```

use crate::ids::{ParamId, Value};
use std::collections::BTreeMap;

/// Places are multiples of this many bytes: a cache line, and the width of the widest vector.
pub const ALIGNMENT: u64 = 64;

/// The place of a value that a body computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A result: its place is stated in the row.
    Row,
    /// A slot of the bundle, and an offset in it.
    Slot(usize, u64),
    /// An offset in the scratch of the run.
    Scratch(u64),
    /// The place of another value, which may be defined later: one is a view of the other or overwrites it when it dies.
    Same(Value),
}

/// The buffer assignment of a body.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    /// Bytes of each slot of a bundle: saved values that are neither arguments nor results.
    pub slots: Vec<u64>,
    /// Bytes of the scratch.
    pub scratch: u64,
    /// The places of all values that the body computes, except stores into parameters, states and gradients. A gradient sum
    /// that a wait adds to is included, with the place of the addend.
    pub places: BTreeMap<Value, Place>,
}

/// The role of a model-state tensor.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Role {
    /// The parameter.
    Param,
    /// The sum of its gradients over micro-batches.
    Gradient,
    /// A state of this suffix: `m`.
    State(String),
}

/// A tensor that lives from step to step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resident {
    /// The parameter that it belongs to.
    pub param: ParamId,
    /// The element of a parameter array.
    pub instance: u32,
    /// Its role.
    pub role: Role,
    /// True if it is in the arena of host memory.
    pub host: bool,
    /// Its offset in the arena.
    pub at: u64,
}

/// The arena of each rank of a class.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arena {
    /// Its size.
    pub bytes: u64,
    /// The size of the arena in host memory; 0 if nothing is offloaded.
    pub host: u64,
    /// Model states. A program that runs on the same ranks as another (an evaluation) has all model states of the other,
    /// at the same places.
    pub residents: Vec<Resident>,
    /// Scalars that bodies read by name, including `lr` and `step`, and copies of the results of the step graph.
    pub scalars: BTreeMap<String, u64>,
    /// Per instruction of the row, the places of the tensors that it defines. For a feed, a `loss_grad`, an addition or a
    /// receive (from its start on), that of the register. For a sum, at its start, the old place, or a fresh one if others
    /// hold the old. For a run: those of the results (a result that is an argument has the place of the argument), then those of
    /// the slots, then the scratch if it has any. For an offload, at its start, the place in host memory; for a load, also of
    /// states, the place on the device.
    pub at: Vec<Vec<u64>>,
}

/// The layout of a copied bundle: its tensors one after the other, in the order in which the body saves them. Saved values of
/// one place are one tensor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SavedLayout {
    /// The tensors.
    pub tensors: Vec<SavedTensor>,
    /// Per saved value of the body, the index of its tensor.
    pub saved: Vec<usize>,
    /// Bytes of all tensors.
    pub bytes: u64,
}

/// A tensor of a copied bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavedTensor {
    /// One of the saved values that it is.
    pub value: Value,
    /// Its offset from the place of the bundle.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl Frame {
    /// The value whose place a value has: itself, unless its place is that of another.
    pub fn root(&self, value: Value) -> Value {
        let mut root = value;
        // A chain longer than this has no end.
        for _ in 0..self.places.len() {
            match self.places.get(&root) {
                Some(Place::Same(other)) => root = *other,
                _ => break,
            }
        }
        root
    }
}
