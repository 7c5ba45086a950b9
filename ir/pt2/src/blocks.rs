//! The blocks of a program: what comes before the layers, the layers, and what comes behind them.
//!
//! Module paths propose where a layer begins: statements of `model.layers.3` are one. The statements then have to agree. One value
//! alone crosses from one layer to the next, and layers of the same statements are instances of one block.

use crate::error::Error;
use crate::graph::Recording;
use crate::program::{LoweredModel, Statement, Var};
use std::collections::BTreeSet;

/// Statements between two values of the stream.
pub(crate) struct Segment {
    /// The path of the layer; none outside of layers.
    pub(crate) layer: Option<String>,
    /// The value that it reads; none for the first one.
    pub(crate) input: Option<Var>,
    pub(crate) output: Var,
    pub(crate) statements: Vec<Statement>,
}

/// Cuts a program where one value crosses.
///
/// # Errors
/// There are no layers, or more than one value crosses.
pub(crate) fn segments(program: &LoweredModel, graph: &Recording, logits: Var) -> Result<Vec<Segment>, Error> {
    let whole = |why: &str| Error::Unsupported { at: Default::default(), why: why.to_string() };
    let mut segments: Vec<Segment> = Vec::new();
    for statement in needed(program, logits) {
        let layer = layer_of(&graph.nodes[statement.node].place.module);
        match segments.last_mut().filter(|last| last.layer == layer) {
            Some(last) => {
                last.output = statement.result;
                last.statements.push(statement);
            }
            None => {
                segments.push(Segment { layer, input: None, output: statement.result, statements: vec![statement] });
            }
        }
    }
    let is_chain = segments.len() > 2
        && segments
            .iter()
            .enumerate()
            .all(|(at, segment)| segment.layer.is_none() == (at == 0 || at + 1 == segments.len()));
    if !is_chain {
        return Err(whole("is no chain of numbered layers between embeddings and logits"));
    }
    let mut seen = BTreeSet::new();
    if segments.iter().any(|segment| !seen.insert(segment.layer.clone()) && segment.layer.is_some()) {
        return Err(whole("comes back to a layer"));
    }
    for at in 1..segments.len() {
        let input = crossing(&segments, at).map_err(|node| {
            graph.nodes[node].refuse("more than the stream of activations crosses from layer to layer")
        })?;
        segments[at].input = Some(input);
        segments[at - 1].output = input;
    }
    if let Some(last) = segments.last_mut() {
        last.output = logits;
    }
    Ok(segments)
}

/// The statements that the logits depend on.
fn needed(program: &LoweredModel, logits: Var) -> Vec<Statement> {
    let mut wanted = BTreeSet::from([logits]);
    let mut kept = Vec::new();
    for statement in program.statements.iter().rev().filter(|statement| {
        let is_wanted = statement.results().any(|result| wanted.contains(&result));
        if is_wanted {
            wanted.extend(statement.reads());
        }
        is_wanted
    }) {
        kept.push(statement.clone());
    }
    kept.reverse();
    kept
}

/// The path of a module up to its first number: `model.layers.3`.
fn layer_of(module: &str) -> Option<String> {
    let end = module.split('.').scan(0, |end, part| {
        *end += part.len() + 1;
        Some((*end - 1, part))
    });
    let number = end.into_iter().find(|(_, part)| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    number.map(|(end, _)| module[..end].to_string())
}

/// The one value that crosses into a segment; else the node of a statement that reads another.
fn crossing(segments: &[Segment], at: usize) -> Result<Var, usize> {
    let before: BTreeSet<Var> =
        segments[..at].iter().flat_map(|segment| &segment.statements).flat_map(Statement::results).collect();
    let mut input = None;
    for statement in segments[at..].iter().flat_map(|segment| &segment.statements) {
        for var in statement.reads().filter(|var| before.contains(var)) {
            if *input.get_or_insert(var) != var {
                return Err(statement.node);
            }
        }
    }
    input.ok_or_else(|| segments[at].statements[0].node)
}
