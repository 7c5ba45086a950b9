//! The blocks of a program: what comes before the layers, the layers, and what comes between and behind them.
//!
//! Module paths propose where a layer begins: statements of `model.layers.3` are one, and with them those outside of modules that follow, such
//! as a residual sum. Values that one segment computes and others read cross between the blocks. Layers of the same statements are instances
//! of one block.

use crate::graph::Recording;
use crate::program::{Action, LoweredModel, Statement, Var};
use std::collections::{BTreeMap, BTreeSet};

/// Statements in a row.
pub(crate) struct Segment {
    /// The path of the layer; none outside of layers.
    pub(crate) layer: Option<String>,
    /// The values of other segments that it reads: those of the segment before it come first.
    pub(crate) inputs: Vec<Var>,
    /// The values that later segments read, in the order of the next one's inputs.
    pub(crate) outputs: Vec<Var>,
    pub(crate) statements: Vec<Statement>,
}

/// Cuts a program. The last segment is no layer, and has the logits.
pub(crate) fn segments(program: &LoweredModel, graph: &Recording, logits: Var) -> Vec<Segment> {
    let statements = needed(program, logits);
    let own: Vec<Option<String>> =
        statements.iter().map(|statement| layer_of(&graph.nodes[statement.node].place.module)).collect();
    let labels = assigned(&statements, &together(own));
    let mut segments: Vec<Segment> = Vec::new();
    for (statement, layer) in statements.into_iter().zip(labels) {
        match segments.last_mut().filter(|last| last.layer == layer) {
            Some(last) => last.statements.push(statement),
            None => segments.push(Segment::of(layer, vec![statement])),
        }
    }
    if segments.last().is_none_or(|last| last.layer.is_some()) {
        segments.push(Segment::of(None, Vec::new()));
    }
    connect(&mut segments, logits);
    segments
}

impl Segment {
    fn of(layer: Option<String>, statements: Vec<Statement>) -> Segment {
        Segment { layer, inputs: Vec::new(), outputs: Vec::new(), statements }
    }

    /// The values that it computes.
    fn results(&self) -> Vec<Var> {
        self.statements.iter().flat_map(Statement::results).collect()
    }

    /// The values that it reads and does not compute, in the order of their first use.
    fn reads(&self) -> Vec<Var> {
        let own: BTreeSet<Var> = self.statements.iter().flat_map(Statement::results).collect();
        let mut reads = Vec::new();
        for var in self.statements.iter().flat_map(Statement::reads) {
            if !own.contains(&var) && !reads.contains(&var) {
                reads.push(var);
            }
        }
        reads
    }
}

/// Lists next to each other whose elements alternate are one list: its layers have the names of the first.
fn together(mut own: Vec<Option<String>>) -> Vec<Option<String>> {
    let split = |layer: &str| {
        let (list, number) = layer.rsplit_once('.').unwrap_or(("", layer));
        let (parent, _) = list.rsplit_once('.').unwrap_or(("", list));
        (parent.to_string(), list.to_string(), number.to_string())
    };
    // The list that each list stands for.
    let mut first: BTreeMap<String, String> = BTreeMap::new();
    let mut last: Option<String> = None;
    for layer in own.iter_mut().flatten() {
        let (parent, list, number) = split(layer);
        if let Some((other_parent, other, other_number)) = last.as_deref().map(split)
            && (parent, &number) == (other_parent, &other_number)
            && list != other
        {
            first.entry(list.clone()).or_insert(other);
        }
        if let Some(of) = first.get(&list) {
            *layer = if of.is_empty() { number } else { format!("{of}.{number}") };
        }
        last = Some(layer.clone());
    }
    own
}

/// The path of the list of a layer.
fn list_of(layer: &str) -> String {
    layer.rsplit_once('.').map_or(String::new(), |(list, _)| list.to_string())
}

/// The layer of each statement. Those outside of layers belong to the layer before them if another one of the same list follows, and
/// behind the last one as many as follow the one before it.
fn assigned(statements: &[Statement], own: &[Option<String>]) -> Vec<Option<String>> {
    let mut labels = own.to_vec();
    let layers: Vec<usize> = (0..own.len()).filter(|&at| own[at].is_some()).collect();
    for pair in layers.windows(2) {
        if let ([from, to], Some(before), Some(behind)) = (pair, &own[pair[0]], &own[pair[1]])
            && list_of(before) == list_of(behind)
        {
            labels[from + 1..*to].fill(Some(before.clone()));
        }
    }
    // The ends of lists: how many statements follow each layer but the last.
    let mut counts: BTreeMap<String, Vec<Action>> = BTreeMap::new();
    for at in 1..labels.len() {
        let (Some(before), Some(behind)) = (&labels[at - 1], &labels[at]) else { continue };
        if before != behind && list_of(before) == list_of(behind) {
            let start = (0..at).rev().find(|&at| own[at].is_some()).map_or(0, |at| at + 1);
            let tail = statements[start..at].iter().map(|statement| statement.action.clone()).collect();
            counts.insert(list_of(before), tail);
        }
    }
    for &at in &layers {
        let Some(layer) = own[at].clone() else { continue };
        let is_last =
            own[at + 1..].iter().all(|other| other.as_ref().is_none_or(|other| list_of(other) != list_of(&layer)));
        let tail = counts.get(&list_of(&layer)).filter(|tail| is_last && !tail.is_empty());
        let Some(tail) = tail else { continue };
        let end = at + 1 + tail.len();
        if end <= labels.len()
            && tail.iter().enumerate().all(|(place, action): (usize, &Action)| {
                labels[at + 1 + place].is_none() && statements[at + 1 + place].action == *action
            })
        {
            labels[at + 1..end].fill(Some(layer));
        }
    }
    labels
}

/// Finds the values that cross between segments.
fn connect(segments: &mut [Segment], logits: Var) {
    let count = segments.len();
    let mut reads: Vec<Vec<Var>> = segments.iter().map(Segment::reads).collect();
    if let Some(last) = reads.last_mut()
        && !segments[count - 1].results().contains(&logits)
        && !last.contains(&logits)
    {
        last.push(logits);
    }
    for at in 0..count {
        let made: Vec<Var> = if at == 0 { Vec::new() } else { segments[at - 1].results() };
        let (mut first, rest): (Vec<Var>, Vec<Var>) = reads[at].iter().partition(|var| made.contains(var));
        first.extend(rest);
        segments[at].inputs = first;
    }
    for at in 0..count {
        let made = segments[at].results();
        let next = segments.get(at + 1).map_or(&[][..], |next| &next.inputs);
        let mut outputs: Vec<Var> = next.iter().copied().filter(|var| made.contains(var)).collect();
        let later = made.into_iter().filter(|var| reads[at + 1..].iter().any(|reads| reads.contains(var)));
        for var in later {
            if !outputs.contains(&var) {
                outputs.push(var);
            }
        }
        segments[at].outputs = outputs;
    }
    if let Some(last) = segments.last_mut() {
        last.outputs = vec![logits];
    }
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
