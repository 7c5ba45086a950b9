//! Shape of a replica group: how many of its ranks lie next to each other.

use crate::collective_time::Group;
use ir::entity::EntityRef;
use ir::mesh::{Axes, Mesh};
use smallvec::{SmallVec, smallvec};

/// Ranks that communicate, along one axis or several: for each axis its number of ranks, and their distance.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupShape(SmallVec<[Group; 3]>);

impl From<Group> for GroupShape {
    fn from(group: Group) -> GroupShape {
        GroupShape(smallvec![group])
    }
}

impl GroupShape {
    /// The ranks along axes of a mesh.
    pub fn of(mesh: &Mesh, over: &Axes) -> GroupShape {
        let mut groups = SmallVec::new();
        let mut stride = 1;
        for (axis, ranks) in mesh.axes.iter().rev().map(|(axis, own)| (axis, own.size)) {
            if over.contains(axis) && ranks > 1 {
                groups.push(Group { ranks, stride });
            }
            stride *= ranks;
        }
        GroupShape(groups)
    }

    /// Some neighbouring ranks along the pipeline axis; of a mesh without one, any.
    pub fn of_neighbours(mesh: &Mesh, ranks: u64) -> GroupShape {
        let inner = mesh.pipeline().map(|axis| mesh.axes.values().skip(axis.index() + 1));
        GroupShape::from(Group { ranks, stride: inner.map_or(1, |inner| inner.map(|axis| axis.size).product()) })
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        self.0.iter().map(|group| group.ranks).product()
    }

    /// Number of ranks of the group among `joined` consecutive ranks, of which the first is in the group. That of a group along several
    /// axes is the product of theirs.
    pub fn ranks_within(&self, joined: u64) -> u64 {
        self.0.iter().map(|group| (joined / group.stride.max(1)).clamp(1, group.ranks.max(1))).product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_along_axes_with_another_between_lie_apart() {
        let mesh = Mesh::new("m", &[("pp", 2), ("dp", 4), ("cp", 2), ("tp", 4)]);
        let over =
            |names: &str| names.split(',').fold(Axes::none(), |all, name| all.union(&mesh.lookup(name).unwrap()));
        let within = |names: &str, joined: u64| GroupShape::of(&mesh, &over(names)).ranks_within(joined);
        // Eight consecutive ranks are those of cp and tp.
        assert_eq!([within("tp", 8), within("cp", 8), within("dp", 8)], [4, 2, 1]);
        assert_eq!([within("dp,tp", 8), within("dp,tp", 16), within("cp,tp", 8)], [4, 8, 8]);
        assert_eq!(GroupShape::of(&mesh, &over("dp,tp")).ranks(), 16);
        assert_eq!(GroupShape::of_neighbours(&mesh, 2), GroupShape::from(Group { ranks: 2, stride: 32 }));
    }
}
