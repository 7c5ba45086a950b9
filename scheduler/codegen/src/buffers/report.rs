//! Contents of the arena of each class at its peak.

use super::bound::{Moment, moments};
use super::frame::FrameLayout;
use super::instructions::{self, FrameLayouts};
use super::resident::{self, ResidentTensors};
use ir::arena::{ALIGNMENT, Role};
use ir::graph::Model;
use ir::program::{Class, Program};
use serde::Serialize;

/// The memory of each rank of a class, in bytes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClassReport {
    /// The first pipeline rank of the class, and how many there are.
    pub first_rank: u32,
    /// How many pipeline ranks there are in it.
    pub ranks: u32,
    /// The size of the arena.
    pub arena: u64,
    /// The most that is there at once: no arena can be smaller.
    pub bound: u64,
    /// By how much the arena is bigger, as a fraction of the bound.
    pub waste: f64,
    /// Parameters.
    pub parameters: u64,
    /// Sums of gradients.
    pub gradients: u64,
    /// Optimizer states.
    pub states: u64,
    /// What forwards have kept for backwards, when most is there.
    pub kept: u64,
    /// Registers of the row: inputs, what stages pass on, cotangents, losses. Then.
    pub boundary: u64,
    /// Inner values of the body that runs. Then.
    pub scratch: u64,
}

/// The memory of each class of a program; 0 for arenas that have not been laid out.
pub fn report(model: &Model, program: &Program) -> Vec<ClassReport> {
    let layouts: FrameLayouts = program.bodies.values().map(|body| FrameLayout::new(model, body)).collect();
    program.classes.iter().map(|class| class_report(model, program, &layouts, class)).collect()
}

fn class_report(model: &Model, program: &Program, layouts: &FrameLayouts, class: &Class) -> ClassReport {
    let catalogue = resident::resident_tensors(model, program, class);
    let needs = instructions::needs(model, program, layouts, class);
    let fullest = moments(&needs, layouts, class).into_iter().max_by_key(Moment::bytes);
    let Moment { kept, boundary, scratch } = fullest.unwrap_or_default();
    let of = |wanted: fn(&Role) -> bool| held_bytes(&catalogue, wanted);
    let parameters = of(|role| *role == Role::Param);
    let gradients = of(|role| *role == Role::Gradient);
    let states = of(|role| matches!(role, Role::State(_)));
    let arena = class.arena.as_ref();
    let boundary = boundary + arena.map_or(0, |arena| arena.scalars.len() as u64 * ALIGNMENT);
    let bound = parameters + gradients + states + kept + boundary + scratch;
    let arena = arena.map_or(0, |arena| arena.bytes);
    let waste = if bound == 0 { 0.0 } else { arena as f64 / bound as f64 - 1.0 };
    let (first_rank, ranks) = (class.ranks.start, class.ranks.len() as u32);
    ClassReport { first_rank, ranks, arena, bound, waste, parameters, gradients, states, kept, boundary, scratch }
}

fn held_bytes(catalogue: &ResidentTensors, wanted: fn(&Role) -> bool) -> u64 {
    catalogue.iter().filter(|((role, _), _)| wanted(role)).map(|(_, bytes)| bytes).sum()
}
