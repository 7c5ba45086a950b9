//! Short causal convolutions: each channel of a row is a sum of the same channel of a few rows up to it, of one document.

use super::Slopes;
use crate::cpu::par::{self, Par};
use crate::cpu::simd::simd;

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    /// Rows of a sequence, or of a block of one.
    pub s: usize,
    /// Channels of a row.
    pub channels: usize,
    /// Taps of a channel, that of the row itself last.
    pub taps: usize,
}

/// Rows of sequences, and those before them: `taps - 1` each, or none.
#[derive(Clone, Copy, Debug)]
pub struct Sequences<'a> {
    /// The rows.
    pub x: &'a [f32],
    /// The rows before each sequence; empty: nothing is before one.
    pub start: &'a [f32],
    /// Positions of the rows.
    pub pos: &'a [i32],
}

impl Conv {
    /// `out[t] = sum of w[taps - 1 - i] x[t - i]`
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub fn forward(&self, rows: &Sequences<'_>, w: &[f32], out: &mut [f32], par: Par, scratch: &mut Vec<f32>) {
        let Sequences { x, start, pos } = *rows;
        self.check(x, w, pos, out);
        self.check_before(start, pos);
        self.sums(w, pos.len(), out, par, scratch, &|row, back| self.read(rows, row, back));
    }

    /// The gradient by x, of those by the results and by the last rows of each sequence, which the next one reads.
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub fn by_x(&self, by: &Slopes<'_>, w: &[f32], pos: &[i32], out: &mut [f32], par: Par, scratch: &mut Vec<f32>) {
        let Slopes { out: dy, end } = *by;
        self.check(dy, w, pos, out);
        self.check_before(end, pos);
        self.sums(w, pos.len(), out, par, scratch, &|row, back| {
            let later = row + back;
            let is_there = row % self.s + back < self.s && self.reaches(pos, later, back);
            is_there.then(|| &dy[later * self.channels..])
        });
        if end.is_empty() {
            return;
        }
        let (sequence, last) = (self.s * self.channels, (self.taps - 1) * self.channels);
        for (out, end) in out.chunks_exact_mut(sequence).zip(end.chunks_exact(last)) {
            out[sequence - last..].iter_mut().zip(end).for_each(|(out, &x)| *out += x);
        }
    }

    /// The gradient by the rows before each sequence.
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub fn by_start(&self, dy: &[f32], w: &[f32], pos: &[i32], out: &mut [f32], par: Par, scratch: &mut Vec<f32>) {
        assert!(dy.len() == pos.len() * self.channels, "rows of channels");
        self.check_before(out, pos);
        let before = self.taps - 1;
        self.sums(w, pos.len() / self.s * before, out, par, scratch, &|row, back| {
            let (sequence, place) = (row / before, row % before);
            // Row `place` is `before - place` rows before the first of its sequence.
            let within = (place + back).checked_sub(before).filter(|&within| within < self.s)?;
            let later = sequence * self.s + within;
            (pos[later] >= back as i32).then(|| &dy[later * self.channels..])
        });
    }

    /// The gradient by w.
    ///
    /// # Panics
    /// If the sizes do not agree.
    pub fn by_w(&self, rows: &Sequences<'_>, dy: &[f32], out: &mut [f32], par: Par) {
        let (Conv { channels, taps, .. }, Sequences { x, start, pos }) = (*self, *rows);
        assert!(x.len() == dy.len() && x.len() == pos.len() * channels, "x and dy are rows of channels");
        assert_eq!(out.len(), channels * taps, "taps of each channel");
        self.check_before(start, pos);
        par.rows(channels, pos.len() * taps, par::Rows(out, taps), &|range, out| {
            out.0.fill(0.0);
            for row in 0..pos.len() {
                for back in 0..taps {
                    let Some(x) = self.read(rows, row, back) else { continue };
                    let dy = &dy[row * channels..];
                    add_products(&x[range.clone()], &dy[range.clone()], taps, taps - 1 - back, out.0);
                }
            }
        });
    }

    /// The row at a distance before one, if that reads it.
    fn read<'x>(&self, rows: &Sequences<'x>, row: usize, back: usize) -> Option<&'x [f32]> {
        let within = row % self.s;
        if back > 0 && rows.pos[row] < back as i32 {
            None
        } else if back <= within {
            Some(&rows.x[(row - back) * self.channels..])
        } else if rows.start.is_empty() {
            None
        } else {
            let before = self.taps - 1;
            Some(&rows.start[(row / self.s * before + before + within - back) * self.channels..])
        }
    }

    /// True if a row reads the one at a distance before it, which is of the same sequence.
    fn reaches(&self, pos: &[i32], row: usize, back: usize) -> bool {
        back <= row % self.s && (back == 0 || pos[row] >= back as i32)
    }

    /// Writes rows of sums of taps times the rows that `other` gives for a row and a distance.
    fn sums<'x>(
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
        par.rows(rows, channels * taps, par::Rows(out, channels), &|range, out| {
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

    /// Checks rows before sequences, which hold those that the taps read.
    fn check_before(&self, before: &[f32], pos: &[i32]) {
        let is_whole =
            self.s + 1 >= self.taps && before.len() == pos.len() / self.s.max(1) * (self.taps - 1) * self.channels;
        assert!(before.is_empty() || is_whole, "rows before each sequence");
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
