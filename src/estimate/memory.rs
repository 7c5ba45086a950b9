//! What each pipeline rank holds when it holds most.

use super::pipeline::{Flow, Rank};
use super::replicas::Replicas;
use super::report::StageMemory;
use super::stages::Load;
use cost::{Machine, Recipe};
use ir::goal::Layout;

/// Bytes of a GiB.
pub(super) const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Bytes that live from step to step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ModelStates {
    /// Parameters as kernels read them.
    pub parameters: f64,
    /// Gradients.
    pub gradients: f64,
    /// Master copies and optimizer states.
    pub optimizer: f64,
}

impl ModelStates {
    /// Those of so many elements of dense parameters and of experts on one rank, whose copies lie on so many data-parallel
    /// ranks each. Parameters, gradients and optimizer states are cut among these from ZeRO stage 3, 2 and 1 on (Rajbhandari
    /// et al. 2020, section 5).
    pub fn of(elements: [f64; 2], ranks: [f64; 2], zero: u8, recipe: &Recipe) -> ModelStates {
        let held = |bytes: f64, from: u8| {
            let [dense, experts] = if zero >= from { ranks } else { [1.0; 2] };
            bytes * (elements[0] / dense + elements[1] / experts)
        };
        ModelStates {
            parameters: held(recipe.parameter, 3),
            gradients: held(recipe.gradient, 2),
            optimizer: held(recipe.master + recipe.states, 1),
        }
    }

    /// All of them.
    pub fn total(&self) -> f64 {
        self.parameters + self.gradients + self.optimizer
    }
}

/// Those of a rank on a stack.
pub(super) fn states(elements: [f64; 2], replicas: &Replicas<'_>, machine: &Machine<'_>) -> ModelStates {
    let recipe = machine.recipe;
    let mut states = ModelStates::of(elements, replicas.parts(), replicas.zero, recipe);
    if machine.stack.facts.casts_gathered && replicas.zero > 2 && recipe.master > 0.0 {
        states.parameters = 0.0;
    }
    states
}

/// The bytes of each rank, in GiB.
pub(super) fn memory(
    flow: &Flow,
    loads: &[Load],
    layout: &Layout,
    replicas: &Replicas<'_>,
    machine: &Machine<'_>,
) -> Vec<StageMemory> {
    flow.ranks.iter().map(|rank| of_rank(rank, loads, layout, replicas, machine)).collect()
}

fn of_rank(
    rank: &Rank,
    loads: &[Load],
    layout: &Layout,
    replicas: &Replicas<'_>,
    machine: &Machine<'_>,
) -> StageMemory {
    let facts = &machine.stack.facts;
    let own = || rank.stages.iter().map(|(stage, _)| &loads[*stage]);
    let elements = [own().map(|load| load.dense).sum::<f64>(), own().map(|load| load.experts).sum()];
    let states = states(elements, replicas, machine);
    let logits = own().map(|load| load.logits).sum::<f64>() * rank.in_flight;
    let activations = (rank.kept - logits).max(0.0);
    let buffers = buffers(&own().collect::<Vec<_>>(), loads.len(), replicas.zero, machine);
    let allocated = states.total() + activations + logits + buffers;
    let reserved = allocated * facts.reserve;
    let groups = [layout.dp * layout.cp, layout.tp, layout.pp, layout.cp, layout.ep];
    let communicators = groups.into_iter().filter(|&ranks| ranks > 1).count() as f64;
    let device = reserved + facts.context + communicators * facts.communicator;
    StageMemory {
        parameters: states.parameters / GIB,
        gradients: states.gradients / GIB,
        optimizer: states.optimizer / GIB,
        activations: activations / GIB,
        logits: logits / GIB,
        buffers: buffers / GIB,
        allocated: allocated / GIB,
        reserved: reserved / GIB,
        device: device / GIB,
    }
}

/// Bytes beside what is kept: inner values of the block under way, what the products' library keeps, messages to and from
/// the neighbours (one in use, one under way), parameters that ZeRO-3 has gathered (the block under way and the next), and
/// whole gradients of the block under way where only parts are kept.
fn buffers(own: &[&Load], stages: usize, zero: u8, machine: &Machine<'_>) -> f64 {
    let recipe = machine.recipe;
    let most = |of: fn(&Load) -> f64| own.iter().map(|load| of(load)).fold(0.0, f64::max);
    let messages = if stages > 1 { 4.0 * most(|load| load.boundary) } else { 0.0 };
    let largest = most(|load| load.largest);
    let gathered = if zero > 2 { 2.0 * largest * recipe.parameter } else { 0.0 };
    let whole = if zero > 1 { largest * recipe.wire } else { 0.0 };
    most(|load| load.transient) + machine.stack.facts.workspace + messages + gathered + whole
}
