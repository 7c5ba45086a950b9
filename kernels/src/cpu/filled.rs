//! Contraction of chunks of rows of which only the first ones are filled: products of experts with the tokens that came.
//!
//! `b q e c h, e h m -> b q e c m` is, for each expert e, one product of all rows that are filled; others are neither read nor computed, and
//! become zeros. `b q e c m, b q e c h -> e h m` adds up over them. Rows of several chunks are first copied side by side.

use super::einsum::{Einsum, LabelSizes, Layout};
use super::gemm::multiply;
use super::matrix::Matrix;
use super::narrow::Floats;
use super::nd::{Dims, walk};
use super::par::{FLOPS, Par};

/// A planned contraction whose first operand has chunks of rows.
#[derive(Clone, Debug)]
pub struct Filled {
    /// For each index of both operands and the result: sizes, and strides of counts, the second operand and the result.
    batch: (Dims, [Dims; 3]),
    /// The other indices of chunks, with strides of counts.
    chunks: (Dims, Dims),
    /// Rows of a chunk.
    rows: usize,
    /// Elements of a row of the first operand, and of a row of the result, or else of the second operand.
    width: [usize; 2],
    /// True if the result has the rows. If not, the second operand has them, and they are summed.
    keeps_rows: bool,
    /// Strides of the tensor without rows: the second operand, or the result.
    strides: [usize; 2],
    sizes: [usize; 4],
}

/// Memory for rows that are copied side by side, and for rows of a result. It grows as needed.
#[derive(Default)]
pub struct Copied {
    rows: [Rows; 2],
    made: Vec<f32>,
}

/// Rows in the format that they have: products of narrow ones do not depend on where they are.
#[derive(Default)]
struct Rows {
    wide: Vec<f32>,
    narrow: Vec<u8>,
}

impl Filled {
    /// Plans the contraction of `a`, whose dims before `rows` number chunks of rows, and `b` to `out`. `None` if it is another than those
    /// above, which [`Einsum`] does on all rows.
    pub fn new(equation: [&[char]; 3], dims: [&[usize]; 2], rows: usize) -> Option<Filled> {
        let [a, b, out] = equation;
        let sizes = LabelSizes::of(a, b, dims[0], dims[1]);
        let keeps_rows = out.contains(a.get(rows)?);
        // The tensor whose rows are those of the first operand, and the one that has none.
        let (alike, whole) = if keeps_rows { (out, b) } else { (b, out) };
        let (head, [inner, outer]) = (&a[..=rows], [a, alike].map(|letters| letters.get(rows + 1..).unwrap_or(&[])));
        let batch: Vec<char> = a[..rows].iter().copied().filter(|letter| whole.contains(letter)).collect();
        let is_plain = alike.get(..=rows)? == head
            && !whole.contains(&a[rows])
            && !inner.iter().any(|letter| outer.contains(letter))
            && whole.len() == batch.len() + inner.len() + outer.len()
            && inner.iter().chain(outer).all(|letter| whole.contains(letter));
        if !is_plain {
            return None;
        }
        let others: Vec<char> = a[..rows].iter().copied().filter(|letter| !batch.contains(letter)).collect();
        let whole = Layout::dense(whole, &sizes);
        let chunks = Layout::dense(&a[..rows], &sizes);
        Some(Filled {
            batch: (sizes.dims(&batch), [&a[..rows], b, out].map(|all| Layout::dense(all, &sizes).strides(&batch))),
            chunks: (sizes.dims(&others), chunks.strides(&others)),
            rows: sizes.size(a[rows]),
            width: [sizes.count(inner), sizes.count(outer)],
            keeps_rows,
            strides: [whole.stride(inner, &sizes)?, whole.stride(outer, &sizes)?],
            sizes: [&a[..rows], a, b, out].map(|letters| sizes.count(letters)),
        })
    }

    /// Computes the contraction into `out`, or adds it. `counts` are the numbers of filled rows.
    ///
    /// # Panics
    /// If a tensor has not the size planned for.
    pub fn run(
        &self,
        operands: [Floats<'_>; 2],
        counts: &[i32],
        out: &mut [f32],
        accumulate: bool,
        par: Par,
        copied: &mut Copied,
    ) {
        let [a, b] = operands;
        assert_eq!([counts.len(), a.len(), b.len(), out.len()], self.sizes, "sizes of counts, a, b and out");
        let (dims, [of_counts, of_b, of_out]) = &self.batch;
        if !self.keeps_rows && !accumulate {
            out.fill(0.0);
        }
        walk(dims, [of_counts, of_b, of_out], [0; 3], &mut |[first, b_at, out_at]| {
            let batch = Batch { plan: self, counts, first };
            if self.keeps_rows {
                batch.products(a, b.skip(b_at), out, accumulate, par, copied);
            } else {
                batch.sums(a, b, &mut out[out_at..], par, copied);
            }
        });
    }
}

/// The chunks of one index of the batch.
struct Batch<'f> {
    plan: &'f Filled,
    counts: &'f [i32],
    /// Place of the count of the first chunk.
    first: usize,
}

