//! Short convolutions, row by row.

use crate::real::Real;
use crate::tensor::Tensor;

/// The sizes of a convolution.
pub(super) struct ShortConv<'a> {
    /// Dims of its rows: b, s, and channels.
    pub(super) dims: &'a [usize],
    pub(super) taps: usize,
    pub(super) pos: &'a Tensor<i32>,
    /// The rows of a block.
    pub(super) block: Option<u64>,
}

/// A product of a tap and a row.
struct Product {
    /// The place in the rows, or in those before blocks.
    x: Source,
    /// The place among the taps.
    w: usize,
    /// The place in the results.
    y: usize,
}

enum Source {
    Row(usize),
    Before(usize),
}

impl ShortConv<'_> {
    fn visit(&self, mut visit: impl FnMut(Product)) {
        let (s, channels, n) = (self.dims[1], self.dims[2..].iter().product::<usize>(), self.taps);
        let rows = self.block.map_or(s, |block| block as usize);
        for (row, &pos) in self.pos.data.iter().enumerate() {
            for back in (0..n).filter(|&back| back == 0 || pos >= back as i32) {
                let within = row % rows;
                for h in 0..channels {
                    let x = if back <= within {
                        Source::Row((row - back) * channels + h)
                    } else if self.block.is_some() {
                        Source::Before((row / rows * (n - 1) + n - 1 + within - back) * channels + h)
                    } else {
                        continue;
                    };
                    visit(Product { x, w: h * n + n - 1 - back, y: row * channels + h });
                }
            }
        }
    }

    /// `y[t] = sum of w[n - 1 - i] x[t - i]` within documents.
    pub(super) fn forward<R: Real>(&self, x: &Tensor<R>, w: &Tensor<R>, start: Option<&Tensor<R>>) -> Tensor<R> {
        let mut y = Tensor::zeros(self.dims);
        self.visit(|at| y.data[at.y] += read(x, start, &at.x) * w.data[at.w]);
        y
    }

    pub(super) fn by_x<R: Real>(&self, dy: &Tensor<R>, w: &Tensor<R>, dend: Option<&Tensor<R>>) -> Tensor<R> {
        let mut dx = Tensor::zeros(self.dims);
        self.visit(|at| {
            if let Source::Row(place) = at.x {
                dx.data[place] += dy.data[at.y] * w.data[at.w];
            }
        });
        let (Some(dend), Some(rows)) = (dend, self.block) else { return dx };
        let row = self.dims[2..].iter().product::<usize>();
        let (block, last) = (rows as usize * row, (self.taps - 1) * row);
        for (dx, dend) in dx.data.chunks_exact_mut(block).zip(dend.data.chunks_exact(last)) {
            dx[block - last..].iter_mut().zip(dend).for_each(|(dx, &x)| *dx += x);
        }
        dx
    }

    /// The gradient by the rows before blocks.
    pub(super) fn by_start<R: Real>(&self, dy: &Tensor<R>, w: &Tensor<R>, dims: &[usize]) -> Tensor<R> {
        let mut dstart = Tensor::zeros(dims);
        self.visit(|at| {
            if let Source::Before(place) = at.x {
                dstart.data[place] += dy.data[at.y] * w.data[at.w];
            }
        });
        dstart
    }

    pub(super) fn by_w<R: Real>(
        &self,
        x: &Tensor<R>,
        dy: &Tensor<R>,
        start: Option<&Tensor<R>>,
        dims: &[usize],
    ) -> Tensor<R> {
        let mut dw = Tensor::zeros(dims);
        self.visit(|at| dw.data[at.w] += read(x, start, &at.x) * dy.data[at.y]);
        dw
    }
}

fn read<R: Real>(x: &Tensor<R>, start: Option<&Tensor<R>>, at: &Source) -> R {
    match at {
        Source::Row(place) => x.data[*place],
        Source::Before(place) => start.map_or(R::zero(), |start| start.data[*place]),
    }
}
