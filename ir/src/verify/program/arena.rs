//! Places in memory: `arena`, `overlap`, `held`.
//!
//! `content` looks at bodies by themselves: who lies on whose bytes, and whether they are still what a reader wants.
//! `lives` lays a run of a body out in the arena and looks at every instruction of it. `row` walks the row of a class and
//! knows at each instruction which bytes are whose; `held` is what lives there from step to step.
//!
//! It shares no code with what lays programs out, and knows nothing of how it does it.

mod content;
mod held;
mod lives;
mod places;
mod row;
mod tensors;

use super::Violation;
use crate::graph::Model;
use crate::ids::BodyId;
use crate::program::Program;
use cranelift_entity::PrimaryMap;
use places::Places;

/// Checks a program that says where its tensors lie, or says it for a part of them. Rows are only walked where the frames
/// of bodies are whole.
pub(super) fn check(model: &Model, program: &Program, found: &mut Vec<Violation>) {
    let frames = program.bodies.values().filter(|body| body.frame.is_some()).count();
    let arenas = program.classes.iter().filter(|class| class.arena.is_some()).count();
    if frames + arenas == 0 {
        return;
    }
    if !program.has_places() {
        let text = "only a part of the program says where its tensors lie".to_string();
        return found.push(Violation::missing("arena", text));
    }
    let before = found.len();
    let bodies: PrimaryMap<BodyId, Places<'_>> =
        program.bodies.iter().map(|(id, body)| Places::of(model, id, body, found)).collect();
    if found.len() == before {
        bodies.iter().for_each(|(id, places)| content::check(id, places, found));
    }
    if found.len() == before {
        let sizes = held::Sizes::of(model);
        for index in 0..program.classes.len() {
            row::check(model, program, &bodies, &sizes, index, found);
        }
    }
}

/// Where a tensor lies.
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
