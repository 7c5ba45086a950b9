//! The checker of programs. It shares no code with what makes them, and reports all it finds.
//!
//! A program is right for its model when
//!
//! | name | must hold |
//! |---|---|
//! | `classes` | the classes cover the pipeline ranks once, in order, and hold the parameters that their runs bind |
//! | `undefined` | a register, value or token is defined before it is read |
//! | `redefined` | it is defined once; only `U` stores into a parameter or state, only `W` and `B` into a gradient |
//! | `read-after-free` | it is not read after it is freed |
//! | `double-free` | it is freed once |
//! | `leak` | at the end of a row or body nothing is left that has not been freed or given away |
//! | `in-flight` | what a transfer, layout change or started run reads is neither freed nor changed before its wait, and what it gives or changes is not read |
//! | `token` | each start has one wait, after it |
//! | `statement` | a body does what its block says, and stores each gradient, parameter and state once |
//! | `signature` | a run passes what its body takes and takes what it gives, of the same types |
//! | `shape` | the tensors of a statement are those that its op makes |
//! | `layout` | a letter of an op's rule is sharded alike on all tensors, and not at all where it must be whole |
//! | `missing-collective` | what a statement owes stands in its type, and only linear ops take a pending sum; an update takes none; a gradient with several holders is summed over them before `R` |
//! | `collective-type` | a layout change takes what it says and gives what it says, over axes below pp |
//! | `peer` | a transfer names ranks that there are, its own among them for sums |
//! | `unmatched-message` | each send has its receive |
//! | `message-order` | the tags of a pair of ranks come in the same order on both sides |
//! | `message-type` | with the same type |
//! | `collective-order` | the members of a group start the same sums of the same bytes in the same order |
//! | `deadlock` | rows, messages and sums can be run to the end, even if sends wait for their receives |
//! | `wrong-microbatch` | all that a run reads is of its micro-batch |
//! | `wrong-value` | a forward reads what the model says |
//! | `wrong-cotangent` | an input gradient reads the sum over all readers of the result |
//! | `added-twice` | a sum has each part once |
//! | `wrong-bundle` | bundles are made by the same call and instance, and hold what the body reads of them |
//! | `missing-run`, `duplicate-run` | each section runs once per instance and micro-batch, alone or in `B`; R and U once per instance |
//! | `first` | the first W or B of an instance, and no other, is marked |
//! | `step-order` | R, and sums over holders, after the last W or B that adds to a gradient; N after the wait of each R, U after N, no micro-batch after U |
//! | `norm` | the step graph reads the sums over all instances |
//! | `loss` | the loss is given out, and is the sum over all micro-batches |
//! | `stale-parameter` | who holds a parameter that another rank updates gets it after the update |
//! | `arena` | every tensor has a place, of its size, in the arena of its class |
//! | `held` | what lives from step to step has one place |
//! | `overlap` | nothing is written where another lies that is still to be read, and nothing read after it was |
//! | `memory` | no rank holds more than the limit |
//!
//! Members of a group below pp run one row, so that their layout changes match by construction.

mod arena;
mod bodies;
mod held;
mod meetings;
mod memory;
mod origin;
mod partials;
mod registers;
mod signatures;
mod statements;
mod trace;

pub use memory::peak_bytes;

use crate::graph::Model;
use crate::ids::BodyId;
use crate::program::{Class, Program};
use std::fmt;

/// A broken invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The name of the invariant.
    pub name: &'static str,
    /// In which class; `None` in a body.
    pub class: Option<usize>,
    /// In which body, if it lies there.
    pub body: Option<BodyId>,
    /// The place in the row or body; `None` for what is missing.
    pub position: Option<usize>,
    /// What is wrong.
    pub text: String,
}

impl Violation {
    fn in_row(name: &'static str, class: usize, position: usize, text: String) -> Violation {
        Violation { name, class: Some(class), body: None, position: Some(position), text }
    }

    fn in_body(name: &'static str, body: BodyId, position: usize, text: String) -> Violation {
        Violation { name, class: None, body: Some(body), position: Some(position), text }
    }

    fn missing(name: &'static str, text: String) -> Violation {
        Violation { name, class: None, body: None, position: None, text }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        if let Some(class) = self.class {
            write!(f, "class {class}, ")?;
        }
        if let Some(body) = self.body {
            write!(f, "{body}, ")?;
        }
        if let Some(position) = self.position {
            write!(f, "position {position}: ")?;
        }
        f.write_str(&self.text)
    }
}

/// The pipeline ranks of a model's mesh.
fn pipeline_ranks(model: &Model) -> u32 {
    model.mesh.pipeline().map_or(1, |axis| model.mesh.axes[axis].size as u32)
}

/// The class of a pipeline rank.
fn class_of(program: &Program, rank: u32) -> Option<(usize, &Class)> {
    program.classes.iter().enumerate().find(|(_, class)| class.ranks.contains(&rank))
}

/// Checks all invariants; `limit` is in bytes per rank. Rows are only traced where registers, bodies and meetings are sound,
/// and places are only looked at where all else is right.
///
/// # Errors
/// Everything that is wrong.
pub fn check(model: &Model, program: &Program, limit: Option<u64>) -> Result<(), Vec<Violation>> {
    let mut found = Vec::new();
    let mut next = 0;
    for (index, class) in program.classes.iter().enumerate() {
        if class.ranks.start != next || class.ranks.is_empty() {
            let text = format!("ranks {:?} do not follow rank {next}", class.ranks);
            found.push(Violation { position: None, ..Violation::in_row("classes", index, 0, text) });
        }
        next = class.ranks.end;
        registers::check(index, class, &mut found);
        signatures::check(model, program, index, &mut found);
    }
    if next != pipeline_ranks(model) {
        found.push(Violation::missing(
            "classes",
            format!("{next} ranks have rows, the mesh has {}", pipeline_ranks(model)),
        ));
    }
    for (id, body) in &program.bodies {
        bodies::check(model, id, body, &mut found);
    }
    statements::check(model, program, &mut found);
    if found.is_empty() {
        let order = meetings::check(model, program, &mut found);
        if let (Some(order), true) = (order, found.is_empty()) {
            trace::check(model, program, &order, &mut found);
            (0..program.classes.len()).for_each(|index| held::check(model, program, index, &mut found));
            found.extend(limit.into_iter().flat_map(|limit| memory::check(model, program, limit)));
        }
    }
    if found.is_empty() {
        arena::check(model, program, &mut found);
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// Checks only where the tensors of a program lie that is otherwise known to be right; `limit` is in bytes per rank.
///
/// # Errors
/// Everything that is wrong.
pub fn check_places(model: &Model, program: &Program, limit: Option<u64>) -> Result<(), Vec<Violation>> {
    let mut found = Vec::new();
    arena::check(model, program, &mut found);
    found.extend(limit.into_iter().flat_map(|limit| memory::check(model, program, limit)));
    if found.is_empty() { Ok(()) } else { Err(found) }
}

#[cfg(test)]
mod tests;
