//! What is decided at once: some axes, alone or several as one, while the others stay as they were chosen last.

use super::graph::Lying;
use super::params::Kept;
use crate::assign::Assignment;
use crate::reshard::layout::Layout;
use ir::graph::SectionKind;
use ir::ids::BlockId;
use ir::mesh::Axes;
use std::collections::HashMap;

/// The axes that are decided together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Turn {
    /// Those that are decided; the axes of a unit do the same everywhere.
    pub(super) units: Vec<Axes>,
    /// Those that stay as they were.
    pub(super) fixed: Axes,
}

impl Turn {
    /// Decides these units of a mesh's axes.
    pub(super) fn of(units: Vec<Axes>, all: &Axes) -> Turn {
        let decided = units.iter().fold(Axes::none(), |decided, unit| decided.union(unit));
        Turn { units, fixed: all.without(&decided) }
    }
}

/// What all axes do, as it was chosen last.
#[derive(Clone, Default)]
pub(super) struct Before {
    /// At each statement.
    pub(super) stmts: HashMap<(BlockId, SectionKind, usize), Assignment>,
    /// What lies by itself.
    pub(super) lying: HashMap<Lying, Layout>,
    /// Parameters.
    pub(super) params: HashMap<usize, Kept>,
}
