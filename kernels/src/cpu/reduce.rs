//! Sums and maxima over chosen dimensions.

use super::nd::{merge, row_major, walk};
use super::par::{Par, Rows};
use super::simd::{self, simd};

/// How the elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum; 0 of nothing.
    Sum,
    /// The largest; negative infinity of nothing.
    Max,
}

/// Rows longer than this are summed in pieces, and the pieces in double precision.
const PIECE: usize = 1 << 11;

/// Reduces `x` of shape `dims` over the dimensions that are not in `keep`; `out` has the others, in order.
///
/// # Panics
/// If a slice or `keep` does not have the size that `dims` asks for.
pub fn reduce(kind: Reduction, x: &[f32], dims: &[usize], keep: &[bool], out: &mut [f32], par: Par) {
    assert_eq!(x.len(), dims.iter().product(), "x has the shape of dims");
    assert_eq!(keep.len(), dims.len(), "one flag per dimension");
    let kept: usize = dims.iter().zip(keep).filter(|(_, keep)| **keep).map(|(size, _)| *size).product();
    assert_eq!(out.len(), kept, "out has the dimensions that stay");
    out.fill(match kind {
        Reduction::Sum => 0.0,
        Reduction::Max => f32::NEG_INFINITY,
    });
    if x.is_empty() {
        return;
    }
    let mut strides = row_major(dims);
    let mut rest = out.len();
    for i in 0..dims.len() {
        rest /= if keep[i] { dims[i] } else { 1 };
        strides[i] = if keep[i] { rest } else { 0 };
    }
    let (dims, [from, to]) = merge(dims, [&row_major(dims), &strides]);
    // Threads share the first dimension of `keep`.
    let Some(split) = to.iter().position(|&stride| stride > 0) else {
        return part(kind, x, out, &dims, &from, &to);
    };
    par.rows(dims[split], x.len() / dims[split], Rows(out, to[split]), &|range, out| {
        let mut dims = dims.clone();
        dims[split] = range.len();
        if !range.is_empty() {
            part(kind, &x[range.start * from[split]..], out.0, &dims, &from, &to);
        }
    });
}

fn part(kind: Reduction, x: &[f32], out: &mut [f32], dims: &[usize], from: &[usize], to: &[usize]) {
    let Some(last) = dims.len().checked_sub(1) else {
        out[0] = x[0];
        return;
    };
    let n = dims[last];
    walk(&dims[..last], [&from[..last], &to[..last]], [0, 0], &mut |[i, o]| {
        let row = &x[i..i + n];
        match (kind, to[last]) {
            (Reduction::Sum, 0) => out[o] += row_sum(row),
            (Reduction::Max, 0) => out[o] = out[o].max(row_max(row)),
            (Reduction::Sum, _) => add_rows(row, &mut out[o..o + n]),
            (Reduction::Max, _) => max_rows(row, &mut out[o..o + n]),
        }
    });
}

simd! {
    fn row_sum(x: &[f32]) -> f32 {
        let mut total = 0.0;
        for piece in x.chunks(PIECE) {
            total += f64::from(simd::sum(piece, #[inline(always)] |v| v));
        }
        total as f32
    }

    pub(crate) fn row_max(x: &[f32]) -> f32 {
        simd::max(x)
    }

    pub(crate) fn add_rows(x: &[f32], out: &mut [f32]) {
        for (o, &v) in out.iter_mut().zip(x) {
            *o += v;
        }
    }

    fn max_rows(x: &[f32], out: &mut [f32]) {
        for (o, &v) in out.iter_mut().zip(x) {
            *o = if *o > v { *o } else { v };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, doubles, normals};
    use super::*;

    fn naive(kind: Reduction, x: &[f64], dims: &[usize], keep: &[bool]) -> Vec<f64> {
        let kept = dims.iter().zip(keep).filter(|(_, k)| **k).map(|(d, _)| *d);
        let start = if kind == Reduction::Sum { 0.0 } else { f64::NEG_INFINITY };
        let mut out = vec![start; kept.product()];
        for (i, v) in x.iter().enumerate() {
            let (mut rest, mut index, mut stride) = (i, 0, 1);
            for (d, k) in dims.iter().zip(keep).rev() {
                if *k {
                    index += rest % d * stride;
                    stride *= d;
                }
                rest /= d;
            }
            out[index] = if kind == Reduction::Sum { out[index] + v } else { out[index].max(*v) };
        }
        out
    }

    #[test]
    fn every_choice_of_dimensions() {
        for dims in [[3, 5, 7], [1, 40, 2], [2, 0, 3], [6, 1, 129], [64, 33, 65]] {
            let x = normals(dims.iter().product(), 1);
            for mask in 0..8 {
                let keep = [0, 1, 2].map(|i| mask >> i & 1 == 1);
                for kind in [Reduction::Sum, Reduction::Max] {
                    for par in [Par(1), Par(2)] {
                        let expected = naive(kind, &doubles(&x), &dims, &keep);
                        let mut out = vec![f32::NAN; expected.len()];
                        reduce(kind, &x, &dims, &keep, &mut out, par);
                        assert_close(&out, &expected, 1e-4);
                    }
                }
            }
        }
    }

    #[test]
    fn long_sums_keep_their_precision() {
        let x = vec![0.1f32; 3_000_001];
        let mut out = [0.0];
        reduce(Reduction::Sum, &x, &[x.len()], &[false], &mut out, Par(1));
        let exact = f64::from(0.1f32) * x.len() as f64;
        assert!((f64::from(out[0]) / exact - 1.0).abs() < 1e-6);
    }
}
