//! Products whose elements are worked on as soon as they are complete, while they are in the L2 cache.

use super::columns::CHUNK;
use super::einsum::Einsum;
use super::gemm::multiply_finished;
pub use super::gemm::{Finish, NextRun, RUN};
use super::matrix::{Matrices, Matrix};
use super::par::Par;
use crate::cpu::narrow::Floats;

impl Matrices {
    /// True if the products are one, each element one sum, in dense rows.
    pub(crate) fn can_finish(&self) -> bool {
        let one = self.batch.count() == 1 && self.inner.count() == 1;
        one && !self.are_dots() && self.strides[2] == [self.size[1], 1]
    }

    /// Computes the product, into `out` if that is given, and calls `finish` for runs of finished elements.
    ///
    /// # Panics
    /// If the product [cannot](Matrices::can_finish) be finished, or reaches beyond `out`.
    pub(crate) fn run_finished(&self, a: Floats, b: Floats, out: Option<&mut [f32]>, par: Par, finish: &dyn Finish) {
        assert!(self.can_finish(), "one product in dense rows");
        let ([m, n, k], threads) = (self.size, self.threads(par));
        let (a, b) = (Matrix { data: a, strides: self.strides[0] }, Matrix { data: b, strides: self.strides[1] });
        let out = out.map(|out| {
            assert_eq!(out.len(), m * n, "the size of the product");
            Matrix::rows(out.as_mut_ptr(), n)
        });
        // SAFETY: `out` is borrowed for writing, and has all elements of the product.
        unsafe { multiply_finished([m, n, k], a, b, out, threads, finish) };
    }
}

impl Einsum {
    /// Computes the contraction of dense rows of `columns` elements, into `out` if it is given. For each run of finished elements of a
    /// row, up to a number of columns, it calls `finish` once. Vectors of scratch memory grow as needed.
    ///
    /// # Panics
    /// If an operand or `out` has not the size planned for.
    pub fn run_finished<'a, 'b>(
        &self,
        (a, b): (impl Into<Floats<'a>>, impl Into<Floats<'b>>),
        (out, columns): (Option<&mut [f32]>, usize),
        par: Par,
        [scratch, whole]: [&mut Vec<f32>; 2],
        finish: &dyn Finish,
    ) {
        let (a, b) = (a.into(), b.into());
        if let Some(matrices) = self.finishing() {
            let ([a, b], _) = self.prepare([a, b], false, 0, scratch, par);
            return matrices.run_finished(a, b, out, par, finish);
        }
        let out = out.unwrap_or_else(|| {
            whole.resize(self.len().max(whole.len()), 0.0);
            &mut whole[..self.len()]
        });
        self.run(a, b, out, false, par, scratch);
        let rows = out.len() / columns.max(1);
        let out = &*out;
        par.rows(rows.div_ceil(CHUNK), CHUNK * columns, (), &|chunks, ()| {
            for row in chunks.start * CHUNK..rows.min(chunks.end * CHUNK) {
                let line = &out[row * columns..][..columns];
                for (at, run) in line.chunks(RUN).enumerate() {
                    finish.finish([row, at * RUN], run, None);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::normals;
    use super::*;
    use std::sync::Mutex;
    use std::thread;

    /// The product of letters and sizes by [`Einsum::run`], and by [`Einsum::run_finished`] with its result and without.
    fn check(equation: [&str; 3], a_dims: &[usize], b_dims: &[usize], columns: usize) {
        let letters = equation.map(|letters| letters.chars().collect::<Vec<_>>());
        let einsum = Einsum::new(&letters[0], &letters[1], &letters[2], a_dims, b_dims).unwrap();
        let [a, b] = [a_dims, b_dims].map(|dims| normals(dims.iter().product(), 7));
        let mut plain = vec![0.0; einsum.len()];
        einsum.run(&a[..], &b[..], &mut plain, false, Par(1), &mut Vec::new());
        for (par, left) in [(Par(1), true), (Par(3), true), (Par(1), false), (Par(3), false)] {
            let (seen, by) = (Mutex::new(vec![f32::NAN; plain.len()]), Mutex::new(vec![None; plain.len()]));
            let finish = |[row, column]: [usize; 2], run: &[f32]| {
                let mut seen = seen.lock().unwrap();
                let place = &mut seen[row * columns + column..][..run.len()];
                assert!(run.len() <= RUN && place.iter().all(|x| x.is_nan()), "each element once");
                place.copy_from_slice(run);
                let (mut by, at, thread) = (by.lock().unwrap(), row * columns + column, Some(thread::current().id()));
                let above = |at: usize| row % CHUNK == 0 || by[at - columns] == thread;
                assert!((at..at + run.len()).all(above), "a chunk of rows in order on one thread");
                by[at..][..run.len()].fill(thread);
            };
            let mut out = vec![0.0; plain.len()];
            let given = left.then_some(&mut out[..]);
            einsum.run_finished((&a[..], &b[..]), (given, columns), par, [&mut Vec::new(), &mut Vec::new()], &finish);
            assert!(seen.into_inner().unwrap() == plain, "{equation:?} {par:?}");
            assert!(!left || out == plain);
        }
    }

    #[test]
    fn finished_elements_are_those_of_the_product() {
        check(["mk", "kn", "mn"], &[70, 600], &[600, 520], 520);
        check(["mk", "kn", "mn"], &[203, 300], &[300, 150], 150);
        check(["bsf", "hf", "bsh"], &[3, 50, 300], &[301, 300], 301);
        check(["bsgd", "gdh", "bsh"], &[2, 9, 3, 8], &[3, 8, 5], 5);
        // A row, a column, an outer product, and a sum over nothing.
        check(["mk", "kn", "mn"], &[1, 33], &[33, 600], 600);
        check(["mk", "kn", "mn"], &[40, 33], &[33, 1], 1);
        check(["mk", "kn", "mn"], &[40, 1], &[1, 30], 30);
        check(["mk", "kn", "mn"], &[4, 0], &[0, 3], 3);
    }
}
