//! A block sharded by hand: a matmul on a batch split over dp.

use super::*;
use ir::entity::EntityRef;
use ir::graph::{
    Arg, ArgKind, Block, Call, Init, ModelInput, Param, ParamIndex, ParamRef, ResultKind, Span, Step, Stmt,
};
use ir::ids::{AxisId, Value};
use ir::mesh::Axes;
use ir::ops::{AdamW, Broadcast, Collective, Einsum, Equation, Op, Reduce, SumSquares, Unary, UnaryKind};
use ir::program::{BodyInstr, Source};
use ir::types::{Dim, PartialKind, Type};

/// `loss = sum(x w)`, x f32[4{dp}, 3], w f32[3, 5]; the gradient of w is reduced in `U`.
pub(super) fn model() -> Model {
    let mut model = Model { name: "sharded".to_string(), ..Model::default() };
    model.mesh = Mesh::new("m", &[("dp", 2)]);
    let over = Axes::one(AxisId::new(0));
    let sharded = |sizes: &[u64]| {
        let mut ty = Type::of(DType::F32, sizes);
        ty.dims[0].axes = over.clone();
        ty
    };
    let (w_type, scalar) = (Type::of(DType::F32, &[3, 5]), Type::scalar(DType::F32));
    let unreduced = |ty: &Type| ty.partial_over(PartialKind::Sum, &over);
    let mut block = Block { name: "top".to_string(), results: vec![ResultKind::Loss], ..Block::default() };
    let arg = |block: &mut Block, name: &str, kind, ty: &Type| {
        let value = block.add_value(name, ty.clone());
        block.args.push(Arg { value, kind });
        value
    };
    let x = arg(&mut block, "x", ArgKind::Input, &sharded(&[4, 3]));
    let [clip, lr, step] = ["clip", "lr", "step"].map(|name| arg(&mut block, name, ArgKind::Const, &scalar));
    let w = arg(&mut block, "w", ArgKind::Param, &w_type);
    let [m, v] = ["w.m", "w.v"].map(|name| arg(&mut block, name, ArgKind::State, &w_type));

    let [y, dy] = ["y", "y.d"].map(|name| block.add_value(name, sharded(&[4, 5])));
    let loss = block.add_value("loss", unreduced(&scalar));
    let dloss = block.add_value("loss.d", scalar.clone());
    let grad = block.add_value("w.grad", unreduced(&w_type));
    let reduced = block.add_value("paid", w_type.clone());
    let sq = block.add_value("sq", scalar.clone());
    let einsum = |text| Einsum::new(text).unwrap();
    let spread = Broadcast { equation: Equation::parse("() -> b f").unwrap(), free: [4, 5].map(Dim::sized).to_vec() };
    block[SectionKind::F].stmts = vec![
        stmt(&[y], einsum("b h, h f -> b f"), &[x, w]),
        stmt(&[loss], Reduce::new(PartialKind::Sum, "b f -> ()").unwrap(), &[y]),
    ];
    block[SectionKind::F].ret = vec![loss];
    block[SectionKind::I].args = vec![dloss];
    block[SectionKind::W].stmts = vec![
        stmt(&[dy], spread, &[dloss]),
        Stmt { accumulate: true, ..stmt(&[grad], einsum("b h, b f -> h f"), &[x, dy]) },
    ];
    let adamw = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.0 };
    block[SectionKind::U].stmts = vec![
        stmt(&[reduced], Op::Collective(Collective::AllReduce { over: over.clone() }), &[grad]),
        stmt(&[sq], SumSquares, &[reduced]),
        stmt(&[w, m, v], adamw, &[w, reduced, m, v, clip, lr, step]),
    ];
    block[SectionKind::U].ret = vec![sq];
    let block = model.blocks.push(block);

    let input = model.values.push("x".to_string());
    model.inputs.push(ModelInput { value: input, kind: ArgKind::Input, ty: sharded(&[4, 3]) });
    let (comments, span) = (Vec::new(), Span::default());
    let init = Init::Constant(1.0);
    let (name, decay) = ("w".to_string(), false);
    model.params.push(Param {
        name,
        field: None,
        count: None,
        ty: w_type,
        init,
        decay,
        frozen: false,
        part_of: None,
        comments,
        span,
    });
    let params = vec![ParamRef { name: "w".to_string(), index: ParamIndex::Whole }];
    let (results, args, comments) = (Vec::new(), vec![input], Vec::new());
    model.calls.push(Call { results, block, repeat: None, args, params, slice: None, offload: false, comments, span });
    model.step = Some(norm_and_clip(&scalar));
    model
}

fn stmt(results: &[Value], op: impl Into<Op>, operands: &[Value]) -> Stmt {
    let (results, operands) = (results.to_vec(), operands.to_vec());
    Stmt { results, accumulate: false, op: op.into(), operands, comments: Vec::new(), span: Span::default() }
}

fn norm_and_clip(scalar: &Type) -> Step {
    let mut graph = Block::default();
    let [sum, norm, clip] = ["sq", "norm", "clip"].map(|name| graph.add_value(name, scalar.clone()));
    graph.args = vec![Arg { value: sum, kind: ArgKind::Value }];
    graph[SectionKind::F].stmts =
        vec![stmt(&[norm], Unary(UnaryKind::Sqrt), &[sum]), stmt(&[clip], Unary(UnaryKind::AtMost(1.0)), &[norm])];
    graph[SectionKind::F].ret = vec![norm, clip];
    Step { graph }
}

pub(super) fn program(model: &Model) -> Program {
    lower(model, &partition(model, &chain(1), &costs(model)).unwrap(), &schedule("1f1b", 1, 2), 2, &PROGRAM).unwrap()
}

#[test]
fn layout_changes_become_transfers_and_the_loss_is_paid() {
    let model = model();
    let program = program(&model);
    assert_eq!(check(&model, &program, None), Ok(()));
    let body = |name: &str| program.bodies.values().find(|body| body.name == name).unwrap();
    let starts = |name| body(name).instrs.iter().filter(|instr| matches!(instr, BodyInstr::Start { .. })).count();
    assert_eq!([starts("top.F"), starts("top.B"), starts("top.R"), starts("top.U"), starts("loss.N")], [0, 0, 1, 0, 1]);
    let names = |name| body(name).keeps.iter().map(|&v| body(name).values[v].name.clone()).collect::<Vec<_>>();
    assert_eq!([names("top.F"), names("top.B"), names("top.R")], [vec!["x"], vec![], vec!["paid"]]);
    let sources: Vec<Source> = body("top.U").args.iter().map(|arg| arg.source).collect();
    use Source::{Param, Saved, Scalar, State};
    assert_eq!(sources, [Param, Saved, State, State, Scalar, Scalar, Scalar]);
}
