//! Random numbers indexed by the element that uses them, not by the thread or rank that draws them.
//!
//! Each number is a pure function of a key and a counter: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random
//! numbers: as easy as 1, 2, 3", SC 2011). Counter `c` selects word `c mod 4` of a block. The lower half of that block's
//! 128-bit counter is `c / 4`, the upper half is 0. The counter is an element's linear index in the global tensor, so every
//! sharding draws the same numbers.

use super::nd::{Dims, row_major};
use super::par::{Par, Rows};
use super::simd::simd;
use super::source::Source;

/// Blocks computed side by side, one per lane.
const BLOCKS: usize = 16;
/// Numbers of `BLOCKS` blocks.
const DRAWS: usize = 4 * BLOCKS;

/// The Philox4x32-10 blocks at the given counters: word `w` of block `i` is `[w][i]`.
#[inline(always)]
fn blocks<const N: usize>(key: [u32; 2], counters: [u64; N]) -> [[u32; N]; 4] {
    let mut x = [counters.map(|c| c as u32), counters.map(|c| (c >> 32) as u32), [0; N], [0; N]];
    let mut k = key;
    for _ in 0..10 {
        let [x0, x1, x2, x3] = &mut x;
        for (((x0, x1), x2), x3) in x0.iter_mut().zip(x1).zip(x2).zip(x3) {
            let a = u64::from(*x0) * 0xD251_1F53;
            let b = u64::from(*x2) * 0xCD9E_8D57;
            *x0 = (b >> 32) as u32 ^ *x1 ^ k[0];
            *x1 = b as u32;
            *x2 = (a >> 32) as u32 ^ *x3 ^ k[1];
            *x3 = a as u32;
        }
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    x
}

/// The Philox4x32-10 block at counter `counter`, upper half 0.
pub(crate) fn philox(key: [u32; 2], counter: u64) -> [u32; 4] {
    blocks(key, [counter]).map(|word| word[0])
}

/// The upper 24 bits as a number in `[0, 1)`.
#[inline(always)]
fn to_unit(word: u32) -> f32 {
    (word >> 8) as i32 as f32 * (1.0 / 16_777_216.0)
}

/// A number uniform in `[0, 1)`, a multiple of 2^-24.
pub fn uniform(key: [u32; 2], counter: u64) -> f32 {
    to_unit(philox(key, counter / 4)[(counter % 4) as usize])
}

/// A standard normal number, by Box and Muller's method from two words of its block.
pub fn normal(key: [u32; 2], counter: u64) -> f32 {
    normal_block(key, counter / 4)[(counter % 4) as usize]
}

/// The numbers of [`normal`] from a counter on.
pub fn normals(key: [u32; 2], first: u64, out: &mut [f32]) {
    let mut last = None;
    for (counter, value) in (first..).zip(out) {
        let (block, numbers) = last
            .filter(|(block, _)| *block == counter / 4)
            .unwrap_or_else(|| (counter / 4, normal_block(key, counter / 4)));
        *value = numbers[(counter % 4) as usize];
        last = Some((block, numbers));
    }
}

/// The four numbers of a block.
fn normal_block(key: [u32; 2], block: u64) -> [f32; 4] {
    let words = philox(key, block);
    let [[a, b], [c, d]] = [[words[0], words[1]], [words[2], words[3]]].map(|words| {
        let [u, v] = words.map(|word| (f64::from(word) + 0.5) / 4_294_967_296.0);
        let radius = (-2.0 * u.ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * v).sin_cos();
        [(radius * cos) as f32, (radius * sin) as f32]
    });
    [a, b, c, d]
}

/// A part of a larger tensor.
#[derive(Clone, Copy, Debug)]
pub struct TensorPart<'a> {
    /// The part's shape.
    pub dims: &'a [usize],
    /// Index of its first element in the whole.
    pub origin: &'a [u64],
    /// Shape of the whole.
    pub global_dims: &'a [u64],
    /// Number of its first elements that are left out: a multiple of its last dim.
    pub skipped: usize,
}

