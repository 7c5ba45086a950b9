//! Small changes to planned models and programs, each of which breaks one thing.

use ir::fused::Fused;
use ir::graph::{ArgKind, Block, Model, SectionKind, Stmt};
use ir::ids::{Reg, Token, Value};
use ir::ops::{Collective, KernelOp, Op, Unary, UnaryKind};
use ir::program::{Body, BodyInstr, BodyKind, Class, Instr, Program, Transfer};
use std::collections::HashMap;
use transforms::recompute::RECOMPUTED;

/// The block of a name.
pub(crate) fn block<'m>(model: &'m mut Model, name: &str) -> &'m mut Block {
    model.blocks.values_mut().find(|block| block.name == name).expect("the block")
}

/// Puts a copy in the place of the first configuration change of its kind in a section: the rank's own part passes for the whole.
pub(crate) fn skip(block: &mut Block, section: SectionKind, wanted: impl Fn(&Collective) -> bool) {
    let stmts = &mut block[section].stmts;
    let is_wanted = |stmt: &Stmt| matches!(&stmt.op, Op::Collective(collective) if wanted(collective));
    let at = stmts.iter().position(is_wanted).expect("the configuration change");
    let change = stmts[at].clone();
    let copy = |(&result, &operand): (&Value, &Value)| {
        let op = Op::Kernel(KernelOp::Unary(Unary(UnaryKind::Scale(1.0))));
        Stmt { results: vec![result], operands: vec![operand], op, ..change.clone() }
    };
    stmts.splice(at..=at, change.results.iter().zip(&change.operands).map(copy));
}

/// Lets each parameter's update read the gradient as `W` left it.
pub(crate) fn update_by_unreduced(block: &mut Block) {
    let params: Vec<Value> = block.args_of(ArgKind::Param).collect();
    let stmts = &mut block[SectionKind::U].stmts;
    let changes = stmts.iter().filter(|stmt| matches!(stmt.op, Op::Collective(_)));
    let before: HashMap<Value, Value> =
        changes.flat_map(|stmt| stmt.results.iter().copied().zip(stmt.operands.iter().copied())).collect();
    for update in stmts.iter_mut().filter(|stmt| params.contains(&stmt.results[0])) {
        for operand in &mut update.operands {
            *operand = before.get(operand).copied().unwrap_or(*operand);
        }
    }
}

/// The body of a run, with its micro-batch.
fn body_of<'p>(program: &'p Program, instr: &Instr) -> Option<(&'p Body, Option<u32>)> {
    let Instr::Run { body, microbatch, .. } = instr else { return None };
    Some((&program.bodies[*body], *microbatch))
}

/// Positions at which a class runs a block's section for a micro-batch, once per instance.
pub(crate) fn runs(program: &Program, class: usize, block: &str, kind: BodyKind, microbatch: u32) -> Vec<usize> {
    let name = format!("{block}.{}", kind.letter());
    let is_wanted =
        |instr: &Instr| body_of(program, instr).is_some_and(|(body, of)| body.name == name && of == Some(microbatch));
    let instrs = &program.classes[class].instrs;
    (0..instrs.len()).filter(|&at| is_wanted(&instrs[at])).collect()
}

/// Micro-batch of an instruction.
pub(crate) fn microbatch_of(instr: &mut Instr) -> Option<&mut u32> {
    match instr {
        Instr::Feed { microbatch, .. } => Some(microbatch),
        Instr::Run { microbatch, .. } => microbatch.as_mut(),
        _ => None,
    }
}

/// Lets two runs, and the frees behind them, take each other's first bundle.
pub(crate) fn swap_bundles(class: &mut Class, one: usize, other: usize) {
    let bundle = |at: usize| match &class.instrs[at] {
        Instr::Run { bundles, .. } => bundles[0],
        _ => panic!("position {at} is no run"),
    };
    let (a, b) = (bundle(one), bundle(other));
    let swap = |reg: &mut Reg| {
        *reg = if *reg == a {
            b
        } else if *reg == b {
            a
        } else {
            *reg
        }
    };
    for instr in &mut class.instrs {
        match instr {
            Instr::Run { bundles, .. } => bundles.iter_mut().for_each(swap),
            Instr::Free(regs) => regs.iter_mut().for_each(swap),
            _ => {}
        }
    }
}

