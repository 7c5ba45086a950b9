//! Between any two layouts of a tensor: the cheapest sequence of collectives ([`cheapest`]), and the plain one that makes
//! the tensor whole and cuts it again ([`plain`]). What tensors of many sizes take is found once for all ([`Ways`]).

mod fuse;
mod graph;
pub(crate) mod hops;
pub(crate) mod layout;
mod lists;
mod moves;
mod plain;
mod search;
#[cfg(test)]
mod slow;
pub(crate) mod table;
mod ways;

pub use plain::plain;
pub use search::cheapest;
pub use ways::Ways;

use cost::{Cluster, Traffic};
use ir::mesh::{Axes, Mesh};
use ir::ops::Collective;
use ir::types::{Dim, Dims, Type};

/// Where a tensor lies: what a change of its layout is priced and checked against.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The mesh.
    pub mesh: &'a Mesh,
    /// The named dims: which of them are exact.
    pub dims: &'a Dims,
    /// What joins the devices.
    pub cluster: &'a Cluster,
}

/// One collective on the way.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// What is done.
    pub change: Collective,
    /// The type that the tensor has after it.
    pub ty: Type,
    /// What it asks of a rank.
    pub traffic: Traffic,
    /// Seconds of it on the site's cluster.
    pub seconds: f64,
}

impl Step {
    /// The weight in a search for the least: seconds that ranks wait for each other, and a nanosecond for the step itself, which
    /// is less than any message takes. A local slice weighs a picosecond however large it is: consecutive slices are one step,
    /// and bytes that are sliced off early need not be sent.
    pub fn weight(&self) -> f64 {
        match &self.change {
            Collective::AllSlice { .. } => SLICE,
            Collective::ToPartial { .. } => STEP,
            _ => self.seconds + STEP,
        }
    }
}

const STEP: f64 = 1e-9;
const SLICE: f64 = 1e-12;

/// What is equal to a picosecond is equal: sums of the same terms in another order are.
fn picoseconds(seconds: f64) -> u64 {
    (seconds * 1e12).round() as u64
}

/// No sequence of collectives makes one type from the other: the sizes differ, or a maximum would have to be owed that is
/// not owed yet.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no way leads from {from} to {to}")]
pub struct NoWay {
    /// The type that is there.
    pub from: String,
    /// The type that is wanted.
    pub to: String,
}

impl Site<'_> {
    /// The step of a change, if the tensor may lie so on the mesh afterwards.
    fn step(&self, change: Collective, operand: &Type) -> Option<Step> {
        let ty = change.result_type(operand).ok().filter(|ty| self.holds(ty))?;
        change.check_sizes(self.mesh, operand).ok()?;
        let traffic = Traffic::of(self.cluster, self.mesh, &change, operand, &ty);
        let seconds = traffic.seconds(self.cluster, self.mesh, change.over());
        Some(Step { change, ty, traffic, seconds })
    }

    fn holds(&self, ty: &Type) -> bool {
        ty.dims.iter().all(|dim| self.allows(dim, &dim.axes))
    }

    /// No dim has more shards than elements, an exact one even shards, one of unknown size none.
    fn allows(&self, dim: &Dim, axes: &Axes) -> bool {
        let indivisible = dim.name.is_some_and(|name| self.dims[name].indivisible);
        let counted = dim.count.is_some() && !axes.is_empty();
        self.mesh.size(axes) <= dim.size && !counted && (!indivisible || self.mesh.is_even(dim.size, axes))
    }

    fn no_way(&self, from: &Type, to: &Type) -> NoWay {
        NoWay { from: format!("{from:?}"), to: format!("{to:?}") }
    }
}