/// Sets each element to 0 with probability `p` and divides the others by `1 - p`. An element stays if the [`uniform`]
/// number at its linear index in the whole tensor is not below `p`.
///
/// `x` and `out` are rows of the part, along its last dim.
///
/// # Panics
/// If `x` and `out` are not rows of the part, or its lists differ in length.
pub fn dropout<'x>(x: impl Into<Source<'x>>, out: &mut [f32], p: f32, key: [u32; 2], part: TensorPart<'_>, par: Par) {
    drawn(x.into(), out, Noise::Zeros(p), key, part, par);
}

/// The effect of a [`uniform`] number `u` on its element.
#[derive(Clone, Copy, Debug)]
pub enum Noise {
    /// Zero with this probability `p`, else a division by `1 - p`.
    Zeros(f32),
    /// A factor `1 - width + 2 width u` of this width.
    Factors(f32),
}

impl Noise {
    /// True if no number has an effect.
    pub fn is_identity(self) -> bool {
        match self {
            Noise::Zeros(strength) | Noise::Factors(strength) => strength == 0.0,
        }
    }

    /// Applies it to elements with consecutive indices from `start` on.
    fn run(self, x: Source<'_>, out: &mut [f32], key: [u32; 2], start: u64) {
        match self {
            Noise::Zeros(p) => drop_run(x, out, p, key, start),
            Noise::Factors(width) => jitter_run(x, out, width, key, start),
        }
    }
}

/// Applies noise to each element, by the number at its linear index in the whole tensor.
///
/// `x` and `out` are rows of the part, along its last dim.
///
/// # Panics
/// If `x` and `out` are not rows of the part, or its lists differ in length.
pub fn drawn(x: Source<'_>, out: &mut [f32], noise: Noise, key: [u32; 2], part: TensorPart<'_>, par: Par) {
    let TensorPart { dims, origin, global_dims, skipped } = part;
    assert!(dims.len() == origin.len() && dims.len() == global_dims.len(), "one origin and size per dimension");
    let size = dims.iter().product::<usize>();
    let run = dims.last().copied().unwrap_or(1);
    assert!(x.has(out.len()) && skipped + out.len() <= size, "x and out are in the part");
    if out.is_empty() {
        return;
    }
    assert!(skipped.is_multiple_of(run) && out.len().is_multiple_of(run), "x and out are rows of the part");
    if noise.is_identity() {
        return if let Source::Other(x) = x {
            out.copy_from_slice(x)
        };
    }
    let global: Dims = global_dims.iter().map(|&d| d as usize).collect();
    let strides = row_major(&global);
    let first: usize = origin.iter().zip(&strides).map(|(&o, s)| o as usize * s).sum();
    let Some((_, outer)) = dims.split_last().filter(|(_, outer)| !outer.is_empty()) else {
        // Threads share the elements of a vector.
        return par.rows(out.len(), 8, (Rows(x, 1), Rows(out, 1)), &|range, (x, out)| {
            noise.run(x.0, out.0, key, (first + skipped + range.start) as u64);
        });
    };
    par.rows(out.len() / run, 8 * run, (Rows(x, run), Rows(out, run)), &|range, (x, out)| {
        for (at, row) in range.enumerate() {
            let (mut index, mut rest) = (first, skipped / run + row);
            for (&size, &stride) in outer.iter().zip(&strides).rev() {
                (index, rest) = (index + rest % size * stride, rest / size);
            }
            let at = at * run..(at + 1) * run;
            noise.run(x.0.part(at.clone()), &mut out.0[at], key, index as u64);
        }
    });
}

