//! Programs written by hand and broken in one place each. (Training programs are broken where they are made.)

use super::*;
use crate::entity::{EntityRef, PrimaryMap};
use crate::expr::Expr;
use crate::graph::{Arg, ArgKind, Block, Call, ModelInput, ResultKind, SectionKind, Span, Stmt, ValueData};
use crate::ids::{AxisId, BlockId, ModelValue, Reg, Token, Value};
use crate::mesh::{Axes, Mesh};
use crate::ops::{Collective, Op, Reduce, Unary, UnaryKind};
use crate::program::{Body, BodyArg, BodyInstr, BodyKind, Instr, RegData, Source, Transfer};
use crate::types::{DType, PartialKind, Type};

fn stmt(result: Value, op: impl Into<Op>, operand: Value) -> Stmt {
    let (results, operands, comments) = (vec![result], vec![operand], Vec::new());
    Stmt { results, accumulate: false, op: op.into(), operands, comments, span: Span::default() }
}

fn dp() -> Axes {
    Axes::one(AxisId::new(1))
}

/// f32[4{dp}, 3]
fn sharded() -> Type {
    let mut ty = Type::of(DType::F32, &[4, 3]);
    ty.dims[0].axes = dp();
    ty
}

fn partial_scalar() -> Type {
    Type::scalar(DType::F32).partial_over(PartialKind::Sum, &dp())
}

/// `loss = sum(2 x)` in two blocks, on pp=2, dp=2.
fn model() -> Model {
    let mut model = Model { mesh: Mesh::new("m", &[("pp", 2), ("dp", 2)]), ..Model::default() };
    let mut block = |name: &str, arg_kind, result_kind, op: Op, ty: Type| {
        let mut block = Block { name: name.to_string(), results: vec![result_kind], ..Block::default() };
        let (x, y) = (block.add_value("x", sharded()), block.add_value("y", ty));
        block.args = vec![Arg { value: x, kind: arg_kind }];
        block[SectionKind::F].stmts = vec![stmt(y, op, x)];
        block[SectionKind::F].ret = vec![y];
        model.blocks.push(block)
    };
    let double = Unary(UnaryKind::Scale(2.0)).into();
    let sum = Reduce::new(PartialKind::Sum, "b h -> ()").unwrap().into();
    let first = block("a", ArgKind::Input, ResultKind::Value, double, sharded());
    let second = block("b", ArgKind::Value, ResultKind::Loss, sum, partial_scalar());
    let [x, y] = ["x", "y"].map(|name| model.values.push(name.to_string()));
    model.inputs.push(ModelInput { value: x, kind: ArgKind::Input, ty: sharded() });
    for (block, args, results) in [(first, vec![x], vec![y]), (second, vec![y], vec![])] {
        let (params, comments, span) = (Vec::new(), Vec::new(), Span::default());
        model.calls.push(Call {
            results,
            block,
            repeat: None,
            args,
            params,
            slice: None,
            offload: false,
            comments,
            span,
        });
    }
    model
}

fn body(model: &Model, block: usize) -> Body {
    let id = BlockId::new(block);
    let block = &model.blocks[id];
    let section = &block[SectionKind::F];
    Body {
        name: format!("{}.F", block.name),
        block: Some(id),
        kind: BodyKind::F,
        values: block.values.clone(),
        args: vec![BodyArg { value: block.args[0].value, source: Source::Row }],
        instrs: section.stmts.iter().cloned().map(BodyInstr::Compute).collect(),
        results: section.ret.clone(),
        keeps: Vec::new(),
        frame: None,
    }
}

fn paying() -> Body {
    let mut values = PrimaryMap::new();
    let loss = values.push(ValueData { name: "loss".to_string(), ty: partial_scalar() });
    let sum = values.push(ValueData { name: "sum".to_string(), ty: Type::scalar(DType::F32) });
    let (token, collective) = (Token::new(0), Collective::AllReduce { over: dp() });
    Body {
        name: "loss.N".to_string(),
        block: None,
        kind: BodyKind::N,
        values,
        args: vec![BodyArg { value: loss, source: Source::Row }],
        instrs: vec![
            BodyInstr::Start { token, collective, operands: vec![loss] },
            BodyInstr::Wait { token, results: vec![sum] },
        ],
        results: vec![sum],
        keeps: Vec::new(),
        frame: None,
    }
}

