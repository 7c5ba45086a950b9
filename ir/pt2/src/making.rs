//! The making of a template: kinds of layers, their parameters, and the calls that pass values between blocks.

use crate::blocks::Segment;
use crate::error::Error;
use crate::names::Label;
use crate::program::{Action, Argument, Var};
use crate::refusal::Refusal;
use crate::steps::{NamedBlock, steps};
use crate::template::{
    NamedArray, NamedCall, NamedInput, Parts, Template, declared, labels, named, positions, source, weights_of,
};
use ir::graph::{ParamIndex, ParamRef};
use ir::models::TensorSource;
use std::collections::{BTreeMap, BTreeSet};

/// A segment as a call of a block.
struct Placed {
    block: usize,
    /// The number of its element of the array of its block.
    instance: Option<u32>,
    /// Parameters that are no element of an array.
    shared: Vec<String>,
}

/// A template in the making.
pub(crate) struct Making<'a> {
    parts: &'a Parts<'a>,
    segments: &'a [Segment],
    /// The names of parameters that are no elements of arrays.
    singles: BTreeMap<usize, String>,
    blocks: Vec<NamedBlock>,
    /// The array of each block that has one, and which it is of all.
    arrays: BTreeMap<usize, usize>,
    made: Vec<NamedArray>,
    sources: BTreeMap<String, TensorSource>,
}

