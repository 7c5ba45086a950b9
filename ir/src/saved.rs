//! The values that each section reads, and so the activations that earlier sections save.

use crate::graph::{ArgKind, Block, SectionKind, Stmt};
use crate::ids::Value;
use cranelift_entity::EntitySet;

/// The saved values of a block. `I` saves what `W` reads, so that values that only `I` reads are freed after it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SavedValues {
    /// Saved by F: the values and arguments of F that I or W reads.
    pub forward: Vec<Value>,
    /// Saved by I: the values of F and I that W reads.
    pub input: Vec<Value>,
}

/// The saved values of a block.
pub fn saved_values(block: &Block) -> SavedValues {
    let forward = set(forward_args(block).chain(results(&block[SectionKind::F].stmts)));
    let input_section = &block[SectionKind::I];
    let input_made = set(input_section.args.iter().copied().chain(results(&input_section.stmts)));
    let by_input = reads(&input_section.stmts, &input_section.ret);
    let by_weight = reads(&block[SectionKind::W].stmts, &[]);
    let by_either = unique(by_input.iter().chain(&by_weight).copied());
    SavedValues {
        forward: by_either.filter(|&value| forward.contains(value)).collect(),
        input: by_weight.iter().copied().filter(|&v| forward.contains(v) || input_made.contains(v)).collect(),
    }
}

/// The values of G that later sections read: they stay until the last micro-batch has read them.
pub fn gathered_values(block: &Block) -> Vec<Value> {
    let made = set(results(&block[SectionKind::G].stmts));
    let sections = [SectionKind::F, SectionKind::I, SectionKind::W];
    let read = sections.into_iter().flat_map(|kind| reads(&block[kind].stmts, &block[kind].ret));
    unique(read).filter(|&value| made.contains(value)).collect()
}

/// The arguments of F that a row passes: values and inputs, in order.
pub fn forward_args(block: &Block) -> impl Iterator<Item = Value> + '_ {
    block.args.iter().filter(|arg| matches!(arg.kind, ArgKind::Value | ArgKind::Input)).map(|arg| arg.value)
}

/// The results of statements.
pub fn results<'a>(stmts: impl IntoIterator<Item = &'a Stmt>) -> impl Iterator<Item = Value> {
    stmts.into_iter().flat_map(|stmt| stmt.results.iter().copied())
}

/// The values that statements and a return read, each once, in order.
pub fn reads<'a>(stmts: impl IntoIterator<Item = &'a Stmt>, ret: &[Value]) -> Vec<Value> {
    let operands = stmts.into_iter().flat_map(|stmt| stmt.operands.iter().copied());
    unique(operands.chain(ret.iter().copied())).collect()
}

/// Values as a set.
pub fn set(values: impl Iterator<Item = Value>) -> EntitySet<Value> {
    let mut set = EntitySet::new();
    values.for_each(|value| {
        set.insert(value);
    });
    set
}

/// The values without duplicates, in order of their first occurrence.
pub fn unique(values: impl Iterator<Item = Value>) -> impl Iterator<Item = Value> {
    let mut seen = EntitySet::new();
    values.filter(move |&value| seen.insert(value))
}
