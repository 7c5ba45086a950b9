//! Tests of a tiny model, `loss = sum (x w)^2` over several micro-batches, on meshes of one to eight devices, against the
//! formulas: `dw = 2 x^T (x w) / tokens`, `w -= lr clip dw`.

mod places;
mod processes;
mod stuck;

use super::*;
use crate::state::GlobalTensor;
use comm::RankFailure;
use ir::entity::{EntityRef, PrimaryMap};
use ir::expr::Expr;
use ir::graph::*;
use ir::ids::*;
use ir::mesh::{Axes, Mesh};
use ir::ops::*;
use ir::program::*;
use ir::types::{DType, Dim, PartialKind, Type};
use std::collections::BTreeMap;

const SIZES: [u64; 3] = [5, 3, 7];
const MICROBATCHES: u32 = 3;
const LR: f32 = 0.1;

/// A type of dims b, k or n (by place in `SIZES`) on a mesh: b over `dp`, n over `tp`, a sum owed over the axes named.
fn ty(mesh: &Mesh, dims: &[usize], unreduced: &[&str]) -> Type {
    let axes = |name: &str| mesh.lookup(name).unwrap_or_default();
    let dim = |&d: &usize| Dim { axes: axes(["dp", "", "tp"][d]), ..Dim::sized(SIZES[d]) };
    let ty = Type::new(DType::F32, dims.iter().map(dim).collect());
    ty.partial_over(PartialKind::Sum, &unreduced.iter().fold(Axes::none(), |all, name| all.union(&axes(name))))
}

fn stmt(op: impl Into<Op>, operands: &[Value], results: &[Value]) -> BodyInstr {
    BodyInstr::Compute(Stmt {
        results: results.to_vec(),
        accumulate: false,
        op: op.into(),
        operands: operands.to_vec(),
        comments: Vec::new(),
        span: Span::default(),
    })
}

fn reduced_over(over: Axes, operand: Value, result: Value) -> Vec<BodyInstr> {
    if over.is_empty() {
        return vec![stmt(Unary(UnaryKind::Scale(1.0)), &[operand], &[result])];
    }
    let (token, collective) = (Token::new(0), Collective::AllReduce { over });
    vec![
        BodyInstr::Start { token, collective, operands: vec![operand] },
        BodyInstr::Wait { token, results: vec![result] },
    ]
}

/// The two blocks with their bodies, and the step graph's.
struct Built {
    model: Model,
    bodies: PrimaryMap<BodyId, Body>,
    ids: BTreeMap<&'static str, BodyId>,
}

