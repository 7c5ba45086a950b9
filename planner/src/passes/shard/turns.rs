//! Turns: some axes are decided, singly or as units, while the others stay fixed.

use super::graph::ShardedValue;
use super::params::Kept;
use crate::assign::Assignment;
use crate::reshard::sharding::Sharding;
use ir::graph::SectionKind;
use ir::ids::BlockId;
use ir::mesh::Axes;
use std::collections::HashMap;

/// Axes that are decided together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Turn {
    /// Decided axes; all axes of a unit have the same use.
    pub(super) units: Vec<Axes>,
    /// Axes with fixed use.
    pub(super) fixed: Axes,
}

impl Turn {
    /// Turn that decides these units of a mesh's axes.
    pub(super) fn of(units: Vec<Axes>, all: &Axes) -> Turn {
        let decided = units.iter().fold(Axes::none(), |decided, unit| decided.union(unit));
        Turn { units, fixed: all.without(&decided) }
    }
}

/// Use of all axes in the previous solution.
#[derive(Clone, Default)]
pub(super) struct Before {
    /// Assignment of each statement.
    pub(super) stmts: HashMap<(BlockId, SectionKind, usize), Assignment>,
    /// Shardings of values with their own node.
    pub(super) values: HashMap<ShardedValue, Sharding>,
    /// Storage options of parameters.
    pub(super) params: HashMap<usize, Kept>,
}
