//! The interpreter of the recorded graph: plain loops, f32 elements, each op as PyTorch defines it.

mod call;
mod complex;
mod convolution;
mod elementwise;
mod make;
mod network;
mod routing;
mod shape;
mod tensor;

pub(crate) use call::{Call, wrap};
pub(crate) use shape::{bounds, lengths, only_dim, order, viewed};
pub(crate) use tensor::{ElementKind, Item, MOST_ELEMENTS, Tensor};

use crate::error::Error;
use crate::graph::{Arg, RecordedNode, Recording, ValueId};
use crate::refusal::Refusal;
use std::collections::BTreeMap;

/// Ops that check something and give nothing.
pub(crate) fn is_check(family: &str) -> bool {
    family.starts_with("aten._assert") || family.starts_with("aten.sym_constrain")
}

/// Ops that give their first operand, perhaps in another format or memory.
pub(crate) fn is_alias(node: &RecordedNode) -> bool {
    const NAMES: [&str; 11] = [
        "aten.alias",
        "aten.clone",
        "aten.contiguous",
        "aten.detach",
        "aten.detach_",
        "aten.lift_fresh_copy",
        "aten.to",
        "aten._to_copy",
        "aten.type_as",
        "aten.dropout",
        "aten.dropout_",
    ];
    NAMES.contains(&node.family())
}

/// The results of a node whose operands are known.
///
/// # Errors
/// The op is unknown, or has other operands than the interpreter supports.
pub(crate) fn evaluate(call: &Call<'_>) -> Result<Vec<Item>, Refusal> {
    let node = call.node;
    if is_check(node.family()) {
        return Ok(Vec::new());
    }
    if let Some(results) = complex::evaluate(call) {
        return results;
    }
    if is_alias(node) {
        return cast(call).map(|tensor| vec![tensor.into()]);
    }
    let groups = [elementwise::evaluate, shape::evaluate, make::evaluate, network::evaluate, routing::evaluate];
    match groups.iter().find_map(|group| group(call)) {
        Some(results) => results,
        None => Err(Refusal::UnknownOp(node.op.clone())),
    }
}

fn cast(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let node = call.node;
    if node.family().starts_with("aten.dropout") && call.flag("train") {
        return Err(Refusal::Dropout);
    }
    let name = ["self", "input"].into_iter().find(|name| node.arg(name).is_some()).unwrap_or("self");
    let tensor = call.tensor(name)?;
    let kind = match (call.kind("dtype")?, node.arg("other")) {
        (Some(kind), _) => kind,
        (None, Some(_)) => call.tensor("other")?.kind,
        (None, None) => tensor.kind,
    };
    Ok(tensor.map(kind, |x| x))
}

/// Runs all nodes, and gives the last result. A value is dropped behind its last reader.
///
/// # Errors
/// A node has no results.
pub(crate) fn run_all(graph: &Recording, mut values: Vec<Option<Item>>, wanted: ValueId) -> Result<Tensor, Error> {
    let mut last = vec![usize::MAX; graph.values];
    for (at, node) in graph.nodes.iter().enumerate() {
        node.operands().for_each(|value| last[value.index()] = at);
    }
    last[wanted.index()] = usize::MAX;
    let mut parts: BTreeMap<ValueId, &RecordedNode> = BTreeMap::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        if node.family() == "aten.copy_" {
            copy(node, &parts, &mut values).map_err(|why| node.refuse(why))?;
            continue;
        }
        let results = evaluate(&Call { node, values: &values, replaced: None }).map_err(|why| node.refuse(why))?;
        if node.family() == "aten.slice" {
            parts.extend(node.outputs.first().map(|output| (*output, node)));
        }
        for (&output, item) in node.outputs.iter().zip(results) {
            values[output.index()] = Some(item);
        }
        for value in node.operands().filter(|value| last[value.index()] == at) {
            values[value.index()] = None;
        }
    }
    match values[wanted.index()].take() {
        Some(Item::Tensor(tensor)) => Ok((*tensor).clone()),
        _ => Err(Error::Unsupported { at: Default::default(), why: "gives no tensor".to_string() }),
    }
}

const NO_PART: &str = "values are copied to what is no part of new memory";

/// Copies a value to a slice of another one.
fn copy(
    node: &RecordedNode,
    parts: &BTreeMap<ValueId, &RecordedNode>,
    values: &mut [Option<Item>],
) -> Result<(), Refusal> {
    let Some(Arg::Value(to)) = node.arg("self") else { return Err(NO_PART.into()) };
    let slice = parts.get(to).ok_or(NO_PART)?;
    let Some(Arg::Value(memory)) = slice.arg("self") else { return Err(NO_PART.into()) };
    let (call, copied) =
        (Call { node: slice, values, replaced: None }, Call { node, values, replaced: None }.tensor("src")?);
    let filled = shape::filled(&call, &copied)?;
    if let Some(output) = node.outputs.first() {
        values[output.index()] = Some(Item::Tensor(copied));
    }
    values[memory.index()] = Some(filled.into());
    Ok(())
}
