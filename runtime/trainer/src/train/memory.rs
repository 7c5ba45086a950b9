//! Memory check of a training run, before it allocates.

use super::backend::Place;
use super::free::{free_addresses, free_memory};
use crate::error::Error;
use ir::catalogue::Code;
use ir::graph::Model;
use ir::program::Program;

/// Limit on virtual devices. They are threads of one process, and far fewer keep all cores of a machine busy.
const MOST_DEVICES: u64 = 1024;

/// Bytes of a rank besides its arena and its instructions: the thread's stack, the allocator's caches and the workspace
/// of kernels. Empirical: 4 to 9 MB on meshes of 8 to 1024 devices.
const RANK: u64 = 6 << 20;

/// Bytes of address space that a thread's stack reserves.
const STACK: u64 = 2 << 20;

/// Free memory of the process, in bytes.
#[derive(Clone, Copy)]
pub(super) struct FreeMemory {
    /// Bytes of the arenas of all ranks.
    pub(super) arenas: u64,
    /// Bytes left when all ranks have their arenas and stacks.
    pub(super) left: u64,
}

/// Refuses a program whose ranks need more memory than the process may allocate, if the system reports a limit. The
/// rest is for the text. With a backend that has memory of its own arenas are there. Of several hosts each has its ranks' part.
///
/// # Errors
/// The ranks exceed the free memory, or the mesh has more than `MOST_DEVICES` devices.
pub(super) fn check(model: &Model, program: &Program, place: &Place) -> Result<FreeMemory, Error> {
    let device = place.free;
    let devices = model.mesh.devices();
    if devices > MOST_DEVICES {
        let message = format!("{devices} devices exceed the limit of {MOST_DEVICES} per run");
        return Err(Error::input(Code::BadOption, message).help("use a smaller mesh; `compile` has no such limit"));
    }
    let stages = model.mesh.pipeline().map_or(1, |pp| model.mesh.axes[pp].size);
    let classes = program.classes.iter().map(|class| {
        let arena = class.arena.as_ref().map_or(0, |arena| arena.bytes);
        arena.saturating_mul(class.ranks.len() as u64 * (devices / stages))
    });
    let arenas = classes.fold(0, u64::saturating_add);
    let near = place.near.unwrap_or(devices);
    let (arenas, devices) = ((u128::from(arenas) * u128::from(near) / u128::from(devices)) as u64, near);
    if let Some(free) = device.filter(|free| arenas > *free) {
        let [needed, free] = [arenas, free].map(gib);
        return Err(too_little(format!(
            "the arenas of all ranks ({devices}) need {needed} GiB of GPU memory, but only {free} GiB are free"
        )));
    }
    let on_host = if device.is_some() { 0 } else { arenas };
    let needed = on_host.saturating_add(devices * RANK);
    // Each rank has at most two threads.
    let addresses = needed.saturating_add(2 * devices * STACK);
    let (free, address_space) = (free_memory().unwrap_or(u64::MAX), free_addresses().unwrap_or(u64::MAX));
    if needed > free || addresses > address_space {
        let [needed, free] = if needed > free { [needed, free] } else { [addresses, address_space] }.map(gib);
        let message =
            format!("the run needs {needed} GiB of memory for its devices ({devices}), but only {free} GiB are free");
        return Err(too_little(message));
    }
    Ok(FreeMemory { arenas, left: (free - needed).min(address_space - addresses) })
}

fn too_little(message: String) -> Error {
    Error::input(Code::TooLittleMemory, message)
        .help("take a smaller model, sequence or micro-batch, or fewer data-parallel devices")
}

fn gib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 30))
}
