//! Recognition of ops that a model spells in primitives.
//!
//! The forward of each block becomes an e-graph (`egraph`). Rules add equal terms until none is new, and recognisers
//! add the op that a term spells. Of each value's definitions the one that leaves the fewest statements is taken.
//!
//! Recognised are `sigmoid`, `silu`, `gelu`, `gelu_erf`, `relu_squared`, `softmax`, `rms_norm`, `layer_norm`, `cross_entropy`,
//! `attention`, `rope` and `embedding`. A recognised op may round and add in another order than its primitives. Terms that
//! differ otherwise stay, as a softmax does that subtracts no maximum.
//!
//! Limits count nodes and rounds, never time, so the result depends on the model alone.

mod rules;
#[cfg(test)]
mod tests;

use crate::egraph::construct::Construct;
use crate::egraph::extract::{self, Replaced};
pub use crate::egraph::rule::Rounding;
use crate::egraph::saturate::saturate;
use crate::egraph::{decode, encode, language};
use crate::renumber::renumber;
use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use std::collections::{BTreeMap, HashSet};

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
/// Values that are returned or read elsewhere keep their names, and so does every statement that is not replaced. Blocks with
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
    let has_mesh = model.has_mesh;
    model.blocks.values_mut().flat_map(|block| recognise_block(block, has_mesh)).collect()
}

/// The names of the rules, and what each does to rounding.
pub fn rules() -> Vec<(&'static str, Rounding)> {
    rules::all().iter().map(|rule| (rule.name, rule.rounding)).collect()
}

/// The ops that [`recognise`] would put into a model.
pub fn recognisable(model: &Model) -> Vec<Recognised> {
    recognise(&mut model.clone())
}

fn recognise_block(block: &mut Block, has_mesh: bool) -> Vec<Recognised> {
    if !is_candidate(block) {
        return Vec::new();
    }
    let mut encoded = encode::encode(block);
    saturate(&mut encoded.graph, &rules::all());
    let original = block.clone();
    let construct = Construct::new(&original, &encoded);
    let replaced = extract::extract(&original, &construct);
    if replaced.is_empty() || decode::decode(block, &construct, &replaced).is_err() {
        *block = original;
        return Vec::new();
    }
    if has_mesh {
        open_new(block, &original);
    }
    renumber(block);
    list(&original, &construct, &replaced)
}

/// True for blocks without gradients and shardings, some of whose statements are primitives.
fn is_candidate(block: &Block) -> bool {
    let has_gradients =
        [SectionKind::I, SectionKind::W, SectionKind::U].iter().any(|&kind| !block[kind].stmts.is_empty());
    let is_sharded = block.values.values().any(|data| data.ty.closed() != data.ty.logical());
    !has_gradients && !is_sharded && block[SectionKind::F].stmts.iter().any(is_primitive)
}

/// True for ops one of which each spelling of a recognised op has.
fn is_primitive(stmt: &Stmt) -> bool {
    const NAMES: [&str; 15] = [
        "recip",
        "exp",
        "sigmoid",
        "tanh",
        "erf",
        "sqrt",
        "rsqrt",
        "square",
        "cos",
        "at_least",
        "max",
        "equal",
        "token_loss",
        "softmax",
        "sum_exp",
    ];
    NAMES.contains(&stmt.op.name())
}

/// Opens the dims of new values: where the model states shardings, the planner chooses those of new values.
fn open_new(block: &mut Block, original: &Block) {
    let known: HashSet<Value> = original.values.keys().collect();
    let new: Vec<Value> = block.values.keys().filter(|value| !known.contains(value)).collect();
    for value in new {
        block.values[value].ty.dims.iter_mut().for_each(|dim| dim.open = true);
    }
}

/// The recognised ops in the order of the statements that they replace; an op with several results is listed once.
fn list(block: &Block, construct: &Construct<'_>, replaced: &BTreeMap<Value, Replaced>) -> Vec<Recognised> {
    let mut found: Vec<(&language::Node, Recognised)> = Vec::new();
    let stmts = block[SectionKind::F].stmts.iter();
    for value in stmts.flat_map(|stmt| &stmt.results) {
        let Some(Replaced { node, dropped }) = replaced.get(value) else { continue };
        let Some(op) = construct.recognised(node) else { continue };
        match found.iter_mut().find(|(known, _)| *known == op) {
            Some((_, known)) => known.replaced += dropped.len(),
            None => found.push((op, Recognised { block: block.name.clone(), op: op.name(), replaced: dropped.len() })),
        }
    }
    found.into_iter().map(|(_, recognised)| recognised).collect()
}
