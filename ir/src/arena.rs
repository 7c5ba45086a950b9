//! Where the tensors of a program lie: every rank has one arena, and every tensor a fixed place in it.
//!
//! What lives from step to step (parameters, optimizer states, gradient sums) has a place of its own, as has what one
//! instruction of a row hands to a later one. The inner values of a body lie in its *frame*: what it keeps for a later
//! section in the *slot* of its bundle, all else in the *scratch* of the run; both are laid out once per body, and each run
//! says where its slot and its scratch begin. A scratch may lie where a slot or a result of its run will be, if no two values
//! are there at the same instruction of the body; not so that of a started run. All numbers are bytes; places are multiples of [`ALIGNMENT`]. Sizes are the
//! bounds of local shapes, so that one arena serves all ranks of a class.
//!
//! ```text
//! frame  := 'frame' 'slot' int 'scratch' int (%id ('row' | 'slot' '+' int | 'scratch' '+' int | '=' %id)),*     at the end of a body
//! memory := 'memory' int (%id ('[' int ']' ('.' id)?)? id? int),* (';' (id int),*)?    after a class's `holds`: its arena, what is held from step to step, scalars
//! at     := 'at' int,*                                                    at the end of an instruction of a row
//! ```

use crate::ids::{ParamId, Value};
use std::collections::BTreeMap;

/// Places are multiples of this many bytes: a cache line, and the width of the widest vector.
pub const ALIGNMENT: u64 = 64;

/// Where a value that a body makes lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// It is a result: where the row says.
    Row,
    /// So many bytes into the slot of the bundle.
    Slot(u64),
    /// So many bytes into the scratch of the run.
    Scratch(u64),
    /// On another value, which may come later: one is a view of the other or is written on it when it dies.
    Same(Value),
}

/// Where the values of a body lie.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    /// Bytes of the slot of a bundle: what is kept and is neither an argument nor a result.
    pub slot: u64,
    /// Bytes of the scratch.
    pub scratch: u64,
    /// All values that the body makes but what it stores in a parameter, a state or a gradient. A gradient sum that a wait
    /// adds to stands here too: with the place of what is added.
    pub places: BTreeMap<Value, Place>,
}

/// What a held tensor is.
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
pub struct Held {
    /// The parameter that it belongs to.
    pub param: ParamId,
    /// Which element, where it is declared as an array.
    pub instance: u32,
    /// What it is.
    pub role: Role,
    /// Where it lies.
    pub at: u64,
}

/// The arena of each rank of a class.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arena {
    /// Its size.
    pub bytes: u64,
    /// What lives from step to step. In a program that is run beside another on the same ranks (an evaluation) all that the
    /// other holds, at the same places.
    pub held: Vec<Held>,
    /// Scalars that bodies read by name, `lr` and `step` among them, and what the step graph returns (a copy of its result).
    pub scalars: BTreeMap<String, u64>,
    /// For each instruction of the row, where the tensors lie that it brings to life: the register of a feed, a seed, a
    /// receive (from its start on) or an addition or, at its start, a sum (its old place, or a fresh one where others hold
    /// the old); of a run the results (one that is an argument lies where that lies), then the slot if it keeps anything (any
    /// place if that is empty), then its scratch if it has any.
    pub at: Vec<Vec<u64>>,
}
