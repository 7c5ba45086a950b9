//! Built-in models in primitives end as the built-in models. Only names of values differ.

use super::shuffle::shuffled;
use super::spell::{STYLES, spell};
use super::verify;
use ir::graph::{Model, SectionKind};
use ir::models::{Batch, preset};
use ir::text::{File, print};
use ir::types::DType;
use meshwright_transforms::recognise::recognise;
use std::collections::HashMap;

/// The text of a model in which the values of blocks are numbered in the order of their first use.
fn text(model: &Model) -> String {
    let mut model = model.clone();
    for block in model.blocks.values_mut() {
        let mut names = HashMap::new();
        let section = &block[SectionKind::F];
        let args = block.args.iter().map(|arg| arg.value);
        let results = section.stmts.iter().flat_map(|stmt| stmt.results.iter().copied());
        for value in args.chain(results) {
            names.insert(value, names.len());
        }
        for (value, number) in names {
            block.values[value].name = format!("v{number}");
        }
    }
    let text = print(&File { model, ..File::default() });
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[track_caller]
fn ends_as_built_in(name: &str, batch: u64, dtype: DType) {
    let batch = Batch { batch, seq: 8, dtype };
    let wanted = preset(name).unwrap().config.build(&batch).unwrap();
    for style in STYLES {
        let mut model = wanted.clone();
        spell(&mut model, style);
        verify(&model);
        let spelt = super::statements(&model);
        assert!(spelt > 2 * super::statements(&wanted), "{spelt}");
        recognise(&mut model);
        verify(&model);
        let (found, wanted) = (text(&model), text(&wanted));
        let differ = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
        assert!(found == wanted, "{name} {style:?}: {differ:#?}\n{found}");
    }
}

/// The statements of a text without names of values, sorted.
fn statements(text: &str) -> Vec<String> {
    let is_name = |word: &&str| !word.trim_start_matches('(').starts_with('%') && !word.contains("(%");
    let mut lines: Vec<String> =
        text.lines().map(|line| line.split(' ').filter(is_name).collect::<Vec<_>>().join(" ")).collect();
    lines.sort();
    lines
}

#[test]
fn the_order_of_independent_statements_does_not_matter() {
    let batch = Batch { batch: 2, seq: 8, dtype: DType::F32 };
    let wanted = preset("tiny-llama").unwrap().config.build(&batch).unwrap();
    let mut state = 7;
    for style in STYLES {
        let mut spelt = wanted.clone();
        spell(&mut spelt, style);
        for _ in 0..4 {
            let mut model = spelt.clone();
            for block in model.blocks.values_mut() {
                let stmts = &block[SectionKind::F].stmts;
                block[SectionKind::F].stmts = shuffled(stmts, &mut state);
            }
            recognise(&mut model);
            assert_eq!(statements(&text(&model)), statements(&text(&wanted)), "{style:?}");
        }
    }
}

#[test]
fn llama() {
    ends_as_built_in("tiny-llama", 2, DType::F32);
    ends_as_built_in("tiny-llama", 1, DType::BF16);
}

#[test]
fn gpt2() {
    ends_as_built_in("tiny-gpt2", 2, DType::BF16);
    ends_as_built_in("tiny-gpt2", 1, DType::F32);
}

#[test]
fn experts() {
    ends_as_built_in("tiny-moe", 2, DType::BF16);
    ends_as_built_in("tiny-moe", 1, DType::F32);
}