impl Built {
    fn body(
        &mut self,
        (name, kind, block): (&'static str, BodyKind, Option<BlockId>),
        values: &Block,
        args: &[(Value, Source)],
        instrs: Vec<BodyInstr>,
        gives: [&[Value]; 2],
    ) {
        let id = self.bodies.push(Body {
            name: name.to_string(),
            block,
            kind,
            values: values.values.clone(),
            args: args.iter().map(|&(value, source)| BodyArg { value, source }).collect(),
            instrs,
            results: gives[0].to_vec(),
            keeps: gives[1].to_vec(),
            frame: None,
        });
        self.ids.insert(name, id);
    }
}

fn build(mesh: Mesh) -> Built {
    let ty = |dims: &[usize], unreduced: &[&str]| ty(&mesh, dims, unreduced);
    let (dp, tp) = (mesh.lookup("dp").unwrap_or_default(), mesh.lookup("tp").unwrap_or_default());
    let mut model = Model { mesh: mesh.clone(), ..Model::default() };
    let x_in = model.values.push("x".to_string());
    model.inputs.push(ModelInput { value: x_in, kind: ArgKind::Input, ty: ty(&[0, 1], &[]) });
    let y_out = model.values.push("y".to_string());
    let init = Init::Normal(1.0);
    let (name, field, count) = ("w".to_string(), None, None);
    let (comments, span) = (Vec::new(), Span::default());
    let weight = ty(&[1, 2], &[]);
    let (decay, frozen, part_of) = (false, false, None);
    model.params.push(Param { name, field, count, ty: weight, init, decay, frozen, part_of, comments, span });

    let mut linear = Block { name: "linear".to_string(), ..Block::default() };
    let [x, w, y, dy, grad, g, sq, clip, lr] = [
        ("x", ty(&[0, 1], &[])),
        ("w", ty(&[1, 2], &[])),
        ("y", ty(&[0, 2], &[])),
        ("dy", ty(&[0, 2], &[])),
        ("w.grad", ty(&[1, 2], &["dp"])),
        ("g", ty(&[1, 2], &[])),
        ("sq", ty(&[], &["tp"])),
        ("clip", ty(&[], &[])),
        ("lr", ty(&[], &[])),
    ]
    .map(|(name, ty)| linear.add_value(name, ty));
    linear.args = vec![Arg { value: x, kind: ArgKind::Input }, Arg { value: w, kind: ArgKind::Param }];
    let mut square = Block { name: "square".to_string(), ..Block::default() };
    let [z, loss, dloss, half, dz] = [
        ("z", ty(&[0, 2], &[])),
        ("loss", ty(&[], &["dp", "tp"])),
        ("dloss", ty(&[], &[])),
        ("half", ty(&[0, 2], &[])),
        ("dz", ty(&[0, 2], &[])),
    ]
    .map(|(name, ty)| square.add_value(name, ty));
    let mut step = Block::default();
    let [sum, all, norm, factor, unreduced, reduced] = [
        ("sum", ty(&[], &["tp"])),
        ("all", ty(&[], &[])),
        ("norm", ty(&[], &[])),
        ("clip", ty(&[], &[])),
        ("unreduced", ty(&[], &["dp", "tp"])),
        ("reduced", ty(&[], &[])),
    ]
    .map(|(name, ty)| step.add_value(name, ty));

    let (linear_id, square_id) = (model.blocks.push(linear.clone()), model.blocks.push(square.clone()));
    let call = |block, args: Vec<ModelValue>, results, params| Call {
        results,
        block,
        repeat: None,
        args,
        params,
        slice: None,
        offload: false,
        comments: Vec::new(),
        span: Span::default(),
    };
    let weight = ParamRef { name: "w".to_string(), index: ParamIndex::Whole };
    model.calls =
        vec![call(linear_id, vec![x_in], vec![y_out], vec![weight]), call(square_id, vec![y_out], vec![], vec![])];

    let mut built = Built { model, bodies: PrimaryMap::new(), ids: BTreeMap::new() };
    use BodyKind::*;
    use Source::{Gradient, Row, Saved, Scalar};
    let eq = |text| Einsum::new(text).unwrap();
    let (lin, sqr) = (Some(linear_id), Some(square_id));
    let product = stmt(eq("b k, k n -> b n"), &[x, w], &[y]);
    built.body(("lF", F, lin), &linear, &[(x, Row), (w, Source::Param)], vec![product], [&[y], &[x]]);
    built.body(("lI", I, lin), &linear, &[(dy, Row), (x, Saved)], vec![], [&[], &[x, dy]]);
    let mut dw = stmt(eq("b k, b n -> k n"), &[x, dy], &[grad]);
    if let BodyInstr::Compute(stmt) = &mut dw {
        stmt.accumulate = true;
    }
    built.body(("lW", W, lin), &linear, &[(x, Saved), (dy, Saved), (grad, Gradient)], vec![dw], [&[], &[]]);
    let mut reduce = reduced_over(dp.clone(), grad, g);
    reduce.push(stmt(SumSquares, &[g], &[sq]));
    built.body(("lR", R, lin), &linear, &[(grad, Gradient)], reduce, [&[sq], &[g]]);
    let update = stmt(Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 }, &[w, g, clip, lr], &[w]);
    let args = [(g, Saved), (w, Source::Param), (clip, Scalar), (lr, Scalar)];
    built.body(("lU", U, lin), &linear, &args, vec![update], [&[], &[]]);
    let squares = stmt(eq("b n, b n -> ()"), &[z, z], &[loss]);
    built.body(("sF", F, sqr), &square, &[(z, Row)], vec![squares], [&[loss], &[z]]);
    let times = Binary::spread(BinaryKind::Mul, "b n, () -> b n").unwrap();
    let back = vec![
        stmt(times, &[z, dloss], &[half]),
        stmt(Unary(UnaryKind::Scale(2.0)), &[half], &[dz]),
        BodyInstr::Free(vec![half]),
    ];
    built.body(("sI", I, sqr), &square, &[(dloss, Row), (z, Saved)], back, [&[dz], &[]]);
    let mut clipping = reduced_over(tp.clone(), sum, all);
    clipping.push(stmt(Unary(UnaryKind::Sqrt), &[all], &[norm]));
    clipping.push(stmt(Unary(UnaryKind::AtMost(0.5)), &[norm], &[factor]));
    built.body(("step", N, None), &step, &[(sum, Row)], clipping, [&[norm, factor], &[]]);
    let summing = reduced_over(dp.union(&tp), unreduced, reduced);
    built.body(("loss", N, None), &step, &[(unreduced, Row)], summing, [&[reduced], &[]]);
    built
}

