//! A plan: the best parallel configuration of a model on a cluster, its alternatives, and a question to it.
//!
//! ```sh
//! cargo run --release --example plan
//! ```

use meshwright::compiler::parallel;
use meshwright::{Plan, Planned};
use std::error::Error;
use std::io::{Write, stdout};

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut stdout())
}

/// Writes the answers to `out`.
///
/// # Errors
/// A request is wrong, or `out` cannot be written.
pub(crate) fn run(out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    // The best configuration for 8 H100 and a batch of 64 sequences of 8192 tokens. Its text is what `meshwright plan` prints.
    let plan = meshwright::plan("llama3-8b").on("h100", 8).batch(64, 8192).run()?;
    writeln!(out, "{plan}")?;

    // Typed values work too. `parallel::print` writes a configuration as its keys.
    let chosen = &plan.report.chosen;
    let fullest = chosen.predicted.fullest().device;
    writeln!(out, "best: {:.2} s, {fullest:.1} GiB, tp={}", chosen.predicted.step_time_s, chosen.parallel.tp)?;
    for other in &plan.report.alternatives {
        let reason = other.difference.as_ref().map_or("", |difference| difference.reason.as_str());
        writeln!(out, "also: {:.2} s, {}: {reason}", other.predicted.step_time_s, parallel::print(&other.parallel))?;
    }

    // Why not the configuration that you had in mind? The search runs again with its keys fixed.
    let why_not = plan.why_not("tp=8")?;
    writeln!(out, "tp=8: {}\n{}", why_not.verdict, why_not.text(&plan.report, 100))?;

    // A request that nothing fits is an answer too: the conflict, and the changes that resolve it.
    let answer = meshwright::plan("llama3-70b").on("h100", 1).batch(8, 4096).pin("mbs=1").answer()?;
    if let Planned::Infeasible(infeasible) = answer {
        for fix in &infeasible.relaxations {
            writeln!(out, "fix: {}, then {:.1} s with {}", fix.change, fix.step_time_s, fix.parallel)?;
        }
    }

    // A plan file is JSON. `meshwright explain` reads it too.
    let path = std::env::temp_dir().join(format!("meshwright-example-plan-{}.json", std::process::id()));
    plan.save(&path)?;
    let same = Plan::open(&path)?;
    std::fs::remove_file(&path)?;
    writeln!(out, "read back: {}", parallel::print(&same.report.chosen.parallel))?;

    // The plan compiles to the program of every rank.
    let program = same.compile()?.program.ok_or("no program")?;
    writeln!(out, "compiled: {} micro-batches, {} classes of ranks", program.microbatches, program.classes.len())?;
    Ok(())
}
