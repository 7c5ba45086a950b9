//! The normal form of a model: equal for models that differ in names and in the order of independent statements alone.

use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::types::Type;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Lines that are equal for such models: dims, then the calls with the statements of their blocks.
pub(crate) fn normal(model: &Model) -> Vec<String> {
    let dims: BTreeSet<String> = model.dims.values().map(|dim| format!("dim {dim:?}")).collect();
    let calls = model.calls.iter().flat_map(|call| {
        let count = call.repeat.as_ref().map_or(1, |repeat| repeat.range.len());
        [format!("call x {count}")].into_iter().chain(statements(model, &model.blocks[call.block], &inits(model, call)))
    });
    dims.into_iter().chain(calls).collect()
}

/// First numbers and decay of the parameters of a call, in the order of its block's arguments.
fn inits(model: &Model, call: &ir::graph::Call) -> Vec<String> {
    let of = |name: &str| {
        let params = model.params.values().filter(move |param| param.name == name);
        params.map(|param| format!("{:?} {}", param.init, param.decay)).collect::<Vec<_>>()
    };
    call.params.iter().flat_map(|param| of(&param.name)).collect()
}

/// The statements of a block, each with numbers that follow from what its operands are.
fn statements(model: &Model, block: &Block, inits: &[String]) -> BTreeSet<String> {
    let mut numbers: BTreeMap<Value, u64> = BTreeMap::new();
    let params = block.args.iter().filter(|arg| arg.kind == ir::graph::ArgKind::Param);
    let inits: BTreeMap<Value, &String> = params.map(|arg| arg.value).zip(inits).collect();
    for arg in &block.args {
        let name = if inits.contains_key(&arg.value) { "" } else { block.value_name(arg.value) };
        let stated = format!("{name} {:?} {} {:?}", arg.kind, shown(model, block.ty(arg.value)), inits.get(&arg.value));
        numbers.insert(arg.value, number(&stated));
    }
    let mut lines = BTreeSet::new();
    for stmt in &block[SectionKind::F].stmts {
        let line = line(model, block, stmt, &numbers);
        for (at, &result) in stmt.results.iter().enumerate() {
            numbers.insert(result, number(&format!("{at} of {line}")));
        }
        lines.insert(line);
    }
    let returned: Vec<u64> = block[SectionKind::F].ret.iter().map(|value| numbers[value]).collect();
    lines.insert(format!("return {returned:x?}"));
    lines
}

fn line(model: &Model, block: &Block, stmt: &Stmt, numbers: &BTreeMap<Value, u64>) -> String {
    let mut operands: Vec<u64> = stmt.operands.iter().map(|operand| numbers[operand]).collect();
    // Equal dims on both sides: the order of the operands changes nothing.
    if matches!(stmt.op.name(), "add" | "mul") && block.ty(stmt.operands[0]) == block.ty(stmt.operands[1]) {
        operands.sort_unstable();
    }
    let types: Vec<String> = stmt.results.iter().map(|&result| shown(model, block.ty(result))).collect();
    format!("{} = {:?}({operands:x?})", types.join(", "), stmt.op)
}

fn shown(model: &Model, ty: &Type) -> String {
    let dims = ty.dims.iter().map(|dim| dim.name.map_or(dim.size.to_string(), |name| model.dims[name].name.clone()));
    format!("{}[{}]", ty.dtype.name(), dims.collect::<Vec<_>>().join(", "))
}

fn number(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
