//! Sections of blocks as e-graphs (Willsey et al. 2021): statements become nodes, rules add equal terms until none is new, and
//! the terms that leave the fewest statements become statements again.
//!
//! Limits count nodes and rounds, never time, so the result depends on the section alone.
//!
//! Nodes have a normal form: permutations, new dims and equations of elementwise ops are one node, a spread, and constants
//! are tensors. Each rule has a name and a class: exact, fewer roundings, or another order of a sum. Layout ops (permute,
//! reshape, slice) are pushed towards inputs and outputs until they cancel. No rule is another's inverse. Extraction starts
//! from the given statements and descends to cheaper ones. It tries recognised ops first, and all readers of a value
//! together last. What is not simpler stays as it is.
//!
//! `recognise` runs before differentiation and uses rules of all classes, since a recognised op is the meaning from then
//! on. `simplify` uses no rule that changes the order of a sum.

pub(crate) mod decode;
pub(crate) mod encode;
#[cfg(test)]
pub(crate) mod evaluate;
pub(crate) mod extract;
pub(crate) mod facts;
pub(crate) mod forms;
#[cfg(test)]
pub(crate) mod generated;
pub(crate) mod language;
pub(crate) mod look;
pub(crate) mod plain;
pub(crate) mod rule;
pub(crate) mod rules;
pub(crate) mod saturate;

use decode::decode;
use encode::encode;
use extract::Extraction;
use forms::Forms;
use ir::graph::{Block, SectionKind};
use ir::ids::Value;
use ir::saved;
use ir::types::Dims;
use rule::Rule;
use saturate::saturate;
use std::collections::HashSet;

/// The terms of a rewriting.
pub(crate) struct Terms<'a> {
    /// The dims of the model.
    pub(crate) dims: &'a Dims,
    /// The rules.
    pub(crate) rules: &'a [Rule],
    /// True if the equation of an elementwise op may take the place of a broadcast.
    pub(crate) joins_broadcasts: bool,
}

/// A recognised op, and the number of statements that it replaces.
pub(crate) type Found = (&'static str, usize);

/// Replaces the statements of a section by those that cost least, and lists the recognised ops; `None` if nothing changes. The
/// protected values keep a statement each.
pub(crate) fn rewrite(
    block: &mut Block,
    kind: SectionKind,
    protected: &HashSet<Value>,
    terms: &Terms<'_>,
) -> Option<Vec<Found>> {
    let stmts = block[kind].stmts.clone();
    let mut encoded = encode(block, kind);
    saturate(&mut encoded.graph, terms.rules);
    encoded.refresh();
    let forms = Forms::new(&encoded, &stmts, terms.joins_broadcasts);
    let extraction = Extraction::new(&stmts, &encoded, &forms, protected);
    if extraction.is_unchanged() {
        return None;
    }
    let mut new = block.clone();
    let made = decode(&mut new, kind, terms.dims, &extraction).ok()?;
    *block = new;
    let found = |form: &forms::Form| -> Option<Found> {
        let dropped = extraction.recognised.iter().filter(|(op, _)| op == form).map(|(_, dropped)| *dropped);
        dropped.reduce(|a, b| a + b).map(|dropped| (form.name(), dropped))
    };
    Some(made.iter().filter_map(found).collect())
}

/// The values of a block that no statement reads and no section returns.
pub(crate) fn unread(block: &Block) -> HashSet<Value> {
    let read: HashSet<Value> =
        block.sections.iter().flat_map(|section| saved::reads(&section.stmts, &section.ret)).collect();
    let results = block.sections.iter().flat_map(|section| saved::results(&section.stmts));
    results.filter(|value| !read.contains(value)).collect()
}

/// The values of a section that keep a statement each: it returns them, other sections or types read them, or they are among
/// the unread ones.
pub(crate) fn protected(block: &Block, kind: SectionKind, unread: &HashSet<Value>) -> HashSet<Value> {
    let others = SectionKind::ALL.iter().filter(|&&other| other != kind);
    let elsewhere = others.flat_map(|&other| saved::reads(&block[other].stmts, &block[other].ret));
    let counts = block.values.values().flat_map(|data| data.ty.dims.iter().filter_map(|dim| dim.count));
    // A result of a statement with several is often unread, and needs no statement of its own.
    let stmts = block[kind].stmts.iter().filter(|stmt| stmt.results.iter().all(|result| unread.contains(result)));
    let ends = stmts.flat_map(|stmt| stmt.results.iter().copied());
    block[kind].ret.iter().copied().chain(elsewhere).chain(counts).chain(ends).collect()
}

/// True if some value has a sharding.
pub(crate) fn is_sharded(block: &Block) -> bool {
    block.values.values().any(|data| data.ty.closed() != data.ty.logical())
}

/// Opens the dims of new values: where the model states shardings, the planner chooses those of new values.
pub(crate) fn open_new(block: &mut Block, known: &HashSet<Value>) {
    let new: Vec<Value> = block.values.keys().filter(|value| !known.contains(value)).collect();
    for value in new {
        block.values[value].ty.dims.iter_mut().for_each(|dim| dim.open = true);
    }
}
