//! Propagation held against Shardy's own tests. A block of `tests/cases/propagate/shardy` is one of its cases: a comment line
//! `Shardy NAME: %x [{a}, {}], ..` says how its test shards values, a line `Here: ..` how we do where that differs, and why.

use cost::PROGRAM;
use ir::graph::{Block, Model};
use ir::mesh::Axes;
use ir::options::{ParallelConfig, PlanOptions};
use std::fs;
use std::path::Path;

/// Cases, and of these the equal ones.
const CASES: usize = 83;
const EQUAL: usize = 81;

#[test]
fn shardys_cases_are_sharded_as_shardy_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases/propagate/shardy");
    let entries = fs::read_dir(folder).expect("the folder of cases");
    let (mut cases, mut equal, mut wrong) = (0, 0, Vec::new());
    for path in entries.map(|entry| entry.expect("a folder's entry").path()) {
        let planned = planned(&fs::read_to_string(&path).expect("a case file"));
        for block in planned.blocks.values() {
            let Some(facts) = line(block, "Shardy ").and_then(|line| line.split_once(": ")) else { continue };
            cases += 1;
            let differs = differences(&planned, block, facts.1);
            match (differs.is_empty(), line(block, "Here: ")) {
                (true, None) => equal += 1,
                (false, Some(ours)) => wrong.extend(differences(&planned, block, ours)),
                (true, Some(_)) => wrong.push(format!("@{}: a difference is explained that is none", block.name)),
                (false, None) => wrong.extend(differs),
            }
        }
    }
    println!("{equal} of {cases} cases are sharded as by Shardy");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((equal, cases), (EQUAL, CASES));
    assert!(equal * 10 >= cases * 9);
}

/// The model of a case file after propagation.
fn planned(text: &str) -> Model {
    let (input, _) = text.split_once("\n----\n").unwrap_or((text, ""));
    let file = ir::text::parse(input).unwrap_or_else(|why| panic!("{}", why.render("case", input)));
    let planned = meshwright_planner::plan(
        file.model,
        &PlanOptions::of(ParallelConfig::default()),
        &PROGRAM,
        Some("propagate"),
        &mut |_, _| {},
    );
    planned.unwrap_or_else(|why| panic!("{why}"))
}

/// The rest of the line after these words in a comment of a block.
fn line<'b>(block: &'b Block, words: &str) -> Option<&'b str> {
    block.comments.iter().find_map(|comment| comment.trim().strip_prefix(words))
}

/// The values that are sharded otherwise than `%x [{a}, {}], %y [{b}]; why` says.
fn differences(model: &Model, block: &Block, facts: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let facts = facts.split_once(';').map_or(facts, |(facts, _)| facts);
    for fact in facts.split_inclusive(']').filter_map(|fact| fact.split_once('%')).map(|(_, fact)| fact) {
        let (name, wanted) = fact.split_once(' ').expect("a name and a sharding");
        let value = block.find(name).unwrap_or_else(|| panic!("@{} has no `%{name}`", block.name));
        let dims: Vec<String> = block.ty(value).dims.iter().map(|dim| braces(model, &dim.axes)).collect();
        let got = format!("[{}]", dims.join(", "));
        if got != wanted {
            wrong.push(format!("@{}: %{name} is {got}, not {wanted}", block.name));
        }
    }
    assert!(!facts.is_empty(), "@{} states nothing", block.name);
    wrong
}

fn braces(model: &Model, axes: &Axes) -> String {
    let names: Vec<&str> = axes.iter().map(|axis| model.mesh.axes[axis].name.as_str()).collect();
    format!("{{{}}}", names.join(", "))
}