fn run(body: usize, call: usize, microbatch: Option<u32>, arg: Reg, result: Reg) -> Instr {
    Instr::Run {
        token: None,
        body: BodyId::new(body),
        call,
        instance: 0,
        microbatch,
        first: false,
        args: vec![arg],
        bundles: Vec::new(),
        results: vec![result],
        keep: None,
    }
}

fn class(rank: u32, types: &[Type], instrs: Vec<Instr>) -> Class {
    let named = |(place, ty): (usize, &Type)| RegData { name: format!("r{place}"), ty: Some(ty.clone()) };
    let regs = types.iter().enumerate().map(named).collect();
    Class { ranks: rank..rank + 1, regs, instrs, params: Vec::new(), arena: None }
}

/// Rank 0 doubles two micro-batches and sends them, rank 1 adds up their losses.
fn program(model: &Model) -> Program {
    let [r0, r1, r2, r3, r4] = [0, 1, 2, 3, 4].map(Reg::new);
    let [t0, t1] = [0, 1].map(Token::new);
    let send = |token, tag, reg| {
        let transfer = Transfer::Send { peer: Expr::Int(1), tag };
        Instr::Start { token, transfer, operand: Some(reg) }
    };
    let receive = |token, tag, reg| {
        let transfer = Transfer::Recv { peer: Expr::Int(0), tag, ty: sharded() };
        [Instr::Start { token, transfer, operand: None }, Instr::Wait { token, result: Some(reg) }]
    };
    let landed = |token| Instr::Wait { token, result: None };
    let feed = |out, microbatch| Instr::Feed { out, input: ModelValue::new(0), microbatch };
    let first = vec![
        feed(r0, 0),
        run(0, 0, Some(0), r0, r1),
        send(t0, 0, r1),
        feed(r2, 1),
        run(0, 0, Some(1), r2, r3),
        send(t1, 1, r3),
        landed(t0),
        landed(t1),
        Instr::Free(vec![r0, r1, r2, r3]),
    ];
    let mut second: Vec<Instr> = receive(t0, 0, r0).into();
    second.push(run(1, 1, Some(0), r0, r1));
    second.extend(receive(t1, 1, r2));
    second.extend([
        run(1, 1, Some(1), r2, r3),
        Instr::Add { into: r1, from: r3 },
        run(2, 0, None, r1, r4),
        Instr::Out { name: "loss".to_string(), reg: r4 },
        Instr::Free(vec![r0, r1, r2, r3, r4]),
    ]);
    let unreduced = [sharded(), partial_scalar(), sharded(), partial_scalar(), Type::scalar(DType::F32)];
    Program {
        name: "p".to_string(),
        microbatches: 2,
        bodies: [body(model, 0), body(model, 1), paying()].into_iter().collect(),
        classes: vec![class(0, &[sharded(), sharded(), sharded(), sharded()], first), class(1, &unreduced, second)],
    }
}

/// Does an instruction twice.
fn again(class: &mut Class, position: usize) {
    let instr = class.instrs[position].clone();
    class.instrs.insert(position, instr);
}

/// Runs a block of rank 0 once more, on another register.
fn run_again(program: &mut Program, arg: Reg) {
    let class = &mut program.classes[0];
    let result = class.regs.push(RegData { name: "again".to_string(), ty: Some(sharded()) });
    class.instrs.insert(2, run(0, 0, Some(0), arg, result));
    class.instrs.push(Instr::Free(vec![result]));
}

/// Starts the first run of rank 0, and waits for it before another instruction.
fn start_run(program: &mut Program, before: usize) {
    let class = &mut program.classes[0];
    if let Instr::Run { token, .. } = &mut class.instrs[1] {
        *token = Some(Token::new(9));
    }
    class.instrs.insert(before, Instr::Wait { token: Token::new(9), result: None });
}

type Break = fn(&mut Program);

