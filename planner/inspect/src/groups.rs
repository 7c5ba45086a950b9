//! The groups of a compiled program: what runs as one kernel, what that saves, and why neighbours are not in one group.

use cost::{Cluster, MemoryTraffic, Platform, memory_traffic};
use fusion::Unit;
use ir::ids::Value;
use ir::program::Body;
use ir::text::File;
use serde::Serialize;
use std::cmp::Reverse;
use std::fmt;
use support::table::table;
use support::units::bytes;

/// Reasons that the text lists for a body, those of most bytes.
const REASONS: usize = 8;

/// The groups of a program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GroupReport {
    /// `meshwright.groups/1`.
    pub schema: &'static str,
    /// The bodies that launch kernels outside products and attention.
    pub bodies: Vec<BodyGroups>,
}

/// The groups of a body.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BodyGroups {
    /// Name of the body: `layer.F`.
    pub body: String,
    /// Launches outside products and attention, without groups and with them.
    pub launches: [u64; 2],
    /// Bytes that these move through memory, without groups and with them.
    pub bytes: [u64; 2],
    /// The groups, in order.
    pub groups: Vec<KernelGroup>,
    /// Pairs of kernels that have a tensor in common and are no group, largest tensor first.
    pub apart: Vec<Apart>,
}

/// Statements that run as one kernel.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KernelGroup {
    /// Their ops, in order.
    pub ops: Vec<String>,
    /// The tensors that the kernel writes.
    pub leaves: Vec<String>,
}

/// Two kernels that have a tensor in common.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Apart {
    /// The tensor.
    pub tensor: String,
    /// Its bytes on a rank, which each of the two moves.
    pub bytes: u64,
    /// The ops of the first kernel and of the second one.
    pub kernels: [Vec<String>; 2],
    /// Why they are two.
    pub reason: String,
}

/// Groups of a compiled file; `None` if it has no program.
///
/// ```
/// use compiler::compile::{CompileRequest, compile_source};
/// use compiler::model_source::ModelSource;
/// use cost::CPU;
/// use meshwright_inspect::groups::groups;
///
/// let request = CompileRequest::default();
/// let file = compile_source(&ModelSource::open("tiny-llama")?, &request, None, &mut |_, _| ())?;
/// let report = groups(&file, &CPU).expect("a program");
/// let layer = report.bodies.iter().find(|body| body.body == "layer.F").expect("a layer");
/// assert!(layer.launches[1] < layer.launches[0]);
/// println!("{}", report.text("layer"));
/// # Ok::<(), compiler::error::Error>(())
/// ```
pub fn groups(file: &File, cluster: &Cluster) -> Option<GroupReport> {
    let bodies = file.program.as_ref()?.bodies.values();
    let bodies = bodies.map(|body| body_groups(file, cluster, body)).filter(|body| body.launches[0] > 0).collect();
    Some(GroupReport { schema: "meshwright.groups/1", bodies })
}

fn body_groups(file: &File, cluster: &Cluster, body: &Body) -> BodyGroups {
    let mesh = &file.model.mesh;
    let platform = Platform::of_program(cluster);
    let (traffic, units) = (memory_traffic(mesh, body), codegen::units_of(body));
    let name = |value: &Value| format!("%{}", body.values[*value].name);
    let group = |unit: &Unit| match unit {
        Unit::Group(fused) => Some(KernelGroup { ops: ops(unit), leaves: fused.outs.iter().map(name).collect() }),
        Unit::Stmt(_) => None,
    };
    let apart = codegen::neighbours(&platform, &file.model, body).into_iter().map(|pair| Apart {
        tensor: name(&pair.value),
        bytes: pair.bytes,
        kernels: pair.units.map(|at| ops(&units[at])),
        reason: pair.reason,
    });
    BodyGroups {
        body: body.name.clone(),
        launches: traffic.map(|traffic| traffic.launches),
        bytes: traffic.map(|traffic| traffic.bytes),
        groups: units.iter().filter_map(group).collect(),
        apart: apart.collect(),
    }
}

