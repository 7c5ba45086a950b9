//! Buffer assignment: `arena`, `overlap`, `residents`.
//!
//! `content` checks bodies alone: which values share bytes, and that a reader finds the bytes of its operand. `lives` places a
//! run of a body in the arena and checks each of its instructions. `row` walks the row of a class and tracks the owner of
//! each byte; `residents` checks the model states.
//!
//! It shares no code with the pass that assigns buffers, and does not depend on its algorithm.

mod content;
mod lives;
mod places;
mod residents;
mod row;
mod tensors;

use super::Violation;
use crate::graph::Model;
use crate::ids::BodyId;
use crate::program::Program;
use cranelift_entity::PrimaryMap;
use places::Places;

/// Checks a program with a complete or partial buffer assignment. Rows are walked only if the frames of bodies are valid.
pub(super) fn check(model: &Model, program: &Program, found: &mut Vec<Violation>) {
    let frames = program.bodies.values().filter(|body| body.frame.is_some()).count();
    let arenas = program.classes.iter().filter(|class| class.arena.is_some()).count();
    if frames + arenas == 0 {
        return;
    }
    if !program.has_places() {
        let text = "only a part of the program has a buffer assignment".to_string();
        return found.push(Violation::missing("arena", text));
    }
    let before = found.len();
    let bodies: PrimaryMap<BodyId, Places<'_>> =
        program.bodies.iter().map(|(id, body)| Places::of(model, id, body, found)).collect();
    if found.len() == before {
        bodies.iter().for_each(|(id, places)| content::check(id, places, found));
    }
    if found.len() == before {
        let sizes = residents::Sizes::of(model);
        for index in 0..program.classes.len() {
            row::check(model, program, &bodies, &sizes, index, found);
        }
    }
}

/// The bytes of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bytes {
    at: u64,
    size: u64,
}

impl Bytes {
    fn end(self) -> u64 {
        self.at.saturating_add(self.size)
    }

    fn meets(self, other: Bytes) -> bool {
        self.at < other.end() && other.at < self.end()
    }
}

#[cfg(test)]
mod tests;
