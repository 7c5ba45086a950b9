//! The device mesh: atomic axes in rank order, named groups of axes, and the coordinates of ranks.
//!
//! Rank order is mesh order, innermost axis last. Shards of a dim are nested ceilings, major axis first: the local bound is
//! the ceiling of the parent's bound, and the count of a shard is `clamp(parent count - i * bound, 0, bound)`.

use crate::ids::AxisId;
use cranelift_entity::{EntityRef, PrimaryMap};
use smallvec::SmallVec;

/// A list of distinct atomic axes, major to minor.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Axes(SmallVec<[AxisId; 4]>);

impl Axes {
    /// No axes.
    pub fn none() -> Axes {
        Axes::default()
    }

    /// One axis.
    pub fn one(axis: AxisId) -> Axes {
        Axes(SmallVec::from_slice(&[axis]))
    }

    /// True if `other` starts with `self`.
    pub fn is_prefix_of(&self, other: &Axes) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The longest common prefix.
    pub fn common_prefix(&self, other: &Axes) -> Axes {
        self.iter().zip(other.iter()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
    }

    /// `self` without the axes of `other`, in the order of `self`.
    pub fn without(&self, other: &Axes) -> Axes {
        self.iter().filter(|a| !other.contains(*a)).collect()
    }

    /// `self` followed by the axes of `other` that it lacks.
    pub fn union(&self, other: &Axes) -> Axes {
        self.iter().chain(other.iter().filter(|a| !self.contains(*a))).collect()
    }

    /// The axes that both have, in the order of `self`.
    pub fn intersection(&self, other: &Axes) -> Axes {
        self.iter().filter(|a| other.contains(*a)).collect()
    }

    /// True if no axis is in both.
    pub fn is_disjoint(&self, other: &Axes) -> bool {
        self.iter().all(|a| !other.contains(a))
    }

    /// The same axes in mesh order, the canonical order of sets such as `over` and partial axes.
    pub fn sorted(&self) -> Axes {
        let mut axes = self.clone();
        axes.0.sort();
        axes
    }

    /// True if the list contains the axis.
    pub fn contains(&self, axis: AxisId) -> bool {
        self.0.contains(&axis)
    }

    /// The axes, major to minor.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = AxisId> + ExactSizeIterator + Clone + '_ {
        self.0.iter().copied()
    }

    /// The axes as a slice, major to minor.
    pub fn as_slice(&self) -> &[AxisId] {
        &self.0
    }

    /// Adds an axis at the minor end.
    pub fn push(&mut self, axis: AxisId) {
        self.0.push(axis);
    }

    /// Removes the axis at the minor end.
    pub fn pop(&mut self) -> Option<AxisId> {
        self.0.pop()
    }

    /// The number of axes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no axes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<AxisId> for Axes {
    fn from_iter<I: IntoIterator<Item = AxisId>>(iter: I) -> Axes {
        Axes(iter.into_iter().collect())
    }
}

/// An atomic axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Axis {
    /// Its name in `$name` and `{name}`.
    pub name: String,
    /// The number of coordinates.
    pub size: u64,
}

/// A named run of axes: `dp=[edp,ep]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its name, valid wherever the name of an axis is.
    pub name: String,
    /// Its axes, major to minor.
    pub axes: Axes,
}

/// A grid of devices.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mesh {
    /// Its name.
    pub name: String,
    /// Its axes in rank order, innermost last.
    pub axes: PrimaryMap<AxisId, Axis>,
    /// Its groups.
    pub groups: Vec<Group>,
}

/// The name of the pipeline axis, which never shards a dim.
pub const PIPELINE: &str = "pp";

impl Mesh {
    /// A mesh without groups from names and sizes, in rank order.
    pub fn new(name: &str, axes: &[(&str, u64)]) -> Mesh {
        let axes = axes.iter().map(|&(name, size)| Axis { name: name.to_string(), size }).collect();
        Mesh { name: name.to_string(), axes, groups: Vec::new() }
    }

    /// The axes of a name: one atomic axis, or those of a group.
    pub fn lookup(&self, name: &str) -> Option<Axes> {
        let atomic = self.axes.iter().find(|(_, axis)| axis.name == name).map(|(id, _)| Axes::one(id));
        atomic.or_else(|| self.groups.iter().find(|group| group.name == name).map(|group| group.axes.clone()))
    }

    /// The pipeline axis, if the mesh has one.
    pub fn pipeline(&self) -> Option<AxisId> {
        self.axes.iter().find(|(_, axis)| axis.name == PIPELINE).map(|(id, _)| id)
    }

    /// All axes below the pipeline axis: those that tensors may use.
    pub fn tensor_axes(&self) -> Axes {
        self.axes.keys().filter(|&id| Some(id) != self.pipeline()).collect()
    }

