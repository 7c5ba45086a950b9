//! Terms of random sizes and orders of dims before and after recognition: the reference gives equal numbers in f64.

mod terms;

use ir::graph::{ArgKind, Block, Model, SectionKind};
use ir::text::{File, parse, print};
use ir::types::DType;
use meshwright_reference::{Array, BlockRun, Context, Tensor, random};
use std::collections::BTreeSet;
use terms::{TERMS, Term};
use transforms::recognise::{recognise, rules};

/// Terms per recogniser.
const DRAWN: u64 = 8;

/// Relative tolerance: both sides round in f64, and the constants of a text have up to 17 digits.
const TOLERANCE: f64 = 1e-9;

fn model(term: &Term) -> File {
    let args: Vec<String> = term.args.iter().map(|(name, ty)| format!("%{name}: input {ty}")).collect();
    let names: Vec<String> = term.args.iter().map(|(name, _)| format!("%{name}")).collect();
    let text = format!(
        "model @m({args}) {{ call @block({}) }}
         block @block({args}) -> metric {} {{ {}\n return %y }}",
        names.join(", "),
        term.ty,
        term.body,
        args = args.join(", "),
    );
    parse(&text).unwrap_or_else(|error| panic!("{error:?}\n{text}"))
}

/// Integers below 2 for segments, ids and labels, ascending ones for positions, and floats about 1 in size.
fn array(name: &str, dtype: DType, sizes: &[u64]) -> Array<f64> {
    let dims: Vec<usize> = sizes.iter().map(|&size| size as usize).collect();
    let key = random::parameter_key(1, name);
    let last = dims.last().copied().unwrap_or(1);
    match name {
        _ if dtype.is_float() => Array::Real(Tensor::from_fn(&dims, |i| f64::from(random::normal(key, i as u64)))),
        "pos" => Array::Int(Tensor::from_fn(&dims, |i| (i % last) as i32)),
        _ => Array::Int(Tensor::from_fn(&dims, |i| (2.0 * random::uniform(key, i as u64)) as i32)),
    }
}

fn value(model: &Model) -> Vec<f64> {
    let block: &Block = model.blocks.values().next().unwrap();
    let mut run = BlockRun::<f64>::new(block, Context::default());
    for arg in block.args.iter().filter(|arg| arg.kind == ArgKind::Input) {
        let ty = block.ty(arg.value);
        run.set(arg.value, array(block.value_name(arg.value), ty.dtype, &ty.sizes())).unwrap();
    }
    run.forward().unwrap()[0].real().unwrap().data.clone()
}

#[test]
fn recognised_terms_have_equal_values() {
    for (op, draw) in TERMS {
        for seed in 0..DRAWN {
            let term = draw(&mut terms::Draft::new(seed));
            let before = model(&term);
            let mut after = before.clone();
            let found: Vec<&str> = recognise(&mut after.model).iter().map(|found| found.op).collect();
            assert_eq!(found, [op], "seed {seed}:\n{}\n{}", print(&before), print(&after));
            ir::verify::verify(&after.model).unwrap_or_else(|error| panic!("{error:?}"));
            let count = |file: &File| file.model.blocks.values().next().unwrap()[SectionKind::F].stmts.len();
            assert!(count(&after) < count(&before));
            let (found, wanted) = (value(&after.model), value(&before.model));
            assert_eq!(found.len(), wanted.len());
            for (found, wanted) in found.iter().zip(&wanted) {
                let is_near = (found - wanted).abs() <= TOLERANCE * (1.0 + wanted.abs());
                assert!(is_near, "{op}, seed {seed}: {found} is not {wanted}\n{}\n{}", print(&before), print(&after));
            }
        }
    }
}

#[test]
fn each_recogniser_has_a_term() {
    let ops = ir::ops::names();
    let recognisers = rules().into_iter().map(|(name, _)| name).filter(|name| ops.contains(name));
    let with_terms: BTreeSet<&str> = TERMS.iter().map(|(op, _)| *op).collect();
    assert_eq!(recognisers.collect::<BTreeSet<&str>>(), with_terms);
}
