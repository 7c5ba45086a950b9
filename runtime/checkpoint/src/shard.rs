//! Shards: boxes of a tensor, a checkpoint's only record of how tensors were sharded.
//!
//! A rank's part is a box of the tensor. Flat-shard axes (ZeRO) may reduce it to a contiguous range of the box's row-major
//! elements. A range that begins and ends within rows is also a union of boxes: the rest of its first row, the full rows,
//! and the start of its last row. The same split applies again within those rows; for n dims it gives at most 2n - 1 boxes.
//! One rule therefore reads and writes everything, and a checkpoint of any sharding can be read under any other.

use comm::Region;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A box of a tensor.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Shard {
    /// Its first index in each dim of the tensor.
    pub offset: Vec<u64>,
    /// Its size in each dim.
    pub shape: Vec<u64>,
}

impl Shard {
    /// The shards of a rank's part, in the order of its elements: each is a piece of them, one after the other.
    pub fn of(region: &Region) -> Vec<Shard> {
        let sizes: Vec<u64> = region.sizes.iter().map(|&size| size as u64).collect();
        let mut shards = boxes(&sizes, region.run.origin..region.run.origin + region.run.count);
        for shard in &mut shards {
            shard.offset.iter_mut().zip(&region.origin).for_each(|(offset, &origin)| *offset += origin as u64);
        }
        shards
    }

    /// How many elements it has.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Its key in a data file: the tensor's name, with the index ranges unless the shard is the entire tensor:
    /// `layer.0.w1[0:16,8:24]`.
    pub fn key(&self, tensor: &str, sizes: &[u64]) -> String {
        if self.shape == sizes {
            return tensor.to_string();
        }
        let ranges = self.offset.iter().zip(&self.shape).map(|(offset, size)| format!("{offset}:{}", offset + size));
        format!("{tensor}[{}]", ranges.collect::<Vec<_>>().join(","))
    }

    /// True if it is a box of a tensor of these sizes.
    pub(super) fn fits(&self, sizes: &[u64]) -> bool {
        let same = self.offset.len() == sizes.len() && self.shape.len() == sizes.len();
        let ends = self.offset.iter().zip(&self.shape).map(|(offset, size)| offset.checked_add(*size));
        same && ends.zip(sizes).all(|(end, whole)| end.is_some_and(|end| end <= *whole))
    }

    /// The box that both have, if it is not empty.
    pub(super) fn meet(&self, other: &Shard) -> Option<Shard> {
        let dims = 0..self.shape.len();
        let offset: Vec<u64> = dims.clone().map(|d| self.offset[d].max(other.offset[d])).collect();
        let shape: Vec<u64> = dims.map(|d| self.end(d).min(other.end(d)).saturating_sub(offset[d])).collect();
        (!shape.contains(&0)).then_some(Shard { offset, shape })
    }

    /// The index after the last one in a dim.
    fn end(&self, dim: usize) -> u64 {
        self.offset[dim] + self.shape[dim]
    }

    /// Gives this box in a tensor of one dim more, at an index of that dim.
    fn at(self, index: u64) -> Shard {
        Shard { offset: [vec![index], self.offset].concat(), shape: [vec![1], self.shape].concat() }
    }

    /// The distance between neighbours in each dim of its own row-major elements.
    pub(super) fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.shape.len()];
        for d in (1..strides.len()).rev() {
            strides[d - 1] = strides[d] * self.shape[d] as usize;
        }
        strides
    }

    /// The place of an index of the tensor among its own row-major elements.
    pub(super) fn place(&self, index: &[u64]) -> usize {
        let strides = self.strides();
        index.iter().zip(&self.offset).zip(strides).map(|((index, offset), s)| (index - offset) as usize * s).sum()
    }
}

/// The boxes that a run of the row-major elements of a tensor of these sizes is, in their order.
fn boxes(sizes: &[u64], run: Range<u64>) -> Vec<Shard> {
    if run.is_empty() {
        return Vec::new();
    }
    let Some((_, inner)) = sizes.split_first() else { return vec![Shard { offset: Vec::new(), shape: Vec::new() }] };
    let row: u64 = inner.iter().product();
    let (first, last) = (run.start / row, run.end / row);
    if first == last {
        return boxes_of_row(inner, first, run.start % row..run.end % row).collect();
    }
    let whole = run.start.div_ceil(row)..last;
    let mut shards = Vec::new();
    if !run.start.is_multiple_of(row) {
        shards.extend(boxes_of_row(inner, first, run.start % row..row));
    }
    if !whole.is_empty() {
        let offset = [vec![whole.start], vec![0; inner.len()]].concat();
        shards.push(Shard { offset, shape: [vec![whole.end - whole.start], inner.to_vec()].concat() });
    }
    shards.extend(boxes_of_row(inner, last, 0..run.end % row));
    shards
}

/// The boxes of a run within one row of a tensor, whose other dims have these sizes.
fn boxes_of_row(sizes: &[u64], row: u64, run: Range<u64>) -> impl Iterator<Item = Shard> {
    boxes(sizes, run).into_iter().map(move |shard| shard.at(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::mesh::Extent;

    fn shard(offset: &[u64], shape: &[u64]) -> Shard {
        Shard { offset: offset.to_vec(), shape: shape.to_vec() }
    }

    /// The places in the whole of a shard's elements, in their order.
    fn places(shard: &Shard, sizes: &[u64]) -> Vec<u64> {
        let place = |at: u64| {
            let (mut rest, mut place, mut stride) = (at, 0, 1);
            for d in (0..sizes.len()).rev() {
                place += (shard.offset[d] + rest % shard.shape[d]) * stride;
                rest /= shard.shape[d];
                stride *= sizes[d];
            }
            place
        };
        (0..shard.elements()).map(place).collect()
    }

    #[test]
    fn a_run_is_its_boxes_in_order() {
        for sizes in [&[][..], &[7], &[3, 5], &[2, 3, 4], &[3, 1, 2, 2]] {
            let all: u64 = sizes.iter().product();
            for (start, end) in (0..=all).flat_map(|start| (start..=all).map(move |end| (start, end))) {
                let shards = boxes(sizes, start..end);
                assert!(shards.len() <= (2 * sizes.len()).saturating_sub(1).max(1), "{sizes:?} {start}..{end}");
                let found: Vec<u64> = shards.iter().flat_map(|shard| places(shard, sizes)).collect();
                assert_eq!(found, (start..end).collect::<Vec<_>>(), "{sizes:?} {start}..{end}");
            }
        }
    }

    #[test]
    fn a_part_lies_where_its_region_does() {
        let region = Region { origin: vec![4, 10], sizes: vec![3, 5], run: Extent { origin: 3, count: 9 } };
        assert_eq!(Shard::of(&region), [shard(&[4, 13], &[1, 2]), shard(&[5, 10], &[1, 5]), shard(&[6, 10], &[1, 2])]);
        let none = Region { run: Extent { origin: 15, count: 0 }, ..region };
        assert!(Shard::of(&none).is_empty());
    }

    #[test]
    fn shards_meet_or_do_not() {
        let a = shard(&[0, 4], &[4, 4]);
        assert_eq!(a.meet(&shard(&[2, 0], &[9, 6])), Some(shard(&[2, 4], &[2, 2])));
        assert_eq!(a.meet(&shard(&[4, 4], &[1, 1])), None);
        assert_eq!((a.place(&[2, 5]), a.fits(&[4, 8]), a.fits(&[4, 7])), (9, true, false));
        assert_eq!((a.key("w", &[4, 8]), a.key("w", &[4, 4])), ("w[0:4,4:8]".into(), "w".into()));
    }
}
