//! Generated programs, and the errors that the program checker finds in broken ones.

mod broken;
mod sharded;

use super::flow::runs_of;
use super::*;
use cost::PROGRAM;
use ir::expr::Expr;
use ir::ids::Token;
use ir::mesh::Mesh;
use ir::models::{Batch, preset};
use ir::optimizer::Optimizer;
use ir::program::{Instr, Transfer};
use ir::text::File;
use ir::types::DType;
use ir::verify::program::{check, peak_bytes};
use scheduler::actions::split_backward;
use scheduler::costs::StageCosts;
use scheduler::partition::{PartitionError, partition, partition_at};
use scheduler::placement::{Pipeline, Placement};
use scheduler::schedules;
use transforms::differentiate::differentiate;

/// A small preset on so many pipeline ranks, ready to emit.
fn model(name: &str, ranks: u64) -> Model {
    let batch = Batch { batch: 2, seq: 8, dtype: DType::F32 };
    let built = preset(name).unwrap().config.build(&batch).unwrap();
    let optimizer = Optimizer { clip: None, ..Optimizer::default() };
    let mut model = differentiate(built, &optimizer).unwrap();
    model.mesh = Mesh::new("m", &[("pp", ranks)]);
    model
}

fn costs(model: &Model) -> ir::costs::ModelCosts {
    scheduler::model_costs(model, &PROGRAM, 1, false)
}

fn chain(ranks: u32) -> Pipeline {
    Pipeline::new(Placement::Chain, ranks, 1)
}

fn schedule(kind: &str, ranks: u32, microbatches: u32) -> Schedule {
    let costs = StageCosts::uniform(ranks, 1.0, 1.0, 1.0, 0.0);
    let kind = schedules::find(kind).unwrap();
    kind.make(&costs, &kind.pipeline(ranks, None, microbatches).unwrap()).unwrap()
}

fn emitted(name: &str, kind: &str, ranks: u32, microbatches: u32) -> (Model, Program) {
    let model = model(name, u64::from(ranks));
    let staged = partition(&model, &chain(ranks), &costs(&model)).unwrap();
    let program = lower(&model, &staged, &schedule(kind, ranks, microbatches), microbatches, &PROGRAM).unwrap();
    (model, program)
}

#[test]
fn programs_of_every_schedule_hold_all_invariants() {
    for name in ["tiny-llama", "tiny-gpt2"] {
        for (kind, ranks, microbatches) in [("gpipe", 1, 1), ("gpipe", 2, 3), ("1f1b", 1, 3), ("1f1b", 4, 6)] {
            let (model, program) = emitted(name, kind, ranks, microbatches);
            assert_eq!(check(&model, &program, None), Ok(()), "{name} {kind} {ranks}");
        }
    }
}

#[test]
fn backwards_may_be_split() {
    let model = model("tiny-gpt2", 2);
    let staged = partition(&model, &chain(2), &costs(&model)).unwrap();
    let kinds = |schedule: &Schedule| {
        let program = lower(&model, &staged, schedule, 3, &PROGRAM).unwrap();
        assert_eq!(check(&model, &program, None), Ok(()));
        let layer = program.bodies.values().filter(|body| body.name.starts_with("layer"));
        layer.map(|body| body.kind.letter()).collect::<String>()
    };
    let whole = schedule("1f1b", 2, 3);
    let mut mixed = split_backward(whole.clone());
    mixed.rows[0] = whole.rows[0].clone();
    assert_eq!([kinds(&whole), kinds(&split_backward(whole)), kinds(&mixed)], ["FBRU", "FIWRU", "FIWBRU"]);
}

#[test]
fn values_may_skip_ranks() {
    let mut model = broken::shared();
    model.mesh = Mesh::new("m", &[("pp", 4)]);
    let staged = partition(&model, &chain(4), &costs(&model)).unwrap();
    for (kind, microbatches) in [("gpipe", 1), ("gpipe", 7), ("1f1b", 1), ("1f1b", 9)] {
        let program = lower(&model, &staged, &schedule(kind, 4, microbatches), microbatches, &PROGRAM).unwrap();
        assert_eq!(check(&model, &program, None), Ok(()), "{kind} {microbatches}");
    }
}

/// The part of a run, and whose it is.
fn run_of(program: &Program, instr: &Instr) -> Option<(BodyKind, usize, u32)> {
    let Instr::Run { body, call, instance, .. } = instr else { return None };
    Some((program.bodies[*body].kind, *call, *instance))
}

#[test]
fn reductions_start_right_after_their_last_gradient() {
    let (model, program) = emitted("tiny-llama", "1f1b", 2, 3);
    let layers = model.calls.iter().position(|call| call.repeat.is_some()).unwrap();
    let mut started = 0;
    for class in &program.classes {
        let runs: Vec<_> = class.instrs.iter().filter_map(|instr| run_of(&program, instr)).collect();
        for (at, &(_, call, instance)) in
            runs.iter().enumerate().filter(|(_, run)| **run == (BodyKind::R, layers, run.2))
        {
            assert_eq!(runs[at - 1], (BodyKind::B, call, instance));
            assert!(!runs[at..].contains(&(BodyKind::B, call, instance)));
            started += 1;
        }
    }
    assert_eq!(started, model.calls[layers].instances());
}

