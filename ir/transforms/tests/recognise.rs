//! Ops that are recognised in primitives: their own graphs, spellings of other frameworks, and near misses.

#[path = "recognise/activations.rs"]
mod activations;
#[path = "recognise/attention.rs"]
mod attention;
#[path = "recognise/blocks.rs"]
mod blocks;
#[path = "recognise/built_in.rs"]
mod built_in;
#[path = "recognise/norms.rs"]
mod norms;
#[path = "recognise/own_graphs.rs"]
mod own_graphs;
#[path = "recognise/rope.rs"]
mod rope;
#[path = "recognise/shuffle.rs"]
mod shuffle;
#[path = "recognise/spell.rs"]
mod spell;

use ir::graph::{Model, SectionKind};
use ir::text::{File, parse, print};
use meshwright_transforms::recognise::{Recognised, recognise};

/// A model of one block: its arguments, its statements without their braces, its result and the result's type.
fn model(args: &str, body: &str, result: &str, ty: &str) -> File {
    let inputs: Vec<String> = args.split(';').map(|arg| format!("%{}", arg.trim())).collect();
    let names: Vec<String> = args.split(';').map(|arg| format!("%{}", arg.trim().split(':').next().unwrap())).collect();
    let inputs = inputs.iter().map(|arg| arg.replacen(':', ": input", 1)).collect::<Vec<_>>().join(", ");
    let text = format!(
        "dims [b=2, s=8, g=2, r=3, n=6, d=4, e=2, h=8, v=5]
         model @m({inputs}) {{ call @block({}) }}
         block @block({inputs}) -> metric {ty} {{ {body}\n return %{result} }}",
        names.join(", ")
    );
    parse(&text).unwrap_or_else(|error| panic!("{error:?}\n{text}"))
}

/// The text of the statements after recognition, and the ops.
fn recognised(mut file: File) -> (String, Vec<Recognised>) {
    let found = recognise(&mut file.model);
    verify(&file.model);
    let text = print(&file);
    let body = text.split("block @block").nth(1).unwrap().split_once('\n').unwrap().1;
    let lines: Vec<String> = body.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    (lines[..lines.len() - 2].join("\n"), found)
}

fn verify(model: &Model) {
    ir::verify::verify(model).unwrap_or_else(|error| panic!("{error:?}"));
}

/// Asserts that a body becomes statements of these ops.
#[track_caller]
fn becomes(args: &str, body: &str, ty: &str, ops: &[&str]) -> String {
    let (text, found) = recognised(model(args, body, "y", ty));
    let name = |line: &str| line.split_once("= ").map(|(_, op)| op.split('(').next().unwrap().to_string());
    let left: Vec<String> = text.lines().filter_map(name).collect();
    assert_eq!(left, ops, "{text}\n{found:?}");
    text
}

/// Asserts that nothing in a body is recognised.
#[track_caller]
fn stays(args: &str, body: &str, ty: &str) {
    let file = model(args, body, "y", ty);
    let before = print(&file);
    let mut after = file.clone();
    assert_eq!(recognise(&mut after.model), [], "{}", print(&after));
    assert_eq!(print(&after), before);
}

/// The number of statements of the first block.
fn statements(model: &Model) -> usize {
    model.blocks.values().map(|block| block[SectionKind::F].stmts.len()).sum()
}
