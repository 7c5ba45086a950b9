//! What each pipeline rank holds when it holds most.

use super::pipeline::{Flow, Rank};
use super::replicas::Replicas;
use super::report::StageMemory;
use super::stages::Load;
use cost::Machine;
use ir::goal::Layout;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// The bytes of each rank, in GiB. Parameters, gradients and optimizer states are cut among data-parallel ranks from ZeRO
/// stage 3, 2 and 1 on (Rajbhandari et al. 2020, section 5).
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
    let (recipe, facts) = (machine.recipe, &machine.stack.facts);
    let own = || rank.stages.iter().map(|(stage, _)| &loads[*stage]);
    let [dense, experts] = [own().map(|load| load.dense).sum::<f64>(), own().map(|load| load.experts).sum()];
    let parts = replicas.parts();
    let held = |bytes: f64, from: u8| {
        let [of_dense, of_experts] = if layout.zero >= from { parts } else { [1.0; 2] };
        bytes * (dense / of_dense + experts / of_experts)
    };
    let parameters = held(recipe.parameter, 3);
    let gradients = held(recipe.gradient, 2);
    let optimizer = held(recipe.master + recipe.states, 1);
    let logits = own().map(|load| load.logits).sum::<f64>() * rank.in_flight;
    let activations = (rank.kept - logits).max(0.0);
    let allocated = parameters + gradients + optimizer + activations + logits;
    let buffers = buffers(&own().collect::<Vec<_>>(), loads.len(), layout, machine);
    let allocated = allocated + buffers;
    let reserved = allocated * facts.reserve;
    let groups = [layout.dp * layout.cp, layout.tp, layout.pp, layout.cp, layout.ep];
    let communicators = groups.into_iter().filter(|&ranks| ranks > 1).count() as f64;
    let device = reserved + facts.context + communicators * facts.communicator;
    StageMemory {
        parameters: parameters / GIB,
        gradients: gradients / GIB,
        optimizer: optimizer / GIB,
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
fn buffers(own: &[&Load], stages: usize, layout: &Layout, machine: &Machine<'_>) -> f64 {
    let recipe = machine.recipe;
    let most = |of: fn(&Load) -> f64| own.iter().map(|load| of(load)).fold(0.0, f64::max);
    let messages = if stages > 1 { 4.0 * most(|load| load.boundary) } else { 0.0 };
    let largest = most(|load| load.largest);
    let gathered = if layout.zero > 2 { 2.0 * largest * recipe.parameter } else { 0.0 };
    let whole = if layout.zero > 1 { largest * recipe.wire } else { 0.0 };
    most(|load| load.transient) + machine.stack.facts.workspace + messages + gathered + whole
}
