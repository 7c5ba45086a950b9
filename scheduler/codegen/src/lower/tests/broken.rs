//! Programs with one defect each. The checker names the defect.

use super::*;
use ir::ids::Reg;
use ir::program::{Body, BodyInstr};

/// The names of what the checker finds, each once.
fn names(model: &Model, program: &Program) -> Vec<&'static str> {
    let mut names: Vec<_> = check(model, program, None).err().unwrap_or_default().iter().map(|v| v.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Breaks a GPT-2 (its embedding is tied) on two ranks with three micro-batches.
fn broken(change: impl FnOnce(&mut Program)) -> Vec<&'static str> {
    let (model, mut program) = emitted("tiny-gpt2", "1f1b", 2, 3);
    change(&mut program);
    names(&model, &program)
}

/// The same, with I and W apart.
fn split(change: impl FnOnce(&mut Program)) -> Vec<&'static str> {
    let model = model("tiny-gpt2", 2);
    let (staged, schedule) =
        (partition(&model, &chain(2), &costs(&model)).unwrap(), split_backward(schedule("1f1b", 2, 3)));
    let mut program = lower(&model, &staged, &schedule, 3, &PROGRAM).unwrap();
    change(&mut program);
    names(&model, &program)
}

fn position(class: &Class, wanted: impl Fn(&Instr) -> bool) -> usize {
    class.instrs.iter().position(wanted).unwrap()
}

fn runs(program: &Program, kind: BodyKind) -> impl Fn(&Instr) -> bool + use<> {
    let bodies: Vec<_> = program.bodies.iter().filter(|(_, body)| body.kind == kind).map(|(id, _)| id).collect();
    move |instr| matches!(instr, Instr::Run { body, .. } if bodies.contains(body))
}

/// Takes out the start of a transfer and its wait.
fn drop_transfer(class: &mut Class, wanted: impl Fn(&Transfer) -> bool) {
    let at = position(class, |instr| matches!(instr, Instr::Start { transfer, .. } if wanted(transfer)));
    let Instr::Start { token, .. } = class.instrs.remove(at) else { return };
    class.instrs.retain(|instr| !matches!(instr, Instr::Wait { token: waited, .. } if *waited == token));
}

#[test]
fn a_lost_free_leaks_and_a_second_one_is_found() {
    let last_free = |class: &Class| class.instrs.iter().rposition(|instr| matches!(instr, Instr::Free(_))).unwrap();
    let lost = broken(|program| {
        let at = last_free(&program.classes[0]);
        program.classes[0].instrs.remove(at);
    });
    assert_eq!(lost, ["leak"]);
    let twice = broken(|program| {
        let free = program.classes[0].instrs[last_free(&program.classes[0])].clone();
        program.classes[0].instrs.push(free);
    });
    assert_eq!(twice, ["double-free"]);
}

#[test]
fn what_is_being_sent_may_not_be_freed() {
    let found = broken(|program| {
        let class = &mut program.classes[0];
        let sends = |instr: &Instr| matches!(instr, Instr::Start { transfer: Transfer::Send { .. }, .. });
        let at = position(class, sends);
        let Instr::Start { operand: Some(reg), .. } = class.instrs[at] else { return };
        let free = position(class, |instr| matches!(instr, Instr::Free(regs) if regs.contains(&reg)));
        let free = class.instrs.remove(free);
        class.instrs.insert(at + 1, free);
    });
    assert!(found.contains(&"in-flight"), "{found:?}");
}

#[test]
fn swapped_micro_batches_are_found() {
    let fed = broken(|program| {
        for class in &mut program.classes {
            for instr in &mut class.instrs {
                if let Instr::Feed { microbatch, .. } = instr {
                    *microbatch = [1, 0, 2][*microbatch as usize];
                }
            }
        }
    });
    assert_eq!(fed, ["wrong-microbatch"]);
    let bundles = broken(|program| {
        let (is_input, class) = (runs(program, BodyKind::B), &mut program.classes[1]);
        let at: Vec<usize> = (0..class.instrs.len()).filter(|&at| is_input(&class.instrs[at])).collect();
        let Instr::Run { microbatch, .. } = &mut class.instrs[at[0]] else { return };
        *microbatch = Some(1);
    });
    assert!(bundles.contains(&"wrong-microbatch"), "{bundles:?}");
}