fn ops(unit: &Unit) -> Vec<String> {
    unit.stmts().iter().map(|stmt| stmt.op.name().to_string()).collect()
}

/// Table of what groups save, with a row per body ([`GroupReport::table`]); `None` for a program without groups.
pub fn traffic_table(file: &File) -> Option<String> {
    let program = file.program.as_ref().filter(|program| program.has_groups())?;
    let row = |body: &Body| (body.name.clone(), memory_traffic(&file.model.mesh, body));
    Some(rows(program.bodies.values().map(row)))
}

/// Rows of bodies that launch kernels outside products and attention.
fn rows(bodies: impl Iterator<Item = (String, [MemoryTraffic; 2])>) -> String {
    let row = |(name, [apart, grouped]): (String, [MemoryTraffic; 2])| {
        let ratio = apart.bytes as f64 / grouped.bytes.max(1) as f64;
        let [before, after] = [apart, grouped].map(|traffic| traffic.launches.to_string());
        [name, before, after, bytes(apart.bytes), bytes(grouped.bytes), format!("{ratio:.2}x")]
    };
    let rows: Vec<_> = bodies.filter(|(_, [apart, _])| apart.launches > 0).map(row).collect();
    table(["body", "launches", "with groups", "bytes", "with groups", "fewer"], &rows)
}

impl GroupReport {
    /// Table with a row per body: launches, and bytes through memory, outside products and attention, without groups and with them.
    pub fn table(&self) -> String {
        let traffic = |body: &BodyGroups| {
            [0, 1].map(|with| MemoryTraffic { launches: body.launches[with], bytes: body.bytes[with] })
        };
        rows(self.bodies.iter().map(|body| (body.body.clone(), traffic(body))))
    }

    /// True if a body is of a block, or has the name itself; an empty name is that of all.
    pub fn has(&self, name: &str) -> bool {
        self.bodies.iter().any(|body| body.is(name))
    }

    /// The table of all bodies, and the groups and neighbours of those that a name selects ([`GroupReport::has`]).
    pub fn text(&self, name: &str) -> String {
        let chosen = self.bodies.iter().filter(|body| body.is(name) && !body.groups.is_empty());
        std::iter::once(self.table()).chain(chosen.map(|body| format!("\n{body}"))).collect()
    }
}

impl BodyGroups {
    fn is(&self, name: &str) -> bool {
        name.is_empty() || self.body == name || self.body.split('.').next() == Some(name)
    }
}

/// The groups of a body, and the reasons why neighbours are apart, with the bytes that these share; ends in a newline.
impl fmt::Display for BodyGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.groups.iter().map(|group| [group.ops.join(" "), group.leaves.join(" ")]);
        f.write_str(&table([format!("{}: one kernel", self.body).as_str(), "writes"], &groups.collect::<Vec<_>>()))?;
        let mut reasons: Vec<Reason<'_>> = Vec::new();
        for pair in &self.apart {
            match reasons.iter_mut().find(|reason| reason.largest.reason == pair.reason) {
                Some(reason) => (reason.pairs, reason.bytes) = (reason.pairs + 1, reason.bytes + pair.bytes),
                None => reasons.push(Reason { pairs: 1, bytes: pair.bytes, largest: pair }),
            }
        }
        reasons.sort_by_key(|reason| Reverse(reason.bytes));
        let rows: Vec<_> = reasons.iter().take(REASONS).map(Reason::row).collect();
        if rows.is_empty() {
            return Ok(());
        }
        f.write_str(&table(["kernels are apart because", "pairs", "share", "most of it"], &rows))
    }
}

/// Pairs of neighbours that are apart for one reason.
struct Reason<'a> {
    pairs: usize,
    bytes: u64,
    largest: &'a Apart,
}

impl Reason<'_> {
    fn row(&self) -> [String; 4] {
        let Apart { tensor, kernels, reason, .. } = self.largest;
        let [first, second] = kernels.each_ref().map(|ops| ops.join(" "));
        let largest = format!("{tensor} of {first} | {second}");
        [reason.clone(), self.pairs.to_string(), bytes(self.bytes), largest]
    }
}