impl Batch<'_> {
    /// Visits the chunks, which have the order of their counts.
    fn each(&self, mut visit: impl FnMut(Chunk)) {
        let Filled { chunks: (dims, counts), rows, .. } = self.plan;
        walk(dims, [counts], [self.first], &mut |[chunk]| {
            let filled = usize::try_from(self.counts[chunk]).unwrap_or(0).min(*rows);
            visit(Chunk { filled, first: chunk * rows });
        });
    }

    /// The filled rows, and the chunk that has all of them, if there is one.
    fn rows(&self) -> (usize, Option<Chunk>) {
        let (mut total, mut only) = (0, None);
        self.each(|chunk| {
            if chunk.filled > 0 {
                only = (total == 0).then_some(chunk);
                total += chunk.filled;
            }
        });
        (total, only)
    }

    /// Copies the filled rows of all chunks, of `width` elements, side by side.
    fn gather<'t>(&self, from: Floats<'_>, width: usize, to: &'t mut Rows, total: usize) -> Floats<'t> {
        match from {
            Floats::Wide(from) => Floats::Wide(self.side_by_side(from, width, &mut to.wide, total)),
            Floats::Narrow(format, from) => {
                let width = width * format.bytes();
                Floats::Narrow(format, self.side_by_side(from, width, &mut to.narrow, total))
            }
        }
    }

    fn side_by_side<'t, T: Copy + Default>(
        &self,
        from: &[T],
        width: usize,
        to: &'t mut Vec<T>,
        total: usize,
    ) -> &'t [T] {
        to.resize(to.len().max(total * width), T::default());
        let mut next = 0;
        self.each(|Chunk { filled, first }| {
            let len = filled * width;
            to[next..next + len].copy_from_slice(&from[first * width..][..len]);
            next += len;
        });
        &to[..next]
    }

    /// The rows of the result for one index of the batch.
    fn products(&self, a: Floats<'_>, b: Floats<'_>, out: &mut [f32], accumulate: bool, par: Par, copied: &mut Copied) {
        let ([k, n], (total, only)) = (self.plan.width, self.rows());
        if !accumulate {
            self.each(|chunk| out[(chunk.first + chunk.filled) * n..(chunk.first + self.plan.rows) * n].fill(0.0));
        }
        if total == 0 || n == 0 {
            return;
        }
        let b = Matrix { data: b, strides: self.plan.strides };
        if let Some(Chunk { first, .. }) = only {
            let a = Matrix::rows(a.skip(first * k), k);
            // SAFETY: the rows are in the slice, which is borrowed for writes.
            return unsafe { product([total, n, k], a, b, &mut out[first * n..][..total * n], accumulate, par) };
        }
        let Copied { rows: [gathered, _], made } = copied;
        let a = self.gather(a, k, gathered, total);
        made.resize(made.len().max(total * n), 0.0);
        // SAFETY: as above.
        unsafe { product([total, n, k], Matrix::rows(a, k), b, &mut made[..total * n], false, par) };
        let mut next = 0;
        self.each(|chunk| {
            let (to, from) = (&mut out[chunk.first * n..][..chunk.filled * n], &made[next..][..chunk.filled * n]);
            next += from.len();
            match accumulate {
                false => to.copy_from_slice(from),
                true => to.iter_mut().zip(from).for_each(|(to, from)| *to += from),
            }
        });
    }

    /// The sum over rows for one index of the batch, added to `out`.
    fn sums(&self, a: Floats<'_>, b: Floats<'_>, out: &mut [f32], par: Par, copied: &mut Copied) {
        let ([m, n], (total, only)) = (self.plan.width, self.rows());
        if total == 0 || m * n == 0 {
            return;
        }
        let [left, right] = &mut copied.rows;
        let (a, b) = match only {
            Some(Chunk { first, .. }) => (a.skip(first * m), b.skip(first * n)),
            None => (self.gather(a, m, left, total), self.gather(b, n, right, total)),
        };
        let strides = self.plan.strides;
        let reach = (m - 1) * strides[0] + (n - 1) * strides[1];
        assert!(reach < out.len(), "the sum is in the result");
        let out = Matrix { data: out.as_mut_ptr(), strides };
        let (size, a) = ([m, n, total], Matrix::rows(a, m).transposed());
        // SAFETY: the elements are in the slice, which is borrowed for writes.
        unsafe { multiply(size, a, Matrix::rows(b, n), out, 1.0, true, threads(par, size)) };
    }
}

/// One product, into dense rows.
///
/// # Safety
/// As of [`multiply`].
unsafe fn product(
    size: [usize; 3],
    a: Matrix<Floats<'_>>,
    b: Matrix<Floats<'_>>,
    out: &mut [f32],
    accumulate: bool,
    par: Par,
) {
    let out = Matrix::rows(out.as_mut_ptr(), size[1]);
    // SAFETY: as the caller promises.
    unsafe { multiply(size, a, b, out, 1.0, accumulate, threads(par, size)) };
}