#[test]
fn messages_must_match() {
    let is_send = |transfer: &Transfer| matches!(transfer, Transfer::Send { .. });
    let is_receive = |transfer: &Transfer| matches!(transfer, Transfer::Recv { .. });
    assert_eq!(broken(|program| drop_transfer(&mut program.classes[0], is_send)), ["unmatched-message"]);
    let reordered = broken(|program| {
        let mut receives = program.classes[1].instrs.iter_mut().filter_map(|instr| match instr {
            Instr::Start { transfer: Transfer::Recv { tag, .. }, .. } => Some(tag),
            _ => None,
        });
        let (a, b) = (receives.next().unwrap(), receives.next().unwrap());
        std::mem::swap(a, b);
    });
    assert_eq!(reordered, ["message-order"]);
    let blocked = broken(|program| {
        let class = &mut program.classes[0];
        let at = position(class, |i| matches!(i, Instr::Start { transfer, .. } if is_receive(transfer)));
        let start = class.instrs.remove(at);
        let Instr::Start { token, .. } = start else { return };
        let at = position(class, |i| matches!(i, Instr::Wait { token: waited, .. } if *waited == token));
        let wait = class.instrs.remove(at);
        class.instrs.splice(0..0, [start, wait]);
    });
    assert_eq!(blocked, ["deadlock"]);
}

#[test]
fn sums_over_ranks_must_be_complete() {
    let gradient = |transfer: &Transfer| matches!(transfer, Transfer::SumGradient { .. });
    let one_side = broken(|program| drop_transfer(&mut program.classes[1], gradient));
    assert_eq!(one_side, ["collective-order"]);
    let both = broken(|program| program.classes.iter_mut().for_each(|class| drop_transfer(class, gradient)));
    assert_eq!(both, ["missing-collective"]);
    let norm = |transfer: &Transfer| matches!(transfer, Transfer::Sum { .. });
    let norms = broken(|program| program.classes.iter_mut().for_each(|class| drop_transfer(class, norm)));
    assert_eq!(norms, ["norm"]);
    let share = |transfer: &Transfer| matches!(transfer, Transfer::ShareParam { .. });
    let stale = broken(|program| program.classes.iter_mut().for_each(|class| drop_transfer(class, share)));
    assert_eq!(stale, ["stale-parameter"]);
}

#[test]
fn every_section_runs_once_and_in_order() {
    let without = split(|program| {
        let weight = runs(program, BodyKind::W);
        let at = position(&program.classes[0], weight);
        program.classes[0].instrs.remove(at);
    });
    assert!(without.contains(&"missing-run") && without.contains(&"first"), "{without:?}");
    let twice = split(|program| {
        let weight = runs(program, BodyKind::W);
        let at = position(&program.classes[0], weight);
        let again = program.classes[0].instrs[at].clone();
        program.classes[0].instrs.insert(at, again);
    });
    assert_eq!(twice, ["duplicate-run", "first"]);
    let early = broken(|program| {
        let (update, reduce) = (runs(program, BodyKind::U), runs(program, BodyKind::R));
        let at = position(&program.classes[0], update);
        let run = program.classes[0].instrs.remove(at);
        let before = position(&program.classes[0], reduce);
        program.classes[0].instrs.insert(before, run);
    });
    assert_eq!(early, ["step-order"]);
}

