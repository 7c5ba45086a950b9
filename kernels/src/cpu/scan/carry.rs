//! States that go from block to block.

use crate::cpu::gemm::multiply;
use crate::cpu::matrix::{Matrix, Target};
use crate::cpu::par::{FLOPS, Par};

/// The sizes of blocks and their states.
#[derive(Clone, Copy, Debug)]
pub struct Carry {
    /// From the last block to the first, by transposed matrices.
    pub reverse: bool,
    /// Sequences.
    pub b: usize,
    /// Blocks of a sequence.
    pub n: usize,
    /// Heads.
    pub heads: usize,
    /// Rows of a state.
    pub k: usize,
    /// Columns of a state.
    pub c: usize,
    /// Elements of the transition of a head: 1, k, or k k.
    pub transition: usize,
}

impl Carry {
    /// The states `[b, n, heads, k, c]` before blocks, of what each adds and makes of a state.
    ///
    /// # Panics
    /// If a slice has not its size.
    pub fn run(&self, end: &[f32], through: &[f32], out: &mut [f32], par: Par) {
        let Carry { b, n, heads, k, c, transition, .. } = *self;
        let (all, state) = (b * n * heads, k * c);
        assert_eq!(
            [end.len(), through.len(), out.len()],
            [all * state, all * transition, all * state],
            "blocks of heads"
        );
        let work = if self.is_matrix() { k * state / FLOPS } else { state };
        let out = Target(out.as_mut_ptr());
        par.rows(b * heads, n * work, (), &|range, ()| {
            for head in range {
                let first = head / heads * n * heads + head % heads;
                // SAFETY: the states of this head are in the results, and no other thread has them.
                unsafe { self.head(first, end, through, out) };
            }
        });
    }

    /// Writes the states of a head, whose first block has this number.
    ///
    /// # Safety
    /// `out` must have the states of all blocks of this head, and nobody else may touch them.
    unsafe fn head(&self, first: usize, end: &[f32], through: &[f32], out: Target) {
        let Carry { n, transition, .. } = *self;
        let size = self.k * self.c;
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(out.0.add(self.place(first, 0) * size), size) }.fill(0.0);
        for step in 1..n {
            let (from, to) = (self.place(first, step - 1), self.place(first, step));
            // SAFETY: as above, and the two blocks differ.
            let (before, next) = unsafe {
                let before = std::slice::from_raw_parts(out.0.add(from * size), size);
                (before, std::slice::from_raw_parts_mut(out.0.add(to * size), size))
            };
            next.copy_from_slice(&end[from * size..][..size]);
            self.add(&through[from * transition..][..transition], before, next);
        }
    }

    /// The number of a head in the block at a step.
    fn place(&self, first: usize, step: usize) -> usize {
        first + self.heads * if self.reverse { self.n - 1 - step } else { step }
    }

    fn is_matrix(&self) -> bool {
        self.transition == self.k * self.k && self.k > 1
    }

    /// Adds what a block makes of a state.
    fn add(&self, through: &[f32], state: &[f32], next: &mut [f32]) {
        let Carry { k, c, .. } = *self;
        if self.is_matrix() {
            let matrix = Matrix::rows(through, k);
            let matrix = if self.reverse { matrix.transposed() } else { matrix };
            assert_eq!(next.len(), k * c, "a state");
            // SAFETY: the result has the elements, and is borrowed for writing.
            unsafe {
                multiply([k, c, k], matrix, Matrix::rows(state, c), Matrix::rows(next.as_mut_ptr(), c), 1.0, true, 1)
            };
            return;
        }
        for (i, (next, state)) in next.chunks_exact_mut(c).zip(state.chunks_exact(c)).enumerate() {
            let by = through[i % through.len()];
            next.iter_mut().zip(state).for_each(|(next, &x)| *next += by * x);
        }
    }
}