impl<'a> Making<'a> {
    pub(crate) fn new(parts: &'a Parts<'a>, segments: &'a [Segment]) -> Making<'a> {
        let singles = named(parts, &singles(segments), "");
        let (blocks, arrays, made, sources) = (Vec::new(), BTreeMap::new(), Vec::new(), BTreeMap::new());
        Making { parts, segments, singles, blocks, arrays, made, sources }
    }

    /// The template.
    ///
    /// # Errors
    /// A statement has other dims than its op.
    pub(crate) fn made(mut self, logits: Var, refuse: &dyn Fn(usize, &str) -> Error) -> Result<Template, Error> {
        let mut placed = Vec::new();
        for at in 0..self.segments.len() {
            placed.push(self.placed(at).map_err(|(node, why)| refuse(node, &why.to_string()))?);
        }
        for (&weight, name) in &self.singles {
            self.sources.insert(name.clone(), source(self.parts, &self.parts.program.weights[weight]));
        }
        let calls = self.calls(&placed);
        let parts = self.parts;
        let layers = self.layers();
        let first: Vec<usize> = self.segments.first().map_or(Vec::new(), weights_of);
        let order = singles(self.segments);
        let (early, late): (Vec<usize>, Vec<usize>) = order.iter().partition(|weight| first.contains(weight));
        let vocabulary = parts.program.vars[logits.0].last().map_or(0, |&atom| parts.atoms.size(atom));
        Ok(Template {
            dims: parts.names.declared(),
            vocabulary,
            positions: positions(parts, self.segments),
            singles: [early, late].map(|weights| {
                weights
                    .iter()
                    .map(|weight: &usize| declared(parts, &parts.program.weights[*weight], &self.singles[weight], None))
                    .collect()
            }),
            arrays: self.made,
            blocks: self.blocks,
            calls,
            layers,
            sources: self.sources,
            inputs: inputs(parts),
            open: parts.names.open.clone(),
            labels: label_dims(parts, logits),
            is_text: parts.is_text,
            ids: ids(parts),
        })
    }

    fn layers(&self) -> usize {
        self.segments.iter().filter(|segment| segment.layer.is_some()).count()
    }

    /// The block of a segment, and its parameters.
    fn placed(&mut self, at: usize) -> Result<Placed, (usize, Refusal)> {
        let segment = &self.segments[at];
        let weights = weights_of(segment);
        let prefix = segment.layer.as_deref();
        let local = match prefix {
            Some(prefix) => named(self.parts, &weights, prefix),
            None => weights.iter().map(|weight| (*weight, self.singles[weight].clone())).collect(),
        };
        // Elements of the array come before the others.
        let (shared, own): (Vec<usize>, Vec<usize>) =
            weights.iter().partition(|weight| self.singles.contains_key(weight));
        let order: Vec<usize> = own.iter().chain(&shared).copied().collect();
        let mut block = steps(self.parts, segment, &order, &local, self.layers())?;
        block.is_head = at + 1 == self.segments.len();
        let shared = shared.iter().map(|weight| self.singles[weight].clone()).collect();
        let known = self.blocks.iter().position(|known| known.is_like(&block)).filter(|_| prefix.is_some());
        let number = known.unwrap_or_else(|| self.added(block, at, own.len()));
        let instance = self.arrays.get(&number).map(|&array| {
            let array = &mut self.made[array];
            for weight in own {
                let name = format!("{}.{}.{}", array.name, array.count, local[&weight]);
                self.sources.insert(name, source(self.parts, &self.parts.program.weights[weight]));
            }
            array.count += 1;
            array.count - 1
        });
        Ok(Placed { block: number, instance, shared })
    }

    /// The number of a new block, the first `own` of whose parameters are elements of an array.
    fn added(&mut self, mut block: NamedBlock, at: usize, own: usize) -> usize {
        let is_layer = self.segments[at].layer.is_some();
        let layers = self.blocks.iter().filter(|block| block.name.starts_with("layer")).count();
        block.name = match (is_layer, at) {
            (true, _) if layers == 0 => "layer".to_string(),
            (true, _) => format!("layer{}", layers + 1),
            _ if block.is_head => "head".to_string(),
            (false, 0) => "embed".to_string(),
            (false, _) => format!("between{at}"),
        };
        if own > 0 {
            self.arrays.insert(self.blocks.len(), self.made.len());
            let weights = block.weights[..own].to_vec();
            self.made.push(NamedArray { name: block.name.clone(), count: 0, weights });
        }
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    /// The calls of all blocks. Segments of one block that each read the one before are calls in a row.
    fn calls(&self, placed: &[Placed]) -> Vec<NamedCall> {
        let mut names: BTreeMap<Var, String> =
            self.parts.program.inputs.iter().map(|input| (input.var, input.name.clone())).collect();
        let mut calls = Vec::new();
        let mut at = 0;
        while at < placed.len() {
            let count = (1..placed.len() - at).take_while(|&more| self.follows(placed, at, at + more)).count() + 1;
            let (segment, own) = (&self.segments[at], &placed[at]);
            let block = &self.blocks[own.block];
            let values = segment.inputs.iter().map(|var| names[var].clone());
            let args = values.chain(block.inputs().map(str::to_string)).collect();
            let number = calls.len();
            let last = &self.segments[at + count - 1];
            for (place, var) in last.outputs.iter().enumerate().filter(|_| !block.is_head) {
                names.insert(*var, if place == 0 { format!("x{number}") } else { format!("x{number}_{place}") });
            }
            let results = last.outputs.iter().filter(|_| !block.is_head).map(|var| names[var].as_str());
            let array = self.arrays.get(&own.block).map(|&array| self.made[array].name.clone());
            let one = own.instance.filter(|_| count == 1).map_or(ParamIndex::Repeat, ParamIndex::At);
            let array = array.map(|name| ParamRef { name, index: one.clone() });
            let shared = own.shared.iter().map(|name| ParamRef { name: name.clone(), index: ParamIndex::Whole });
            calls.push(NamedCall {
                block: own.block,
                results: results.collect::<Vec<_>>().join(" "),
                args,
                params: array.into_iter().chain(shared).collect(),
                instances: own.instance.filter(|_| count > 1).map(|first| first..first + count as u32),
            });
            at += count;
        }
        calls
    }

    /// True if a segment continues calls in a row that begin with an earlier one.
    fn follows(&self, placed: &[Placed], first: usize, at: usize) -> bool {
        let (begin, own) = (&placed[first], &placed[at]);
        let [start, before, segment] = [first, at - 1, at].map(|at| &self.segments[at]);
        let is_instance = begin.instance.zip(own.instance).is_some_and(|(a, b)| b == a + (at - first) as u32);
        let passed = before.outputs.len();
        let read_elsewhere =
            self.segments[at + 1..].iter().any(|later| later.inputs.iter().any(|input| before.outputs.contains(input)));
        is_instance
            && (begin.block, &begin.shared) == (own.block, &own.shared)
            && passed > 0
            && segment.inputs.get(..passed) == Some(&before.outputs[..])
            && segment.inputs.get(passed..) == start.inputs.get(passed..)
            && segment.outputs.len() == passed
            && !read_elsewhere
    }
}

/// The parameters that are no elements of arrays, in the order of their first use: those outside of layers, and those that several segments
/// read.
fn singles(segments: &[Segment]) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let used: Vec<Vec<usize>> = segments.iter().map(weights_of).collect();
    let several: BTreeSet<usize> = used.iter().flatten().copied().filter(|weight| !seen.insert(*weight)).collect();
    let mut order = Vec::new();
    for (segment, weights) in segments.iter().zip(&used) {
        for weight in weights {
            if (segment.layer.is_none() || several.contains(weight)) && !order.contains(weight) {
                order.push(*weight);
            }
        }
    }
    order
}

/// The inputs of the model, where they are not the tokens of a text.
fn inputs(parts: &Parts<'_>) -> Vec<NamedInput> {
    parts
        .program
        .inputs
        .iter()
        .map(|input: &crate::program::Input| {
            let dims = labels(parts, input.var).iter().map(Label::to_string).collect::<Vec<_>>().join(" ");
            NamedInput { name: input.name.clone(), dims, is_int: input.is_int }
        })
        .collect()
}

/// The dims of labels: those of the logits without the classes.
fn label_dims(parts: &Parts<'_>, logits: Var) -> String {
    let mut dims = labels(parts, logits);
    dims.pop();
    dims.iter().map(Label::to_string).collect::<Vec<_>>().join(" ")
}

/// The rows of the smallest table of ids.
fn ids(parts: &Parts<'_>) -> u64 {
    let rows = parts.program.statements.iter().filter_map(|statement| {
        match (&statement.action, statement.operands.as_slice()) {
            (Action::Embedding { .. }, &[ids, Argument::Weight(table)]) if ids != Argument::Positions => {
                Some(parts.atoms.size(parts.program.weights[table].view.dims[0].0))
            }
            _ => None,
        }
    });
    rows.min().unwrap_or(1)
}