/// A row while it is written.
struct Writer<'a> {
    built: &'a Built,
    regs: PrimaryMap<Reg, RegData>,
    instrs: Vec<Instr>,
    tokens: u32,
}

impl Writer<'_> {
    fn reg(&mut self, name: &str, ty: Option<Type>) -> Reg {
        self.regs.push(RegData { name: name.to_string(), ty })
    }

    /// Runs a body; gives its results and its bundle.
    fn run(&mut self, name: &str, microbatch: Option<u32>, args: &[Reg], bundles: &[Reg]) -> (Vec<Reg>, Option<Reg>) {
        let id = self.built.ids[name];
        let body = &self.built.bodies[id];
        let data = |value: &Value| RegData { name: String::new(), ty: Some(body.values[*value].ty.clone()) };
        let results: Vec<Reg> = body.results.iter().map(|value| self.regs.push(data(value))).collect();
        let keep = (!body.keeps.is_empty()).then(|| self.reg(name, None));
        self.instrs.push(Instr::Run {
            token: None,
            body: id,
            call: usize::from(name.starts_with("sF") || name.starts_with("sI")),
            instance: 0,
            microbatch,
            first: microbatch == Some(0),
            args: args.to_vec(),
            bundles: bundles.to_vec(),
            results: results.clone(),
            keep,
        });
        (results, keep)
    }

    fn transfer(&mut self, transfer: Transfer, operand: Option<Reg>, result: Option<Reg>) {
        let token = Token::from_u32(self.tokens);
        self.tokens += 1;
        self.instrs.push(Instr::Start { token, transfer, operand });
        self.instrs.push(Instr::Wait { token, result });
    }

    fn send(&mut self, reg: Reg, peer: i64) {
        self.transfer(Transfer::Send { peer: Expr::Int(peer), tag: 0 }, Some(reg), None);
    }

    fn recv(&mut self, peer: i64) -> Reg {
        let ty = ty(&self.built.model.mesh, &[0, 2], &[]);
        let reg = self.reg("received", Some(ty.clone()));
        self.transfer(Transfer::Recv { peer: Expr::Int(peer), tag: 0, ty }, None, Some(reg));
        reg
    }
}

