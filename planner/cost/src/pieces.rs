//! Messages of a permute.

use ir::mesh::{Axes, Extent, Mesh};

/// Largest number of old shards that a new shard of a dim overlaps, if other axes shard the dim. Shards of both kinds
/// are in index order.
pub fn pieces(mesh: &Mesh, size: u64, before: &Axes, after: &Axes) -> u64 {
    let alike = mesh.size(before) == mesh.size(after);
    if before == after || (alike && mesh.is_even(size, before) && mesh.is_even(size, after)) {
        return 1;
    }
    let (old, end) = (mesh.extents(size, before), |shard: &Extent| shard.origin + shard.count);
    let (mut first, mut last, mut most) = (0, 0, 1);
    for new in mesh.extents(size, after) {
        first += old[first..].iter().take_while(|shard| end(shard) <= new.origin).count();
        last += old[last..].iter().take_while(|shard| shard.origin < end(&new)).count();
        most = most.max(last - first);
    }
    most as u64
}
