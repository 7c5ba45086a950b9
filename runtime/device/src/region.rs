//! A rank's part of a tensor: a box of the global tensor, which flat-shard axes may reduce to a contiguous range of its
//! elements.

use ir::mesh::{Extent, Mesh};
use ir::types::{PartialKind, Type};

/// A rank's part of a tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// The first index of the box in each dim.
    pub origin: Vec<usize>,
    /// The sizes of the box.
    pub sizes: Vec<usize>,
    /// The run of the box's row-major elements that the rank holds: all of them without storage axes. Runs are nested
    /// like the shards of a dim, so that storage axes may come and go at the minor end.
    pub run: Extent,
}

impl Region {
    /// The part that the rank at the coordinates holds.
    pub fn of(ty: &Type, mesh: &Mesh, coordinates: &[u64]) -> Region {
        let (origin, sizes) = (ty.local_origin(mesh, coordinates), ty.local_sizes(mesh, coordinates));
        let run = mesh.extent(sizes.iter().product(), &ty.storage, coordinates);
        let [origin, sizes] = [origin, sizes].map(|list| list.into_iter().map(|x| x as usize).collect());
        Region { origin, sizes, run }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.run.count as usize
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The run as a box of one dim.
    pub fn as_run(&self) -> Region {
        let run = Extent { origin: 0, count: self.run.count };
        Region { origin: vec![self.run.origin as usize], sizes: vec![self.run.count as usize], run }
    }

    /// The box that both have, if it is not empty: its first index and its sizes.
    pub fn meet(&self, other: &Region) -> Option<(Vec<usize>, Vec<usize>)> {
        let dims = 0..self.sizes.len();
        let start: Vec<usize> = dims.clone().map(|d| self.origin[d].max(other.origin[d])).collect();
        let sizes: Vec<usize> = dims.map(|d| self.end(d).min(other.end(d)).saturating_sub(start[d])).collect();
        (!sizes.contains(&0)).then_some((start, sizes))
    }

    /// The index after the last one of the box in a dim.
    fn end(&self, dim: usize) -> usize {
        self.origin[dim] + self.sizes[dim]
    }

    /// The place of an index of the whole in the rank's box, in elements.
    pub fn offset(&self, index: &[usize]) -> usize {
        let strides = row_major(&self.sizes);
        index.iter().zip(&self.origin).zip(&strides).map(|((i, o), s)| (i - o) * s).sum()
    }
}

/// The strides of a dense row-major tensor.
pub fn row_major(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    for i in (1..sizes.len()).rev() {
        strides[i - 1] = strides[i] * sizes[i];
    }
    strides
}

/// The number of elements that the rank at the coordinates holds.
pub fn local_len(ty: &Type, mesh: &Mesh, coordinates: &[u64]) -> usize {
    Region::of(ty, mesh, coordinates).len()
}

/// Elements that follow one another both in the whole tensor and in a rank's part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionPiece {
    /// Their start in the unsharded tensor.
    pub whole: usize,
    /// Their start in the part.
    pub part: usize,
    /// How many they are.
    pub len: usize,
}

/// The pieces of a rank's part, in their order.
pub fn pieces(ty: &Type, region: &Region) -> Vec<RegionPiece> {
    let sizes: Vec<usize> = ty.sizes().iter().map(|&s| s as usize).collect();
    let strides = row_major(&sizes);
    // Whole dims at the minor end, and one dim more, run on.
    let cut = (0..sizes.len()).rev().find(|&d| region.sizes[d] != sizes[d]).unwrap_or(0);
    let len: usize = region.sizes[cut..].iter().product();
    let rows: usize = region.sizes[..cut].iter().product();
    let first: usize = region.origin.iter().zip(&strides).map(|(o, s)| o * s).sum();
    let (start, end) = (region.run.origin as usize, (region.run.origin + region.run.count) as usize);
    let mut pieces = Vec::with_capacity(rows);
    for row in 0..rows {
        let (mut rest, mut whole) = (row, first);
        for d in (0..cut).rev() {
            whole += rest % region.sizes[d] * strides[d];
            rest /= region.sizes[d];
        }
        // Of the box, the run alone is in the part.
        let (from, to) = ((row * len).max(start), ((row + 1) * len).min(end));
        if from < to {
            pieces.push(RegionPiece { whole: whole + from - row * len, part: from - start, len: to - from });
        }
    }
    pieces
}

/// Copies a rank's part out of the unsharded tensor.
///
/// # Panics
/// If a slice does not have the size of its type.
pub fn extract<T: Copy>(whole: &[T], ty: &Type, region: &Region, part: &mut [T]) {
    for piece in pieces(ty, region) {
        part[piece.part..][..piece.len].copy_from_slice(&whole[piece.whole..][..piece.len]);
    }
}

/// Copies a rank's part into the unsharded tensor, or adds it if the tensor is partial.
///
/// # Panics
/// If a slice does not have the size of its type.
pub fn assemble(part: &[f32], ty: &Type, region: &Region, whole: &mut [f32]) {
    let adds = ty.partial.as_ref().is_some_and(|partial| partial.kind == PartialKind::Sum);
    for piece in pieces(ty, region) {
        let (part, whole) = (&part[piece.part..][..piece.len], &mut whole[piece.whole..][..piece.len]);
        match adds {
            true => whole.iter_mut().zip(part).for_each(|(a, b)| *a += b),
            false => whole.copy_from_slice(part),
        }
    }
}
