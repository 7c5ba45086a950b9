//! Index arithmetic on dense and strided blocks of any rank.

use smallvec::SmallVec;

/// Sizes or strides, one per dimension.
pub(crate) type Dims = SmallVec<[usize; 8]>;

/// The strides of a dense row-major tensor.
pub(crate) fn row_major(dims: &[usize]) -> Dims {
    let mut strides: Dims = dims.iter().map(|_| 1).collect();
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i] * dims[i];
    }
    strides
}

/// The number of elements a strided block reaches over, from its first to its last.
pub(crate) fn span(dims: &[usize], strides: &[usize]) -> usize {
    assert_eq!(dims.len(), strides.len(), "one stride per dimension");
    if dims.contains(&0) {
        return 0;
    }
    1 + dims.iter().zip(strides).map(|(d, s)| (d - 1) * s).sum::<usize>()
}

/// The same block with as few dimensions as possible: those of size 1 go, and neighbours that run on into one another
/// in all `N` tensors become one.
pub(crate) fn merge<const N: usize>(dims: &[usize], strides: [&[usize]; N]) -> (Dims, [Dims; N]) {
    let mut merged = Dims::new();
    let mut out: [Dims; N] = std::array::from_fn(|_| Dims::new());
    for (i, &size) in dims.iter().enumerate() {
        let last = merged.len().wrapping_sub(1);
        if size == 1 {
            continue;
        }
        if !merged.is_empty() && (0..N).all(|t| out[t][last] == strides[t][i] * size) {
            merged[last] *= size;
            (0..N).for_each(|t| out[t][last] = strides[t][i]);
        } else {
            merged.push(size);
            (0..N).for_each(|t| out[t].push(strides[t][i]));
        }
    }
    (merged, out)
}

/// Calls `f` with the offsets into `N` tensors at each index, last dimension fastest.
pub(crate) fn walk<const N: usize>(
    dims: &[usize],
    strides: [&[usize]; N],
    at: [usize; N],
    f: &mut impl FnMut([usize; N]),
) {
    let Some((&size, dims)) = dims.split_first() else {
        return f(at);
    };
    let rest = strides.map(|s| &s[1..]);
    for i in 0..size {
        walk(dims, rest, std::array::from_fn(|t| at[t] + i * strides[t][0]), f);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_what_runs_on() {
        let strides = row_major(&[2, 1, 3, 4]);
        assert_eq!(strides[..], [12, 12, 4, 1]);
        let (dims, [s]) = merge(&[2, 1, 3, 4], [&strides[..]]);
        assert_eq!((&dims[..], &s[..]), (&[24][..], &[1][..]));
        // The second tensor is transposed in the first two dimensions.
        let (dims, [a, b]) = merge(&[2, 3, 4], [&[12, 4, 1], &[4, 8, 1]]);
        assert_eq!((&dims[..], &a[..], &b[..]), (&[2, 3, 4][..], &[12, 4, 1][..], &[4, 8, 1][..]));
        assert_eq!(span(&[2, 3], &[10, 2]), 15);
        assert_eq!(span(&[2, 0], &[10, 2]), 0);
    }

    #[test]
    fn walks_in_order() {
        let mut seen = vec![];
        walk(&[2, 2], [&[5, 1], &[1, 2]], [0, 100], &mut |at| seen.push(at));
        assert_eq!(seen, [[0, 100], [1, 102], [5, 101], [6, 103]]);
        walk(&[2, 0], [&[5, 1]], [0], &mut |_| panic!("there is no index"));
    }
}
