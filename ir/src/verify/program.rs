//! The program verifier. It shares no code with code generation, and reports all violations.
//!
//! A program is correct for its model if these invariants hold:
//!
//! | name | invariant |
//! |---|---|
//! | `classes` | the classes cover the pipeline ranks once, in order, and list the parameters that their runs bind |
//! | `undefined` | a register, value or token is defined before it is read |
//! | `redefined` | each is defined once; only `U` stores into a parameter or state, only `W` and `B` into a gradient |
//! | `read-after-free` | no register or value is read after it is freed |
//! | `double-free` | each is freed once |
//! | `leak` | at the end of a row or body every register or value has been freed or returned |
//! | `in-flight` | the operands of a transfer, collective or async run are neither freed nor changed before its wait, and its results are not read before its wait |
//! | `token` | each start has one wait, after it |
//! | `statement` | a body has the statements of its block, and stores each gradient, parameter and state once |
//! | `signature` | the arguments and results of a run match those of its body in number and type |
//! | `shape` | the results of a statement have the shapes that its op gives |
//! | `sharding` | a factor of an op's rule has the same axes on all tensors, and none if it needs replication |
//! | `missing-collective` | the type of a result states the axes that it is partial over, and only linear ops take a partial operand; an update takes none; a gradient on several ranks is summed over them before `R` |
//! | `fused` | the statements of a group treat the same rows alike, and nobody else reads its interior values |
//! | `collective-type` | the operand and result types of a collective agree, over axes below pp |
//! | `peer` | a transfer names existing ranks, a sum its own rank too |
//! | `unmatched-message` | each send has its receive |
//! | `message-order` | the tags of a pair of ranks have the same order on both sides |
//! | `message-type` | a send and its receive have the same type |
//! | `collective-order` | the members of a group start the same sums of the same bytes in the same order |
//! | `deadlock` | all rows can run to the end, even if sends wait for their receives |
//! | `wrong-microbatch` | all operands of a run belong to its micro-batch |
//! | `wrong-value` | a forward reads the values that the model specifies |
//! | `wrong-cotangent` | an input gradient reads the sum over all readers of the result |
//! | `added-twice` | a sum has each part once |
//! | `wrong-bundle` | bundles come from the same call and instance, and hold the saved values that the body reads |
//! | `offload` | runs and offloads read bundles of device memory; each bundle of host memory is loaded once |
//! | `states` | states in host memory are loaded once, changed by their `U` alone, and stored once |
//! | `missing-run`, `duplicate-run` | each section runs once per instance and micro-batch, alone or in `B`; R and U once per instance; G once per instance and rank |
//! | `first` | the first W or B of an instance, and no other, is marked |
//! | `step-order` | R, and sums over holders, after the last W or B that adds to a gradient; N after the wait of each R, U after N, no micro-batch and no G after U |
//! | `norm` | the step graph reads the sums over all instances |
//! | `loss` | the loss is an output, and is the sum over all micro-batches |
//! | `stale-parameter` | a rank with a copy of a parameter that another rank updates receives it after the update |
//! | `arena` | every tensor has a place, of its size, in the arena of its class |
//! | `residents` | each model-state tensor has one place |
//! | `overlap` | no tensor is written over another that is still to be read |
//! | `memory` | no rank exceeds the limit |
//!
//! All ranks below pp of a pipeline rank run one row, so their collectives match by construction.

mod arena;
mod bodies;
mod fused;
mod in_flight;
mod meetings;
mod memory;
mod offload;
mod origin;
mod partials;
mod registers;
mod signatures;
mod statements;
mod states;
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
    /// The class; `None` in a body.
    pub class: Option<usize>,
    /// The body, if the violation is in one.
    pub body: Option<BodyId>,
    /// The position in the row or body; `None` for a missing instruction.
    pub position: Option<usize>,
    /// The message.
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

/// Collects the violations of one instruction, or of a row or body as a whole.
struct Reporter<'a> {
    found: &'a mut Vec<Violation>,
    class: Option<usize>,
    body: Option<BodyId>,
    position: Option<usize>,
}

impl<'a> Reporter<'a> {
    /// For an instruction of a row.
    fn in_row(found: &'a mut Vec<Violation>, class: usize, position: usize) -> Reporter<'a> {
        Reporter { found, class: Some(class), body: None, position: Some(position) }
    }

    /// For a row as a whole.
    fn of_row(found: &'a mut Vec<Violation>, class: usize) -> Reporter<'a> {
        Reporter { found, class: Some(class), body: None, position: None }
    }

    /// For an instruction of a body.
    fn in_body(found: &'a mut Vec<Violation>, body: BodyId, position: usize) -> Reporter<'a> {
        Reporter { found, class: None, body: Some(body), position: Some(position) }
    }

    fn report(&mut self, name: &'static str, text: String) {
        let Reporter { class, body, position, .. } = *self;
        self.found.push(Violation { name, class, body, position, text });
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

/// Checks all invariants; `limit` is in bytes per rank. Rows are traced only if registers, bodies and transfers are valid,
/// and places are checked only if all other invariants hold.
///
/// # Errors
/// Everything that is wrong.
pub fn check(model: &Model, program: &Program, limit: Option<u64>) -> Result<(), Vec<Violation>> {
    let mut found = Vec::new();
    let mut next = 0;
    for (index, class) in program.classes.iter().enumerate() {
        if class.ranks.start != next || class.ranks.is_empty() {
            let text = format!("ranks {:?} do not follow rank {next}", class.ranks);
            Reporter::of_row(&mut found, index).report("classes", text);
        }
        next = class.ranks.end;
        registers::check(index, class, &mut found);
        signatures::check(model, program, index, &mut found);
        offload::check(index, class, &mut found);
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
            for index in 0..program.classes.len() {
                in_flight::check(model, program, index, &mut found);
                states::check(program, index, &mut found);
            }
            found.extend(limit.into_iter().flat_map(|limit| memory::check(model, program, limit)));
        }
    }
    if found.is_empty() {
        arena::check(model, program, &mut found);
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// Checks only the buffer assignment of a program, whose other invariants must hold; `limit` is in bytes per rank.
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