/// The number of threads that a product is worth.
fn threads(par: Par, size: [usize; 3]) -> usize {
    par.threads((2 * size.iter().product::<usize>()).div_ceil(FLOPS))
}

/// A chunk: the rows that are filled, and its first row among those of the tensor.
#[derive(Clone, Copy)]
struct Chunk {
    filled: usize,
    first: usize,
}

/// A contraction of chunks of rows, by the rows that are filled if it has the form for that, and by all of them if not.
#[derive(Clone, Debug)]
pub enum Chunks {
    /// Only filled rows are read.
    Filled(Box<Filled>),
    /// Rows that are not filled are zeros.
    All(Box<Einsum>),
}

impl Chunks {
    /// Plans the contraction: see [`Filled::new`].
    ///
    /// # Errors
    /// As of [`Einsum::new`].
    pub fn new(equation: [&[char]; 3], dims: [&[usize]; 2], rows: usize) -> Result<Chunks, String> {
        Ok(match Filled::new(equation, dims, rows) {
            Some(filled) => Chunks::Filled(Box::new(filled)),
            None => Chunks::All(Box::new(Einsum::new(equation[0], equation[1], equation[2], dims[0], dims[1])?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{integers, normals};
    use super::*;

    fn equation(text: &str) -> [Vec<char>; 3] {
        let mut parts = text.split([',', '>']);
        [(); 3].map(|()| parts.next().unwrap().chars().collect())
    }

    /// Against the contraction of all rows, those that are not filled being zeros there, and nothing that may be read here.
    #[test]
    fn filled_rows_are_all_that_counts() {
        for text in ["bqech,ehm>bqecm", "bqecm,ehm>bqech", "bqecm,bqech>ehm", "bqecm,bqech>emh", "qech,qecm>ehm"] {
            for (sizes, seed) in
                [([3, 2, 4, 5, 7, 6], 1), ([1, 1, 3, 9, 4, 17], 2), ([2, 1, 1, 4, 1, 3], 3), ([2, 1, 3, 4, 0, 3], 4)]
            {
                let letters = equation(text);
                let dims = letters
                    .each_ref()
                    .map(|of| of.iter().map(|&letter| sizes["bqechm".find(letter).unwrap()]).collect::<Vec<usize>>());
                let rows = letters[0].iter().position(|&letter| letter == 'c').unwrap();
                let [chunks, a_len, b_len, out_len] =
                    [&dims[0][..rows], &dims[0], &dims[1], &dims[2]].map(|of| of.iter().product::<usize>());
                // Some chunks are empty, and some experts have chosen more than there are rows.
                let counts = integers(chunks, seed, -1, sizes[3] as i32 + 2);
                let refs = letters.each_ref().map(Vec::as_slice);
                let filled = Filled::new(refs, [&dims[0], &dims[1]], rows).expect(text);
                let whole = Einsum::new(refs[0], refs[1], refs[2], &dims[0], &dims[1]).unwrap();
                let masked = |data: &[f32], other: f32| -> Vec<f32> {
                    let width = data.len() / chunks / sizes[3];
                    let is_filled = |i: usize| ((i / width % sizes[3]) as i32) < counts[i / width / sizes[3]];
                    (0..data.len()).map(|i| if is_filled(i) { data[i] } else { other }).collect()
                };
                let (a, b) = (normals(a_len, seed), normals(b_len, seed + 9));
                let has_rows = letters[1].contains(&'c');
                let [zeros, unread] = [0.0, f32::NAN]
                    .map(|other| (masked(&a, other), if has_rows { masked(&b, other) } else { b.clone() }));
                for accumulate in [false, true] {
                    let [mut got, mut want] = [(); 2].map(|()| normals(out_len, 5));
                    whole.run(&zeros.0, &zeros.1, &mut want, accumulate, Par(1), &mut Vec::new());
                    let operands = [Floats::Wide(&unread.0), Floats::Wide(&unread.1)];
                    filled.run(operands, &counts, &mut got, accumulate, Par(2), &mut Copied::default());
                    let close = got.iter().zip(&want).all(|(a, b)| (a - b).abs() <= 1e-4 * (1.0 + b.abs()));
                    assert!(close, "{text} {sizes:?} {accumulate}: {got:?} {want:?}");
                }
            }
        }
    }

    #[test]
    fn other_contractions_take_all_rows() {
        for text in ["qech,ehm>qemc", "qech,ehmc>qem", "qech,qecm>qhm"] {
            let letters = equation(text);
            let refs = letters.each_ref().map(Vec::as_slice);
            let dims = letters.each_ref().map(|of| vec![2; of.len()]);
            let planned = Chunks::new(refs, [&dims[0], &dims[1]], 2).unwrap();
            assert_eq!(matches!(planned, Chunks::All(_)), text != "qech,qecm>qhm", "{text}");
        }
    }
}
