//! Programs with one thing broken. Each must show in a run, and must be named by the checker that looks at it.
//!
//! | mutation | run: what differs | `verify_planned` | `verify::program::check` |
//! |---|---|---|---|
//! | a forward `all_reduce` over tp is skipped | all | PendingSum | missing-collective |
//! | the gradients' `all_reduce` over dp is skipped | all | PendingSum | missing-collective |
//! | squares of whole parameters are counted tp times | norm | PendingSum | missing-collective |
//! | the update reads the gradient before its reduction | all | PendingSum | missing-collective |
//! | the loss is divided by one rank's tokens | all | - | - |
//! | a stage reads labels of another micro-batch | all | - | wrong-microbatch |
//! | an `I` reads activations of another micro-batch | all | - | wrong-microbatch |
//! | one rank takes a micro-batch for another | all | - | wrong-microbatch |
//! | a gradient is summed twice over its holders | all | - | added-twice |
//! | a `W` is left out | all | - | missing-run |
//! | an `R` starts before the last `W` of its parameters | not run | - | in-flight, step-order |
//! | nothing waits for an `R` | not run | - | in-flight, token |
//! | a configuration change's operand is freed before its wait | not run | - | in-flight |
//! | `first` is missing | load: refused | - | first |
//! | `first` is there twice | nothing | - | first |
//! | a send is left out | stuck | - | unmatched-message |
//! | two tags are swapped | all | - | message-order |
//! | a layer is recomputed without its `all_reduce` | all | PendingSum | missing-collective |
//! | a statement is not recomputed | not run | - | undefined |
//! | a backward gathers another parameter | all | - | statement |
//! | a slice's keys get no gradient from a later slice | all | - | statement |
//! | of two later slices the gradient of one is left out | gradient, norm, parameter | - | wrong-cotangent |
//! | a body lacks a gradient | all | - | statement |
//! | a body's op takes its operands in another order | all | - | statement |
//! | a group does not leave a value that is read later | not run | - | double-free, read-after-free |
//! | a group leaves what it does not compute | not run | - | fused |
//! | a group has its product at its end | not run | - | fused, undefined |
//! | a group adds to rows, and not to a sum over them | not run | - | fused, redefined, statement |
//! | a group has a collective in it | not run | - | fused, signature, undefined |
//! | a group reads what its own results lead to | not run | - | fused, undefined |
//! | a group has a statement twice | not run | - | fused, redefined |
//! | a group with a product sums over other rows | not run | - | fused, shape, statement |
//! | a slot is 64 bytes off | - | - | overlap |
//! | a result and a slot have each other's place | - | - | overlap |
//! | an arena is 64 bytes too small | - | - | arena |
//! | a gradient has the place of its parameter | - | - | overlap |
//! | a schedule has I before F | no program: `lower` refuses | - | `scheduler::check`: Order |
//!
//! What differs at the first step differs in the loss of the second: so `all` is loss, norm, gradient and parameter. The
//! number of tokens is an input of a run, which no checker sees. The executor itself stores the first part of a gradient's
//! sum and adds the others, whatever is marked: so a second `first` changes nothing there, and only the checker finds it.
//! What touches things under way may show or not, as the threads run, as may overlapping tensors: such programs
//! are not run.

mod edit;
mod right;

use codegen::CodegenError;
use cost::PROGRAM;
use edit::{
    block, collective_into_group, drop_first_add, drop_first_copy, drop_first_gradient, drop_last_send,
    forget_reduction, free_early, gather_another, group, kernels, microbatch_of, places, runs, sent_tags, skip,
    start_reduction_early, sum_gradients_again, swap_bundles, update_by_unreduced, without_operand,
};
use ir::arena::{Resident, Role};
use ir::catalogue::Code;
use ir::fused::Fused;
use ir::graph::{Model, SectionKind};
use ir::ops::{Collective, Reduce};
use ir::program::{BodyInstr, BodyKind, Instr, Program};
use ir::schedule::{Action, Item, Kind};
use ir::types::PartialKind;
use right::{Right, checked, planned};
use scheduler::check::Invariant;
use scheduler::model_costs;
use scheduler::partition::costs_of;

