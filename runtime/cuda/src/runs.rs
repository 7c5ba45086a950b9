//! Blocks of tensors as kernels of exchanges take them: in the widest runs that lie together on both sides.

use super::error::Error;
use comm::Move;
use cudarc::driver::DeviceRepr;
use kernels::cuda::exchange::{DIMS, WIDEST};

/// Sizes and strides of a block in runs, as a kernel takes them. Missing dims have one element.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    sizes: [u64; DIMS],
    from: [u64; DIMS],
    to: [u64; DIMS],
}

// SAFETY: plain numbers in the order of the kernel's struct.
unsafe impl DeviceRepr for Block {}

/// A block in runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Runs {
    pub(super) block: Block,
    pub(super) count: usize,
    /// Bytes of a run.
    pub(super) bytes: usize,
}

impl Runs {
    /// The runs of a block of elements of `size` bytes, between tensors at these addresses.
    ///
    /// # Errors
    /// The block has too many dims.
    pub(super) fn of(block: &Move, size: usize, addresses: impl Iterator<Item = u64>) -> Result<Runs, Error> {
        let dims = merged(block);
        if dims.len() > DIMS {
            return Err(Error::Program(format!("a block of {} dims moves; the most are {DIMS}", dims.len())));
        }
        let count: usize = dims.iter().map(|dim| dim[0]).product();
        let width = width(&dims, size, addresses);
        let mut block = Block { sizes: [1; DIMS], from: [0; DIMS], to: [0; DIMS] };
        [block.from[DIMS - 1], block.to[DIMS - 1]] = [1, 1];
        for (at, (place, &[size, from, to])) in (DIMS - dims.len()..).zip(&dims).enumerate() {
            // The elements of a run are neighbours in the last dim.
            let [sizes, strides] = if at + 1 == dims.len() { [width, 1] } else { [1, width] };
            block.sizes[place] = (size / sizes) as u64;
            [block.from[place], block.to[place]] = [from, to].map(|stride| (stride / strides) as u64);
        }
        Ok(Runs { block, count: count / width, bytes: width * size })
    }

    /// True if the block is one run on both sides.
    pub(super) fn is_dense(&self) -> bool {
        let Block { sizes, from, to } = &self.block;
        sizes[..DIMS - 1].iter().all(|size| *size == 1) && [from, to].iter().all(|strides| strides[DIMS - 1] == 1)
    }
}

/// Size and strides of each dim, from both sides, of a block whose neighbouring dims are one where they lie together.
fn merged(block: &Move) -> Vec<[usize; 3]> {
    let mut dims: Vec<[usize; 3]> = Vec::new();
    for ((&size, &from), &to) in block.sizes.iter().zip(&block.from_strides).zip(&block.to_strides) {
        match dims.last_mut() {
            _ if size == 1 => {}
            Some(outer) if outer[1] == size * from && outer[2] == size * to => *outer = [outer[0] * size, from, to],
            _ => dims.push([size, from, to]),
        }
    }
    dims
}

/// The most elements of a run: they lie together on both sides, and every run is aligned to its bytes.
fn width(dims: &[[usize; 3]], size: usize, addresses: impl Iterator<Item = u64>) -> usize {
    let Some((&[inner, 1, 1], outer)) = dims.split_last() else { return 1 };
    let strides = outer.iter().flat_map(|dim| [dim[1], dim[2]]);
    let bytes = strides.chain([inner]).map(|elements| (elements * size) as u64);
    // The greatest power of two that divides all numbers is the lowest bit that any of them has.
    let bits = bytes.chain(addresses).fold(WIDEST as u64, |bits, number| bits | number);
    ((1 << bits.trailing_zeros()) / size).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(sizes: &[usize], from: &[usize], to: &[usize]) -> Move {
        let [from_strides, to_strides, sizes] = [from, to, sizes].map(<[usize]>::to_vec);
        Move { peer: 0, from: 0, from_strides, to: 0, to_strides, sizes, packed: false }
    }

    #[test]
    fn runs_are_as_wide_as_sizes_strides_and_addresses_allow() {
        let of = |block: &Move, size, addresses: [u64; 2]| Runs::of(block, size, addresses.into_iter()).unwrap();
        let dense = of(&block(&[6, 8], &[8, 1], &[8, 1]), 2, [512, 1024]);
        assert!(dense.is_dense() && (dense.count, dense.bytes) == (6, 16), "{dense:?}");
        let columns = of(&block(&[6, 8], &[12, 1], &[8, 1]), 2, [512, 1024]);
        assert!(!columns.is_dense() && (columns.count, columns.bytes) == (12, 8), "{columns:?}");
        assert_eq!(columns.block.sizes[DIMS - 2..], [6, 2]);
        assert_eq!([columns.block.from, columns.block.to].map(|strides| strides[DIMS - 2]), [3, 2]);
        assert_eq!(of(&block(&[6, 8], &[12, 1], &[8, 1]), 2, [512, 1026]).bytes, 2);
        let turned = of(&block(&[6, 8], &[1, 6], &[8, 1]), 4, [512, 1024]);
        assert_eq!((turned.count, turned.bytes), (48, 4));
        let one = of(&block(&[1, 1], &[7, 1], &[1, 1]), 4, [512, 1024]);
        assert!(one.is_dense() && (one.count, one.bytes) == (1, 4), "{one:?}");
        assert_eq!(of(&block(&[0, 8], &[8, 1], &[8, 1]), 4, [512, 1024]).count, 0);
    }

    #[test]
    fn too_many_dims_are_told() {
        let sizes = vec![2; DIMS + 1];
        let strides: Vec<usize> = (0..=DIMS).map(|dim| 3usize.pow(dim as u32)).rev().collect();
        let why = Runs::of(&block(&sizes, &strides, &strides), 4, std::iter::empty()).unwrap_err();
        assert_eq!(why.to_string(), "a block of 13 dims moves; the most are 12");
    }
}
