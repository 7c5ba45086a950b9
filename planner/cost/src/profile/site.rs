//! A block on a rank: the context of all parts of its profile.

use super::alias::{Alias, weighed};
use super::fusion::{Role, role};
use super::local::Local;
use super::row_groups::{Members, row_groups};
use crate::block_options::BlockOptions;
use crate::platform::Platform;
use crate::routing::Routing;
use crate::traits::{FusedKernel, Hidden, StackTraits};
use ir::entity::EntitySet;
use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{KernelOp, Op, OpClass};
use ir::saved::saved_values;
use rustc_hash::FxHashMap;
use std::cell::OnceCell;

/// A block under options on a platform.
pub(super) struct Site<'a> {
    pub(super) local: Local<'a>,
    pub(super) options: &'a BlockOptions,
    pub(super) platform: &'a Platform<'a>,
    /// Values of F that I and W read.
    pub(super) later: Vec<Value>,
    /// Values of F that kernels of the backward recompute, with the values that they read for it.
    pub(super) remade: FxHashMap<Value, Vec<Value>>,
    /// The inputs of gated units, if a stack saves these alone of them.
    pub(super) gated: EntitySet<Value>,
    /// Collectives that the stack avoids or merges.
    pub(super) alias: Alias,
    /// Values that the plan's backward reads, but the stack's does not.
    pub(super) unread: EntitySet<Value>,
    pub(super) has_attention: bool,
    pub(super) has_experts: bool,
    /// The groups of both gradients, which are one body.
    backward: OnceCell<Vec<Members>>,
}

impl<'a> Site<'a> {
    pub(super) fn new(
        model: &'a Model,
        block: &'a Block,
        options: &'a BlockOptions,
        platform: &'a Platform<'a>,
    ) -> Site<'a> {
        let (traits, later) = (&platform.stack.traits, saved_values(block).forward);
        let mut forward = block[SectionKind::F].stmts.iter();
        let mut site = Site {
            local: Local::new(model, block, platform.recipe, traits.experts.capacity),
            options,
            platform,
            remade: remade(block, &later, traits),
            gated: EntitySet::new(),
            later,
            alias: Alias::default(),
            unread: if traits.experts.weighs_inside { weighed(block) } else { EntitySet::new() },
            has_attention: forward
                .any(|stmt| matches!(stmt.op, Op::Kernel(KernelOp::Attention(_) | KernelOp::SparseAttention(_)))),
            has_experts: Routing::of(block).is_some(),
            backward: OnceCell::new(),
        };
        if traits.saved.gated.is_some() {
            for unit in gated_units(block) {
                site.gated.extend(unit.inputs);
                site.remade.insert(unit.activation, vec![unit.inputs[0]]);
                site.remade.insert(unit.product, unit.inputs.to_vec());
            }
        }
        site.alias = Alias::of(block, site.local.mesh(), traits.saved.gathered_inputs);
        site.later.retain(|value| !site.unread.contains(*value));
        for value in &mut site.later {
            *value = site.alias.instead.get(value).copied().unwrap_or(*value);
        }
        site
    }

    pub(super) fn block(&self) -> &'a Block {
        self.local.block
    }

    /// Returns whether ranks that share a sequence have parts of it in the order of the text, since the model carries states along it.
    pub(super) fn keeps_order(&self) -> bool {
        self.local.model.carrying().next().is_some()
    }

    pub(super) fn is_head(&self) -> bool {
        self.block().results.iter().any(|kind| kind.is_loss())
    }

    pub(super) fn stmts(&self, section: SectionKind) -> Vec<&'a Stmt> {
        self.block()[section].stmts.iter().collect()
    }

    /// Statements of I, then of W.
    pub(super) fn backward(&self) -> Vec<&'a Stmt> {
        [self.stmts(SectionKind::I), self.stmts(SectionKind::W)].concat()
    }

    /// Groups of the statements of [`Site::backward`].
    pub(super) fn backward_groups(&self) -> Vec<Members> {
        self.backward.get_or_init(|| row_groups(self, &self.backward())).clone()
    }

    /// Bytes of a value on one rank, or of the value that stands in for it.
    pub(super) fn bytes(&self, value: Value) -> f64 {
        self.local.bytes(self.alias.there.get(&value).copied().unwrap_or(value))
    }

    /// Bytes of several values.
    pub(super) fn bytes_of(&self, values: &[Value]) -> f64 {
        values.iter().map(|&value| self.bytes(value)).sum()
    }

    /// Returns whether a value is an activation rather than a vector of parameters, positions or row sums.
    pub(super) fn is_large(&self, value: Value) -> bool {
        self.block().ty(value).dtype.is_float() && self.local.dims(value).len() > 2
    }

    /// Returns whether the stack hides a kind of communication.
    pub(super) fn hides(&self, kind: Hidden) -> bool {
        self.platform.stack.hides(kind)
    }

    /// CPU seconds of a kernel's launch.
    pub(super) fn launch(&self) -> f64 {
        match self.options.refused.graphs {
            true => self.platform.single_launch(),
            false => self.platform.launch(self.has_experts),
        }
    }

    /// Returns whether a group of ops is one kernel.
    pub(super) fn fuses(&self, group: FusedKernel) -> bool {
        self.platform.stack.fuses(group)
    }

    /// Fraction of the hideable communication that is hidden.
    pub(super) fn overlap(&self) -> f64 {
        self.platform.stack.fitted.overlap.value
    }
}

