//! Buffer assignment: one arena per rank, and in it a fixed offset for each tensor.
//!
//! Programs free every value by name, and a checker finds leaks. From these lifetimes long-lived tensors are placed
//! together from the bottom up, and short-lived ones above them and in the gaps. Views, and results of elementwise ops over
//! operands that die, share their operand's offset. Saved values are in a slot of their bundle, or in several slots where W
//! is a body of its own.
//!
//! No arena can be smaller than the most bytes that are live at one instruction of one body; on the meshes of
//! `tests/planning/memory.rs` none is 5 % bigger. An evaluation has its own buffer assignment, except that parameters keep their
//! training offsets.

mod bound;
mod frame;
mod instructions;
mod interval;
mod liveness;
mod needs;
mod pack;
mod report;
mod resident;
mod scratch;
mod sharing;
mod walk;

use frame::FrameLayout;
use instructions::FrameLayouts;
use ir::arena::Arena;
use ir::graph::Model;
use ir::program::{Class, Program};
use pack::Packed;
pub use report::{ClassReport, report};
use resident::ResidentEnds;

/// Fills the frames of all bodies and the arenas of all classes. A program that shares its ranks with another that is run
/// before or after it (an evaluation of a training run) finds the resident tensors at the places of the other.
pub fn assign_buffers(model: &Model, program: &mut Program, beside: Option<&Program>) {
    let layouts = layouts(model, program);
    let arenas: Vec<Arena> =
        program.classes.iter().map(|class| arena(model, program, beside, &layouts, class)).collect();
    for (class, arena) in program.classes.iter_mut().zip(arenas) {
        class.arena = Some(arena);
    }
    for (body, layout) in program.bodies.values_mut().zip(layouts.into_iter().map(|(_, layout)| layout)) {
        body.frame = Some(layout.frame);
    }
}

/// The frames of all bodies.
fn layouts(model: &Model, program: &Program) -> FrameLayouts {
    program.bodies.keys().map(|body| FrameLayout::new(model, program, body)).collect()
}

fn arena(model: &Model, program: &Program, beside: Option<&Program>, layouts: &FrameLayouts, class: &Class) -> Arena {
    let other = beside.and_then(|program| {
        let same = program.classes.iter().find(|other| other.ranks.contains(&class.ranks.start))?;
        Some((resident::resident_tensors(model, program, same), same.arena.as_ref()?))
    });
    let (residents, ends) = match &other {
        Some((theirs, arena)) => resident::same_as(arena, theirs),
        None => resident::lay(&resident::resident_tensors(model, program, class)),
    };
    let (scalars, device) = resident::scalars(model, program, class, ends.device);
    let needs = instructions::needs(model, program, layouts, class);
    let Packed { bytes, host, at } = pack::pack(&needs, layouts, class, ResidentEnds { device, ..ends });
    Arena { bytes, host, residents, scalars, at }
}

#[cfg(test)]
mod tests;
