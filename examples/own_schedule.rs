//! A pipeline schedule of your own: rows of actions, checked, simulated, drawn, compared with built-in schedules, and compiled.
//!
//! ```sh
//! cargo run --release --example own_schedule
//! ```

use meshwright::ir::schedule::{Action, Item, Kind};
use meshwright::scheduler::actions::with_step_end;
use meshwright::scheduler::check::check_pipeline;
use meshwright::scheduler::costs::StageCosts;
use meshwright::scheduler::placement::{Pipeline, Placement};
use meshwright::scheduler::simulate::simulate;
use meshwright::view::grid::grid;
use meshwright::view::report::{ScheduleRequest, report};
use meshwright::{File, Schedule};
use std::error::Error;
use std::io::{Write, stdout};

const RANKS: u32 = 3;
const MICROBATCHES: u32 = 6;
/// Characters of a line of a drawing.
const WIDTH: usize = 110;

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut stdout())
}

/// GPipe twice: the forwards of half of the micro-batches, their backwards, then the same for the other half. A rank saves the
/// activations of three micro-batches, not of six.
fn two_halves() -> Schedule {
    let row = |rank: u32| {
        let halves = [0..MICROBATCHES / 2, MICROBATCHES / 2..MICROBATCHES];
        with_step_end(halves.into_iter().flat_map(|half| {
            // In a chain, stage r is on rank r. B is the whole backward; I and W are its two parts.
            let forwards = half.clone().map(move |microbatch| Item::new(Kind::F, rank, microbatch));
            let backwards = half.map(move |microbatch| Item::new(Kind::B, rank, microbatch));
            forwards.chain(backwards).map(Action::One)
        }))
    };
    Schedule { name: "two-halves".to_string(), rows: (0..RANKS).map(row).collect() }
}

/// Writes the checks, drawings and figures to `out`.
///
/// # Errors
/// The schedule cannot be run, or `out` cannot be written.
pub(crate) fn run(out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let own = two_halves();
    writeln!(out, "{own}")?;

    // The checker reports all violations: missing and duplicate actions, wrong ranks, deadlocks, memory limits.
    let pipeline = Pipeline::new(Placement::Chain, RANKS, MICROBATCHES);
    let costs = StageCosts::uniform(RANKS, 1.0, 1.0, 1.0, 0.0); // seconds of F, I, W and of a message
    writeln!(out, "violations: {}", check_pipeline(&own, &costs, &pipeline).len())?;

    // A backward before its forward is one of them.
    let mut broken = own.clone();
    broken.rows[0].swap(0, 3);
    for violation in check_pipeline(&broken, &costs, &pipeline) {
        writeln!(out, "broken: {violation}")?;
    }

    // The simulator gives each action its time. `view::draw` draws the same as SVG and HTML.
    let timeline = simulate(&own, &costs)?;
    write!(out, "\n{}", grid(&timeline, WIDTH, false))?;

    // Built-in schedules by name, for the same costs.
    writeln!(out, "\n{:<12} {:>8} {:>8} {:>12}", "schedule", "step", "bubble", "saved on r0")?;
    let mut line = |name: &str, step: f64, bubble: f64, memory: f64| {
        writeln!(out, "{name:<12} {step:>6.0} s {:>6.1} % {memory:>12}", 100.0 * bubble)
    };
    line(&own.name, timeline.makespan, timeline.bubble(), timeline.peak_memory[0])?;
    for kind in ["gpipe", "1f1b", "zb-h1"] {
        let request = ScheduleRequest {
            kind: kind.to_string(),
            stages: RANKS,
            microbatches: MICROBATCHES,
            ..ScheduleRequest::default()
        };
        let (report, _timeline) = report(&request)?;
        line(kind, report.makespan, report.bubble, report.peak_memory[0])?;
    }

    // Code generation takes every order that the checker accepts. A file that stops before the pass `schedule` takes this one.
    let file = meshwright::compile("tiny-llama").parallel("pp=3").batch(6, 32).stop_after("partition").run()?;
    let file = meshwright::compile(File { schedule: Some(own), ..file }).run()?;
    let program = file.program.ok_or("no program")?;
    writeln!(out, "\nprogram @{}: {} classes of ranks", program.name, program.classes.len())?;
    Ok(())
}
