//! Matrix products whose results are narrow: they are computed in f32, panel by panel, and rounded while a panel is in the cache.

use super::matrix::{Matrices, Matrix};
use super::nd::span;
use super::par::{Par, Rows};
use crate::cpu::gemm::multiply;
use crate::cpu::narrow::{Floats, Narrow, round};

/// Elements of a panel, 4 MiB: enough for several threads, and a part of a last-level cache.
const PANEL: usize = 1 << 20;

/// Columns of a panel are a multiple of this, so that blocks of the right operand are full.
const COLUMNS: usize = 256;

impl Matrices {
    /// True if products can be rounded panel by panel: each element is one sum, and its neighbours are contiguous in a dimension.
    pub(crate) fn can_round(&self) -> bool {
        let [down, across] = self.strides[2];
        self.inner.count() == 1 && !self.are_dots() && (down == 1 || across == 1)
    }

    /// Elements of scratch memory of a panel.
    pub(crate) fn panel(&self) -> usize {
        let [m, n, _] = self.size;
        self.width() * if self.runs() == 1 { m } else { n }
    }

    /// The dimension in which elements of the result are contiguous: 0 is that of rows.
    fn runs(&self) -> usize {
        usize::from(self.strides[2][1] == 1)
    }

    /// Elements of a contiguous run in a panel.
    fn width(&self) -> usize {
        let runs = self.runs();
        let fitting = PANEL / self.size[1 - runs] / COLUMNS * COLUMNS;
        fitting.max(COLUMNS).min(self.size[runs])
    }

    /// Computes the products into narrow elements. The operands must have the elements that sizes, strides and loops reach, none of which
    /// may be zero.
    ///
    /// # Panics
    /// If the products reach beyond `out`, or `panel` is no panel.
    pub(crate) fn run_rounded(&self, a: Floats, b: Floats, out: (Narrow, &mut [u8]), panel: &mut [f32], par: Par) {
        let ([m, n, k], (format, out)) = (self.size, out);
        let last = self.batch.last(2) + span(&[m, n], &self.strides[2]) - 1;
        assert!(last < out.len() / format.bytes() && self.can_round(), "the products lie in the result");
        let (runs, width) = (self.runs(), self.width());
        for i in 0..self.batch.count() {
            let [ao, bo, oo] = self.batch.at(i);
            for start in (0..self.size[runs]).step_by(width) {
                let width = width.min(self.size[runs] - start);
                let [a_skip, b_skip] =
                    if runs == 1 { [0, start * self.strides[1][1]] } else { [start * self.strides[0][0], 0] };
                let a = Matrix { data: a.skip(ao + a_skip), strides: self.strides[0] };
                let b = Matrix { data: b.skip(bo + b_skip), strides: self.strides[1] };
                let (size, strides) = if runs == 1 { ([m, width, k], [width, 1]) } else { ([width, n, k], [1, width]) };
                let panel = &mut panel[..width * self.size[1 - runs]];
                let sums = Matrix { data: panel.as_mut_ptr(), strides };
                // SAFETY: the panel is borrowed for writing, and has all elements of the product.
                unsafe { multiply(size, a, b, sums, 1.0, false, self.threads(par)) };
                self.round(panel, width, (format, &mut *out), oo + start, par);
            }
        }
    }

    /// Rounds the runs of a panel to their places from element `first` on.
    fn round(&self, panel: &[f32], width: usize, (format, out): (Narrow, &mut [u8]), first: usize, par: Par) {
        let (bytes, stride) = (format.bytes(), self.strides[2][1 - self.runs()]);
        let count = panel.len() / width;
        if stride == width {
            let place = first * bytes..(first + panel.len()) * bytes;
            return round(format, panel, &mut out[place], par);
        }
        if stride > width {
            // Runs lie in rows of the result, each with elements of other panels behind it; the last one may be cut.
            let end = (first + (count - 1) * stride + width) * bytes;
            let (rows, rest) = out[first * bytes..end].split_at_mut((count - 1) * stride * bytes);
            let parts = (Rows(&panel[..(count - 1) * width], width), Rows(rows, stride * bytes));
            par.rows(count - 1, width, parts, &|_, (from, to)| {
                for (from, to) in from.0.chunks_exact(width).zip(to.0.chunks_exact_mut(stride * bytes)) {
                    round(format, from, &mut to[..width * bytes], Par(1));
                }
            });
            return round(format, &panel[(count - 1) * width..], &mut rest[..width * bytes], Par(1));
        }
        for (line, from) in panel.chunks_exact(width).enumerate() {
            let place = (first + line * stride) * bytes;
            round(format, from, &mut out[place..place + width * bytes], Par(1));
        }
    }
}
