//! Copies between strided views: permute, broadcast, slice, concatenate, pack.

use super::nd::{merge, span, walk};

/// Position of a view in a slice: its first element, and the distance between neighbours in each dimension. A stride of
/// 0 repeats one element, which a destination must not.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Index of the first element.
    pub offset: usize,
    /// One stride per dimension.
    pub strides: &'a [usize],
}

/// Side of the squares in which a transposition goes; one stays in registers.
const TILE: usize = 8;

/// Copies a view of shape `dims` in `src` to one in `dst`.
///
/// # Panics
/// If a view reaches beyond its slice or has not one stride per dimension.
pub fn copy_strided<T: Copy>(src: &[T], from: View<'_>, dst: &mut [T], to: View<'_>, dims: &[usize]) {
    put_strided(src, from, dst, to, dims, |d, s| *d = s);
}

/// Adds a view of shape `dims` in `src` to one in `dst`.
///
/// # Panics
/// As [`copy_strided`].
pub fn add_strided(src: &[f32], from: View<'_>, dst: &mut [f32], to: View<'_>, dims: &[usize]) {
    put_strided(src, from, dst, to, dims, |d, s| *d += s);
}

/// `dst[m, i, h] = src[m, n - 1 - i, h]`.
///
/// # Panics
/// If the slices differ in length.
pub fn reverse<T: Copy>(src: &[T], n: usize, inner: usize, dst: &mut [T]) {
    assert_eq!(src.len(), dst.len(), "equal numbers of elements");
    if src.is_empty() {
        return;
    }
    for (src, dst) in src.chunks_exact(n * inner).zip(dst.chunks_exact_mut(n * inner)) {
        let rows = src.chunks_exact(inner).zip(dst.chunks_exact_mut(inner).rev());
        rows.for_each(|(src, dst)| dst.copy_from_slice(src));
    }
}

/// Sets every element to `value`.
pub fn fill<T: Copy>(dst: &mut [T], value: T) {
    dst.fill(value);
}

/// Puts the elements of a view of shape `dims` in `src` to those of one in `dst`, by `put`.
///
/// # Panics
/// As [`copy_strided`].
pub fn put_strided<T: Copy>(
    src: &[T],
    from: View<'_>,
    dst: &mut [T],
    to: View<'_>,
    dims: &[usize],
    put: impl Fn(&mut T, T) + Copy,
) {
    let src = &src[from.offset..][..span(dims, from.strides)];
    let dst = &mut dst[to.offset..][..span(dims, to.strides)];
    if dims.contains(&0) {
        return;
    }
    let (mut dims, [mut from, mut to]) = merge(dims, [from.strides, to.strides]);
    let Some(last) = dims.len().checked_sub(1) else {
        return put(&mut dst[0], src[0]);
    };
    let crossing = (0..last).find(|&i| from[i] == 1 && from[last] > 1 && to[last] == 1);
    if let Some(i) = crossing {
        // Put the dimension that is contiguous in the source next to the one contiguous in the destination.
        for list in [&mut dims, &mut from, &mut to] {
            let moved = list.remove(i);
            list.insert(last - 1, moved);
        }
        let (rows, cols) = (dims[last - 1], dims[last]);
        let (across, down) = (from[last], to[last - 1]);
        walk(&dims[..last - 1], [&from[..last - 1], &to[..last - 1]], [0, 0], &mut |[s, d]| {
            transpose(&src[s..], across, &mut dst[d..], down, [rows, cols], put);
        });
        return;
    }
    let (n, [a, b]) = (dims[last], [from[last], to[last]]);
    walk(&dims[..last], [&from[..last], &to[..last]], [0, 0], &mut |[s, d]| match (a, b) {
        (1, 1) => dst[d..d + n].iter_mut().zip(&src[s..s + n]).for_each(|(d, &s)| put(d, s)),
        (0, 1) => dst[d..d + n].iter_mut().for_each(|d| put(d, src[s])),
        _ => (0..n).for_each(|i| put(&mut dst[d + i * b], src[s + i * a])),
    });
}

