//! Which part of a tensor a rank holds: a box of the whole, of which storage axes may leave a run of its elements.

use ir::mesh::{Extent, Mesh};
use ir::types::{DebtKind, Type};
use kernels::cpu::shape::{View, add_strided, copy_strided};

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
        let to_usize = |list: Vec<u64>| list.into_iter().map(|x| x as usize).collect::<Vec<_>>();
        let sizes = ty.local_sizes(mesh, coordinates);
        let run = mesh.extent(sizes.iter().product(), &ty.storage, coordinates);
        Region { origin: to_usize(ty.local_origin(mesh, coordinates)), sizes: to_usize(sizes), run }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.run.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The run as a box of one dim.
    pub(crate) fn as_run(&self) -> Region {
        let run = Extent { origin: 0, count: self.run.count };
        Region { origin: vec![self.run.origin as usize], sizes: vec![self.run.count as usize], run }
    }

    /// The box that both have, if it is not empty: its first index and its sizes.
    pub(crate) fn meet(&self, other: &Region) -> Option<(Vec<usize>, Vec<usize>)> {
        let dims = 0..self.sizes.len();
        let start: Vec<usize> = dims.clone().map(|d| self.origin[d].max(other.origin[d])).collect();
        let end = |d: usize| (self.origin[d] + self.sizes[d]).min(other.origin[d] + other.sizes[d]);
        let sizes: Vec<usize> = dims.map(|d| end(d).saturating_sub(start[d])).collect();
        (!sizes.contains(&0)).then_some((start, sizes))
    }

    /// The place of an index of the whole in the rank's box, in elements.
    pub(crate) fn offset(&self, index: &[usize]) -> usize {
        let strides = row_major(&self.sizes);
        index.iter().zip(&self.origin).zip(&strides).map(|((i, o), s)| (i - o) * s).sum()
    }
}

/// The strides of a dense row-major tensor.
pub(crate) fn row_major(sizes: &[usize]) -> Vec<usize> {
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

/// Cuts a rank's part out of the whole tensor.
///
/// # Panics
/// If a slice has not the size that the type says.
pub fn cut<T: Copy + Default>(whole: &[T], ty: &Type, region: &Region, part: &mut [T]) {
    let sizes: Vec<usize> = ty.sizes().iter().map(|&s| s as usize).collect();
    let strides = row_major(&sizes);
    let offset = region.origin.iter().zip(&strides).map(|(o, s)| o * s).sum();
    let copy = |to: &mut [T]| {
        if !region.sizes.contains(&0) {
            let dense = row_major(&region.sizes);
            copy_strided(
                whole,
                View { offset, strides: &strides },
                to,
                View { offset: 0, strides: &dense },
                &region.sizes,
            );
        }
    };
    if ty.storage.is_empty() {
        return copy(part);
    }
    let mut shard = vec![T::default(); region.sizes.iter().product()];
    copy(&mut shard);
    part.copy_from_slice(&shard[region.run.origin as usize..][..region.len()]);
}

/// Puts (or, where a sum is owed, adds) a rank's part into the whole tensor.
///
/// # Panics
/// If a slice has not the size that the type says.
pub fn assemble(part: &[f32], ty: &Type, region: &Region, whole: &mut [f32]) {
    let sizes: Vec<usize> = ty.sizes().iter().map(|&s| s as usize).collect();
    let (strides, dense) = (row_major(&sizes), row_major(&region.sizes));
    let offset = region.origin.iter().zip(&strides).map(|(o, s)| o * s).sum();
    let to = View { offset, strides: &strides };
    if region.is_empty() {
        return;
    }
    if ty.storage.is_empty() {
        let put =
            if ty.debt.as_ref().is_some_and(|debt| debt.kind == DebtKind::Sum) { add_strided } else { copy_strided };
        return put(part, View { offset: 0, strides: &dense }, whole, to, &region.sizes);
    }
    // The run may begin and end within rows: the others' elements of the box must stay.
    for (at, &value) in (region.run.origin as usize..).zip(part) {
        let place: usize = (0..sizes.len()).map(|d| at / dense[d] % region.sizes[d] * strides[d]).sum();
        whole[offset + place] = if ty.debt.is_some() { whole[offset + place] + value } else { value };
    }
}