const TENSOR: &str = "dp=2,tp=2";
/// All forwards come before all backwards, so that many bundles are there at once.
const PIPELINE: &str = "dp=2,pp=2,schedule=gpipe";
const SLICES: &str = "pp=2,schedule=seq1f1b,slices=4";
/// Parameters are gathered, and layers recomputed.
const AGAIN: &str = "dp=2,tp=2,zero=3,recompute=full";
const ALL: [&str; 4] = ["gradient", "loss", "norm", "parameter"];

/// Breaks the planned model: the verifier of models finds a pending sum, that of programs the collective that is missing.
fn breaks_a_sum(mesh: &str, change: impl FnOnce(&mut Model), differs: &[&str]) {
    let right = Right::on(mesh);
    let mut model = right.file.model.clone();
    change(&mut model);
    assert_eq!(planned(&model), [Code::PendingSum]);
    let program = right.emitted(&model).expect("lowering takes types as they are");
    assert_eq!(checked(&model, &program), ["missing-collective"]);
    assert_eq!(right.run(&model, &program, &right.inputs), differs);
}

/// Breaks the program itself.
fn breaks(mesh: &str, change: impl FnOnce(&Model, &mut Program), named: &[&str], differs: &[&str]) {
    let right = Right::on(mesh);
    let mut program = right.program();
    change(&right.file.model, &mut program);
    assert_eq!(checked(&right.file.model, &program), named);
    assert_eq!(right.run(&right.file.model, &program, &right.inputs), differs);
}

fn sums_over(model: &Model, axis: &str) -> impl Fn(&Collective) -> bool + use<> {
    let axes = model.axes(axis).expect("the axis");
    move |collective| matches!(collective, Collective::AllReduce { over } if *over == axes)
}

#[test]
fn what_is_not_broken_passes() {
    for mesh in [TENSOR, PIPELINE, SLICES] {
        let right = Right::on(mesh);
        let program = right.emitted(&right.file.model).expect("a program");
        assert_eq!(planned(&right.file.model), []);
        assert!(checked(&right.file.model, &program).is_empty());
        assert!(right.run(&right.file.model, &program, &right.inputs).is_empty());
    }
}

#[test]
fn a_forward_without_its_all_reduce() {
    let change = |model: &mut Model| {
        let wanted = sums_over(model, "tp");
        skip(block(model, "layer"), SectionKind::F, wanted);
    };
    breaks_a_sum(TENSOR, change, &ALL);
}

#[test]
fn gradients_that_are_not_summed_over_data_parallel_ranks() {
    let change = |model: &mut Model| {
        let wanted = sums_over(model, "dp");
        skip(block(model, "layer"), SectionKind::U, wanted);
    };
    breaks_a_sum(TENSOR, change, &ALL);
}

#[test]
fn a_norm_that_counts_whole_parameters_on_every_rank() {
    let is_to_partial = |collective: &Collective| matches!(collective, Collective::ToPartial { .. });
    breaks_a_sum(TENSOR, |model| skip(block(model, "layer"), SectionKind::U, is_to_partial), &["norm"]);
}

#[test]
fn an_update_by_gradients_that_are_not_reduced() {
    breaks_a_sum(TENSOR, |model| update_by_unreduced(block(model, "layer")), &ALL);
}

#[test]
fn a_loss_divided_by_the_tokens_of_one_rank() {
    let right = Right::on(TENSOR);
    let mut inputs = right.inputs.clone();
    inputs.iter_mut().for_each(|input| input.valid_tokens /= 2);
    assert_eq!(right.run(&right.file.model, &right.program(), &inputs), ALL);
}