/// The program: both blocks on one pipeline rank, or one on each of two.
fn program(built: &Built) -> Program {
    let stages = built.model.mesh.pipeline().map_or(1, |_| 2);
    let mut classes = Vec::new();
    for stage in 0..stages {
        let (first, last) = (stage == 0, stage + 1 == stages);
        let mut row = Writer { built, regs: PrimaryMap::new(), instrs: Vec::new(), tokens: 0 };
        let mut total: Option<Reg> = None;
        for mb in 0..MICROBATCHES {
            let at = Some(mb);
            let mut bundle = None;
            let mut y = None;
            if first {
                let out = row.reg("x", Some(built.model.inputs[0].ty.clone()));
                row.instrs.push(Instr::Feed { out, input: built.model.inputs[0].value, microbatch: mb });
                let (results, keep) = row.run("lF", at, &[out], &[]);
                (y, bundle) = (Some(results[0]), keep);
                row.instrs.push(Instr::Free(vec![out]));
            }
            if !last {
                row.send(y.unwrap(), 1);
            }
            let mut dy = None;
            if last {
                let y = y.unwrap_or_else(|| row.recv(0));
                let (loss, z) = row.run("sF", at, &[y], &[]);
                match total {
                    Some(into) => row.instrs.push(Instr::Add { into, from: loss[0] }),
                    None => total = Some(loss[0]),
                }
                let out = row.reg("seed", Some(Type::scalar(DType::F32)));
                row.instrs.push(Instr::LossGrad { out, mean: LossMean::Labels });
                dy = Some(row.run("sI", at, &[out], &[z.unwrap()]).0[0]);
            }
            if !first {
                row.send(dy.unwrap(), 0);
            }
            if first {
                let dy = dy.unwrap_or_else(|| row.recv(1));
                let (_, keep) = row.run("lI", at, &[dy], &[bundle.unwrap()]);
                row.run("lW", at, &[], &[keep.unwrap()]);
                row.instrs.push(Instr::Free(vec![dy, keep.unwrap(), bundle.unwrap()]));
            }
        }
        if let Some(total) = total {
            let reg = row.run("loss", None, &[total], &[]).0[0];
            row.instrs.push(Instr::Out { name: "loss".to_string(), reg });
        }
        if first {
            let (squares, reduced) = row.run("lR", None, &[], &[]);
            let (norm, _) = row.run("step", None, &squares, &[]);
            row.instrs.push(Instr::Out { name: "norm".to_string(), reg: norm[0] });
            row.run("lU", None, &[], &[reduced.unwrap()]);
        }
        let params = if first { vec![(ParamId::new(0), 0)] } else { Vec::new() };
        classes.push(Class { ranks: stage..stage + 1, regs: row.regs, instrs: row.instrs, params, arena: None });
    }
    let mut program =
        Program { name: "p".to_string(), microbatches: MICROBATCHES, bodies: built.bodies.clone(), classes };
    places::place(&built.model, &mut program);
    program
}

fn input(built: &Built, step: u64) -> StepInput {
    let x = |mb: u64| (0..SIZES[0] * SIZES[1]).map(|i| ((i * 7 + mb * 5 + step) % 11) as f32 / 11.0 - 0.4).collect();
    let inputs = |mb| Inputs::from([(built.model.inputs[0].value, Input::Floats(x(mb)))]);
    let microbatches = (0..u64::from(MICROBATCHES)).map(inputs).collect();
    StepInput { microbatches, valid_tokens: 15, loss_scale: 1.0, lr: LR, step, update: step }
}

/// Mean loss, gradient norm and gradient by the formulas; updates `w`.
fn by_hand(input: &StepInput, built: &Built, w: &mut [f32]) -> (f64, f64, Vec<f64>) {
    let [b, k, n] = SIZES.map(|size| size as usize);
    let (mut loss, mut grad) = (0.0, vec![0.0; k * n]);
    for microbatch in &input.microbatches {
        let Some(Input::Floats(x)) = microbatch.get(&built.model.inputs[0].value) else { panic!() };
        for (i, j) in (0..b).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let y: f64 = (0..k).map(|c| f64::from(x[i * k + c]) * f64::from(w[c * n + j])).sum();
            loss += y * y / 15.0;
            (0..k).for_each(|c| grad[c * n + j] += 2.0 * y * f64::from(x[i * k + c]) / 15.0);
        }
    }
    let norm = grad.iter().map(|g| g * g).sum::<f64>().sqrt();
    w.iter_mut().zip(&grad).for_each(|(w, g)| *w -= (f64::from(LR) * norm.min(0.5) * g) as f32);
    (loss, norm, grad)
}

