//! Estimates: step time and memory of several configurations on a cluster of your own, without a device.
//!
//! ```sh
//! cargo run --release --example estimate
//! ```

use meshwright::compiler::parallel;
use meshwright::{Cluster, DType, ParallelConfig, Recompute, UpdateRule};
use std::error::Error;
use std::io::{Write, stdout};

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut stdout())
}

/// Writes a table of the estimates to `out`.
///
/// # Errors
/// A name is not known, or `out` cannot be written.
pub(crate) fn run(out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    // A cluster is a value. This one is the preset `h100` with a network of a quarter of the bandwidth: the last link is the
    // one between nodes.
    let mut cluster = Cluster::find("h100")?;
    cluster.name = "h100, slow network".to_string();
    if let Some(network) = cluster.links.last_mut() {
        network.bandwidth /= 4.0;
    }

    // A configuration is a value. Keys at their default stay open: the estimate takes dp from the number of devices.
    let base = ParallelConfig { zero: 1, ..Default::default() };
    let configs = [
        ParallelConfig { tp: 8, sp: true, ..base.clone() },
        ParallelConfig { tp: 4, sp: true, pp: 2, ..base.clone() },
        ParallelConfig { tp: 2, sp: true, pp: 4, ..base.clone() },
        ParallelConfig { pp: 8, recompute: Recompute::Full(None), ..base.clone() },
        ParallelConfig { tp: 3, ..base },
    ];

    // A sweep predicts one configuration after another, and shares the work that they have in common.
    let request = meshwright::estimate("llama3-8b").on(cluster, 64).batch(128, 8192);
    let request = request.precision(DType::BF16).optimizer(UpdateRule::AdamW);
    writeln!(out, "{:<48} {:>8} {:>10}  fits", "configuration", "step", "memory")?;
    for (config, report) in configs.iter().zip(request.sweep(&configs)?) {
        match report {
            Ok(report) => {
                let (step, memory) = (report.predicted.step_time_s, report.predicted.fullest().device);
                let (config, fits) = (parallel::print_changed(&report.parallel), report.predicted.fits);
                writeln!(out, "{config:<48} {step:>6.2} s {memory:>6.1} GiB  {fits}")?;
            }
            // 64 devices cannot be divided by 3. The error has a code, a message and a fix.
            Err(error) => writeln!(out, "{:<48} {}", parallel::print_changed(config), error.message())?,
        }
    }
    Ok(())
}
