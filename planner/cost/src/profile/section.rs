//! Cost of statements that run one kernel after the other.

use super::collectives::waits;
use super::pointwise::moves;
use super::products::Products;
use super::site::Site;
use super::{Seconds, attention, scan};
use ir::graph::{SectionKind, Stmt};

/// Cost of statements on a device and on the CPU that launches their kernels.
#[derive(Clone, Copy, Default)]
pub(super) struct Cost {
    /// Device seconds; `launch` is 0.
    pub(super) device: Seconds,
    /// CPU seconds.
    pub(super) host: f64,
    /// Ranks of tensor-parallel collectives, summed over collectives.
    pub(super) peers: f64,
}

/// Launches that quantise an operand of an expert whose scales are of blocks: of the operand and of its transposed copy.
const BLOCK_SCALING: f64 = 2.0;

/// Device seconds minus CPU seconds of costs that follow each other.
pub(super) fn spare(costs: &[Cost]) -> f64 {
    costs.iter().map(|cost| cost.device.total() - cost.host).sum()
}

/// Cost of statements of a section on one rank.
pub(super) fn cost_of(site: &Site<'_>, section: SectionKind, stmts: &[&Stmt]) -> Cost {
    if stmts.is_empty() {
        return Cost::default();
    }
    let products = Products::of(site, section, stmts);
    let moves = moves(site, section, stmts, &products);
    let context = site.context_ranks().map(|group| (group, site.options.cp_kind));
    let mut core = attention::Cost::default();
    for attention in stmts.iter().filter_map(|stmt| attention::local(&site.local, stmt)) {
        let cost = attention.cost(site, context);
        core.attention += cost.attention;
        core.cp += cost.cp;
        core.kernels += cost.kernels;
    }
    for scan in stmts.iter().filter_map(|stmt| scan::local(&site.local, stmt)) {
        core.attention += scan.seconds(site);
        core.kernels += scan.kernels();
    }
    let waits = waits(site, section, stmts, &products, core.attention);
    let gemm: f64 = products.list.iter().map(|product| product.seconds).sum();
    let slowed = site.platform.contention() - 1.0;
    let device = Seconds {
        gemm: gemm + slowed * waits.behind_gemm,
        attention: core.attention + slowed * waits.behind_attention,
        memory_bound: moves.seconds + site.platform.memory_bound(waits.copies),
        tp: waits.tp,
        cp: waits.cp + core.cp,
        ep: waits.ep,
        launch: 0.0,
        host: 0.0,
    };
    let kernels = products.kernels() + moves.kernels + core.kernels + waits.kernels;
    let traits = &site.platform.stack.traits;
    let scaling = if site.platform.recipe.blocks { BLOCK_SCALING } else { traits.experts.scaling_calls };
    let calls = kernels * traits.launch.dispatches + products.of_experts(scaling);
    Cost { device, host: calls * site.platform.launch(site.has_experts), peers: waits.peers }
}
