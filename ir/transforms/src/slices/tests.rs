//! A model in slices, against the model as it was.

use super::{SliceError, slice};
use crate::differentiate::differentiate;
use ir::graph::{Block, Model, SectionKind};
use ir::models::{Batch, preset};
use ir::optimizer::Optimizer;
use ir::text::{File, parse, print};
use ir::types::DType;
use ir::verify::verify;

fn whole(name: &str) -> Model {
    preset(name).unwrap().config.build(&Batch { batch: 2, seq: 12, dtype: DType::F32 }).unwrap()
}

fn block<'a>(model: &'a Model, name: &str) -> &'a Block {
    model.blocks.values().find(|block| block.name == name).unwrap()
}

/// `%k: 2 3 4`, of the arguments or results that are values.
fn sizes(block: &Block, values: impl Iterator<Item = ir::ids::Value>) -> Vec<(String, u64)> {
    values.map(|value| (block.value_name(value).to_string(), block.ty(value).dims[1].size)).collect()
}

#[test]
fn slices_pass_on_keys_and_values() {
    let model = slice(&whole("tiny-llama"), 3).unwrap();
    verify(&model).unwrap();
    assert_eq!((model.slices(), model.blocks.len(), model.calls.len()), (3, 9, 18));
    let names = |names: &[&str]| names.iter().map(|name| ((*name).to_string(), 4)).collect::<Vec<_>>();
    for (slice, taken, given) in [
        ("layer.0", &["x"][..], &["y", "k", "v"][..]),
        ("layer.1", &["x", "k.0", "v.0"], &["y", "k", "v"]),
        ("layer.2", &["x", "k.0", "v.0", "k.1", "v.1"], &["y"]),
    ] {
        let block = block(&model, slice);
        assert_eq!(sizes(block, block.args_of(ir::graph::ArgKind::Value)), names(taken));
        assert_eq!(sizes(block, block[SectionKind::F].ret.iter().copied()), names(given));
        let keys = block[SectionKind::F].stmts.iter().find(|stmt| stmt.op.name() == "attention").unwrap().operands[1];
        // Of each slice two values are passed on.
        assert_eq!(block.ty(keys).dims[1].size, 4 * (taken.len() as u64).div_ceil(2));
    }
}

#[test]
fn what_is_joined_is_joined_again_in_the_backward() {
    let model = differentiate(slice(&whole("tiny-llama"), 2).unwrap(), &Optimizer::default()).unwrap();
    let block = block(&model, "layer.1");
    let forward: Vec<_> = block[SectionKind::F].stmts.iter().filter(|stmt| stmt.op.name() == "concat").collect();
    assert_eq!(forward.len(), 2);
    let later = [SectionKind::I, SectionKind::W].into_iter().flat_map(|kind| &block[kind].stmts);
    let read: Vec<_> = later.flat_map(|stmt| stmt.operands.clone()).collect();
    assert!(forward.iter().all(|stmt| !read.contains(&stmt.results[0])));
}

#[test]
fn a_sliced_model_prints_and_parses_back() {
    for name in ["tiny-llama", "tiny-gpt2"] {
        let file = File { model: slice(&whole(name), 2).unwrap(), ..File::default() };
        let text = print(&file);
        assert_eq!(print(&parse(&text).unwrap()), text);
    }
}

#[test]
fn slices_of_a_run_follow_each_other() {
    let model = slice(&whole("tiny-llama"), 2).unwrap();
    let wrong = |change: fn(&mut Model)| {
        let mut model = model.clone();
        change(&mut model);
        verify(&model).unwrap_err().0.iter().any(|found| found.message.contains("slices of a block instance"))
    };
    assert!(wrong(|model| model.calls[1].slice = None));
    assert!(wrong(|model| model.calls[1].slice = Some(0)));
    assert!(wrong(|model| model.calls[1].slice = Some(u32::MAX)));
    assert!(wrong(|model| drop(model.calls.pop())));
    assert!(wrong(|model| model.calls[2].repeat.as_mut().unwrap().range.end += 1));
}

#[test]
fn equal_slices_of_a_sequence() {
    let error = slice(&whole("tiny-llama"), 5).unwrap_err();
    assert_eq!(error, SliceError::Uneven { slices: 5, size: 12 });
    let mlp = "dims [b=8, h=16]\n\nmodel @m(%in: input f32[b, h]) {\n  call @end(%in)\n}\n\n\
               block @end(%x: input f32[b, h]) -> loss f32[] {\n  %y: f32[] = reduce_sum(%x, eq=\"b h -> ()\")\n  \
               return %y\n}\n";
    assert_eq!(slice(&parse(mlp).unwrap().model, 2).unwrap_err(), SliceError::NoSequence);
}

/// A model of one block, which computes `%y` from `%x: input f32[b, s]`.
fn one_block(statement: &str, result: &str) -> Model {
    let text = format!(
        "dims [b=2, s=4]\n\nmodel @m(%in: input f32[b, s]) {{\n  call @end(%in)\n}}\n\n\
         block @end(%x: input f32[b, s]) -> {result} {{\n  {statement}\n  return %y\n}}\n"
    );
    parse(&text).unwrap().model
}

#[test]
fn what_mixes_places_of_a_sequence_is_refused() {
    for (statement, result, why) in [
        ("%y: f32[b, s] = softmax(%x)", "accum f32[b, s]", "needs the entire sequence"),
        ("%y: f32[b] = reduce_max(%x, eq=\"b s -> b\")", "accum f32[b]", "only the entire sequence determines"),
        ("%y: f32[8] = reshape(%x)", "accum f32[8]", "merges the sequence"),
        ("%y: f32[b, s] = exp(%x)", "accum f32[b, s]", "`%y` is no sum over the sequence"),
        (
            "%z: f32[b] = reduce_sum(%x, eq=\"b s -> b\")\n  %y: f32[b] = exp(%z)",
            "accum f32[b]",
            "a slice has only a part of the sum",
        ),
    ] {
        let error = slice(&one_block(statement, result), 2).unwrap_err().to_string();
        assert!(error.contains("block `@end`") && error.contains(why), "{statement}: {error}");
    }
    let sum =
        one_block("%z: f32[b] = reduce_sum(%x, eq=\"b s -> b\")\n  %y: f32[b] = scale(%z, by=0.5)", "accum f32[b]");
    assert_eq!(slice(&sum, 2).map(|model| model.calls.len()), Ok(2));
}
