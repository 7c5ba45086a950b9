//! A compilation: the IR after a pass, the program of each class of ranks, and the simulated step.
//!
//! ```sh
//! cargo run --release --example compile
//! ```

use meshwright::cost::PROGRAM;
use meshwright::ir::text::print;
use meshwright::predicting::predict;
use meshwright::{ParallelConfig, passes};
use std::error::Error;
use std::io::{Write, stdout};

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut stdout())
}

/// Writes what the compiler makes of a small Llama to `out`.
///
/// # Errors
/// The model cannot have the configuration, or `out` cannot be written.
pub(crate) fn run(out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    // The compiler is a list of passes.
    for pass in passes() {
        writeln!(out, "{:<16} {}", pass.name, pass.does)?;
    }

    // `stop_after` ends it after one of them. Every type then shows its sharding: `f{tp}` is a dim sharded over tp, `+{tp}` a
    // value that is partial over tp. All collectives are statements.
    let config = ParallelConfig { dp: 2, tp: 2, pp: 2, ..Default::default() };
    let request = || meshwright::compile("tiny-llama").parallel(&config).batch(8, 128);
    let sharded = request().stop_after("collectives").run()?;
    let text = print(&sharded);
    let layer = text.lines().skip_while(|line| !line.starts_with("block @layer"));
    writeln!(out, "\nThe forward of a layer on {} devices:", config.devices())?;
    for line in layer.take_while(|line| !line.starts_with("I(")) {
        writeln!(out, "{line}")?;
    }

    // The whole compilation. The observer sees the file after every pass; here it counts the statements.
    let mut sizes = Vec::new();
    let file = request().observe(|pass, file| sizes.push((pass, print(file).lines().count()))).run()?;
    writeln!(out, "\nLines of text after each pass: {sizes:?}")?;

    // Ranks with the same instructions are a class. An instruction calls a body or moves a value between stages.
    let program = file.program.as_ref().ok_or("no program")?;
    for class in &program.classes {
        let bytes = class.arena.as_ref().map_or(0, |arena| arena.bytes);
        let (ranks, count) = (&class.ranks, class.instrs.len());
        writeln!(out, "pipeline ranks {ranks:?}: {count} instructions, an arena of {bytes} bytes")?;
    }
    let text = print(&file);
    let class = text.lines().skip_while(|line| !line.starts_with("  class"));
    for line in class.take(8) {
        writeln!(out, "{line}")?;
    }

    // The step of that program, simulated on a clock for each pipeline rank. `PROGRAM` is the cluster of `compile` and `train`.
    let (step, _trace) = predict(&file, &PROGRAM)?;
    writeln!(out, "\n{step}")?;
    Ok(())
}
