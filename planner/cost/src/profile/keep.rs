//! Activation memory: what a block keeps for its backward, what it makes again, and the most that is there between.

use super::attention;
use super::fusion::role;
use super::modules::{Dropped, dropped};
use super::site::Site;
use ir::entity::{EntityRef, EntitySet, SecondaryMap};
use ir::goal::Recompute;
use ir::graph::{ArgKind, ResultKind, SectionKind, Stmt};
use ir::ids::Value;
use ir::keep::set;
use ir::ops::{Collective, KernelOp, Op};
use std::collections::BTreeSet;

/// What a stack's `saved` may name: bytes that it keeps for an element beside what the graph reads, and what each has if left
/// out.
pub const SAVED: [(&str, &str); 8] = [
    (MASK, "of an element that dropout sees; 1, its mask"),
    ("norm", "of an element that an RMS norm reads; 0"),
    ("rope", "of an element that is rotated; 0"),
    ("activation", "of an element that an activation or a product of two activations reads; 0"),
    ("loss", "of a logit; 4, its softmax in f32, where the loss is not fused, else 0"),
    ("gathered", "above 0: inputs of products that are gathered over tp stay whole instead of being gathered again; 0"),
    ("all_gather", "of an element of a product's input that is gathered over tp; 0"),
    ("partitioned", "above 0: the inputs of layers that are computed again are cut over tp; 0"),
];

/// The name in [`SAVED`] of dropout's mask.
pub(super) const MASK: &str = "dropout";

/// What a block keeps under a mode of recomputation.
pub(super) struct Keep {
    /// Bytes from the forward to the backward.
    pub(super) bytes: f64,
    /// Of these, logits and what the loss keeps.
    pub(super) logits: f64,
    values: EntitySet<Value>,
    again: BTreeSet<usize>,
    /// Bytes that are kept without recomputation.
    whole: f64,
}

impl Keep {
    pub(super) fn under(site: &Site<'_>, recompute: &Recompute) -> Keep {
        let nothing = Keep::without(site, Dropped::default());
        if !is_layer(site) {
            return nothing;
        }
        let whole = nothing.bytes;
        match recompute {
            Recompute::None | Recompute::Auto => nothing,
            Recompute::Selective(modules) => Keep { whole, ..Keep::without(site, dropped(site, modules)) },
            Recompute::Full(_) => {
                let values: Vec<Value> = site.block().args_of(ArgKind::Value).collect();
                let parts = if site.saved("partitioned", 0.0) > 0.0 && !site.layout.sp { site.layout.tp } else { 1 };
                let bytes = values.iter().map(|&value| site.local.bytes(value)).sum::<f64>() / parts as f64;
                let again = (0..site.block()[SectionKind::F].stmts.len()).collect();
                Keep { bytes, logits: 0.0, values: set(values.into_iter()), again, whole }
            }
        }
    }

    /// All that I and W read, less what is dropped: what that is made from stays in its place.
    fn without(site: &Site<'_>, dropped: Dropped) -> Keep {
        let stmts = &site.block()[SectionKind::F].stmts;
        let mut makers: SecondaryMap<Value, Option<usize>> = SecondaryMap::new();
        for (at, stmt) in stmts.iter().enumerate() {
            stmt.results.iter().for_each(|&value| makers[value] = Some(at));
        }
        let (mut values, mut again) = (EntitySet::new(), dropped.again);
        let mut bytes = 0.0;
        let mut logits = 0.0;
        let mut wanted: Vec<Value> = site.later.iter().rev().copied().collect();
        let mut seen: EntitySet<Value> = EntitySet::new();
        while let Some(value) = wanted.pop() {
            if !seen.insert(value) || !matches!(site.block().arg_kind(value), None | Some(ArgKind::Value)) {
                continue;
            }
            let maker = makers[value];
            let stmt = maker.map(|at| &stmts[at]);
            if let Some(sources) = site.remade.get(&value) {
                wanted.extend(sources);
            } else if let Some(at) = maker.filter(|_| dropped.values.contains(value)) {
                again.insert(at);
                wanted.extend(&stmts[at].operands);
            } else if let Some(stmt) = stmt.filter(|stmt| is_view(stmt)) {
                wanted.extend(&stmt.operands);
            } else if !stmt.is_some_and(|stmt| is_row_sum(site, stmt, value)) {
                values.insert(value);
                bytes += site.local.bytes(value);
                if site.is_head() && site.local.has_dim(value, "v") {
                    logits += site.local.bytes(value);
                }
            }
        }
        let held = stmts.iter().enumerate().filter(|(at, _)| !again.contains(at));
        let (of_loss, others): (Vec<_>, Vec<_>) = held.map(|(_, stmt)| stmt).partition(|stmt| is_loss(stmt));
        let of_loss: f64 = of_loss.into_iter().map(|stmt| site.beside(stmt)).sum();
        let others: f64 = others.into_iter().map(|stmt| site.beside(stmt)).sum();
        let bytes = bytes + of_loss + others;
        Keep { bytes, logits: logits + of_loss, values, again, whole: bytes }
    }

    /// The statements of F that run again before the input gradient.
    pub(super) fn again<'a>(&self, site: &Site<'a>) -> Vec<&'a Stmt> {
        self.again.iter().map(|&at| &site.block()[SectionKind::F].stmts[at]).collect()
    }

    /// The most bytes at once of values that are neither kept nor passed on; in the backward with all that is made again.
    pub(super) fn transient(&self, site: &Site<'_>) -> f64 {
        let block = site.block();
        let given = |kind: SectionKind| block[kind].ret.iter().copied();
        let mut kept = self.values.clone();
        given(SectionKind::F).for_each(|value| {
            kept.insert(value);
        });
        let forward = most(site, &site.stmts(SectionKind::F), &kept);
        let backward = [site.stmts(SectionKind::I), site.stmts(SectionKind::W)].concat();
        let backward = most(site, &backward, &set(given(SectionKind::I)));
        forward.max(self.whole - self.bytes + backward)
    }
}

