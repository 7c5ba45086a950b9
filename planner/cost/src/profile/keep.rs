//! Activation memory of a block: saved activations, recomputed values, and the peak of temporary values.

use super::alias::is_exchange;
use super::attention;
use super::fusion::role;
use super::modules::{Dropped, dropped};
use super::site::Site;
use crate::platform::Format;
use crate::traits::{FusedKernel, SavedBytes};
use ir::dim_role::DimRole;
use ir::entity::{EntityRef, EntitySet, SecondaryMap};
use ir::graph::{ArgKind, Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::ops::{Collective, KernelOp, Op};
use ir::options::{CpKind, Recompute};
use ir::saved::{results, set};
use std::collections::BTreeSet;
use transforms::recompute::is_layer;

/// The name of a recomputation that a list of saved ops decides.
pub(super) const OPS: &str = "op";

/// Saved activations of a block under a mode of recomputation.
pub(super) struct Keep {
    /// Bytes of all of them.
    pub(super) bytes: f64,
    /// Part of `bytes` for logits and for the loss.
    pub(super) logits: f64,
    values: EntitySet<Value>,
    /// Indices of the statements of F that are recomputed.
    recomputed: BTreeSet<usize>,
    /// Saved activations without recomputation.
    whole: Whole,
}

/// Saved activations without recomputation. After recomputation, a backward begins with all of them.
#[derive(Clone)]
struct Whole {
    values: EntitySet<Value>,
    bytes: f64,
}

/// Peak bytes of temporary values.
pub(super) struct Transient {
    /// In the entire block.
    pub(super) most: f64,
    /// While weight gradients are computed.
    pub(super) in_w: f64,
}

/// Bytes that the weight gradient reads.
pub(super) struct SavedForW {
    /// Bytes of all of its values.
    pub(super) bytes: f64,
    /// Part of `bytes` that the backward makes.
    pub(super) made: f64,
}

impl Keep {
    pub(super) fn under(site: &Site<'_>, recompute: &Recompute) -> Keep {
        let nothing = Keep::of_dropped(site, Dropped::default());
        if !is_layer(site.block()) {
            return nothing;
        }
        match recompute {
            Recompute::None | Recompute::Auto => nothing,
            Recompute::Selective(names) => Keep { whole: nothing.whole, ..Keep::selective(site, names) },
            Recompute::Full(_) => {
                let values: Vec<Value> = site.block().args_of(ArgKind::Value).collect();
                let parts = if site.saved().partitioned_inputs && !site.options.sp { site.options.tp } else { 1 };
                let bytes = values.iter().map(|&value| site.local.bytes(value)).sum::<f64>() / parts as f64;
                let recomputed = (0..recomputed_until(site)).collect();
                Keep { bytes, logits: 0.0, values: set(values.into_iter()), recomputed, whole: nothing.whole }
            }
        }
    }

    /// Saved activations of a layer that drops the values of these names. They alone count as saved without recomputation.
    pub(super) fn selective(site: &Site<'_>, names: &[String]) -> Keep {
        Keep::without(site, dropped(site, names), names.iter().any(|name| name == OPS))
    }

    /// Saved activations of a layer that drops these values; `has_ops` if a list of saved ops decides some of them.
    pub(super) fn without(site: &Site<'_>, dropped: Dropped, has_ops: bool) -> Keep {
        let made = dropped.values.clone();
        let mut keep = Keep::of_dropped(site, dropped);
        if site.saved().unread && has_ops {
            keep.bytes += unread(site, &made, &keep.values);
        }
        keep
    }

    /// Saves the values that I and W read. A dropped value is recomputed, and the values it is computed from are saved instead.
    pub(super) fn of_dropped(site: &Site<'_>, dropped: Dropped) -> Keep {
        let stmts = &site.block()[SectionKind::F].stmts;
        let mut makers: SecondaryMap<Value, Option<usize>> = SecondaryMap::new();
        for (at, stmt) in stmts.iter().enumerate() {
            stmt.results.iter().for_each(|&value| makers[value] = Some(at));
        }
        let (mut values, mut recomputed) = (EntitySet::new(), dropped.recomputed);
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
                recomputed.insert(at);
                wanted.extend(&stmts[at].operands);
            } else if let Some(stmt) = stmt.filter(|stmt| stmt.op.facts().is_view) {
                wanted.extend(&stmt.operands);
            } else if !is_row_sum(site, stmt, value) {
                let is_logits = site.is_head() && site.local.has_role(value, DimRole::Vocabulary);
                if is_logits && site.kept_for_loss() > 0.0 {
                    continue;
                }
                values.insert(value);
                bytes += site.kept_bytes(value);
                if is_logits {
                    logits += site.local.bytes(value);
                }
            }
        }
        let held = stmts.iter().enumerate().filter(|(at, _)| !recomputed.contains(at));
        let (of_loss, others): (Vec<_>, Vec<_>) = held.map(|(_, stmt)| stmt).partition(|stmt| is_loss(stmt));
        let of_loss: f64 = of_loss.into_iter().map(|stmt| site.beside(stmt)).sum();
        let others: f64 = others.into_iter().map(|stmt| site.beside(stmt)).sum();
        let bytes = bytes + of_loss + others;
        let whole = Whole { values: values.clone(), bytes };
        Keep { bytes, logits: logits + of_loss, values, recomputed, whole }
    }

    /// Bytes of a value of a layer if it is saved. `maker` is the statement that computes it; `None` for an argument.
    pub(super) fn of_value(site: &Site<'_>, maker: Option<&Stmt>, value: Value) -> f64 {
        if is_row_sum(site, maker, value) { 0.0 } else { site.kept_bytes(value) }
    }

    /// Returns whether a value is saved.
    pub(super) fn has(&self, value: Value) -> bool {
        self.values.contains(value)
    }

    /// Returns whether the statement of F with this index is recomputed.
    pub(super) fn runs(&self, place: usize) -> bool {
        self.recomputed.contains(&place)
    }

    /// Statements of F that are recomputed before the input gradient.
    pub(super) fn recomputed<'a>(&self, site: &Site<'a>) -> Vec<&'a Stmt> {
        self.recomputed.iter().map(|&at| &site.block()[SectionKind::F].stmts[at]).collect()
    }

    /// Peak bytes in addition to the saved activations: of values of the forward that are neither saved nor passed on, and of
    /// values of the backward, recomputed ones included. A saved value is freed after its last use, or with all others of its block after
    /// the backward where a stack runs blocks as they stand; a recomputed one always is after its last use.
    pub(super) fn transient(&self, site: &Site<'_>) -> Transient {
        let block = site.block();
        let mut kept = self.values.clone();
        for &value in &block[SectionKind::F].ret {
            kept.insert(value);
        }
        let forward = bytes_at(site, &site.stmts(SectionKind::F), &kept, &EntitySet::new(), None);
        let mut dying = self.whole.values.clone();
        if site.platform.stack.traits.saved.block_by_block {
            self.values.iter().for_each(|value| {
                dying.remove(value);
            });
        }
        let stmts = backward(site);
        let given = set(block[SectionKind::I].ret.iter().copied());
        let backward = bytes_at(site, &stmts, &given, &dying, self.returning(site));
        let made_again = self.whole.bytes - self.bytes;
        let w = set(results(&block[SectionKind::W].stmts));
        let of_w = stmts.iter().zip(&backward).filter(|(stmt, _)| stmt.results.iter().any(|&value| w.contains(value)));
        let in_w = made_again + of_w.map(|(_, &bytes)| bytes).fold(0.0, f64::max);
        Transient { most: most(&forward).max(made_again + most(&backward)), in_w }
    }

    /// The gradient of the experts' inputs with its terms, and bytes that are there while they are made, if a stack runs blocks as they
    /// stand: recomputed results of experts, before and after the exchange that brings them back. It overlaps with that gradient.
    fn returning(&self, site: &Site<'_>) -> Option<(EntitySet<Value>, f64)> {
        let (block, mesh) = (site.block(), site.local.mesh());
        let again = Some(self.recomputed(site)).filter(|_| site.platform.stack.traits.saved.block_by_block)?;
        let input = &block[SectionKind::I].stmts;
        let made: Vec<&Stmt> = again.iter().copied().chain(input).collect();
        let weights = input.iter().find(|stmt| matches!(stmt.op, Op::Kernel(KernelOp::CombineDw(_))))?;
        let combine = input.iter().find(|stmt| matches!(stmt.op, Op::Kernel(KernelOp::Combine(_))))?;
        let (results, gradient) = (weights.operands[1], combine.operands[0]);
        let [before, gradient] = [first_sent(block, mesh, &made, results)?, first_sent(block, mesh, &made, gradient)?];
        let sum = maker(&made, gradient).filter(|stmt| role(block, stmt).is_some());
        let terms = sum.into_iter().flat_map(|stmt| stmt.operands.iter().copied()).chain([gradient]);
        maker(&again, before).map(|_| (set(terms), site.bytes(before) + site.bytes(results)))
    }
}

