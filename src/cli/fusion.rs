//! Table of what the groups of a program save.

use cost::memory_traffic;
use ir::program::BodyInstr;
use ir::text::File;
use support::table::table;
use support::units::bytes;

/// Table with a row per body: launches, and bytes through memory, outside products and attention, without groups and with them.
/// `None` for a program without groups.
pub(super) fn fusion_table(file: &File) -> Option<String> {
    let bodies = || file.program.iter().flat_map(|program| program.bodies.values());
    let mut instrs = bodies().flat_map(|body| &body.instrs);
    instrs.find(|instr| matches!(instr, BodyInstr::Fused(_)))?;
    let traffic = bodies().map(|body| (&body.name, memory_traffic(&file.model.mesh, body)));
    let rows: Vec<_> = traffic
        .filter(|(_, [apart, _])| apart.launches > 0)
        .map(|(name, [apart, grouped])| {
            let ratio = apart.bytes as f64 / grouped.bytes.max(1) as f64;
            let [before, after] = [apart, grouped].map(|traffic| traffic.launches.to_string());
            [name.clone(), before, after, bytes(apart.bytes), bytes(grouped.bytes), format!("{ratio:.2}x")]
        })
        .collect();
    Some(table(["body", "launches", "with groups", "bytes", "with groups", "fewer"], &rows))
}