simd! {
    /// Dropout of elements with consecutive indices from `start` on.
    pub(super) fn drop_run(x: Source<'_>, out: &mut [f32], p: f32, key: [u32; 2], start: u64) {
        let scale = 1.0 / (1.0 - p);
        let mut done = 0;
        while done < out.len() {
            let index = start + done as u64;
            let skip = (index % DRAWS as u64) as usize;
            let n = (DRAWS - skip).min(out.len() - done);
            let draws = draw(key, index / DRAWS as u64);
            let results = out[done..done + n].iter_mut().zip(&draws[skip..]);
            match x {
                Source::Own => {
                    for (o, &u) in results {
                        *o = if u >= p { *o * scale } else { 0.0 };
                    }
                }
                Source::Other(x) => {
                    for ((o, &u), &x) in results.zip(&x[done..done + n]) {
                        *o = if u >= p { x * scale } else { 0.0 };
                    }
                }
            }
            done += n;
        }
    }
}

simd! {
    /// Jitter of elements with consecutive indices from `start` on.
    fn jitter_run(x: Source<'_>, out: &mut [f32], width: f32, key: [u32; 2], start: u64) {
        let (least, range) = (1.0 - width, 2.0 * width);
        let mut done = 0;
        while done < out.len() {
            let index = start + done as u64;
            let skip = (index % DRAWS as u64) as usize;
            let n = (DRAWS - skip).min(out.len() - done);
            let draws = draw(key, index / DRAWS as u64);
            let results = out[done..done + n].iter_mut().zip(&draws[skip..]);
            match x {
                Source::Own => {
                    for (o, &u) in results {
                        *o *= range * u + least;
                    }
                }
                Source::Other(x) => {
                    for ((o, &u), &x) in results.zip(&x[done..done + n]) {
                        *o = x * (range * u + least);
                    }
                }
            }
            done += n;
        }
    }
}

/// The uniform numbers at counters `DRAWS * group` and following.
#[inline(always)]
fn draw(key: [u32; 2], group: u64) -> [f32; DRAWS] {
    let mut counters = [0; BLOCKS];
    for (i, c) in counters.iter_mut().enumerate() {
        *c = group * BLOCKS as u64 + i as u64;
    }
    let words = blocks(key, counters);
    let mut draws = [0.0; DRAWS];
    for (i, draw) in draws.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *draw = [0, 1, 2, 3].map(|w| to_unit(words[w][i]));
    }
    draws
}

#[cfg(test)]
mod tests {
    use super::super::testing::normals;
    use super::*;