#[test]
fn labels_of_another_micro_batch() {
    let change = |model: &Model, program: &mut Program| {
        let is_labels =
            |instr: &&mut Instr| matches!(instr, Instr::Feed { input, .. } if model.values[*input] == "lab");
        let feed = program.classes[1].instrs.iter_mut().find(is_labels).and_then(microbatch_of);
        *feed.expect("the last stage reads labels") = 1;
    };
    breaks(PIPELINE, change, &["wrong-microbatch"], &ALL);
}

#[test]
fn activations_of_another_micro_batch() {
    let change = |_: &Model, program: &mut Program| {
        let [one, other] = [0, 1].map(|microbatch| runs(program, 0, "layer", BodyKind::B, microbatch)[0]);
        swap_bundles(&mut program.classes[0], one, other);
    };
    breaks(PIPELINE, change, &["wrong-microbatch"], &ALL);
}

#[test]
fn a_rank_that_takes_one_micro_batch_for_another() {
    let change = |_: &Model, program: &mut Program| {
        for microbatch in program.classes[1].instrs.iter_mut().filter_map(microbatch_of) {
            *microbatch = [1, 0, 2, 3][*microbatch as usize];
        }
    };
    breaks(PIPELINE, change, &["wrong-microbatch"], &ALL);
}

#[test]
fn another_order_of_micro_batches_in_the_schedule_is_no_fault() {
    let mut right = Right::on(PIPELINE);
    right.file.schedule.as_mut().expect("a schedule").rows[1].swap(0, 1);
    let model = &right.file.model;
    let program = right.emitted(model).expect("a program");
    assert_ne!(program, right.program());
    assert!(checked(model, &program).is_empty());
    assert!(right.run(model, &program, &right.inputs).is_empty());
}

#[test]
fn a_weight_gradient_left_out() {
    let mut right = Right::on(PIPELINE);
    right.split();
    let model = &right.file.model;
    let mut program = right.emitted(model).expect("a program");
    assert!(checked(model, &program).is_empty());
    assert!(right.run(model, &program, &right.inputs).is_empty());
    let at = runs(&program, 0, "layer", BodyKind::W, 2)[0];
    program.classes[0].instrs.remove(at);
    assert_eq!(checked(model, &program), ["missing-run"]);
    assert_eq!(right.run(model, &program, &right.inputs), ALL);
}

/// Breaks the order of what is under way at the same time.
fn breaks_unrun(mesh: &str, change: impl FnOnce(&mut Program), named: &[&str]) {
    let right = Right::on(mesh);
    let mut program = right.program();
    change(&mut program);
    assert_eq!(checked(&right.file.model, &program), named);
}

#[test]
fn a_reduction_before_the_last_gradient() {
    let change = |program: &mut Program| {
        let before = runs(program, 0, "layer", BodyKind::B, 3)[0];
        start_reduction_early(&mut program.classes[0], before);
    };
    breaks_unrun(PIPELINE, change, &["in-flight", "step-order"]);
}

#[test]
fn a_reduction_that_nobody_waits_for() {
    breaks_unrun(PIPELINE, |program| forget_reduction(&mut program.classes[0]), &["in-flight", "token"]);
}

#[test]
fn an_operand_freed_while_it_is_summed() {
    breaks_unrun(TENSOR, |program| free_early(program, "layer.F"), &["in-flight"]);
}

#[test]
fn a_gradient_summed_twice_over_the_ranks_that_hold_it() {
    let change = |_: &Model, program: &mut Program| program.classes.iter_mut().for_each(sum_gradients_again);
    breaks(PIPELINE, change, &["added-twice"], &ALL);
}

#[test]
fn a_body_that_forgets_a_gradient() {
    breaks(TENSOR, |_, program| drop_first_gradient(program, "layer.B"), &["statement"], &ALL);
}

#[test]
fn a_body_with_operands_in_another_order() {
    let change = |_: &Model, program: &mut Program| {
        let attention = kernels(program, "layer.F").find(|stmt| stmt.op.name() == "attention");
        // Keys and values are of the same type.
        attention.expect("attention").operands.swap(1, 2);
    };
    breaks(TENSOR, change, &["statement"], &ALL);
}

