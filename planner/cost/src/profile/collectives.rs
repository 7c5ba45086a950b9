//! Exposed and hidden seconds of a section's collectives.

use super::alias::is_exchange;
use super::local::base;
use super::products::Products;
use super::site::Site;
use crate::collective_time::{CollectiveKind, Group};
use crate::pattern::Pattern;
use crate::traits::{Dispatch, Experts, Hidden};
use ir::graph::{ArgKind, SectionKind, Stmt};
use ir::mesh::Axes;
use ir::ops::{Collective, KernelOp, Op};
use ir::options::CpKind;

/// Collectives of a section.
#[derive(Clone, Copy, Default)]
pub(super) struct Waits {
    /// Exposed seconds of tensor-parallel collectives.
    pub(super) tp: f64,
    /// Exposed seconds of context-parallel collectives.
    pub(super) cp: f64,
    /// Exposed seconds of expert-parallel collectives.
    pub(super) ep: f64,
    /// Seconds hidden behind products.
    pub(super) behind_gemm: f64,
    /// Seconds hidden behind attention.
    pub(super) behind_attention: f64,
    /// Bytes of copies within a rank.
    pub(super) copies: f64,
    /// Number of kernels.
    pub(super) kernels: f64,
    /// Ranks of tensor-parallel collectives, summed over collectives.
    pub(super) peers: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Axis {
    Tp,
    Cp,
    Ep,
}

/// Collectives of a section. `products`, and `attention` in seconds, may hide some of them.
pub(super) fn waits(
    site: &Site<'_>,
    section: SectionKind,
    stmts: &[&Stmt],
    products: &Products,
    attention: f64,
) -> Waits {
    let mut waits = Waits::default();
    let mut ring = 0.0;
    let mut budget: Vec<f64> = products.list.iter().map(|product| product.seconds).collect();
    let gemm: f64 = budget.iter().sum();
    for stmt in stmts {
        let Op::Collective(collective) = &stmt.op else { continue };
        if site.is_free(stmt) {
            continue;
        }
        if !collective.communicates() {
            waits.copies += 2.0 * stmt.results.iter().map(|&value| site.bytes(value)).sum::<f64>();
            waits.kernels += 1.0;
            continue;
        }
        waits.kernels += 1.0;
        let group = site.group(collective.over());
        let seconds = seconds(site, stmt, collective, group);
        match site.axis(stmt, collective) {
            Axis::Tp => {
                let hidden = hide(site, section, stmt, collective, products, &mut budget, seconds);
                waits.behind_gemm += hidden;
                waits.tp += seconds - hidden;
                waits.peers += group.ranks as f64;
            }
            Axis::Cp if site.options.cp_kind == CpKind::Ring => ring += seconds,
            Axis::Cp => waits.cp += seconds,
            Axis::Ep => waits.ep += seconds,
        }
    }
    // A ring sends blocks while attention computes with the blocks before them (Liu et al. 2023, section 3).
    let behind_attention = site.overlap() * ring.min(attention);
    let gathered = if site.hides(Hidden::Cp) { site.overlap() * waits.cp.min(attention) } else { 0.0 };
    let hides_exchanges = site.hides(Hidden::Ep) && !site.options.refused.exchanges;
    let exchanged = if hides_exchanges { site.overlap() * waits.ep.min(gemm + attention) } else { 0.0 };
    waits.cp += ring - behind_attention - gathered;
    waits.ep -= exchanged;
    waits.behind_attention += behind_attention + gathered;
    waits.behind_gemm += exchanged;
    waits
}

/// Seconds of a collective, nothing hidden.
fn seconds(site: &Site<'_>, stmt: &Stmt, collective: &Collective, group: Group) -> f64 {
    let [before, after] =
        [&stmt.operands, &stmt.results].map(|values| values.iter().map(|&value| site.local.bytes(value)).sum::<f64>());
    let is_ring = site.axis(stmt, collective) == Axis::Cp && site.options.cp_kind == CpKind::Ring;
    match collective {
        Collective::AllGather { .. } | Collective::ReduceScatter { .. } if is_ring => {
            let ranks = group.ranks as f64;
            (ranks - 1.0) * site.platform.collective_time(CollectiveKind::Send, before.max(after) / ranks, group)
        }
        Collective::AllToAll { over, .. } | Collective::Permute { over, .. }
            if is_exchange(site.block(), site.local.mesh(), stmt) =>
        {
            let over = site.alias.exchanges.get(&stmt.operands[0]).unwrap_or(over);
            site.platform.collective_time(exchange(site), before, site.group(over))
        }
        // Frameworks run what is stated, even where another collective would take less.
        Collective::AllGather { .. } => site.platform.isolated_time(CollectiveKind::AllGather, after, &group.into()),
        Collective::ReduceScatter { .. } => {
            site.platform.isolated_time(CollectiveKind::ReduceScatter, before, &group.into())
        }
        Collective::AllReduce { .. } => site.platform.collective_time(CollectiveKind::AllReduce, before, group),
        _ => {
            let pattern = Pattern::of(site.local.mesh(), collective, site.block().ty(stmt.operands[0]));
            site.platform.pattern_time(pattern, before, after, &group.into())
        }
    }
}

/// Kind of the collective that dispatches and combines the rows of experts.
fn exchange(site: &Site<'_>) -> CollectiveKind {
    let Experts { dispatch, adjacent, .. } = site.platform.stack.traits.experts;
    let chosen = site.block()[SectionKind::F].stmts.iter().find_map(|stmt| match &stmt.op {
        Op::Kernel(KernelOp::TopK(top)) => Some((top.k, site.local.dims(stmt.operands[0]).last()?.size)),
        _ => None,
    });
    match (dispatch, chosen) {
        (Dispatch::OncePerNode, Some((copies, experts))) => {
            CollectiveKind::Exchange { copies, adjacent: if adjacent { experts } else { 0 } }
        }
        (Dispatch::AllToAll, _) | (Dispatch::OncePerNode, None) => CollectiveKind::AllToAll,
    }
}

/// Seconds of a tensor-parallel collective that the product before or after it hides; they are taken off the product's
/// `budget`.
///
/// A stack may hide those of the backward alone (`tp_backward`). A reduction of I then hides behind the product of the weight
/// gradient, and a gather of W behind that of the input gradient. These products take as long as the neighbours here. A gather
/// of I is needed at once, and is exposed.
fn hide(
    site: &Site<'_>,
    section: SectionKind,
    stmt: &Stmt,
    collective: &Collective,
    products: &Products,
    budget: &mut [f64],
    seconds: f64,
) -> f64 {
    let gathers = matches!(collective, Collective::AllGather { .. });
    let needs_sp = site.platform.stack.traits.network.hides_forward_under_sp;
    let may_in_forward = site.options.sp || !needs_sp;
    let in_forward = site.hides(Hidden::Tp) && may_in_forward;
    let in_backward = site.hides(Hidden::TpBackward) || site.hides(Hidden::Tp);
    let asked = site.options.tp_overlap.filter(|&overlaps| !overlaps || may_in_forward);
    let (all, backward) = (asked.unwrap_or(in_forward), asked.unwrap_or(in_backward));
    let may = all || (backward && (section == SectionKind::W || (section == SectionKind::I && !gathers)));
    if !may {
        return 0.0;
    }
    let mut hidden = 0.0;
    for (at, product) in products.list.iter().enumerate() {
        let reads = gathers && stmt.results.iter().any(|&value| product.reads(value));
        let makes = !gathers && stmt.operands.iter().any(|&value| products.of[value] == Some(at));
        if reads || makes {
            let part = (site.overlap() * budget[at]).min(seconds - hidden);
            budget[at] -= part;
            hidden += part;
        }
    }
    hidden
}

impl Site<'_> {
    /// Returns whether a collective costs nothing. Inputs are fed to every rank. Another section may have reduced the value, or
    /// the stack may have saved it gathered. Ranks that shard heads instead of sequences exchange nothing here.
    fn is_free(&self, stmt: &Stmt) -> bool {
        let Op::Collective(collective) = &stmt.op else { return false };
        let fed = self.block().arg_kind(stmt.operands[0]) == Some(ArgKind::Input);
        let by_heads =
            self.options.cp_kind == CpKind::Ulysses && self.has_attention && self.axis(stmt, collective) == Axis::Cp;
        fed || by_heads || self.alias.free.contains(stmt.results[0])
    }