#[test]
fn cotangents_are_those_of_all_readers() {
    let model = shared();
    let staged = partition(&model, &chain(1), &costs(&model)).unwrap();
    let right = lower(&model, &staged, &schedule("1f1b", 1, 1), 1, &PROGRAM).unwrap();
    assert_eq!(check(&model, &right, None), Ok(()));
    // Losses are added up too; cotangents are those with dims.
    let regs = right.classes[0].regs.clone();
    let cotangent = |reg: Reg| regs[reg].ty.as_ref().is_some_and(|ty| ty.rank() > 0);
    let adds = |instr: &Instr| matches!(instr, Instr::Add { into, .. } if cotangent(*into));
    for change in ["dropped", "twice"] {
        let mut broken = right.clone();
        let class = &mut broken.classes[0];
        let at = position(class, adds);
        match change {
            "dropped" => drop(class.instrs.remove(at)),
            _ => class.instrs.insert(at, class.instrs[at].clone()),
        }
        let wanted = if change == "dropped" { "wrong-cotangent" } else { "added-twice" };
        assert_eq!(names(&model, &broken), [wanted]);
    }
}

/// A Llama whose embedding the head of another copy reads too: two readers of one value.
pub(super) fn shared() -> Model {
    let mut model = model("tiny-llama", 1);
    let mut head = model.calls[2].clone();
    head.args[0] = model.calls[0].results[0];
    let mut copy = model.blocks[head.block].clone();
    copy.name = "early".to_string();
    copy[SectionKind::U] = ir::graph::Section::default();
    head.block = model.blocks.push(copy);
    model.calls.insert(1, head);
    model
}

#[test]
fn a_dropped_layout_change_is_found() {
    let model = sharded::model();
    let right = sharded::program(&model);
    let drop_change = |name: &str| {
        let mut program = right.clone();
        let body = program.bodies.values_mut().find(|body| body.name == name).unwrap();
        skip_change(body);
        names(&model, &program)
    };
    assert!(drop_change("top.R").contains(&"missing-collective"));
    assert!(drop_change("loss.N").contains(&"signature"));
    let mut retyped = right.clone();
    let body = retyped.bodies.values_mut().find(|body| body.name == "top.R").unwrap();
    for instr in &mut body.instrs {
        if let BodyInstr::Wait { results, .. } = instr {
            body.values[results[0]].ty.partial = body.values[body.args[0].value].ty.partial.clone();
        }
    }
    assert!(names(&model, &retyped).contains(&"collective-type"));
}

/// Reads the operand of the first reshard where its result was read.
fn skip_change(body: &mut Body) {
    let (mut from, mut to) = (Vec::new(), Vec::new());
    body.instrs.retain(|instr| match instr {
        BodyInstr::Start { operands, .. } => {
            from = operands.clone();
            false
        }
        BodyInstr::Wait { results, .. } => {
            to = results.clone();
            false
        }
        _ => true,
    });
    for instr in &mut body.instrs {
        if let BodyInstr::Compute(stmt) = instr {
            stmt.operands.iter_mut().filter(|value| **value == to[0]).for_each(|value| *value = from[0]);
        }
    }
    body.results.iter_mut().chain(&mut body.keeps).filter(|value| **value == to[0]).for_each(|value| *value = from[0]);
}

#[test]
fn limits_and_places_are_said() {
    let (model, mut program) = emitted("tiny-gpt2", "1f1b", 2, 3);
    let peak = peak_bytes(&model, &program)[0];
    assert!(check(&model, &program, Some(u64::MAX)).is_ok());
    let over = check(&model, &program, Some(peak - 1)).unwrap_err();
    assert_eq!((over[0].name, over[0].class), ("memory", Some(0)));
    let unknown = program.classes[0].regs.push(ir::program::RegData { name: "ghost".to_string(), ty: None });
    program.classes[0].instrs.insert(0, Instr::Free(vec![unknown, Reg::from_u32(0)]));
    let found = check(&model, &program, None).unwrap_err();
    assert_eq!(found[0].to_string(), "undefined: class 0, position 0: %ghost is not defined here");
}
