//! Ops that write their result over an operand. They are read as ops that make a new value, which is right unless the old one is read later.

use crate::eval::is_alias;
use crate::graph::{Arg, RecordedNode, Recording, ValueId};

/// Ops whose result shares memory with their first operand, or may, beside those that keep their operand's elements.
const VIEWS: [&str; 18] = [
    "aten.view",
    "aten.view_as",
    "aten.reshape",
    "aten._unsafe_view",
    "aten.flatten",
    "aten.unsqueeze",
    "aten.squeeze",
    "aten.expand",
    "aten.expand_as",
    "aten.transpose",
    "aten.t",
    "aten.permute",
    "aten.slice",
    "aten.select",
    "aten.split",
    "aten.split_with_sizes",
    "aten.chunk",
    "aten.unbind",
];

/// True for ops that write over their first operand: their names end in `_`, but not as `__and__` does.
fn overwrites(node: &RecordedNode) -> bool {
    let family = node.family();
    family.ends_with('_') && !family.ends_with("__") && !is_alias(node)
}

fn shares(node: &RecordedNode) -> bool {
    VIEWS.contains(&node.family()) || is_alias(node) || overwrites(node)
}

/// The first node that reads a value whose memory another node has written over.
pub(crate) fn stale_read(graph: &Recording) -> Option<&RecordedNode> {
    let mut memory: Vec<usize> = (0..graph.values).collect();
    // New memory has nothing to read before it is filled.
    let mut is_new = vec![false; graph.values];
    // The number of writes to a memory, and the one that each value has seen.
    let (mut writes, mut seen) = (vec![0u32; graph.values], vec![0u32; graph.values]);
    for node in &graph.nodes {
        if node.operands().any(|value: ValueId| {
            let own = memory[value.index()];
            seen[value.index()] < writes[own] && !is_new[own]
        }) {
            return Some(node);
        }
        if node.family() == "aten.new_empty" {
            node.outputs.iter().for_each(|output| is_new[output.index()] = true);
        }
        let first =
            node.args.iter().find_map(|(_, arg)| if let Arg::Value(value) = arg { Some(value.index()) } else { None });
        let Some(first) = first.filter(|_| shares(node)) else { continue };
        let own = memory[first];
        writes[own] += u32::from(overwrites(node));
        for output in &node.outputs {
            memory[output.index()] = own;
            seen[output.index()] = writes[own];
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::NodePlace;
    use std::collections::BTreeMap;

    fn graph(nodes: &[(&str, u32, u32)]) -> Recording {
        Recording {
            values: 10,
            nodes: nodes
                .iter()
                .map(|&(op, from, to): &(&str, u32, u32)| RecordedNode {
                    op: op.to_string(),
                    args: vec![("self".to_string(), Arg::Value(ValueId(from)))],
                    outputs: vec![ValueId(to)],
                    place: NodePlace::default(),
                })
                .collect(),
            inputs: Vec::new(),
            parameters: BTreeMap::new(),
            buffers: BTreeMap::new(),
            outputs: Vec::new(),
        }
    }

    #[test]
    fn a_value_is_not_read_once_it_is_written_over() {
        let ops = |nodes| stale_read(&graph(nodes)).map(|node| node.op.clone());
        assert_eq!(ops(&[("aten.relu_.default", 1, 2), ("aten.neg.default", 2, 3)]), None);
        assert_eq!(
            ops(&[("aten.relu_.default", 1, 2), ("aten.neg.default", 1, 3)]).as_deref(),
            Some("aten.neg.default")
        );
        let view = [("aten.view.default", 1, 2), ("aten.relu_.default", 2, 3), ("aten.exp.default", 1, 4)];
        assert_eq!(ops(&view).as_deref(), Some("aten.exp.default"));
        let copy = [("aten.neg.default", 1, 2), ("aten.relu_.default", 2, 3), ("aten.exp.default", 1, 4)];
        assert_eq!(ops(&copy), None);
        assert_eq!(ops(&[("aten.__and__.Tensor", 1, 2), ("aten.neg.default", 1, 3)]), None);
    }
}