#[test]
fn a_group_that_does_not_leave_what_is_read_later() {
    let change = |program: &mut Program| {
        group(program, "layer.B").outs.remove(0);
    };
    breaks_unrun(TENSOR, change, &["double-free", "read-after-free"]);
}

#[test]
fn a_group_that_leaves_what_it_does_not_compute() {
    let change = |program: &mut Program| {
        let group = group(program, "layer.B");
        group.outs.extend(group.reads().last());
    };
    breaks_unrun(TENSOR, change, &["fused"]);
}

#[test]
fn a_group_with_a_product_at_its_end() {
    let change = |program: &mut Program| {
        let group = group(program, "layer.F");
        group.stmts.rotate_left(1);
    };
    breaks_unrun(TENSOR, change, &["fused", "undefined"]);
}

#[test]
fn a_group_that_adds_to_rows() {
    breaks_unrun(
        TENSOR,
        |program| group(program, "layer.B").stmts[0].accumulate = true,
        &["fused", "redefined", "statement"],
    );
}

#[test]
fn a_group_with_a_collective() {
    breaks_unrun(TENSOR, |program| collective_into_group(program, "layer.B"), &["fused", "signature", "undefined"]);
}

#[test]
fn a_group_that_reads_what_its_results_lead_to() {
    let change = |program: &mut Program| {
        // The sum of three products follows the group that they need.
        let groups = |instr: &BodyInstr| matches!(instr, BodyInstr::Fused(_));
        let body = program.bodies.values_mut().find(|body| body.name == "layer.B").expect("the body");
        let places: Vec<usize> = (0..body.instrs.len()).filter(|&at| groups(&body.instrs[at])).collect();
        let BodyInstr::Fused(Fused { stmts, outs }) = body.instrs.remove(places[1]) else { return };
        let first = group(program, "layer.B");
        first.stmts.extend(stmts);
        first.outs.extend(outs);
    };
    breaks_unrun(TENSOR, change, &["fused", "undefined"]);
}

#[test]
fn a_group_with_a_product_and_a_sum_over_other_rows() {
    let change = |program: &mut Program| {
        let body = program.bodies.values_mut().find(|body| body.name == "layer.B").expect("the body");
        let after_products = body.instrs.iter_mut().flat_map(|instr| match instr {
            BodyInstr::Fused(fused) if fused.product().is_some() => &mut fused.stmts[1..],
            _ => &mut [],
        });
        let sum = after_products.into_iter().find(|stmt| stmt.op.name() == "reduce_sum").expect("a sum");
        sum.op = Reduce::new(PartialKind::Sum, "b s f -> s f").expect("an equation").into();
    };
    breaks_unrun(TENSOR, change, &["fused", "shape", "statement"]);
}

#[test]
fn a_statement_twice_in_a_group() {
    let change = |program: &mut Program| {
        let group = group(program, "layer.B");
        group.stmts.extend_from_within(..1);
    };
    breaks_unrun(TENSOR, change, &["fused", "redefined"]);
}

#[test]
fn a_layer_computed_again_without_its_all_reduce() {
    let change = |model: &mut Model| {
        let wanted = sums_over(model, "tp");
        skip(block(model, "layer"), SectionKind::I, wanted);
    };
    breaks_a_sum(AGAIN, change, &ALL);
}

#[test]
fn a_layer_not_computed_again() {
    breaks_unrun(AGAIN, |program| drop_first_copy(program, "layer.B"), &["undefined"]);
}

#[test]
fn another_parameter_gathered_in_a_backward() {
    breaks(AGAIN, |_, program| gather_another(program, "layer.B"), &["statement"], &ALL);
}

#[test]
fn keys_without_the_gradient_of_later_slices() {
    let change = |_: &Model, program: &mut Program| without_operand(program, "layer.0.B", "k.d");
    breaks(SLICES, change, &["statement"], &ALL);
}