/// Bytes that the products of the weight gradient read: saved values of the forward, and values of the input gradient. They
/// stay in memory until the weight gradient runs. Gradients of norm gains are computed with the input gradient, unless a stack runs
/// blocks as they stand. Such a stack also computes again in W what W alone reads, and keeps what I has gathered again.
pub(super) fn saved_for_w(site: &Site<'_>, keep: &Keep) -> SavedForW {
    let block = site.block();
    let own = set(results(&block[SectionKind::W].stmts));
    let all = site.platform.stack.traits.saved.block_by_block;
    let again = if all { keep.recomputed(site) } else { Vec::new() };
    let in_i = needed(&again, &block[SectionKind::I].stmts);
    let (mut wanted, mut read) = (Vec::new(), BTreeSet::new());
    for stmt in block[SectionKind::W].stmts.iter().filter(|stmt| all || is_product_or_gather(stmt)) {
        let gathered =
            again.iter().filter(|made| is_gather(stmt) && made.op == stmt.op && made.operands == stmt.operands);
        match gathered.map(|made| made.results[0]).find(|&value| in_i.contains(value)) {
            Some(gathered) => wanted.push(gathered),
            None => wanted.extend(&stmt.operands),
        }
    }
    while let Some(value) = wanted.pop() {
        if own.contains(value) {
            continue;
        }
        let value = site.alias.there.get(&value).copied().unwrap_or(value);
        if let Some(made) = again.iter().find(|made| made.results.contains(&value) && !in_i.contains(value)) {
            wanted.extend(&made.operands);
        } else if block.arg_kind(value).is_none_or(|kind| kind == ArgKind::Value) {
            read.insert(value);
        }
    }
    let (saved, made): (Vec<Value>, Vec<Value>) = read.into_iter().partition(|&value| keep.has(value));
    let [saved, made] = [saved, made].map(|values| values.iter().map(|&value| site.kept_bytes(value)).sum::<f64>());
    SavedForW { bytes: saved + made, made }
}

