//! Memory check of a training run, before it allocates.

use super::free::{free_addresses, free_memory};
use crate::error::Error;
use ir::catalogue::Code;
use ir::graph::Model;
use ir::program::{Class, Program};

/// Devices are threads of one process; far fewer than this already keep all cores of a machine busy.
const MOST_DEVICES: u64 = 1024;

/// Bytes of a rank beside its arena and its instructions: its thread's stack, what the allocator keeps for a thread, and
/// what kernels work in. Measured on meshes of 8 to 1024 devices: 4 to 9 MB.
const RANK: u64 = 6 << 20;

/// Bytes of addresses that a thread's stack reserves.
const STACK: u64 = 2 << 20;

/// Bytes that the process may take.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// For the arenas of all ranks.
    pub(super) arenas: u64,
    /// Beside all that ranks take for certain.
    pub(super) left: u64,
}

/// Refuses a program whose ranks together need more memory than the process may take, where the system tells. What is left
/// is for the text.
///
/// # Errors
/// It does not fit, or there are more devices than threads make sense.
pub(super) fn check(model: &Model, program: &Program) -> Result<Room, Error> {
    let devices = model.mesh.devices();
    if devices > MOST_DEVICES {
        let message = format!("{devices} devices exceed the limit of {MOST_DEVICES} per run");
        return Err(Error::input(Code::BadOption, message).help("use a smaller mesh; `compile` has no such limit"));
    }
    let stages = model.mesh.pipeline().map_or(1, |pp| model.mesh.axes[pp].size);
    let arena = |class: &Class| class.arena.as_ref().map_or(0, |arena| arena.bytes);
    let of_class = |class: &Class| arena(class).saturating_mul(class.ranks.len() as u64 * (devices / stages));
    let arenas = program.classes.iter().map(of_class).fold(0, u64::saturating_add);
    let needed = arenas.saturating_add(devices * RANK);
    // A rank has a thread or two.
    let addresses = needed.saturating_add(2 * devices * STACK);
    let (free, room) = (free_memory().unwrap_or(u64::MAX), free_addresses().unwrap_or(u64::MAX));
    if needed > free || addresses > room {
        let [needed, free] = if needed > free { [needed, free] } else { [addresses, room] }.map(gib);
        let message =
            format!("the run needs {needed} GiB of memory for its devices ({devices}), but only {free} GiB are free");
        return Err(Error::input(Code::TooLittleMemory, message)
            .help("take a smaller model, sequence or micro-batch, or fewer data-parallel devices"));
    }
    Ok(Room { arenas, left: (free - needed).min(room - addresses) })
}

fn gib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 30))
}