#[test]
fn keys_without_the_gradient_of_one_of_two_later_slices() {
    let change = |_: &Model, program: &mut Program| drop_first_add(&mut program.classes[0], "k.");
    breaks(SLICES, change, &["wrong-cotangent"], &["gradient", "norm", "parameter"]);
}

/// Marks a `B` of a micro-batch, or takes the mark away.
fn mark(program: &mut Program, of: u32, marked: bool) {
    let at = runs(program, 0, "layer", BodyKind::B, of)[0];
    if let Instr::Run { first, .. } = &mut program.classes[0].instrs[at] {
        *first = marked;
    }
}

#[test]
fn a_sum_that_nobody_begins() {
    breaks(PIPELINE, |_, program| mark(program, 0, false), &["first"], &["load"]);
}

#[test]
fn a_sum_that_is_begun_twice() {
    breaks(PIPELINE, |_, program| mark(program, 2, true), &["first"], &[]);
}

#[test]
fn a_send_left_out() {
    let right = Right::on(PIPELINE);
    let mut program = right.program();
    drop_last_send(&mut program.classes[0]);
    assert_eq!(checked(&right.file.model, &program), ["unmatched-message"]);
    assert!(right.is_stuck(&program));
}

/// Breaks the places of tensors.
fn misplaces(change: impl FnOnce(&mut Program), named: &str) {
    let right = Right::on(PIPELINE);
    let mut program = right.program();
    change(&mut program);
    assert_eq!(checked(&right.file.model, &program), [named]);
}

/// The places of the second forward of a layer: its result, its slot and its scratch.
fn forward_places(program: &mut Program) -> &mut Vec<u64> {
    let at = runs(program, 0, "layer", BodyKind::F, 1)[0];
    places(&mut program.classes[0], at)
}

#[test]
fn a_slot_that_lies_beside_its_place() {
    misplaces(|program| forward_places(program)[1] += 64, "overlap");
}

#[test]
fn a_result_and_a_slot_that_have_changed_places() {
    misplaces(|program| forward_places(program).swap(0, 1), "overlap");
}

#[test]
fn an_arena_that_is_too_small() {
    misplaces(|program| program.classes[0].arena.as_mut().expect("an arena").bytes -= 64, "arena");
}

#[test]
fn a_gradient_on_its_parameter() {
    let change = |program: &mut Program| {
        let residents = &mut program.classes[0].arena.as_mut().expect("an arena").residents;
        let param = (residents[0].param, residents[0].instance, residents[0].at);
        let is_its =
            |other: &&mut Resident| (other.param, other.instance) == (param.0, param.1) && other.role == Role::Gradient;
        residents.iter_mut().find(is_its).expect("its gradient").at = param.2;
    };
    misplaces(change, "overlap");
}

#[test]
fn swapped_tags() {
    let change = |_: &Model, program: &mut Program| {
        for tag in sent_tags(&mut program.classes[0]) {
            *tag = [1, 0, 2, 3][*tag as usize];
        }
    };
    breaks(PIPELINE, change, &["message-order"], &ALL);
}

#[test]
fn a_schedule_with_a_backward_before_its_forward() {
    let mut right = Right::on(PIPELINE);
    right.split();
    let schedule = right.file.schedule.as_mut().expect("a schedule");
    let row = &mut schedule.rows[1];
    let place = |kind| row.iter().position(|&action| action == Action::One(Item::new(kind, 1, 0))).expect("the action");
    let (forward, backward) = (place(Kind::F), place(Kind::I));
    row.swap(forward, backward);
    let costs =
        costs_of(right.file.staged.as_ref().expect("stages"), &model_costs(&right.file.model, &PROGRAM, 4, true));
    let found = scheduler::check::check(schedule, &costs, 4, |stage, _| stage);
    assert!(!found.is_empty() && found.iter().all(|violation| violation.invariant == Invariant::Order), "{found:?}");
    assert!(matches!(right.emitted(&right.file.model), Err(CodegenError::Early { needs: 'F', .. })));
}
