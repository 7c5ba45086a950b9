//! The text form: the cases that need no other crate, round trips of built models, and texts that someone spoiled.

extern crate meshwright_ir as ir;

#[path = "../../tests/support/driver.rs"]
mod driver;

use ir::models::{Batch, presets};
use ir::text::{File, parse, print};
use ir::types::DType;
use std::path::Path;

fn cases(folder: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases").join(folder);
    driver::run(&path, |case| driver::text_answer(case).expect("the command is parse or verify"));
}

#[test]
fn parse_cases() {
    cases("parse");
}

#[test]
fn verify_cases() {
    cases("verify");
}

/// Builds every preset, prints it, and reads it back: the same text, the same model, and nothing wrong with it.
#[test]
fn presets_survive_print_and_parse() {
    for preset in presets() {
        let model = preset.config.build(&Batch { batch: 2, seq: 64, dtype: DType::F32 }).expect(preset.name);
        ir::verify::verify_planned(&model).unwrap_or_else(|why| panic!("{}: {why}", preset.name));
        let text = print(&File::from(model));
        let file = parse(&text).unwrap_or_else(|why| panic!("{}", why.render(preset.name, &text)));
        assert_eq!(print(&file), text, "{}", preset.name);
        ir::verify::verify_planned(&file.model).unwrap_or_else(|why| panic!("{}", why.render(preset.name, &text)));
    }
}

/// Texts with a piece cut out, doubled or put elsewhere: an answer or diagnostics, never a panic, and no fixed point missed.
#[test]
fn spoiled_texts_are_answered() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        // Steele, Lea and Flood 2014: splitmix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 33) as usize % bound
    };
    for file in ["parse/mlp.ir", "parse/sections.ir", "parse/program.ir", "parse/types.ir", "verify/rules.ir"] {
        let text = std::fs::read_to_string(folder.join(file)).expect(file);
        let source = text.split("\n----\n").next().unwrap_or("");
        for _ in 0..400 {
            let (from, length, to) = (below(source.len()), below(12), below(source.len()));
            let end = (from + length).min(source.len());
            let mut spoiled = source.to_string();
            let piece = if below(2) == 0 { spoiled.drain(from..end).collect() } else { source[from..end].to_string() };
            if below(3) > 0 {
                spoiled.insert_str(to.min(spoiled.len()), &piece);
            }
            driver::round_trip(&spoiled).unwrap_or_else(|why| panic!("{spoiled}\n{why}"));
            if let Ok(file) = parse(&spoiled) {
                let _ = ir::verify::verify_planned(&file.model);
            }
        }
    }
}