/// The tags of what a class sends, in order.
pub(crate) fn sent_tags(class: &mut Class) -> Vec<&mut u32> {
    let tag = |instr| match instr {
        &mut Instr::Start { transfer: Transfer::Send { ref mut tag, .. }, .. } => Some(tag),
        _ => None,
    };
    class.instrs.iter_mut().filter_map(tag).collect()
}

/// Takes out the last send of a class, and its wait.
pub(crate) fn drop_last_send(class: &mut Class) {
    let is_send = |instr: &Instr| matches!(instr, Instr::Start { transfer: Transfer::Send { .. }, .. });
    let at = class.instrs.iter().rposition(is_send).expect("a send");
    let Instr::Start { token, .. } = class.instrs.remove(at) else { return };
    class.instrs.retain(|instr| !matches!(instr, Instr::Wait { token: waited, .. } if *waited == token));
}

/// Sums the gradients of parameters that several ranks hold once more.
pub(crate) fn sum_gradients_again(class: &mut Class) {
    let is_sum = |instr: &Instr| matches!(instr, Instr::Start { transfer: Transfer::SumGradient { .. }, .. });
    let mut start = class.instrs.iter().find(|instr| is_sum(instr)).expect("a sum of gradients").clone();
    let Instr::Start { token, .. } = &mut start else { return };
    let at = wait_of(class, *token);
    // Far above those of the row.
    *token = Token::from_u32(1 << 20);
    let wait = Instr::Wait { token: *token, result: None };
    class.instrs.splice(at + 1..at + 1, [start, wait]);
}

/// Positions at which a class waits for started operations.
fn wait_of(class: &Class, token: Token) -> usize {
    let waits = |instr: &Instr| matches!(instr, Instr::Wait { token: waited, .. } if *waited == token);
    class.instrs.iter().position(waits).expect("the wait")
}

/// Position of the first start of R in a class, and the token of its wait.
fn first_started_run(class: &Class) -> (usize, Token) {
    let started = |(at, instr): (usize, &Instr)| match instr {
        Instr::Run { token: Some(token), .. } => Some((at, *token)),
        _ => None,
    };
    class.instrs.iter().enumerate().find_map(started).expect("an async run")
}

/// Starts the first R of a class where the row still has a backward to run.
pub(crate) fn start_reduction_early(class: &mut Class, before: usize) {
    let (at, _) = first_started_run(class);
    let run = class.instrs.remove(at);
    class.instrs.insert(before, run);
}

/// Takes out the wait for the first R of a class.
pub(crate) fn forget_reduction(class: &mut Class) {
    let (_, token) = first_started_run(class);
    let at = wait_of(class, token);
    class.instrs.remove(at);
}

/// Frees what the first configuration change of a body reads as soon as it has started.
pub(crate) fn free_early(program: &mut Program, body: &str) {
    let body = program.bodies.values_mut().find(|other| other.name == body).expect("the body");
    let at = body.instrs.iter().position(|instr| matches!(instr, BodyInstr::Start { .. })).expect("a start");
    let BodyInstr::Start { operands, .. } = body.instrs[at].clone() else { return };
    let frees = |instr: &BodyInstr| matches!(instr, BodyInstr::Free(values) if values.contains(&operands[0]));
    let free = body.instrs.iter().position(frees).expect("its operand is freed");
    let free = body.instrs.remove(free);
    body.instrs.insert(at + 1, free);
}

/// The kernels of a body, in order.
pub(crate) fn kernels<'p>(program: &'p mut Program, body: &str) -> impl Iterator<Item = &'p mut Stmt> {
    let body = program.bodies.values_mut().find(|other| other.name == body).expect("the body");
    body.instrs.iter_mut().flat_map(|instr| match instr {
        BodyInstr::Compute(stmt) => std::slice::from_mut(stmt),
        BodyInstr::Fused(fused) => &mut fused.stmts,
        BodyInstr::Start { .. } | BodyInstr::Wait { .. } | BodyInstr::Free(_) => &mut [],
    })
}

/// The first group of a body.
pub(crate) fn group<'p>(program: &'p mut Program, body: &str) -> &'p mut Fused {
    let body = program.bodies.values_mut().find(|other| other.name == body).expect("the body");
    let group = |instr: &'p mut BodyInstr| if let BodyInstr::Fused(fused) = instr { Some(fused) } else { None };
    body.instrs.iter_mut().find_map(group).expect("a group")
}