/// `dst[r, c] <- src[r, c]`, where rows of `dst` are `down` apart and columns of `src` `across`.
fn transpose<T: Copy>(
    src: &[T],
    across: usize,
    dst: &mut [T],
    down: usize,
    [rows, cols]: [usize; 2],
    put: impl Fn(&mut T, T) + Copy,
) {
    let (whole_rows, whole_cols) = (rows / TILE * TILE, cols / TILE * TILE);
    for r in (0..whole_rows).step_by(TILE) {
        for c in (0..whole_cols).step_by(TILE) {
            let tile: [[T; TILE]; TILE] = std::array::from_fn(|i| {
                let column = &src[r + (c + i) * across..][..TILE];
                std::array::from_fn(|j| column[j])
            });
            for j in 0..TILE {
                let line = &mut dst[(r + j) * down + c..][..TILE];
                line.iter_mut().zip(&tile).for_each(|(d, column)| put(d, column[j]));
            }
        }
    }
    for r in 0..rows {
        for c in if r < whole_rows { whole_cols } else { 0 }..cols {
            put(&mut dst[r * down + c], src[r + c * across]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::nd::row_major;
    use super::*;

    fn naive(src: &[f32], from: View<'_>, to: View<'_>, dims: &[usize], dst: &mut [f32], add: bool) {
        walk(dims, [from.strides, to.strides], [from.offset, to.offset], &mut |[s, d]| {
            dst[d] = if add { dst[d] + src[s] } else { src[s] };
        });
    }

    fn check(dims: &[usize], from: View<'_>, to: View<'_>) {
        let src: Vec<f32> = (0..from.offset + span(dims, from.strides)).map(|i| i as f32).collect();
        let mut got = vec![0.5; to.offset + span(dims, to.strides) + 3];
        let mut expected = got.clone();
        copy_strided(&src, from, &mut got, to, dims);
        naive(&src, from, to, dims, &mut expected, false);
        assert_eq!(got, expected, "{dims:?} {from:?} {to:?}");
        add_strided(&src, from, &mut got, to, dims);
        naive(&src, from, to, dims, &mut expected, true);
        assert_eq!(got, expected, "{dims:?} {from:?} {to:?}");
    }

    #[test]
    fn every_permutation_of_three() {
        for dims in [[2, 3, 4], [33, 1, 70], [5, 64, 35], [1, 1, 1], [3, 0, 2]] {
            let strides = row_major(&dims);
            for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                let permuted = order.map(|i| dims[i]);
                let from = order.map(|i| strides[i]);
                let dense = row_major(&permuted);
                let (crossed, dense) = (View { offset: 3, strides: &from }, View { offset: 2, strides: &dense });
                check(&permuted, crossed, dense);
                check(&permuted, dense, crossed);
            }
        }
    }

    #[test]
    fn rows_turn_round() {
        let src: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let mut dst = vec![0.0; 12];
        reverse(&src, 3, 2, &mut dst);
        assert_eq!(dst, [4.0, 5.0, 2.0, 3.0, 0.0, 1.0, 10.0, 11.0, 8.0, 9.0, 6.0, 7.0]);
    }

    #[test]
    fn slices_and_broadcasts() {
        let view = |offset, strides| View { offset, strides };
        check(&[3, 4], view(7, &[10, 1]), view(1, &[6, 1]));
        check(&[3, 4], view(0, &[0, 1]), view(0, &[4, 1]));
        check(&[3, 4], view(0, &[1, 0]), view(0, &[4, 1]));
        check(&[3, 4], view(0, &[0, 0]), view(0, &[4, 1]));
        check(&[], view(3, &[]), view(2, &[]));
        let mut ints = [0i32; 4];
        copy_strided(&[1, 2, 3, 4], view(0, &[1, 2]), &mut ints, view(0, &[2, 1]), &[2, 2]);
        assert_eq!(ints, [1, 3, 2, 4]);
    }
}