impl Site<'_> {
    /// A figure of the stack's list of saved tensors.
    pub(super) fn saved(&self, name: &str, default: f64) -> f64 {
        self.machine.stack.facts.saved.get(name).copied().unwrap_or(default)
    }

    /// What a stack keeps of a statement beside what the graph reads.
    fn beside(&self, stmt: &Stmt) -> f64 {
        let elements = self.local.elements(stmt.operands.first().copied().unwrap_or(stmt.results[0]));
        let op = match &stmt.op {
            Op::Kernel(op) => op,
            Op::Collective(Collective::AllGather { .. }) => {
                return self.local.elements(stmt.results[0]) * self.saved("all_gather", 0.0);
            }
            Op::Collective(_) => return 0.0,
        };
        match op {
            KernelOp::Dropout(_) => elements * self.saved(MASK, 1.0),
            KernelOp::RmsNorm(_) => elements * self.saved("norm", 0.0),
            KernelOp::Rope(_) => elements * self.saved("rope", 0.0),
            KernelOp::Unary(_) => elements * self.saved("activation", 0.0),
            KernelOp::Binary(binary) if binary.equation.is_none() && binary.kind == ir::ops::BinaryKind::Mul => {
                elements * self.saved("activation", 0.0)
            }
            KernelOp::CrossEntropy(_) | KernelOp::SumExp(_) => {
                elements * self.saved("loss", if self.fusion.loss { 0.0 } else { 4.0 })
            }
            KernelOp::Attention(_) if !self.machine.has_flash() => {
                let element = self.machine.recipe.activation;
                attention::local(&self.local, stmt).map_or(0.0, |it| it.scores() * it.saved(element))
            }
            _ => 0.0,
        }
    }

    /// Bytes within a statement while it runs.
    fn within(&self, stmt: &Stmt) -> f64 {
        match &stmt.op {
            Op::Kernel(KernelOp::Attention(_) | KernelOp::AttentionGrad(_)) if !self.machine.has_flash() => {
                let element = self.machine.recipe.activation;
                attention::local(&self.local, stmt).map_or(0.0, |it| it.inner(element))
            }
            // Logits in f32 and their difference from the maximum; the gradient in f32.
            Op::Kernel(KernelOp::CrossEntropy(_) | KernelOp::SumExp(_)) if !self.fusion.loss => {
                8.0 * self.local.elements(stmt.operands[0])
            }
            Op::Kernel(KernelOp::CrossEntropyGrad(_)) if !self.fusion.loss => {
                4.0 * self.local.elements(stmt.operands[0])
            }
            _ => 0.0,
        }
    }
}

/// Whether a block is one of the layers between embedding and head: only they are computed again.
fn is_layer(site: &Site<'_>) -> bool {
    let block = site.block();
    block.args_of(ArgKind::Value).next().is_some() && block.results.contains(&ResultKind::Value) && !site.is_head()
}

fn is_view(stmt: &Stmt) -> bool {
    stmt.op.def().is_some_and(|def| def.is_view())
}

fn is_loss(stmt: &Stmt) -> bool {
    matches!(stmt.op, Op::Kernel(KernelOp::CrossEntropy(_) | KernelOp::SumExp(_)))
}

/// The log-sum-exp of an attention, which is kept only where the softmax is not.
fn is_row_sum(site: &Site<'_>, stmt: &Stmt, value: Value) -> bool {
    let is_attention = matches!(stmt.op, Op::Kernel(KernelOp::Attention(_)));
    is_attention && !site.machine.has_flash() && value != attention::result(stmt)
}

/// The most bytes of values at once that statements make, without those that are given away; a pointwise op writes on what
/// it reads last.
fn most(site: &Site<'_>, stmts: &[&Stmt], given: &EntitySet<Value>) -> f64 {
    let mut last = vec![usize::MAX; site.block().values.len()];
    for (at, stmt) in stmts.iter().enumerate() {
        for &value in stmt.results.iter().filter(|_| !stmt.accumulate) {
            last[value.index()] = at;
        }
        for &value in &stmt.operands {
            if last[value.index()] != usize::MAX {
                last[value.index()] = at;
            }
        }
    }
    let counts = |value: &&Value| last[value.index()] != usize::MAX && !given.contains(**value);
    let (mut live, mut most) = (0.0f64, 0.0f64);
    for (at, stmt) in stmts.iter().enumerate() {
        let made: f64 = stmt.results.iter().filter(counts).map(|&v| site.bytes(v)).sum();
        let dies = |value: &&Value| counts(value) && last[value.index()] == at && !stmt.results.contains(value);
        let mut operands: Vec<Value> = stmt.operands.clone();
        operands.sort_unstable();
        operands.dedup();
        let dead: f64 = operands.iter().filter(dies).map(|&v| site.bytes(v)).sum();
        let unread: f64 =
            stmt.results.iter().filter(|v| counts(v) && last[v.index()] == at).map(|&v| site.bytes(v)).sum();
        let in_place = role(site.block(), stmt).is_some() || is_view(stmt);
        let peak = if in_place { live + made - dead } else { live + made };
        most = most.max(peak + site.within(stmt));
        live += made - dead - unread;
    }
    most
}