/// Results of those of some statements of F, in their order, that others need.
fn needed(stmts: &[&Stmt], others: &[Stmt]) -> EntitySet<Value> {
    let mut read = set(others.iter().flat_map(|stmt| stmt.operands.iter().copied()));
    let mut made = EntitySet::new();
    for stmt in stmts.iter().rev() {
        if stmt.results.iter().any(|&value| read.contains(value)) {
            for &value in &stmt.results {
                made.insert(value);
            }
            for &value in &stmt.operands {
                read.insert(value);
            }
        }
    }
    made
}

/// Bytes of the inputs of reductions over tp in the forward.
pub(super) fn summed(site: &Site<'_>) -> Vec<f64> {
    let reductions = site.block()[SectionKind::F].stmts.iter().filter(|stmt| {
        matches!(stmt.op, Op::Collective(Collective::ReduceScatter { .. } | Collective::AllReduce { .. }))
    });
    let sums = reductions.filter(|stmt| site.is_tensor_parallel(stmt));
    sums.map(|stmt| site.local.bytes(stmt.operands[0])).collect()
}

/// Statements of I and W in the order of automatic differentiation: a weight gradient runs as soon as its operands exist. A stack that
/// runs blocks as they stand has those of W after all of I.
fn backward<'a>(site: &Site<'a>) -> Vec<&'a Stmt> {
    if site.platform.stack.traits.saved.block_by_block {
        return [SectionKind::I, SectionKind::W].into_iter().flat_map(|kind| site.stmts(kind)).collect();
    }
    let [of_i, of_w] = [SectionKind::I, SectionKind::W].map(|kind| results(&site.block()[kind].stmts));
    let (mut missing, mut waiting) = (set(of_i.chain(of_w)), site.stmts(SectionKind::W));
    let mut order = Vec::new();
    for stmt in site.stmts(SectionKind::I) {
        let mut done = vec![stmt];
        while let Some(stmt) = done.pop() {
            stmt.results.iter().for_each(|&value| {
                missing.remove(value);
            });
            order.push(stmt);
            waiting.retain(|next| {
                let is_ready = next.operands.iter().all(|&value| !missing.contains(value));
                if is_ready {
                    done.push(next);
                }
                !is_ready
            });
        }
    }
    order.extend(waiting);
    order
}

