//! Whether a run fits into the machine, before it takes the memory.

use crate::error::Error;
use ir::catalogue::Code;
use ir::graph::Model;
use ir::program::{Class, Program};
use std::fs;

/// Devices are threads of one process; far fewer than this already keep all cores of a machine busy.
const MOST_DEVICES: u64 = 1024;

/// Refuses a program whose ranks together need more memory than the machine has free, where the system tells.
///
/// # Errors
/// It does not fit, or there are more devices than threads make sense.
pub(super) fn check(model: &Model, program: &Program) -> Result<(), Error> {
    let devices = model.mesh.devices();
    if devices > MOST_DEVICES {
        let message = format!("{devices} devices are more threads than a run may have: {MOST_DEVICES}");
        return Err(Error::input(Code::BadOption, message).help("use a smaller mesh; `compile` takes any"));
    }
    let stages = model.mesh.pipeline().map_or(1, |pp| model.mesh.axes[pp].size);
    let arena = |class: &Class| class.arena.as_ref().map_or(0, |arena| arena.bytes);
    let of_class = |class: &Class| arena(class).saturating_mul(class.ranks.len() as u64 * (devices / stages));
    let needed = program.classes.iter().map(of_class).fold(0, u64::saturating_add);
    match free_memory() {
        Some(free) if needed > free => {
            let (needed, free) = (gib(needed), gib(free));
            let message =
                format!("the run needs {needed} GiB of memory for its devices ({devices}), {free} GiB are free");
            Err(Error::input(Code::TooLittleMemory, message)
                .help("take a smaller model, sequence or micro-batch, or fewer data-parallel devices"))
        }
        _ => Ok(()),
    }
}

/// The bytes that a new process may take, where the system tells.
pub fn free_memory() -> Option<u64> {
    fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text))
}

/// The same of the text of `/proc/meminfo` (`man 5 proc_meminfo`): its unit is KiB.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn gib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_read_from_the_system() {
        let text = "MemTotal:       24531372 kB\nMemFree:        20133652 kB\nMemAvailable:   23567084 kB\n";
        assert_eq!(available(text), Some(23_567_084 * 1024));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
    }
}