/// Each breaks what it is named for.
const BROKEN: &[(&str, Break)] = &[
    ("classes", |p| p.classes[1].ranks = 1..3),
    ("undefined", |p| drop(p.classes[0].instrs.remove(0))),
    ("redefined", |p| again(&mut p.classes[0], 0)),
    ("read-after-free", |p| p.classes[1].instrs.insert(2, Instr::Free(vec![Reg::new(0)]))),
    ("double-free", |p| p.classes[0].instrs.push(Instr::Free(vec![Reg::new(0)]))),
    ("leak", |p| drop(p.classes[0].instrs.pop())),
    ("in-flight", |p| p.classes[0].instrs.swap(7, 8)),
    ("in-flight", |p| start_run(p, 3)),
    ("in-flight", |p| {
        start_run(p, 2);
        p.classes[0].instrs.insert(2, Instr::Free(vec![Reg::new(0)]));
    }),
    ("token", |p| drop(p.classes[0].instrs.remove(6))),
    ("token", |p| {
        start_run(p, 2);
        p.classes[0].instrs.remove(2);
    }),
    ("signature", |p| p.classes[1].regs[Reg::new(1)].ty = Some(sharded())),
    ("shape", |p| p.bodies[BodyId::new(0)].values[Value::new(1)].ty.dims[1].size = 7),
    ("sharding", |p| p.bodies[BodyId::new(0)].values[Value::new(1)].ty.dims[0].axes = Axes::none()),
    ("statement", |p| {
        if let BodyInstr::Compute(stmt) = &mut p.bodies[BodyId::new(0)].instrs[0] {
            stmt.op = Unary(UnaryKind::Scale(3.0)).into();
        }
    }),
    ("missing-collective", |p| p.bodies[BodyId::new(1)].values[Value::new(1)].ty.partial = None),
    ("collective-type", |p| {
        let over = Axes::one(AxisId::new(0));
        if let BodyInstr::Start { collective, .. } = &mut p.bodies[BodyId::new(2)].instrs[0] {
            *collective = Collective::AllReduce { over };
        }
    }),
    ("peer", |p| {
        if let Instr::Start { transfer: Transfer::Send { peer, .. }, .. } = &mut p.classes[0].instrs[2] {
            *peer = Expr::Int(0);
        }
    }),
    ("unmatched-message", |p| {
        p.classes[0].instrs.remove(2);
        p.classes[0].instrs.remove(5);
    }),
    ("message-order", |p| {
        for instr in &mut p.classes[0].instrs {
            if let Instr::Start { transfer: Transfer::Send { tag, .. }, .. } = instr {
                *tag = 1 - *tag;
            }
        }
    }),
    ("deadlock", |p| {
        // Rank 1 returns a micro-batch before it takes the next, rank 0 asks for it before it has sent the first.
        let (t, reg) = (Token::new(9), Reg::new(0));
        let back = |transfer, operand, result| {
            [Instr::Start { token: t, transfer, operand }, Instr::Wait { token: t, result }]
        };
        let receive = Transfer::Recv { peer: Expr::Int(1), tag: 0, ty: sharded() };
        let echo = p.classes[0].regs.push(RegData { name: "echo".to_string(), ty: Some(sharded()) });
        p.classes[0].instrs.splice(0..0, back(receive, None, Some(echo)));
        p.classes[0].instrs.push(Instr::Free(vec![echo]));
        p.classes[1].instrs.splice(3..3, back(Transfer::Send { peer: Expr::Int(0), tag: 0 }, Some(reg), None));
    }),
    ("wrong-microbatch", |p| {
        if let Instr::Feed { microbatch, .. } = &mut p.classes[0].instrs[0] {
            *microbatch = 1;
        }
    }),
    ("wrong-value", |p| run_again(p, Reg::new(1))),
    ("missing-run", |p| p.microbatches = 3),
    ("duplicate-run", |p| run_again(p, Reg::new(0))),
    ("added-twice", |p| again(&mut p.classes[1], 6)),
    ("loss", |p| drop(p.classes[1].instrs.remove(6))),
    ("loss", |p| p.classes[1].instrs.retain(|instr| !matches!(instr, Instr::Out { .. }))),
];

#[test]
fn a_right_program_is_right() {
    let model = model();
    assert_eq!(check(&model, &program(&model), None), Ok(()));
    let mut started = program(&model);
    start_run(&mut started, 2);
    assert_eq!(check(&model, &started, None), Ok(()));
}

#[test]
fn each_fault_is_found_by_its_name() {
    let model = model();
    for (name, change) in BROKEN {
        let mut broken = program(&model);
        change(&mut broken);
        let found = check(&model, &broken, None).err().unwrap_or_default();
        assert!(found.iter().any(|violation| violation.name == *name), "{name}: {found:?}");
    }
}

#[test]
fn peaks_count_each_buffer_once() {
    let model = model();
    let program = program(&model);
    // Local tensors are f32[2, 3]: rank 0 has four of them, rank 1 two, and three scalars.
    assert_eq!(peak_bytes(&model, &program), [4 * 24, 2 * 24 + 3 * 4]);
    let found = check(&model, &program, Some(95)).unwrap_err();
    assert_eq!(found[0].to_string(), "memory: class 0, position 4: rank 0 holds 96 bytes, the limit is 95");
}
