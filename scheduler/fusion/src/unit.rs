//! Statements and groups alike, and what each must follow.

use cost::{Cluster, seconds_of_group, seconds_of_stmt};
use ir::entity::PrimaryMap;
use ir::fused::Fused;
use ir::graph::{Stmt, ValueData};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::ops::Op;
use std::collections::HashMap;

/// Cluster, mesh and types, on which the seconds of statements depend.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The cluster whose figures decide.
    pub cluster: &'a Cluster,
    /// The mesh of its devices.
    pub mesh: &'a Mesh,
    /// The values of the statements.
    pub values: &'a PrimaryMap<Value, ValueData>,
}

/// A statement, or a group that runs as one.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "most units are statements")]
pub enum Unit {
    /// One statement.
    Stmt(Stmt),
    /// Several.
    Group(Fused),
}

impl Unit {
    /// The values that it reads.
    pub fn reads(&self) -> Vec<Value> {
        match self {
            Unit::Stmt(stmt) => stmt.operands.clone(),
            Unit::Group(fused) => fused.reads(),
        }
    }

    /// The values that it leaves.
    pub fn leaves(&self) -> &[Value] {
        match self {
            Unit::Stmt(stmt) => &stmt.results,
            Unit::Group(fused) => &fused.outs,
        }
    }

    /// Its statements, in order.
    pub fn stmts(&self) -> &[Stmt] {
        match self {
            Unit::Stmt(stmt) => std::slice::from_ref(stmt),
            Unit::Group(fused) => &fused.stmts,
        }
    }

    /// Its statement, if that is a collective.
    pub fn collective(&self) -> Option<&Stmt> {
        match self {
            Unit::Stmt(stmt) if matches!(stmt.op, Op::Collective(_)) => Some(stmt),
            _ => None,
        }
    }

    /// Its seconds on a rank.
    pub fn seconds(&self, target: Target<'_>) -> f64 {
        match self {
            Unit::Stmt(stmt) => seconds_of_stmt(target.cluster, target.mesh, target.values, stmt),
            Unit::Group(fused) => seconds_of_group(target.cluster, target.mesh, target.values, fused),
        }
    }
}

/// Last uses of the values so far.
#[derive(Debug, Default)]
pub struct Uses {
    writer: HashMap<Value, usize>,
    readers: HashMap<Value, Vec<usize>>,
}

impl Uses {
    /// The earlier units that one must follow. What it leaves may be an argument that others have read, or a sum.
    pub fn needs(&mut self, at: usize, unit: &Unit) -> Vec<usize> {
        let (reads, leaves) = (unit.reads(), unit.leaves());
        let mut needs = Vec::new();
        for value in reads.iter().chain(leaves) {
            needs.extend(self.writer.get(value));
        }
        for value in leaves {
            needs.extend(self.readers.remove(value).into_iter().flatten());
            self.writer.insert(*value, at);
        }
        for value in reads {
            self.readers.entry(value).or_default().push(at);
        }
        needs.retain(|&before| before != at);
        needs.sort_unstable();
        needs.dedup();
        needs
    }
}