#[test]
fn messages_are_under_way_while_an_action_computes() {
    for (kind, microbatches) in [("gpipe", 4), ("1f1b", 6)] {
        let (_, program) = emitted("tiny-gpt2", kind, 3, microbatches);
        for class in &program.classes {
            let mut under_way: Vec<(Token, &Transfer, usize)> = Vec::new();
            let mut runs = 0;
            for instr in &class.instrs {
                match instr {
                    Instr::Run { .. } => runs += 1,
                    Instr::Start { token, transfer, .. } => under_way.push((*token, transfer, runs)),
                    Instr::Wait { token, .. } => {
                        let Some(at) = under_way.iter().position(|(started, ..)| started == token) else { continue };
                        let (_, transfer, since) = under_way.remove(at);
                        let moves = matches!(transfer, Transfer::Recv { .. } | Transfer::Send { .. });
                        assert!(!moves || runs > since || since == 0, "{transfer:?} is waited for at once");
                    }
                    _ => {}
                }
                let to = |wanted: &Transfer| match wanted {
                    Transfer::Send { peer, .. } => Some(peer.clone()),
                    _ => None,
                };
                let mut peers: Vec<Expr> = under_way.iter().filter_map(|(_, transfer, _)| to(transfer)).collect();
                let sends = peers.len();
                peers.dedup();
                assert_eq!(peers.len(), sends, "one send at a time to each rank");
            }
        }
    }
}

#[test]
fn registers_have_names_of_their_own_that_parse_back() {
    let model = broken::shared();
    let program =
        lower(&model, &partition(&model, &chain(1), &costs(&model)).unwrap(), &schedule("1f1b", 1, 2), 2, &PROGRAM)
            .unwrap();
    let file = File { model, program: Some(program), ..File::default() };
    let text = ir::text::print(&file);
    assert!(text.contains("%x.d:0.2"), "two readers of a value give two cotangents");
    assert_eq!(ir::text::print(&ir::text::parse(&text).unwrap()), text);
}

#[test]
fn an_evaluation_runs_forwards_and_keeps_nothing() {
    let model = model("tiny-llama", 2);
    let program = lower_forward(&model, &partition(&model, &chain(2), &costs(&model)).unwrap(), 3, &PROGRAM).unwrap();
    assert_eq!(check(&model, &program, None), Ok(()));
    assert!(program.bodies.values().all(|body| body.keeps.is_empty()));
}

#[test]
fn one_f_one_b_holds_less_than_gpipe() {
    let peaks = |kind| {
        let (model, program) = emitted("tiny-llama", kind, 2, 6);
        peak_bytes(&model, &program)
    };
    let (gpipe, one) = (peaks("gpipe"), peaks("1f1b"));
    assert!(one[0] < gpipe[0] && one[1] < gpipe[1], "{one:?} {gpipe:?}");
}

#[test]
fn a_tied_parameter_is_summed_before_and_shared_after() {
    let (_, program) = emitted("tiny-gpt2", "1f1b", 2, 2);
    let places = |class: &Class, of: fn(&Transfer) -> bool| {
        class.instrs.iter().filter(|instr| matches!(instr, Instr::Start { transfer, .. } if of(transfer))).count()
    };
    for class in &program.classes {
        assert_eq!(places(class, |transfer| matches!(transfer, Transfer::SumGradient { .. })), 1);
        assert_eq!(places(class, |transfer| matches!(transfer, Transfer::ShareParam { .. })), 1);
    }
}

#[test]
fn stages_balance_and_have_costs() {
    let model = model("tiny-llama", 2);
    let runs = runs_of(&model).count();
    let staged = partition(&model, &chain(2), &costs(&model)).unwrap();
    let seconds: Vec<f64> = staged.stages.iter().map(|stage| stage.cost.f + stage.cost.i + stage.cost.w).collect();
    for at in 1..runs {
        let other = partition_at(&model, &[0, at], &chain(2), &costs(&model)).unwrap();
        let longest = other.stages.iter().map(|stage| stage.cost.f + stage.cost.i + stage.cost.w).fold(0.0, f64::max);
        assert!(longest >= seconds[0].max(seconds[1]) * (1.0 - 1e-9));
    }
    assert!(staged.stages.iter().all(|stage| stage.cost.saved_for_w > 0 && stage.cost.saved > 0));
    // AdamW: parameter, gradient and two moments of 4 bytes each.
    let state: u64 = staged.stages.iter().map(|stage| stage.cost.state).sum();
    assert!(state >= 16 * model.parameter_count());
}

#[test]
fn what_does_not_fit_is_said() {
    let model = model("tiny-llama", 2);
    let runs = runs_of(&model).count();
    assert_eq!(
        partition(&model, &chain(runs as u32 + 1), &costs(&model)),
        Err(PartitionError::TooMany { stages: runs as u32 + 1, ranks: runs as u32 + 1, runs })
    );
    assert_eq!(
        partition_at(&model, &[1], &chain(1), &costs(&model)),
        Err(PartitionError::Starts { starts: vec![1], stages: 1, runs })
    );
    let staged = partition(&model, &chain(2), &costs(&model)).unwrap();
    assert_eq!(lower(&model, &staged, &schedule("1f1b", 3, 2), 2, &PROGRAM).unwrap_err(), CodegenError::Stages);
    let mut swapped = schedule("1f1b", 2, 2);
    swapped.rows.reverse();
    assert!(matches!(lower(&model, &staged, &swapped, 2, &PROGRAM), Err(CodegenError::Item { rank: 0, .. })));
    let mut backward_first = schedule("gpipe", 2, 1);
    backward_first.rows[1].swap(0, 1);
    let early = lower(&model, &staged, &backward_first, 1, &PROGRAM).unwrap_err();
    assert_eq!(early.to_string(), "a section of `@head` runs before its F");
}
