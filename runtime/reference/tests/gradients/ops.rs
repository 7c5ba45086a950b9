//! Each op in a block of its own: its float operands are parameters, the loss is a weighted sum of its first result.

use super::cases::{Case, constants, differentiable, without_gradient};
use super::{assert_gradients, reals};
use ir::graph::{Arg, ArgKind, Block, Call, Init, Model, ModelInput, Param, ParamIndex, ParamRef, ResultKind};
use ir::graph::{SectionKind, Span};
use ir::ops::{Binary, BinaryKind, Builder, Equation, Reduce};
use ir::optimizer::Optimizer;
use meshwright_reference::{Array, BlockRun, Context, MicroBatch, Reference, Rounding};
use std::collections::{BTreeMap, BTreeSet};
use transforms::differentiate::differentiate;

/// A model of one block: the op on parameters and inputs, and the sum of its first result times the input `%weight`.
fn one_op(case: &Case) -> Model {
    let mut block = Block { name: "op".to_string(), results: vec![ResultKind::Loss], ..Block::default() };
    let mut operands = Vec::new();
    for (place, operand) in case.operands.iter().enumerate() {
        operands.push(block.add_value(&format!("x{place}"), operand.ty()));
    }
    let mut builder = Builder::new(&mut block);
    let result = builder.op(case.op.clone(), &operands).unwrap()[0];
    let weight_type = builder.ty(result).clone();
    let weight = builder.block.add_value("weight", weight_type.clone());
    let product = builder.one(Binary::of(BinaryKind::Mul), &[result, weight]).unwrap();
    let letters: Vec<String> = (0..weight_type.rank()).map(|dim| format!("d{dim}")).collect();
    let sum = Reduce::sum(Equation { operands: vec![letters], result: Vec::new() });
    let loss = builder.one(sum, &[product]).unwrap();
    let stmts = builder.stmts;
    block[SectionKind::F].stmts = stmts;
    block[SectionKind::F].ret = vec![loss];

    let (ints, reals): (Vec<_>, Vec<_>) = operands.iter().partition(|&&value| !block.ty(value).dtype.is_float());
    let inputs: Vec<_> = ints.into_iter().chain([weight]).collect();
    let arg = |kind| move |&value: &_| Arg { value, kind };
    block.args = inputs.iter().map(arg(ArgKind::Input)).chain(reals.iter().map(arg(ArgKind::Param))).collect();
    let mut model = Model { name: "one".to_string(), ..Model::default() };
    let mut args = Vec::new();
    for &value in &inputs {
        args.push(model.values.push(block.value_name(value).to_string()));
        let ty = block.ty(value).clone();
        model.inputs.push(ModelInput { value: args[args.len() - 1], kind: ArgKind::Input, ty });
    }
    let mut params = Vec::new();
    for &value in &reals {
        let name = block.value_name(value).to_string();
        params.push(ParamRef { name: name.clone(), index: ParamIndex::Whole });
        model.params.push(Param {
            name,
            field: None,
            count: None,
            ty: block.ty(value).clone(),
            init: Init::Normal(1.0),
            decay: false,
            frozen: false,
            part_of: None,
            comments: Vec::new(),
            span: Span::default(),
        });
    }
    let block = model.blocks.push(block);
    let (comments, span) = (Vec::new(), Span::default());
    model.calls.push(Call {
        results: Vec::new(),
        block,
        repeat: None,
        args,
        params,
        slice: None,
        offload: false,
        comments,
        span,
    });
    model
}

/// The inputs of a case's model, which counts as one token.
fn inputs_of(case: &Case, model: &Model) -> MicroBatch<f64> {
    let mut inputs = BTreeMap::new();
    for input in &model.inputs {
        let name = &model.values[input.value];
        let place: Option<usize> = name.strip_prefix('x').and_then(|place| place.parse().ok());
        let array = match place {
            Some(place) => case.operands[place].array(name),
            None => Array::Real(reals(name, &input.ty.sizes())),
        };
        inputs.insert(name.clone(), array);
    }
    MicroBatch { inputs, valid: 1 }
}

#[test]
fn every_op_follows_central_differences() {
    for case in differentiable() {
        let name = case.op.name();
        let model = differentiate(one_op(&case), &Optimizer::default()).unwrap_or_else(|why| panic!("{name}: {why}"));
        let mut reference = Reference::new(&model, 3);
        reference.set_rounding(Rounding::None);
        for (place, operand) in case.operands.iter().enumerate() {
            let name = format!("x{place}");
            if let Array::Real(tensor) = operand.array(&name) {
                reference.set_param(&name, tensor).unwrap();
            }
        }
        let batch = [inputs_of(&case, &model)];
        assert_gradients(name, &mut reference, &batch, usize::MAX);
        let constants = case.op.facts().constants;
        let floats = case.operands.iter().enumerate();
        let floats =
            floats.filter(|(place, operand)| operand.ty().dtype.is_float() && !constants.contains(place)).count();
        assert_eq!(reference.gradients().len(), floats, "{name}: an operand has no gradient");
    }
}

#[test]
fn every_op_is_differentiated_here_or_has_no_gradient() {
    let refused: Vec<Case> = without_gradient();
    for case in &refused {
        let result = differentiate(one_op(case), &Optimizer::default());
        let why = result.err().unwrap_or_else(|| panic!("`{}` has a gradient: test it", case.op.name()));
        assert!(why.to_string().contains("no gradient"), "{why}");
    }
    let all = differentiable().into_iter().chain(refused).chain(constants());
    let covered: BTreeSet<&str> = all.map(|case| case.op.name()).collect();
    assert_eq!(covered, ir::ops::names().into_iter().collect::<BTreeSet<_>>());
}

/// Ops that can be taken apart, on all cases.
#[test]
fn expansions_mean_the_same() {
    let mut expanded = BTreeSet::new();
    for case in differentiable().into_iter().chain(without_gradient()) {
        let mut block = Block { name: case.op.name().to_string(), ..Block::default() };
        let operands: Vec<_> = case.operands.iter().map(|operand| block.add_value("", operand.ty())).collect();
        let mut builder = Builder::new(&mut block);
        let whole = builder.op(case.op.clone(), &operands).unwrap();
        let Some(parts) = case.op.def().unwrap().expand(&mut builder, &operands) else { continue };
        let stmts = builder.stmts;
        block[SectionKind::F].stmts = stmts;
        block[SectionKind::F].ret = whole.into_iter().chain(parts.unwrap()).collect();
        let mut run = BlockRun::<f64>::new(&block, Context::default());
        for (&value, operand) in operands.iter().zip(&case.operands) {
            run.set(value, operand.array(block.value_name(value))).unwrap();
        }
        let results = run.forward().unwrap();
        let (whole, parts) = results.split_at(results.len() / 2);
        for (whole, part) in whole.iter().zip(parts) {
            let pairs = whole.real().unwrap().data.iter().zip(&part.real().unwrap().data);
            let apart = pairs.fold(0.0f64, |max, (a, b)| max.max((a - b).abs()));
            assert!(whole.dims() == part.dims() && apart < 1e-12, "`{}` and its expansion: {apart}", case.op.name());
        }
        expanded.insert(case.op.name());
    }
    assert!(expanded.contains("softmax") && expanded.contains("cross_entropy"), "{expanded:?}");
}
