//! Training: a small Llama on four devices, which are threads of this process, with a callback for every step.
//!
//! ```sh
//! cargo run --release --example train
//! ```

use meshwright::ParallelConfig;
use std::error::Error;
use std::fs;
use std::io::{Write, stdout};

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut stdout())
}

/// A text whose next byte is easy to predict: sentences of the same words.
fn text() -> String {
    let (who, what) = (["The planner", "The scheduler", "The runtime"], ["shards", "orders", "moves"]);
    let sentence = |n: usize| format!("{} {} tensor {}. ", who[n % 3], what[n / 3 % 3], n * 7 % 10);
    (0..600).map(sentence).collect()
}

/// Trains in a temporary folder and writes the losses to `out`.
///
/// # Errors
/// The run fails, or `out` cannot be written.
pub(crate) fn run(out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("meshwright-example-train-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("text.txt"), text())?;

    // Two data-parallel ranks, each of two tensor-parallel ranks. The losses are those of one device, up to rounding.
    let config = ParallelConfig { dp: 2, tp: 2, ..Default::default() };
    let request = meshwright::train("tiny-llama").data(folder.join("text.txt")).out(folder.join("out"));
    let request = request.parallel(config).batch(8, 32).steps(20).learning_rate(2e-3, 5);

    // The callback gets the record of each step. A `CancelToken` given to `cancel` ends the run with a checkpoint.
    let mut losses = Vec::new();
    let report = request.progress(|step| losses.push(step.loss)).run()?;
    for (step, loss) in (1..).zip(&losses).step_by(5) {
        writeln!(out, "step {step:>2}: loss {loss:.3}")?;
    }

    // The report is what `meshwright train` prints at its end, and the fields of its JSON.
    writeln!(out, "\n{report}")?;
    writeln!(out, "mesh {}, {} parameters", report.run.mesh, report.run.parameters)?;
    fs::remove_dir_all(&folder)?;
    Ok(())
}