/// Moves the first collective of a body into its first group.
pub(crate) fn collective_into_group(program: &mut Program, body: &str) {
    let instrs = &mut program.bodies.values_mut().find(|other| other.name == body).expect("the body").instrs;
    let at = instrs.iter().position(|instr| matches!(instr, BodyInstr::Start { .. })).expect("a start");
    let BodyInstr::Start { token, collective, operands } = instrs.remove(at) else { return };
    let waits = |instr: &BodyInstr| matches!(instr, BodyInstr::Wait { token: waited, .. } if *waited == token);
    let at = instrs.iter().position(waits).expect("a wait");
    let BodyInstr::Wait { results, .. } = instrs.remove(at) else { return };
    let group = group(program, body);
    let change = Stmt { results, operands, op: Op::Collective(collective), ..group.stmts[0].clone() };
    group.outs.extend(&change.results);
    group.stmts.insert(0, change);
}

/// Takes the first kernel out of a body that adds to a gradient.
pub(crate) fn drop_first_gradient(program: &mut Program, body: &str) {
    let body = program.bodies.values_mut().find(|other| other.name == body).expect("the body");
    let adds = |instr: &BodyInstr| matches!(instr, BodyInstr::Compute(stmt) if stmt.accumulate);
    let at = body.instrs.iter().position(adds).expect("a gradient");
    body.instrs.remove(at);
}

/// Takes the first kernel out of a body that computes something again.
pub(crate) fn drop_first_copy(program: &mut Program, body: &str) {
    let body = program.bodies.values_mut().find(|other| other.name == body).expect("the body");
    let is_copy = |value: &Value| body.values[*value].name.ends_with(RECOMPUTED);
    let computes = |instr: &BodyInstr| matches!(instr, BodyInstr::Compute(stmt) if stmt.results.iter().any(is_copy));
    let at = body.instrs.iter().position(computes).expect("a copy");
    body.instrs.remove(at);
}

/// Has a body gather one of its matrices twice and another, of the same type, never.
pub(crate) fn gather_another(program: &mut Program, body: &str) {
    let body = program.bodies.values_mut().find(|other| other.name == body).expect("the body");
    let values = &body.values;
    let mut gathers = body.instrs.iter_mut().filter_map(|instr| match instr {
        BodyInstr::Start { collective: Collective::AllGather { .. }, operands, .. } => {
            Some(operands).filter(|operands| values[operands[0]].ty.rank() > 1)
        }
        _ => None,
    });
    let mut seen: Vec<Value> = Vec::new();
    let twice = |other: &Value, value: Value| values[*other].ty == values[value].ty;
    loop {
        let operands = gathers.next().expect("two parameters of one type");
        match seen.iter().find(|other| twice(other, operands[0])) {
            Some(&other) => return operands[0] = other,
            None => seen.push(operands[0]),
        }
    }
}

/// Leaves a value out of the sum of two that a body makes with it.
pub(crate) fn without_operand(program: &mut Program, body: &str, value: &str) {
    let values = program.bodies.values().find(|other| other.name == body).expect("the body").values.clone();
    let is_left_out = |operand: &Value| values[*operand].name == value;
    let mut sums = kernels(program, body).filter(|stmt| stmt.op.name() == "add");
    let sum = sums.find(|stmt| stmt.operands.iter().any(is_left_out)).expect("a sum");
    sum.operands.retain(|operand| !is_left_out(operand));
    sum.op = Op::Kernel(KernelOp::Unary(Unary(UnaryKind::Scale(1.0))));
}

/// Takes the first sum of a class's row out that goes into a register of such a name; its operand is still freed.
pub(crate) fn drop_first_add(class: &mut Class, name: &str) {
    let regs = &class.regs;
    let is_sum = |instr: &Instr| matches!(instr, Instr::Add { into, .. } if regs[*into].name.starts_with(name));
    let at = class.instrs.iter().position(is_sum).expect("a sum");
    class.instrs.remove(at);
}

/// The places of a class's instruction.
pub(crate) fn places(class: &mut Class, at: usize) -> &mut Vec<u64> {
    &mut class.arena.as_mut().expect("an arena").at[at]
}