    #[test]
    fn philox_gives_the_published_numbers() {
        // Random123's known answers for philox4x32-10, of those with an upper half of 0.
        assert_eq!(philox([0, 0], 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }

    #[test]
    fn moments_are_right() {
        let n = 200_000;
        let moments = |f: &dyn Fn(u64) -> f32| {
            let x: Vec<f64> = (0..n).map(|i| f64::from(f(i))).collect();
            [1, 2, 4].map(|p| x.iter().map(|v| v.powi(p)).sum::<f64>() / n as f64)
        };
        let [mean, square, fourth] = moments(&|i| normal([1, 2], i));
        assert!(mean.abs() < 0.01 && (square - 1.0).abs() < 0.02 && (fourth - 3.0).abs() < 0.1);
        let [mean, square, _] = moments(&|i| uniform([1, 2], i));
        assert!((mean - 0.5).abs() < 0.005 && (square - 1.0 / 3.0).abs() < 0.005);
    }

    #[test]
    fn a_shard_draws_what_the_whole_draws() {
        let (global, p, key) = ([5u64, 6, 150], 0.3, [7, 9]);
        let whole: Vec<f32> = (0..4500).map(|i| if uniform(key, i) >= p { 1.0 / (1.0 - p) } else { 0.0 }).collect();
        for (origin, dims) in [
            ([0u64, 0, 0], [5usize, 6, 150]),
            ([3, 2, 75], [2, 4, 75]),
            ([1, 5, 149], [3, 1, 1]),
            ([0, 3, 40], [5, 2, 0]),
        ] {
            let size = dims.iter().product();
            let mut out = vec![f32::NAN; size];
            let part = TensorPart { dims: &dims, origin: &origin, global_dims: &global, skipped: 0 };
            dropout(&vec![1.0; size], &mut out, p, key, part, Par(2));
            for (i, &v) in out.iter().enumerate() {
                let at = [i / (dims[1] * dims[2]), i / dims[2] % dims[1], i % dims[2]];
                let [a, b, c] = [0, 1, 2].map(|d| at[d] + origin[d] as usize);
                assert_eq!(v, whole[(a * 6 + b) * 150 + c]);
            }
            // Some of its rows draw what all of them draw.
            let run = dims[2];
            for rows in [0..1, 1..2, 0..dims[0] * dims[1]] {
                let rows = rows.start * run..(rows.end * run).min(size).max(rows.start * run);
                if rows.end <= size {
                    let part = TensorPart { skipped: rows.start, ..part };
                    let mut some = vec![f32::NAN; rows.len()];
                    dropout(&vec![1.0; rows.len()], &mut some, p, key, part, Par(2));
                    assert_eq!(some, out[rows]);
                }
            }
        }
    }

    #[test]
    fn jitter_of_a_shard_is_that_of_the_whole() {
        let (global, width, key) = ([5u64, 6, 150], 0.25, [7, 9]);
        let (origin, dims) = ([3u64, 2, 75], [2usize, 4, 75]);
        let part = TensorPart { dims: &dims, origin: &origin, global_dims: &global, skipped: 0 };
        let (mut out, mut own) = (vec![f32::NAN; 600], vec![2.0; 600]);
        drawn((&vec![2.0; 600]).into(), &mut out, Noise::Factors(width), key, part, Par(2));
        drawn(Source::Own, &mut own, Noise::Factors(width), key, part, Par(1));
        assert_eq!(out, own);
        for (i, &v) in out.iter().enumerate() {
            let at = [i / 300 + 3, i / 75 % 4 + 2, i % 75 + 75];
            let u = uniform(key, ((at[0] * 6 + at[1]) * 150 + at[2]) as u64);
            assert!((v - 2.0 * (0.75 + 0.5 * u)).abs() < 1e-6 && (1.5..2.5).contains(&v));
        }
        drawn((&out).into(), &mut own, Noise::Factors(0.0), key, part, Par(1));
        assert_eq!(out, own);
    }

    #[test]
    fn vectors_on_threads_and_extremes() {
        let n = 100_003;
        let x = vec![2.0; n];
        let part = TensorPart { dims: &[n], origin: &[10], global_dims: &[n as u64 + 10], skipped: 0 };
        let mut out = vec![f32::NAN; n];
        dropout(&x, &mut out, 0.5, [1, 1], part, Par(3));
        assert!(out.iter().enumerate().all(|(i, &v)| (v > 0.0) == (uniform([1, 1], i as u64 + 10) >= 0.5)));
        dropout(&x, &mut out, 0.0, [1, 1], part, Par(1));
        assert!(out.iter().all(|v| *v == 2.0));
        dropout(&x, &mut out, 1.0, [1, 1], part, Par(1));
        assert!(out.iter().all(|v| *v == 0.0));
        let part = TensorPart { dims: &[], origin: &[], global_dims: &[], skipped: 0 };
        dropout(&[2.0], &mut out[..1], 0.0, [1, 1], part, Par(1));
        assert_eq!(out[0], 2.0);
    }

    #[test]
    fn in_place_and_elsewhere_alike() {
        for dims in [vec![100_003], vec![40, 30, 150], vec![]] {
            let n = dims.iter().product();
            let (origin, global) = (vec![2; dims.len()], dims.iter().map(|&d| d as u64 + 5).collect::<Vec<_>>());
            let part = TensorPart { dims: &dims, origin: &origin, global_dims: &global, skipped: 0 };
            let (mut own, mut out) = (normals(n, 1), vec![f32::NAN; n]);
            dropout(&own, &mut out, 0.3, [4, 5], part, Par(2));
            dropout(Source::Own, &mut own, 0.3, [4, 5], part, Par(2));
            assert!(own.iter().zip(&out).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }
}