    /// The product of the sizes of the axes.
    pub fn size(&self, axes: &Axes) -> u64 {
        axes.iter().map(|axis| self.axes[axis].size).product()
    }

    /// The number of devices.
    pub fn devices(&self) -> u64 {
        self.axes.values().map(|axis| axis.size).product()
    }

    /// The coordinates of a rank, one per axis in mesh order.
    pub fn coordinates(&self, rank: u64) -> Vec<u64> {
        let mut rest = rank;
        let mut coordinates = vec![0; self.axes.len()];
        for (axis, data) in self.axes.iter().rev() {
            coordinates[axis.index()] = rest % data.size;
            rest /= data.size;
        }
        coordinates
    }

    /// The rank at the coordinates.
    pub fn rank(&self, coordinates: &[u64]) -> u64 {
        self.axes.iter().fold(0, |rank, (axis, data)| rank * data.size + coordinates[axis.index()])
    }

    /// The linear index of the coordinates along the axes, major to minor.
    pub fn index_along(&self, axes: &Axes, coordinates: &[u64]) -> u64 {
        axes.iter().fold(0, |index, axis| index * self.axes[axis].size + coordinates[axis.index()])
    }

    /// The ranks that differ from the given one only along the axes, in their order along them (major to minor).
    pub fn peers(&self, rank: u64, axes: &Axes) -> Vec<u64> {
        let mut coordinates = self.coordinates(rank);
        (0..self.size(axes))
            .map(|index| {
                let mut rest = index;
                for axis in axes.iter().rev() {
                    coordinates[axis.index()] = rest % self.axes[axis].size;
                    rest /= self.axes[axis].size;
                }
                self.rank(&coordinates)
            })
            .collect()
    }

    /// The local bound of a dim: nested ceilings, major axis first.
    pub fn bound(&self, size: u64, axes: &Axes) -> u64 {
        axes.iter().fold(size, |bound, axis| bound.div_ceil(self.axes[axis].size))
    }

    /// The offset and number of elements of the shard of a dim on the rank at the coordinates.
    pub fn extent(&self, size: u64, axes: &Axes, coordinates: &[u64]) -> Extent {
        let whole = (Extent { origin: 0, count: size }, size);
        let (extent, _) = axes.iter().fold(whole, |(parent, parent_bound), axis| {
            let bound = parent_bound.div_ceil(self.axes[axis].size);
            let skipped = (coordinates[axis.index()] * bound).min(parent.count);
            (Extent { origin: parent.origin + skipped, count: (parent.count - skipped).min(bound) }, bound)
        });
        extent
    }

    /// The shards of a dim that are not empty, in the order of their index: [`Mesh::extent`] of all ranks along the axes.
    pub fn extents(&self, size: u64, axes: &Axes) -> Vec<Extent> {
        let (mut shards, mut bound) = (vec![Extent { origin: 0, count: size }], size);
        for axis in axes.iter() {
            bound = bound.div_ceil(self.axes[axis].size);
            let mut inner = Vec::new();
            for Extent { origin, count } in shards {
                let starts = (0..count).step_by(bound as usize);
                inner.extend(starts.map(|start| Extent { origin: origin + start, count: bound.min(count - start) }));
            }
            shards = inner;
        }
        shards
    }

    /// True if the axes shard a dim of this size evenly.
    pub fn is_even(&self, size: u64, axes: &Axes) -> bool {
        size.is_multiple_of(self.size(axes))
    }
}

/// A shard of a dim: the elements `origin .. origin + count`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first element.
    pub origin: u64,
    /// The number of elements.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_of_an_uneven_dim_are_nested_ceilings() {
        let mesh = Mesh::new("m", &[("a", 2), ("b", 3)]);
        let axes = mesh.tensor_axes();
        let shards: Vec<_> = (0..6).map(|r| mesh.extent(7, &axes, &mesh.coordinates(r))).collect();
        // 7 over a=2: bounds 4, counts 4 and 3; each over b=3: bound 2.
        let want = [(0, 2), (2, 2), (4, 0), (4, 2), (6, 1), (7, 0)];
        assert_eq!(shards, want.map(|(origin, count)| Extent { origin, count }));
        assert_eq!(mesh.bound(7, &axes), 2);
        let some: Vec<_> = shards.into_iter().filter(|shard| shard.count > 0).collect();
        assert_eq!(mesh.extents(7, &axes), some);
    }

    #[test]
    fn peers_run_major_to_minor() {
        let mesh = Mesh::new("m", &[("pp", 2), ("dp", 2), ("tp", 2)]);
        let tp_then_dp = Axes::from_iter([AxisId::new(2), AxisId::new(1)]);
        assert_eq!(mesh.peers(5, &tp_then_dp), [4, 6, 5, 7]);
        assert_eq!(mesh.rank(&mesh.coordinates(6)), 6);
    }
}
