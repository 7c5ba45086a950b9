//! Statements and groups alike, and what each must follow.

use cost::{Platform, Scope};
use ir::fused::Fused;
use ir::graph::Stmt;
use ir::ids::Value;
use ir::ops::Op;
use std::collections::HashMap;

/// Platform, mesh and types, on which the seconds of statements depend.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The platform whose figures decide.
    pub platform: &'a Platform<'a>,
    /// The mesh and the values of the statements.
    pub scope: Scope<'a>,
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

    /// True if it is a group.
    pub fn is_group(&self) -> bool {
        matches!(self, Unit::Group(_))
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
            Unit::Stmt(stmt) => target.platform.stmt(target.scope, stmt),
            Unit::Group(fused) => target.platform.group(target.scope, fused),
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
