//! Each op's own graph becomes the op.

use super::verify;
use ir::graph::{Arg, ArgKind, Block, Model, ResultKind, SectionKind};
use ir::ids::Value;
use ir::ops::{Builder, CrossEntropy, LayerNorm, OpDef, RmsNorm, Softmax};
use ir::types::{DType, Type};
use meshwright_transforms::recognise::recognise;

/// A block of the op's graph on these operands, which returns the results of the op that are floats of the first's type.
fn expanded(op: &dyn OpDef, operands: &[Type]) -> Model {
    let mut block = Block { name: "block".to_string(), ..Block::default() };
    let values: Vec<Value> =
        operands.iter().enumerate().map(|(place, ty)| block.add_value(&format!("arg{place}"), ty.clone())).collect();
    block.args = values.iter().map(|&value| Arg { value, kind: ArgKind::Input }).collect();
    let mut builder = Builder::new(&mut block);
    let ret = op.expand(&mut builder, &values).unwrap().unwrap();
    block[SectionKind::F].stmts = builder.stmts;
    block.results = vec![ResultKind::Metric; ret.len()];
    block[SectionKind::F].ret = ret;
    let mut model = Model::default();
    model.blocks.push(block);
    model
}

#[track_caller]
fn becomes_itself(op: &dyn OpDef, operands: &[Type]) {
    let mut model = expanded(op, operands);
    let before = super::statements(&model);
    let found = recognise(&mut model);
    verify(&model);
    let block = model.blocks.values().next().unwrap();
    let [stmt] = block[SectionKind::F].stmts.as_slice() else { panic!("{:?}", block[SectionKind::F]) };
    assert_eq!((stmt.op.name(), stmt.op.attrs()), (op.name(), op.attrs()));
    assert_eq!(stmt.operands, block.args.iter().map(|arg| arg.value).collect::<Vec<_>>());
    assert_eq!(stmt.results, block[SectionKind::F].ret);
    assert_eq!((found[0].op, found[0].replaced, found.len()), (op.name(), before, 1));
}

#[test]
fn graphs_become_their_ops() {
    for dtype in [DType::F32, DType::BF16] {
        let (x, gain) = (Type::of(dtype, &[2, 3, 8]), Type::of(dtype, &[8]));
        becomes_itself(&RmsNorm { eps: 1e-5 }, &[x.clone(), gain.clone()]);
        becomes_itself(&LayerNorm { eps: 1e-6 }, &[x.clone(), gain.clone(), gain]);
        becomes_itself(&Softmax, std::slice::from_ref(&x));
        becomes_itself(&CrossEntropy, &[x, Type::of(DType::I32, &[2, 3])]);
    }
}