fn close(a: f32, b: f64) {
    assert!((f64::from(a) - b).abs() < 1e-5 * b.abs().max(1.0), "{a} is not {b}");
}

#[test]
fn training_is_the_same_on_every_mesh() {
    let meshes: [&[(&str, u64)]; 6] = [
        &[],
        &[("dp", 2)],
        &[("tp", 3)],
        &[("dp", 2), ("tp", 2)],
        &[("pp", 2), ("tp", 2)],
        &[("pp", 2), ("dp", 2), ("tp", 2)],
    ];
    for axes in meshes {
        let built = build(Mesh::new("m", axes));
        let options = Options { seed: 3, ..Options::default() };
        let mut executor = Executor::load(&built.model, &program(&built), &options).unwrap();
        let mut w = executor.export_params().unwrap()["w"].data.clone();
        for step in 1..4 {
            let input = input(&built, step);
            let (loss, norm, grad) = by_hand(&input, &built, &mut w);
            let got = executor.step(input).unwrap();
            close(got.loss.unwrap(), loss);
            close(got.grad_norm.unwrap(), norm);
            executor.gradients().unwrap()["w"].data.iter().zip(&grad).for_each(|(&a, &b)| close(a, b));
            let now = &executor.export_params().unwrap()["w"];
            assert_eq!(now.sizes, [3, 7]);
            now.data.iter().zip(&w).for_each(|(&a, &b)| close(a, f64::from(b)));
        }
        let ones = BTreeMap::from([("w".to_string(), vec![1.0; 21])]);
        executor.import_params(ones).unwrap();
        assert!(executor.export_state().unwrap()["w"].data.iter().all(|w| *w == 1.0));
    }
}

/// The outcome of some steps.
fn trained(built: &Built, program: &Program, async_threads: bool) -> (Vec<StepOutput>, BTreeMap<String, GlobalTensor>) {
    let options = Options { async_threads: Some(async_threads), ..Options::default() };
    let mut executor = Executor::load(&built.model, program, &options).unwrap();
    let outs = (1..5).map(|step| executor.step(input(built, step)).unwrap()).collect();
    (outs, executor.export_params().unwrap())
}

#[test]
fn runs_give_the_same_bits() {
    let built = build(Mesh::new("m", &[("dp", 2), ("tp", 2)]));
    let program = program(&built);
    let first = trained(&built, &program, false);
    assert_eq!(first, trained(&built, &program, false));
    assert_eq!(first, trained(&built, &program, true));
}

#[test]
fn runs_that_are_started_give_the_same_bits() {
    for axes in [&[][..], &[("dp", 2), ("tp", 2)], &[("pp", 2), ("dp", 2)]] {
        let built = build(Mesh::new("m", axes));
        let plain = program(&built);
        let mut started = plain.clone();
        for class in &mut started.classes {
            start_reductions(class, built.ids["lR"]);
        }
        places::place(&built.model, &mut started);
        for async_threads in [false, true] {
            assert_eq!(trained(&built, &plain, async_threads), trained(&built, &started, async_threads));
        }
    }
}

/// Starts the runs of a body where they stood, and waits for each only before its results are read.
fn start_reductions(class: &mut Class, of: BodyId) {
    let Some(at) = class.instrs.iter().position(|instr| matches!(instr, Instr::Run { body, .. } if *body == of)) else {
        return;
    };
    let waited = Token::from_u32(1000);
    if let Instr::Run { token, .. } = &mut class.instrs[at] {
        *token = Some(waited);
    }
    class.instrs.insert(at + 1, Instr::Wait { token: waited, result: None });
    // Something for the row to do in between.
    let x = class.regs.push(RegData { name: "idle".to_string(), ty: Some(Type::scalar(DType::F32)) });
    class.instrs.insert(at + 1, Instr::LossGrad { out: x, mean: LossMean::Labels });
}