/// A product of two values of which one is an activation: `silu(gate) * up`.
struct GatedUnit {
    /// The operand of the activation, then the other factor.
    inputs: [Value; 2],
    activation: Value,
    product: Value,
}

fn gated_units(block: &Block) -> Vec<GatedUnit> {
    let mut units = Vec::new();
    for gate in block[SectionKind::F].stmts.iter().filter(|stmt| role(block, stmt) == Some(Role::Gate)) {
        let [one, other] = gate.operands[..] else { continue };
        let mut sides = [(one, other), (other, one)].into_iter();
        if let Some((made, up)) = sides.find_map(|(gated, up)| Some((activation(block, gated)?, up))) {
            let (inputs, product) = ([made.operands[0], up], gate.results[0]);
            units.push(GatedUnit { inputs, activation: made.results[0], product });
        }
    }
    units
}

/// Statement of the forward that computes a value as an activation.
fn activation(block: &Block, value: Value) -> Option<&Stmt> {
    let mut stmts = block[SectionKind::F].stmts.iter();
    stmts.find(|stmt| stmt.results.contains(&value) && role(block, stmt) == Some(Role::Activation))
}

/// Activations that a fused kernel of the backward recomputes, so that they are not saved, with the saved values that it reads for
/// each. A stack that neither groups statements nor runs blocks as they stand has only kernels of functions of one saved value: of one
/// statement, or of the several of a clamped gate.
fn remade(block: &Block, saved: &[Value], traits: &StackTraits) -> FxHashMap<Value, Vec<Value>> {
    let mut sources: FxHashMap<Value, Vec<Value>> = FxHashMap::default();
    let fused = traits.kernels.fused;
    let has_groups = fused.contains(FusedKernel::Groups);
    if !fused.contains(FusedKernel::Swiglu) && !has_groups {
        return sources;
    }
    let all = has_groups || traits.saved.block_by_block;
    let chains = fused.contains(FusedKernel::ClampedSwiglu);
    for stmt in transforms::recompute::remade(block).into_iter().map(|at| &block[SectionKind::F].stmts[at]) {
        let mut read: Vec<Value> = Vec::new();
        for operand in &stmt.operands {
            read.extend(sources.get(operand).map_or(std::slice::from_ref(operand), Vec::as_slice));
        }
        let is_one = stmt.op.facts().class == OpClass::Activation && read == stmt.operands;
        read.sort_unstable();
        read.dedup();
        if all || read.len() == 1 && (is_one || chains) && saved.contains(&read[0]) {
            sources.insert(stmt.results[0], read);
        }
    }
    sources
}