impl Site<'_> {
    /// Returns whether only products and gathers of the backward read a value.
    fn is_for_products(&self, value: Value) -> bool {
        let mut stmts = [SectionKind::I, SectionKind::W].into_iter().flat_map(|kind| &self.block()[kind].stmts);
        stmts.all(|stmt| !stmt.operands.contains(&value) || is_product_or_gather(stmt))
    }

    /// Bytes of a saved value. A value that only products read is saved quantised if the recipe has 8 or 4 bits.
    fn kept_bytes(&self, value: Value) -> f64 {
        if let Some(bytes) = self.saved().gated.filter(|_| self.gated.contains(value)) {
            return self.local.elements(value) * bytes;
        }
        let format = self.platform.recipe.products;
        if matches!(format, Format::F8 | Format::F4) && !self.is_head() && self.is_for_products(value) {
            self.local.elements(value) * self.saved().operand.unwrap_or(format.bytes())
        } else {
            self.local.bytes(value)
        }
    }

    /// Bytes that the stack saves besides the values that the graph reads.
    pub(super) fn saved(&self) -> &SavedBytes {
        &self.platform.stack.traits.saved
    }

    /// Bytes that a stack saves for a statement in addition to the values that the graph reads.
    pub(super) fn beside(&self, stmt: &Stmt) -> f64 {
        let elements = self.local.elements(stmt.operands.first().copied().unwrap_or(stmt.results[0]));
        let Op::Kernel(op) = &stmt.op else { return 0.0 };
        match op {
            KernelOp::Dropout(_) => elements * self.saved().dropout,
            KernelOp::RmsNorm(_) => elements * self.saved().norm,
            KernelOp::Rope(_) => elements * self.saved().rope,
            KernelOp::Unary(_) => elements * self.saved().activation,
            KernelOp::Binary(binary) if binary.equation.is_none() && binary.kind == ir::ops::BinaryKind::Mul => {
                elements * self.saved().activation
            }
            KernelOp::CrossEntropy(_) | KernelOp::SumExp(_) => elements * self.kept_for_loss(),
            KernelOp::Attention(_) if !self.platform.has_flash() => {
                let element = self.platform.recipe.activation;
                attention::local(&self.local, stmt).map_or(0.0, |it| it.scores() * it.saved(element))
            }
            // Its gradient reads the result by heads, and that of the next product the result by sequence.
            KernelOp::Attention(_) if self.context_ranks().is_some() && self.options.cp_kind == CpKind::Ulysses => {
                self.local.bytes(attention::result(stmt))
            }
            _ => 0.0,
        }
    }

    /// Bytes per logit that the loss saves for its gradient. The gradient then reads them instead of the logits.
    fn kept_for_loss(&self) -> f64 {
        self.saved().loss.unwrap_or(self.unfused_loss())
    }

    /// Bytes per logit in f32 where the loss is not fused.
    fn unfused_loss(&self) -> f64 {
        if self.fuses(FusedKernel::Loss) { 0.0 } else { 4.0 }
    }

    /// Peak temporary bytes of a loss or its gradient.
    fn within_loss(&self, logits: Value) -> f64 {
        let split = if self.local.is_cut(logits, DimRole::Vocabulary) { self.saved().loss_split } else { 0.0 };
        self.local.elements(logits) * (self.saved().loss_within.unwrap_or(self.unfused_loss()) + split)
    }

    /// Peak temporary bytes of a statement.
    fn within(&self, stmt: &Stmt) -> f64 {
        match &stmt.op {
            Op::Kernel(KernelOp::Attention(_) | KernelOp::AttentionGrad(_)) if !self.platform.has_flash() => {
                let element = self.platform.recipe.activation;
                attention::local(&self.local, stmt)
                    .map_or(0.0, |it| it.inner(element, self.fuses(FusedKernel::Softmax)))
            }
            Op::Kernel(KernelOp::CrossEntropy(_) | KernelOp::SumExp(_) | KernelOp::CrossEntropyGrad(_)) => {
                self.within_loss(stmt.operands[0])
            }
            _ => 0.0,
        }
    }
}

/// Number of statements of F that full recomputation runs: all, or those up to the last one whose result the backward reads.
fn recomputed_until(site: &Site<'_>) -> usize {
    let stmts = &site.block()[SectionKind::F].stmts;
    let last = stmts.iter().rposition(|stmt| stmt.results.iter().any(|value| site.later.contains(value)));
    last.filter(|_| site.platform.stack.traits.saved.stops_early).map_or(stmts.len(), |last| last + 1)
}