#[test]
fn wrong_inputs_are_refused_and_do_no_harm() {
    let built = build(Mesh::new("m", &[("dp", 2)]));
    let mut executor = Executor::load(&built.model, &program(&built), &Options::default()).unwrap();
    let x = built.model.inputs[0].value;
    let mut missing = input(&built, 1);
    missing.microbatches[1].clear();
    let mut short = input(&built, 1);
    short.microbatches[0].insert(x, Input::Floats(vec![0.0]));
    let mut few = input(&built, 1);
    few.microbatches.pop();
    for (input, says) in [(missing, "has no `x`"), (short, "15 elements"), (few, "3 micro-batches")] {
        let error = executor.step(input).unwrap_err();
        assert!(matches!(&error, Error::Input(why) if why.contains(says)), "{error}");
    }
    assert!(executor.eval(input(&built, 1)).is_err());
    assert!(executor.import_params(BTreeMap::from([("u".to_string(), vec![])])).is_err());
    assert!(executor.step(input(&built, 1)).is_ok());
}

#[test]
fn a_rank_that_panics_stops_all_and_is_named() {
    let built = build(Mesh::new("m", &[("pp", 2), ("dp", 2)]));
    let mut broken = program(&built);
    // The second pipeline rank receives far behind its arena: it panics while the first one waits.
    let class = &mut broken.classes[1];
    let is_receive = |instr: &Instr| matches!(instr, Instr::Start { transfer: Transfer::Recv { .. }, .. });
    let receive = class.instrs.iter().position(is_receive).unwrap();
    let arena = class.arena.as_mut().unwrap();
    arena.at[receive][0] = 1 << 40;
    let mut executor = Executor::load(&built.model, &broken, &Options::default()).unwrap();
    let Err(Error::RankFailure(RankFailure { why, .. })) = executor.step(input(&built, 1)) else { panic!() };
    assert!(why.contains("does not lie in an arena"), "{why}");
    assert!(matches!(executor.export_params(), Err(Error::RankFailure(_))));
}

#[test]
fn a_send_left_out_is_told_at_once() {
    for async_threads in [false, true] {
        let built = build(Mesh::new("m", &[("pp", 2), ("dp", 2)]));
        let mut broken = program(&built);
        let class = &mut broken.classes[1];
        let is_send = |instr: &Instr| matches!(instr, Instr::Start { transfer: Transfer::Send { .. }, .. });
        let send = class.instrs.iter().rposition(is_send).unwrap();
        class.instrs.drain(send..send + 2);
        class.arena.as_mut().unwrap().at.drain(send..send + 2);
        let options = Options { async_threads: Some(async_threads), ..Options::default() };
        let mut executor = Executor::load(&built.model, &broken, &options).unwrap();
        let Err(Error::RankFailure(RankFailure { why, .. })) = executor.step(input(&built, 1)) else { panic!() };
        assert!(why.contains("rank 0 waits for rank 2 to send tag 0; rank 1 waits for rank 3 to send tag 0"), "{why}");
    }
}

#[test]
fn broken_programs_do_not_load() {
    let built = build(Mesh::new("m", &[("tp", 2)]));
    let refused = |change: &dyn Fn(&mut Program)| {
        let mut program = program(&built);
        change(&mut program);
        matches!(Executor::load(&built.model, &program, &Options::default()), Err(Error::Load(_)))
    };
    assert!(refused(&|program| program.classes.clear()));
    assert!(refused(&|program| program.bodies[built.ids["lU"]].args[2].source = Source::Saved));
    let to_nowhere = Instr::Wait { token: Token::new(99), result: None };
    assert!(refused(&|program| program.classes[0].instrs.push(to_nowhere.clone())));
    assert!(refused(&|program| {
        let made = BodyInstr::Compute(Stmt {
            results: vec![],
            accumulate: false,
            op: ClipFactor { max: 1.0 }.into(),
            operands: vec![],
            comments: Vec::new(),
            span: Span::default(),
        });
        program.bodies[built.ids["step"]].instrs.push(made);
    }));
    assert!(!refused(&|_| {}));
}
