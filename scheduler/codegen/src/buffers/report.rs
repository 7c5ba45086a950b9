//! Contents of the arena of each class at its peak.

use super::bound::{LiveBytes, live_bytes};
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
    pub fragmentation: f64,
    /// The size of the arena in host memory.
    pub host: u64,
    /// Parameters.
    pub parameters: u64,
    /// Sums of gradients.
    pub gradients: u64,
    /// Optimizer states on the device.
    pub states: u64,
    /// Saved activations at the peak.
    pub activations: u64,
    /// Registers of the row: inputs, what stages pass on, cotangents, losses. Then.
    pub stage_io: u64,
    /// Inner values of the body that runs. Then.
    pub scratch: u64,
}

/// The memory of each class of a program; 0 for arenas that have not been laid out.
pub fn report(model: &Model, program: &Program) -> Vec<ClassReport> {
    let layouts = super::layouts(model, program);
    program.classes.iter().map(|class| class_report(model, program, &layouts, class)).collect()
}

fn class_report(model: &Model, program: &Program, layouts: &FrameLayouts, class: &Class) -> ClassReport {
    let catalogue = resident::resident_tensors(model, program, class);
    let needs = instructions::needs(model, program, layouts, class);
    let fullest = live_bytes(&needs, layouts, class).into_iter().max_by_key(LiveBytes::bytes);
    let LiveBytes { activations, stage_io, scratch } = fullest.unwrap_or_default();
    let parameters = held_bytes(&catalogue, |role| *role == Role::Param);
    let gradients = held_bytes(&catalogue, |role| *role == Role::Gradient);
    let states = held_bytes(&catalogue, |role| matches!(role, Role::State(_)));
    let arena = class.arena.as_ref();
    let stage_io = stage_io + arena.map_or(0, |arena| arena.scalars.len() as u64 * ALIGNMENT);
    let bound = parameters + gradients + states + activations + stage_io + scratch;
    let (arena, host) = arena.map_or((0, 0), |arena| (arena.bytes, arena.host));
    let fragmentation = if bound == 0 { 0.0 } else { arena as f64 / bound as f64 - 1.0 };
    let (first_rank, ranks) = (class.ranks.start, class.ranks.len() as u32);
    ClassReport {
        first_rank,
        ranks,
        arena,
        bound,
        fragmentation,
        host,
        parameters,
        gradients,
        states,
        activations,
        stage_io,
        scratch,
    }
}

fn held_bytes(catalogue: &ResidentTensors, wanted: impl Fn(&Role) -> bool) -> u64 {
    let on_device = catalogue.iter().filter(|((role, _), tensor)| wanted(role) && !tensor.host);
    on_device.map(|(_, tensor)| tensor.bytes).sum()
}
