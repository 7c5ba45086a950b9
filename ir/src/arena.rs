//! Buffer assignment of a program: every rank has one arena, and every tensor a fixed offset in it.
//!
//! Model states (parameters, optimizer states, gradient sums) have dedicated places, and so have tensors that one
//! instruction of a row passes to a later one. The *frame* of a body assigns its inner values: saved tensors to the *slot* of
//! the bundle, all others to the *scratch* of the run. Both are assigned once per body, and each run states the offsets of
//! its slot and scratch. The scratch of a run may overlap its slot or results if no two values overlap at the same
//! instruction of the body. The scratch of an async run may not. All numbers are bytes; places are multiples of
//! [`ALIGNMENT`]. Sizes are the bounds of local shapes, so one arena serves all ranks of a class.
//!
//! ```text
//! frame  := 'frame' 'slot' int 'scratch' int (%id ('row' | 'slot' '+' int | 'scratch' '+' int | '=' %id)),*     at the end of a body
//! memory := 'memory' int (%id ('[' int ']' ('.' id)?)? id? int),* (';' (id int),*)?    after a class's `params`: its arena, model states, scalars
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
    /// An offset in the slot of the bundle.
    Slot(u64),
    /// An offset in the scratch of the run.
    Scratch(u64),
    /// The place of another value, which may be defined later: one is a view of the other or overwrites it when it dies.
    Same(Value),
}

/// The buffer assignment of a body.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    /// Bytes of the slot of a bundle: saved values that are neither arguments nor results.
    pub slot: u64,
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
    /// Its offset in the arena.
    pub at: u64,
}

/// The arena of each rank of a class.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arena {
    /// Its size.
    pub bytes: u64,
    /// Model states. A program that runs on the same ranks as another (an evaluation) has all model states of the other,
    /// at the same places.
    pub residents: Vec<Resident>,
    /// Scalars that bodies read by name, including `lr` and `step`, and copies of the results of the step graph.
    pub scalars: BTreeMap<String, u64>,
    /// Per instruction of the row, the places of the tensors that it defines. For a feed, a `loss_grad`, an addition or a
    /// receive (from its start on), that of the register. For a sum, at its start, the old place, or a fresh one if others
    /// hold the old. For a run: those of the results (a result that is an argument has the place of the argument), then the
    /// slot if it saves anything (any place if the slot is empty), then the scratch if it has any.
    pub at: Vec<Vec<u64>>,
}
