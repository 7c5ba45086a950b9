//! Short causal convolutions: each channel of a row is a sum of the same channel of a few rows up to it, of one document.

use crate::cpu::par::{Par, Rows};
use crate::cpu::simd::simd;

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    /// Rows of a sequence.
    pub s: usize,
    /// Channels of a row.
    pub channels: usize,
    /// Taps of a channel, that of the row itself last.
    pub taps: usize,
}

impl Conv {
    /// `out[t] = sum of w[taps - 1 - i] x[t - i]`
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub fn forward(&self, x: &[f32], w: &[f32], pos: &[i32], out: &mut [f32], par: Par, scratch: &mut Vec<f32>) {
        self.check(x, w, pos, out);
        self.rows(w, pos.len(), out, par, scratch, &|row, back| {
            self.reaches(pos, row, back).then(|| &x[(row - back) * self.channels..])
        });
    }

    /// The gradient by x of that by the result.
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub fn by_x(&self, dy: &[f32], w: &[f32], pos: &[i32], out: &mut [f32], par: Par, scratch: &mut Vec<f32>) {
        self.check(dy, w, pos, out);
        self.rows(w, pos.len(), out, par, scratch, &|row, back| {
            let later = row + back;
            let is_there = row % self.s + back < self.s && self.reaches(pos, later, back);
            is_there.then(|| &dy[later * self.channels..])
        });
    }

    /// The gradient by w.
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub fn by_w(&self, x: &[f32], dy: &[f32], pos: &[i32], out: &mut [f32], par: Par) {
        let Conv { channels, taps, .. } = *self;
        assert!(x.len() == dy.len() && x.len() == pos.len() * channels, "x and dy are rows of channels");
        assert_eq!(out.len(), channels * taps, "taps of each channel");
        par.rows(channels, pos.len() * taps, Rows(out, taps), &|range, out| {
            out.0.fill(0.0);
            for row in 0..pos.len() {
                for back in (0..taps).filter(|&back| self.reaches(pos, row, back)) {
                    let (x, dy) = (&x[(row - back) * channels..], &dy[row * channels..]);
                    add_products(&x[range.clone()], &dy[range.clone()], taps, taps - 1 - back, out.0);
                }
            }
        });
    }

    /// True if a row reads the one at a distance before it.
    fn reaches(&self, pos: &[i32], row: usize, back: usize) -> bool {
        back <= row % self.s && (back == 0 || pos[row] >= back as i32)
    }

    /// Writes rows of sums of taps times the rows that `other` gives for a row and a distance.
    fn rows<'x>(
        &self,
        w: &[f32],
        rows: usize,
        out: &mut [f32],
        par: Par,
        scratch: &mut Vec<f32>,
        other: &(impl Fn(usize, usize) -> Option<&'x [f32]> + Sync),
    ) {
        let Conv { channels, taps, .. } = *self;
        // One tap of all channels after the other.
        scratch.resize(scratch.len().max(w.len()), 0.0);
        for (channel, of_channel) in w.chunks_exact(taps.max(1)).enumerate() {
            of_channel.iter().enumerate().for_each(|(tap, &w)| scratch[tap * channels + channel] = w);
        }
        let w = &scratch[..w.len()];
        par.rows(rows, channels * taps, Rows(out, channels), &|range, out| {
            for (row, out) in range.zip(out.0.chunks_exact_mut(channels.max(1))) {
                out.fill(0.0);
                for back in 0..taps {
                    let Some(x) = other(row, back) else { continue };
                    add_product(x, &w[(taps - 1 - back) * channels..], out);
                }
            }
        });
    }

    fn check(&self, x: &[f32], w: &[f32], pos: &[i32], out: &[f32]) {
        assert!(x.len() == out.len() && x.len() == pos.len() * self.channels, "rows of channels");
        assert_eq!(w.len(), self.channels * self.taps, "taps of each channel");
    }
}

simd! {
    /// `out += x y`
    fn add_product(x: &[f32], y: &[f32], out: &mut [f32]) {
        for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
            *out += x * y;
        }
    }

    /// `out[i, tap] += x[i] y[i]`, rows of `taps` elements.
    fn add_products(x: &[f32], y: &[f32], taps: usize, tap: usize, out: &mut [f32]) {
        for ((out, &x), &y) in out.chunks_exact_mut(taps).zip(x).zip(y) {
            out[tap] += x * y;
        }
    }
}
