//! Passes of a caller's own among the compiler's.

#[path = "../../ir/transforms/tests/recognise/spell.rs"]
mod spell;

use ir::graph::SectionKind;
use ir::ops::{KernelOp, Op};
use meshwright::compiler::compile_error::CompileError;
use meshwright::compiler::pass::{Context, Level, Pass, PassInfo};
use meshwright::{Code, File, ir};
use spell::{STYLES, Style, spell};
use std::collections::HashMap;

/// Halves the scale of every attention, and counts them.
struct HalveScales<'a> {
    seen: &'a mut usize,
}

impl Pass for HalveScales<'_> {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "halve_scales",
            does: "halve the scale of every attention",
            why_here: "before differentiate, which copies the ops into the backward",
            reads: Level::Model,
            writes: Level::Model,
        }
    }

    fn run(&mut self, file: &mut File, _: &mut Context<'_>) -> Result<(), CompileError> {
        for block in file.model.blocks.values_mut() {
            for stmt in &mut block[SectionKind::F].stmts {
                if let Op::Kernel(KernelOp::Attention(attention)) = &mut stmt.op {
                    attention.0.scale *= 0.5;
                    *self.seen += 1;
                }
            }
        }
        Ok(())
    }
}

#[test]
fn a_pass_of_ones_own_runs_in_its_place() {
    let compile = || meshwright::compile("tiny-llama").parallel("dp=2,tp=2");
    let (mut seen, mut told, mut usual) = (0, Vec::new(), Vec::new());
    let pass = HalveScales { seen: &mut seen };
    let file = compile().pass_before("differentiate", pass).observe(|pass, _| told.push(pass)).run().unwrap();
    let without = compile().observe(|pass, _| usual.push(pass)).run().unwrap();
    assert_eq!(seen, 1, "the model has one distinct layer");
    assert_eq!((told.remove(0), told), ("halve_scales", usual));
    // The rewritten statement reaches the program, in the forward and in the backward.
    let scales = |file: &File| ir::text::print(file).matches("scale=0.08838834764831843").count();
    assert!(scales(&file) > 2 && scales(&without) == 0, "{}", scales(&file));
}

#[test]
fn a_pass_of_ones_own_is_a_place_to_stop_and_needs_a_place() {
    let mut seen = 0;
    let pass = HalveScales { seen: &mut seen };
    let file = meshwright::compile("tiny-llama").pass_after("slice", pass).stop_after("halve_scales").run().unwrap();
    assert!(!file.model.is_differentiated() && seen == 1);
    let pass = HalveScales { seen: &mut seen };
    let error = meshwright::compile("tiny-llama").pass_after("diferentiate", pass).run().unwrap_err();
    assert_eq!(error.code(), Some(Code::UnknownPass));
    assert!(error.to_string().contains("did you mean `differentiate`"), "{error}");
}

/// Removes a statement that later ones read.
struct Spoil;

impl Pass for Spoil {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "spoil",
            does: "remove the first statement of each block",
            why_here: "anywhere",
            reads: Level::Differentiated,
            writes: Level::Differentiated,
        }
    }

    fn run(&mut self, file: &mut File, _: &mut Context<'_>) -> Result<(), CompileError> {
        file.model.blocks.values_mut().for_each(|block| drop(block[SectionKind::F].stmts.remove(0)));
        Ok(())
    }
}

#[test]
fn what_a_pass_of_ones_own_breaks_is_found_at_once() {
    let spoiled = meshwright::compile("tiny-llama").pass_after("propagate", Spoil).run().unwrap_err();
    assert!(spoiled.to_string().contains("internal error in spoil"), "{spoiled}");
    let early = meshwright::compile("tiny-llama").pass_before("differentiate", Spoil).run().unwrap_err();
    assert!(early.to_string().contains("reads the level Differentiated"), "{early}");
}

/// Spells the ops of a model in primitives.
struct Spell(Style);

impl Pass for Spell {
    fn info(&self) -> PassInfo {
        let (name, does, why_here) = ("spell", "spell ops in primitives", "before recognise, which puts them back");
        PassInfo { name, does, why_here, reads: Level::Model, writes: Level::Model }
    }

    fn run(&mut self, file: &mut File, _: &mut Context<'_>) -> Result<(), CompileError> {
        spell(&mut file.model, self.0);
        Ok(())
    }
}

/// The words of a file. In each block, body and class the names of values are numbers in the order of their first use.
fn words(file: &File) -> Vec<String> {
    let (text, mut names, mut words) = (ir::text::print(file), HashMap::new(), Vec::new());
    let is_name = |c: char| c.is_alphanumeric() || "_.".contains(c);
    for word in text.split_whitespace() {
        if ["block", "body", "program", "class"].contains(&word) || word.starts_with("step(") {
            names.clear();
        }
        let parts: Vec<String> = word
            .split('%')
            .enumerate()
            .map(|(place, part)| {
                let end = if place == 0 { 0 } else { part.find(|c| !is_name(c)).unwrap_or(part.len()) };
                let count = names.len();
                let number = (end > 0).then(|| *names.entry(part[..end].to_string()).or_insert(count));
                format!("{}{}", number.map(|number| format!("%{number}")).unwrap_or_default(), &part[end..])
            })
            .collect();
        words.push(parts.concat());
    }
    words
}

#[test]
fn models_in_primitives_end_as_the_programs_of_built_in_models() {
    let meshes = [("tiny-llama", "dp=2,tp=2,sp=true"), ("tiny-gpt2", "tp=2,pp=2"), ("tiny-moe", "ep=2,dp=2")];
    for (model, mesh) in meshes {
        let compile = || meshwright::compile(model).parallel(mesh).batch(8, 16);
        let wanted = words(&compile().run().unwrap());
        for style in STYLES {
            let found = words(&compile().pass_before("recognise", Spell(style)).run().unwrap());
            let place = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
            let around = place.map(|place| &found[place.saturating_sub(20)..found.len().min(place + 20)]);
            assert!(found == wanted, "{model} {style:?}: {around:?}");
        }
    }
}

#[test]
fn a_text_in_primitives_is_estimated_as_its_ops() {
    let batch = ir::models::Batch { batch: 4, seq: 64, dtype: ir::types::DType::BF16 };
    let named = ir::models::preset("tiny-llama").unwrap().config.build(&batch).unwrap();
    let mut primitive = named.clone();
    spell(&mut primitive, Style::Export);
    let step = |model: ir::graph::Model| {
        let request = meshwright::estimate(model).on("h100", 2).batch(8, 64).parallel("tp=2,sp=true");
        let report = request.run().unwrap();
        (report.stages, report.predicted)
    };
    assert_eq!(step(primitive), step(named));
}
