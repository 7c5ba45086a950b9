//! The programs in `examples/` run, and print what their comments promise.

#![expect(dead_code, reason = "each example has a `main` of its own")]

#[path = "../../examples/compile.rs"]
mod compile;
#[path = "../../examples/estimate.rs"]
mod estimate;
#[path = "../../examples/own_op.rs"]
mod own_op;
#[path = "../../examples/own_schedule.rs"]
mod own_schedule;
#[path = "../../examples/plan.rs"]
mod plan;
#[path = "../../examples/train.rs"]
mod train;

use std::error::Error;
use std::io::Write;

/// Runs an example. Its output must have all of `parts`, in their order.
fn prints(run: impl Fn(&mut dyn Write) -> Result<(), Box<dyn Error>>, parts: &[&str]) {
    let mut out = Vec::new();
    run(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let mut rest = text.as_str();
    for part in parts {
        let (_, after) = rest.split_once(part).unwrap_or_else(|| panic!("no `{part}` in its place in\n{text}"));
        rest = after;
    }
}

#[test]
fn plan_answers_questions() {
    let parts = ["WHY THIS CONFIGURATION", "best: ", "also: ", "tp=8: slower", "fix: ", "read back: dp=", "compiled: "];
    prints(plan::run, &parts);
}

#[test]
fn estimate_makes_a_table() {
    prints(estimate::run, &["configuration", "tp=8", "GiB", "tp=4", "tp=2", "pp=8", "tp=3"]);
}

#[test]
fn compile_shows_every_level() {
    let parts = [
        "differentiate ",
        "all_reduce(",
        "(\"assign_buffers\", ",
        "pipeline ranks 0..1: ",
        "  class 0..1 {",
        "simulated ",
    ];
    prints(compile::run, &parts);
}

#[test]
fn own_schedule_is_checked_drawn_and_compiled() {
    let parts =
        ["schedule @two-halves", "violations: 0", "broken: rank 0", "rank 2", "gpipe", "program @two-halves: 3 "];
    prints(own_schedule::run, &parts);
}

#[test]
fn own_op_has_its_gradient_on_a_mesh() {
    let parts =
        ["1 statement replaced", "sigmoid(", "I(", "sigmoid_grad(", "loss: ", "on 4 devices", "differ by at most "];
    prints(own_op::run, &parts);
}

#[test]
fn train_reports_every_step() {
    prints(train::run, &["step  1: loss ", "step 16: loss ", "validation loss", "mesh dp=2 tp=2, "]);
}
