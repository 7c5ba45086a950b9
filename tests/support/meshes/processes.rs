//! Executors whose ranks are in several processes, joined by a wire in memory.

use ir::graph::Model;
use ir::program::Program;
use meshwright::runtime::comm::looped::deal;
use meshwright::runtime::exec::{Error, Executor, Options, Threads};

/// Loads an executor; of four cases one has its ranks in two to four processes, each with some of them at random. With
/// `MESHWRIGHT_PROCESSES=3` all cases have as many, as far as they have ranks.
pub(crate) fn load(model: &Model, program: &Program, options: &Options<'_>, case: u64) -> Result<Executor, Error> {
    let given = std::env::var("MESHWRIGHT_PROCESSES").ok().and_then(|text| text.parse().ok());
    let drawn = if case % 4 == 3 { 2 + case as usize / 4 % 3 } else { 1 };
    load_in(given.unwrap_or(drawn), model, program, options, case)
}

/// Loads an executor with its ranks in a number of processes.
pub(crate) fn load_in(
    processes: usize,
    model: &Model,
    program: &Program,
    options: &Options<'_>,
    seed: u64,
) -> Result<Executor, Error> {
    let devices = model.mesh.devices() as usize;
    if processes.min(devices) < 2 {
        return Executor::load(model, program, options);
    }
    let processes = deal(devices, processes.min(devices), Some(seed));
    let threads = Threads::new(devices, options.threads, options.async_threads).looped(processes, seed, None);
    Executor::load_on(threads, model, program, options)
}
