//! Table of each rank's memory by category.

use codegen::buffers::{ClassReport, report};
use ir::text::File;
use support::table::table;
use support::units::bytes;

/// Table with a row per class of ranks: its arena, the lower bound, and the categories at the peak; then the host memory of those
/// that offload. `None` for a program without buffer assignment.
pub(super) fn memory_table(file: &File) -> Option<String> {
    let program = file.program.as_ref().filter(|program| program.has_places())?;
    let head = [
        "ranks",
        "arena",
        "lower bound",
        "fragmentation",
        "parameters",
        "gradients",
        "optimizer",
        "activations",
        "stage I/O",
        "scratch",
    ];
    let classes = report(&file.model, program);
    let rows: Vec<_> = classes.iter().map(row).collect();
    let offloads = classes.iter().filter(|class| class.host > 0);
    let host = offloads.map(|class| format!("host memory of ranks {}: {}\n", ranks(class), bytes(class.host)));
    Some(table(head, &rows) + &host.collect::<String>())
}

fn ranks(class: &ClassReport) -> String {
    let last = class.first_rank + class.ranks - 1;
    if class.ranks == 1 { last.to_string() } else { format!("{}-{last}", class.first_rank) }
}

fn row(class: &ClassReport) -> [String; 10] {
    let ranks = ranks(class);
    let fragmentation = format!("{:.1} %", 100.0 * class.fragmentation);
    let ClassReport { arena, bound, parameters, gradients, states, activations, stage_io, scratch, .. } = *class;
    let parts = [parameters, gradients, states, activations, stage_io, scratch].map(bytes);
    let [parameters, gradients, states, activations, stage_io, scratch] = parts;
    [ranks, bytes(arena), bytes(bound), fragmentation, parameters, gradients, states, activations, stage_io, scratch]
}