/// The most bytes of all times.
fn most(bytes: &[f64]) -> f64 {
    bytes.iter().copied().fold(0.0, f64::max)
}

/// Statement that produces a value.
fn maker<'s>(stmts: &[&'s Stmt], value: Value) -> Option<&'s Stmt> {
    stmts.iter().copied().find(|stmt| stmt.results.contains(&value))
}

/// Operand of the first of the consecutive exchanges that lead to a value.
fn first_sent(block: &Block, mesh: &Mesh, stmts: &[&Stmt], value: Value) -> Option<Value> {
    let mut first = None;
    let mut value = value;
    while let Some(exchange) = stmts.iter().find(|stmt| stmt.results.contains(&value) && is_exchange(block, mesh, stmt))
    {
        value = exchange.operands[0];
        first = Some(value);
    }
    first
}

/// Bytes of results of products that are neither recomputed nor read.
fn unread(site: &Site<'_>, made: &EntitySet<Value>, read: &EntitySet<Value>) -> f64 {
    let products = site.block()[SectionKind::F].stmts.iter().filter(|stmt| is_product(stmt));
    let results = products.flat_map(|stmt| &stmt.results);
    results.filter(|value| !made.contains(**value) && !read.contains(**value)).map(|&it| site.local.bytes(it)).sum()
}

fn is_product(stmt: &Stmt) -> bool {
    matches!(stmt.op, Op::Kernel(KernelOp::Einsum(_)))
}

fn is_gather(stmt: &Stmt) -> bool {
    matches!(stmt.op, Op::Collective(Collective::AllGather { .. }))
}

fn is_product_or_gather(stmt: &Stmt) -> bool {
    is_product(stmt) || is_gather(stmt)
}

fn is_loss(stmt: &Stmt) -> bool {
    matches!(stmt.op, Op::Kernel(KernelOp::CrossEntropy(_) | KernelOp::SumExp(_)))
}

/// Returns whether a value is the log-sum-exp of an attention that saves its softmax instead.
fn is_row_sum(site: &Site<'_>, maker: Option<&Stmt>, value: Value) -> bool {
    let attention = maker.filter(|stmt| matches!(stmt.op, Op::Kernel(KernelOp::Attention(_))));
    !site.platform.has_flash() && attention.is_some_and(|stmt| value != attention::result(stmt))
}

/// Bytes at each statement of the values that they compute, except the `given` ones. A pointwise op overwrites an operand that it
/// reads last. Values in `dying` exist before the first statement; they count 0, and their last use frees their bytes. While values of
/// `during` are made, its bytes are there too.
fn bytes_at(
    site: &Site<'_>,
    stmts: &[&Stmt],
    given: &EntitySet<Value>,
    dying: &EntitySet<Value>,
    during: Option<(EntitySet<Value>, f64)>,
) -> Vec<f64> {
    let mut last = vec![None; site.block().values.len()];
    for (at, stmt) in stmts.iter().enumerate() {
        for &value in stmt.results.iter().filter(|value| !stmt.accumulate && !site.unread.contains(**value)) {
            last[value.index()] = Some(at);
        }
        for &value in &stmt.operands {
            if last[value.index()].is_some() || dying.contains(value) {
                last[value.index()] = Some(at);
            }
        }
    }
    let (mut live, mut bytes) = (0.0f64, Vec::with_capacity(stmts.len()));
    let mut touched: Vec<Value> = Vec::new();
    for (at, stmt) in stmts.iter().enumerate() {
        let made = stmt.results.iter().filter(|value| last[value.index()].is_some() && !given.contains(**value));
        let made: f64 = made.map(|&value| site.bytes(value)).sum();
        touched.clear();
        touched.extend(stmt.operands.iter().chain(&stmt.results));
        touched.sort_unstable();
        touched.dedup();
        touched.retain(|value| last[value.index()] == Some(at) && !given.contains(*value));
        let dead: f64 = touched.iter().map(|&value| site.bytes(value)).sum();
        let in_place = role(site.block(), stmt).is_some() || stmt.op.facts().is_view;
        let others = during.as_ref().filter(|(values, _)| stmt.results.iter().any(|&value| values.contains(value)));
        let others = others.map_or(0.0, |(_, bytes)| *bytes);
        bytes.push(live + made - if in_place { dead } else { 0.0 } + site.within(stmt) + others);
        live += made - dead;
    }
    bytes
}
