//! Recognition of ops that a model spells in primitives.
//!
//! The forward of each block becomes an e-graph (`egraph`). Rules add equal terms until none is new, and recognisers add the op
//! that a term spells. From the given statements extraction descends to those that cost least, so permutes, reshapes and scales
//! around an op vanish too.
//!
//! Recognised are `sigmoid`, `silu`, `gelu`, `gelu_erf`, `relu_squared`, `softmax`, `rms_norm`, `layer_norm`, `cross_entropy`,
//! `attention`, `rope` and `embedding`. A recognised op may round and add in another order than its primitives. Terms that
//! differ otherwise stay, as a softmax does that subtracts no maximum.
//!
//! Limits count nodes and rounds, never time, so the result depends on the model alone.

mod rules;
#[cfg(test)]
mod tests;

use crate::egraph::plain::PlainOp;
pub use crate::egraph::rule::Rounding;
use crate::egraph::{self, Terms};
use crate::renumber::renumber;
use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::types::Dims;
use std::collections::HashSet;

/// A recognised op.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recognised {
    /// The name of the block without `@`.
    pub block: String,
    /// The name of the op.
    pub op: &'static str,
    /// The number of statements that it replaces.
    pub replaced: usize,
}

/// Replaces primitives in the forwards of a model by the ops that they spell, and lists these ops.
///
/// Values that are returned keep their names, and so does every statement that is not replaced. Blocks with
/// gradients or with shardings do not change.
///
/// ```
/// use meshwright_transforms::recognise::recognise;
///
/// let text = "
///     dims [b=4, h=8]
///     model @m(%x: input f32[b, h]) { call @block(%x) }
///     block @block(%x: input f32[b, h]) -> metric f32[b, h] {
///       %gate: f32[b, h] = sigmoid(%x)
///       %y: f32[b, h] = mul(%x, %gate)
///       return %y
///     }";
/// let mut file = ir::text::parse(text).unwrap();
/// let found = recognise(&mut file.model);
/// assert_eq!((found[0].op, found[0].replaced), ("silu", 2));
/// assert!(ir::text::print(&file).contains("%y: f32[b, h] = silu(%x)"));
/// ```
pub fn recognise(model: &mut Model) -> Vec<Recognised> {
    changes(model).unwrap_or_default()
}

/// Recognises as [`recognise`] does. `None` if no block has changed: moves and scales that cancel vanish also where no op is
/// recognised.
pub fn changes(model: &mut Model) -> Option<Vec<Recognised>> {
    let has_mesh = model.has_mesh;
    let dims = model.dims.clone();
    let blocks = model.blocks.values_mut().filter_map(|block| recognise_block(block, &dims, has_mesh));
    let changed: Vec<Vec<Recognised>> = blocks.collect();
    (!changed.is_empty()).then(|| changed.concat())
}

/// The names of the rules, and what each does to rounding.
pub fn rules() -> Vec<(&'static str, Rounding)> {
    rules::all().iter().map(|rule| (rule.name, rule.rounding)).collect()
}

fn recognise_block(block: &mut Block, dims: &Dims, has_mesh: bool) -> Option<Vec<Recognised>> {
    if !is_candidate(block) {
        return None;
    }
    let known: HashSet<Value> = block.values.keys().collect();
    let protected = egraph::protected(block, SectionKind::F, &egraph::unread(block));
    let terms = Terms { dims, rules: &rules::all(), joins_broadcasts: true };
    let found = egraph::rewrite(block, SectionKind::F, &protected, &terms)?;
    if has_mesh {
        egraph::open_new(block, &known);
    }
    renumber(block);
    let name = &block.name;
    Some(found.into_iter().map(|(op, replaced)| Recognised { block: name.clone(), op, replaced }).collect())
}

/// True for blocks without gradients and shardings, some of whose statements are primitives.
fn is_candidate(block: &Block) -> bool {
    let has_gradients =
        [SectionKind::I, SectionKind::W, SectionKind::U].iter().any(|&kind| !block[kind].stmts.is_empty());
    !has_gradients && !egraph::is_sharded(block) && block[SectionKind::F].stmts.iter().any(is_primitive)
}

/// True for ops one of which each spelling of a recognised op has, and for moves, which other frameworks put around ops.
fn is_primitive(stmt: &Stmt) -> bool {
    const OPS: [PlainOp; 14] = [
        PlainOp::Recip,
        PlainOp::Exp,
        PlainOp::Sigmoid,
        PlainOp::Tanh,
        PlainOp::Erf,
        PlainOp::Sqrt,
        PlainOp::Rsqrt,
        PlainOp::Square,
        PlainOp::Cos,
        PlainOp::Max,
        PlainOp::Equal,
        PlainOp::TokenLoss,
        PlainOp::Softmax,
        PlainOp::SumExp,
    ];
    const WITH_ATTRIBUTES: [&str; 3] = ["at_least", "permute", "take"];
    let name = stmt.op.name();
    WITH_ATTRIBUTES.contains(&name) || OPS.iter().any(|op| op.name() == name)
}