    /// Kind of parallelism of a collective: exchanges are expert-parallel, others follow from the names of their axes.
    fn axis(&self, stmt: &Stmt, collective: &Collective) -> Axis {
        let mut names = collective.over().iter().map(|axis| base(&self.local.mesh().axes[axis].name));
        match collective {
            _ if is_exchange(self.block(), self.local.mesh(), stmt) => Axis::Ep,
            _ if names.clone().any(|name| name == "dp") => Axis::Ep,
            _ if names.any(|name| name == "cp") => Axis::Cp,
            _ => Axis::Tp,
        }
    }

    /// Returns whether a statement is a collective between the ranks that share layers.
    pub(super) fn is_tensor_parallel(&self, stmt: &Stmt) -> bool {
        matches!(&stmt.op, Op::Collective(collective) if self.axis(stmt, collective) == Axis::Tp)
    }

    /// Replica group of some axes, among all ranks of the configuration. Axes that are not in the mesh may be inside its own.
    pub(super) fn group(&self, over: &Axes) -> Group {
        let mesh = self.local.mesh();
        let Some(inner) = over.iter().max() else { return Group { ranks: 1, stride: 1 } };
        let within: u64 = mesh.axes.iter().filter(|(axis, _)| *axis > inner).map(|(_, axis)| axis.size).product();
        let spread = self.options.spread.along(base(&mesh.axes[inner].name));
        Group { ranks: mesh.size(over), stride: within * spread }
    }

    /// Replica group of the cp axes; `None` without cp.
    pub(super) fn context_ranks(&self) -> Option<Group> {
        let axes = self.local.mesh().axes.iter().filter(|(_, axis)| base(&axis.name) == "cp");
        let over: Axes = axes.map(|(id, _)| id).collect();
        (!over.is_empty()).then(|| self.group(&over))
    }
}
