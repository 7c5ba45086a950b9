//! Quantisation to 8-bit floats: the largest number of each block, a scale of each block, quotients by scales and products with them.
//!
//! Scales are powers of two, so quotients and products are exact; only what is stored in 8 bits is rounded.

use super::narrow::{Floats, Narrow, round_part, widen_part};
use super::nd::{Dims, row_major};
use super::par::{Par, Rows};
use super::simd::simd;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Elements that are converted at a time: they stay in the first-level cache.
const PIECE: usize = 512;

/// The least scale. Its reciprocal is a number, too.
const LEAST: f32 = f32::MIN_POSITIVE;

/// The blocks of a tensor that share a scale.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// The dims, neighbours merged where their blocks are neighbours too.
    dims: Dims,
    /// The indices of a block along each dim.
    sizes: Dims,
    /// The strides of the scales.
    strides: Dims,
    scales: usize,
}

impl Blocks {
    /// The blocks of a tensor of shape `dims`, whose scales have shape `scales`: along each dim equally many indices for each scale.
    ///
    /// # Errors
    /// The ranks differ, or the scales along a dim do not divide it.
    pub fn new(dims: &[usize], scales: &[usize]) -> Result<Blocks, String> {
        if dims.len() != scales.len() {
            return Err(format!("a tensor of shape {dims:?} with scales of shape {scales:?}"));
        }
        let mut blocks = Dims::new();
        for (&size, &count) in dims.iter().zip(scales) {
            blocks.push(match count {
                0 if size == 0 => 1,
                1.. if size % count == 0 => size / count,
                _ => return Err(format!("{count} scales do not divide a dim of {size}")),
            });
        }
        let (mut merged, mut sizes) = (Dims::from_slice(&[1]), Dims::from_slice(&[1]));
        for (&dim, &block) in dims.iter().zip(&blocks) {
            let last = merged.len() - 1;
            // Blocks of single indices go on in the next dim, and so do blocks over all of the next dim.
            if sizes[last] == 1 || block == dim {
                merged[last] *= dim;
                sizes[last] *= block;
            } else {
                merged.push(dim);
                sizes.push(block);
            }
        }
        let counts: Dims = merged.iter().zip(&sizes).map(|(dim, size)| dim / size.max(&1)).collect();
        let strides = row_major(&counts);
        Ok(Blocks { dims: merged, sizes, strides, scales: scales.iter().product() })
    }

    /// The number of elements.
    fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// The place of the first scale of a row along the last dim.
    fn first(&self, row: usize) -> usize {
        let (mut rest, mut place) = (row, 0);
        for dim in (0..self.dims.len() - 1).rev() {
            place += rest % self.dims[dim] / self.sizes[dim] * self.strides[dim];
            rest /= self.dims[dim];
        }
        place
    }

    /// Calls `f` with each piece of a range of elements: its range, the place of its first scale, and whether each element has its own.
    fn pieces(&self, range: Range<usize>, mut f: impl FnMut(Range<usize>, usize, bool)) {
        let last = self.dims.len() - 1;
        let (len, size) = (self.dims[last].max(1), self.sizes[last]);
        let mut at = range.start;
        while at < range.end {
            let row = at / len * len;
            let (first, end) = (self.first(at / len), range.end.min(row + len));
            while at < end {
                let block = (at - row) / size;
                let stop = if size == 1 { end } else { end.min(row + (block + 1) * size) };
                let piece = at..stop.min(at + PIECE);
                at = piece.end;
                f(piece, first + block, size == 1);
            }
        }
    }
}

/// Writes the largest size of an element of each block; 0 for a block without elements. What is not a number does not count.
///
/// # Panics
/// If a slice does not have the size that `blocks` asks for.
pub fn absmax(x: Floats, blocks: &Blocks, out: &mut [f32], scratch: &mut Vec<f32>, par: Par) {
    assert_eq!((x.len(), out.len()), (blocks.len(), blocks.scales), "the shapes of blocks and scales");
    // Each thread has maxima of its own, which are joined: maxima do not depend on the order.
    let threads = par.threads(x.len());
    scratch.clear();
    scratch.resize(threads * out.len(), 0.0);
    let len = x.len();
    par.rows(threads, len / threads, Rows(&mut scratch[..], out.len()), &|range, maxima| {
        let mut buffer = [0.0; PIECE];
        for (thread, maxima) in range.zip(maxima.0.chunks_exact_mut(out.len().max(1))) {
            blocks.pieces(thread * len / threads..(thread + 1) * len / threads, |piece, scale, is_each| {
                let x = numbers(x, piece, &mut buffer);
                match is_each {
                    true => raise(x, &mut maxima[scale..][..x.len()]),
                    false => maxima[scale] = largest(x, maxima[scale]),
                }
            });
        }
    });
    out.fill(0.0);
    scratch.chunks_exact(out.len().max(1)).for_each(|maxima| raise(maxima, out));
}

/// Writes, for numbers of at most each size, the least power of two by which they are divided to be within a format: at least 2^-126, and
/// the size itself if it is infinite or no number.
///
/// # Panics
/// If the two differ in length.
pub fn scale_for(format: Narrow, max: &[f32], out: &mut [f32]) {
    assert_eq!(max.len(), out.len(), "a scale for each maximum");
    for (out, &max) in out.iter_mut().zip(max) {
        *out = if max.is_finite() { least_scale(max, format.largest()) } else { max };
    }
}

/// The power of two, from the exponents: the quotient of two numbers in [1, 2) is above one or not.
fn least_scale(max: f32, largest: f32) -> f32 {
    let [(exponent, mantissa), (most, full)] =
        [max, largest].map(|x| ((x.to_bits() >> 23) as i32, x.to_bits() & 0x7f_ffff));
    let scale = exponent - most + i32::from(mantissa > full);
    f32::from_bits(((scale + 127).max(1) as u32) << 23).max(LEAST)
}

/// Writes the elements over the scales of their blocks, as the nearest numbers of a format.
///
/// # Panics
/// If a slice does not have the size that `blocks` asks for.
pub fn quantise(x: Floats, scales: &[f32], blocks: &Blocks, (format, out): (Narrow, &mut [u8]), par: Par) {
    assert_eq!((x.len(), scales.len()), (blocks.len(), blocks.scales), "the shapes of blocks and scales");
    assert_eq!(out.len(), x.len() * format.bytes(), "an element for each number");
    par.rows(x.len(), 1, Rows(out, format.bytes()), &|range, out| {
        let (mut buffer, mut quotients) = ([0.0; PIECE], [0.0; PIECE]);
        blocks.pieces(range.clone(), |piece, scale, is_each| {
            let at = (piece.start - range.start) * format.bytes();
            let x = numbers(x, piece, &mut buffer);
            let quotients = &mut quotients[..x.len()];
            match is_each {
                true => divide(x, &scales[scale..][..x.len()], quotients),
                false => divide_all(x, scales[scale], quotients),
            }
            round_part(format, quotients, &mut out.0[at..][..x.len() * format.bytes()]);
        });
    });
}

/// Writes the products of the elements with the scales of their blocks.
///
/// # Panics
/// If a slice does not have the size that `blocks` asks for.
pub fn dequantise(x: Floats, scales: &[f32], blocks: &Blocks, out: &mut [f32], par: Par) {
    scaled(x, scales, blocks, (multiply, multiply_all), out, par);
}

/// Writes the elements over the scales of their blocks.
///
/// # Panics
/// If a slice does not have the size that `blocks` asks for.
pub fn quotients(x: Floats, scales: &[f32], blocks: &Blocks, out: &mut [f32], par: Par) {
    scaled(x, scales, blocks, (divide, divide_all), out, par);
}

/// Scaling of elements by one scale each, and by one for all.
type Scaling = (fn(&[f32], &[f32], &mut [f32]), fn(&[f32], f32, &mut [f32]));

fn scaled(x: Floats, scales: &[f32], blocks: &Blocks, (each, all): Scaling, out: &mut [f32], par: Par) {
    assert_eq!((x.len(), scales.len()), (blocks.len(), blocks.scales), "the shapes of blocks and scales");
    assert_eq!(out.len(), x.len(), "a number for each element");
    par.rows(x.len(), 1, Rows(out, 1), &|range, out| {
        let mut buffer = [0.0; PIECE];
        blocks.pieces(range.clone(), |piece, scale, is_each| {
            let out = &mut out.0[piece.start - range.start..][..piece.len()];
            let x = numbers(x, piece, &mut buffer);
            match is_each {
                true => each(x, &scales[scale..][..x.len()], out),
                false => all(x, scales[scale], out),
            }
        });
    });
}

/// The exponents of f32.
pub const EXPONENTS: usize = 256;

fn biased_exponent(x: f32) -> usize {
    (x.to_bits() >> 23) as usize & (EXPONENTS - 1)
}

/// Counts elements by their biased exponents in f32: 0 for those below the normal numbers, 255 for what is not finite.
///
/// # Panics
/// If there is not a count for each exponent.
pub fn exponents(x: Floats, counts: &mut [f32], par: Par) {
    assert_eq!(counts.len(), EXPONENTS, "a count for each exponent");
    let total: [AtomicU64; EXPONENTS] = std::array::from_fn(|_| AtomicU64::new(0));
    par.rows(x.len(), 1, (), &|range, ()| {
        // Neighbours often have one exponent, and counts of their own do not wait for each other.
        let (mut buffer, mut own) = ([0.0; PIECE], [[0u32; EXPONENTS]; 4]);
        for start in range.clone().step_by(PIECE) {
            let x = numbers(x, start..range.end.min(start + PIECE), &mut buffer);
            let (fours, rest) = x.as_chunks::<4>();
            fours.iter().for_each(|four| own.iter_mut().zip(four).for_each(|(own, &x)| own[biased_exponent(x)] += 1));
            rest.iter().for_each(|&x| own[0][biased_exponent(x)] += 1);
        }
        for (exponent, total) in total.iter().enumerate() {
            total.fetch_add(own.iter().map(|own| u64::from(own[exponent])).sum(), Ordering::Relaxed);
        }
    });
    counts.iter_mut().zip(total).for_each(|(count, total)| *count = total.into_inner() as f32);
}

/// Sets the ages of what was seen to 0, and adds 1 to all others, unless `clip` is not above 0.
///
/// # Panics
/// If the two differ in length.
pub fn age(ages: &mut [f32], seen: &[f32], clip: f32) {
    assert_eq!(ages.len(), seen.len(), "an age for each");
    if clip > 0.0 {
        ages.iter_mut().zip(seen).for_each(|(age, &seen)| *age = if seen > 0.0 { 0.0 } else { *age + 1.0 });
    }
}

/// The least power of two by which numbers of the largest finite exponent of an age below `within` are divided to be within a format; 1 if
/// there is none.
pub fn delayed_scale(format: Narrow, ages: &[f32], within: f32) -> f32 {
    let of_late = ages.iter().take(EXPONENTS - 1).rposition(|&age| age < within);
    // The largest number of an exponent has all bits of the mantissa.
    of_late.map_or(1.0, |exponent| least_scale(f32::from_bits((exponent as u32) << 23 | 0x7f_ffff), format.largest()))
}

/// Some elements as f32: where they are, or in a buffer.
fn numbers<'a>(x: Floats<'a>, range: Range<usize>, buffer: &'a mut [f32; PIECE]) -> &'a [f32] {
    match x {
        Floats::Wide(x) => &x[range],
        Floats::Narrow(format, bytes) => {
            let buffer = &mut buffer[..range.len()];
            widen_part(format, &bytes[range.start * format.bytes()..range.end * format.bytes()], buffer);
            buffer
        }
    }
}

/// The size of a number if it is larger.
#[inline(always)]
fn larger(max: f32, x: f32) -> f32 {
    if x.abs() > max { x.abs() } else { max }
}

simd! {
    fn largest(x: &[f32], start: f32) -> f32 {
        let (chunks, rest) = x.as_chunks::<16>();
        let mut max = [start; 16];
        for chunk in chunks {
            max.iter_mut().zip(chunk).for_each(#[inline(always)] |(max, x)| *max = larger(*max, *x));
        }
        max.iter().chain(rest).fold(start, #[inline(always)] |max, x| larger(max, *x))
    }

    fn raise(x: &[f32], max: &mut [f32]) {
        max.iter_mut().zip(x).for_each(#[inline(always)] |(max, x)| *max = larger(*max, *x));
    }

    fn divide(x: &[f32], by: &[f32], out: &mut [f32]) {
        out.iter_mut().zip(x).zip(by).for_each(#[inline(always)] |((out, x), by)| *out = x / by);
    }

    fn divide_all(x: &[f32], by: f32, out: &mut [f32]) {
        out.iter_mut().zip(x).for_each(#[inline(always)] |(out, x)| *out = x / by);
    }

    fn multiply(x: &[f32], by: &[f32], out: &mut [f32]) {
        out.iter_mut().zip(x).zip(by).for_each(#[inline(always)] |((out, x), by)| *out = x * by);
    }

    fn multiply_all(x: &[f32], by: f32, out: &mut [f32]) {
        out.iter_mut().zip(x).for_each(#[inline(always)] |(out, x)| *out = x * by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::normals;

    #[test]
    fn scales_are_the_least_powers_of_two() {
        for format in [Narrow::F8E4M3, Narrow::F8E5M2] {
            let most = format.largest();
            for exponent in -60..60 {
                let power = 2f32.powi(exponent);
                for (size, want) in [(most, 1.0), (most.next_up(), 2.0), (most.next_down(), 1.0), (most / 2.0, 0.5)] {
                    let mut scale = [0.0];
                    scale_for(format, &[size * power], &mut scale);
                    assert_eq!(scale[0], want * power, "{format:?}: {size} 2^{exponent}");
                }
            }
            let mut scales = [0.0; 4];
            scale_for(format, &[0.0, f32::from_bits(1), f32::MAX, f32::INFINITY], &mut scales);
            assert_eq!(scales[..2], [LEAST; 2]);
            assert!(f32::MAX / scales[2] <= most && f32::MAX / scales[2] > most / 2.0 && scales[3].is_infinite());
        }
    }

    #[test]
    fn the_largest_exponent_of_late_decides() {
        let x = [0.0, -1.5, 1.0, 3.0, f32::from_bits(1), f32::INFINITY, 0.25];
        let many: Vec<f32> = x.iter().copied().cycle().take(x.len() * 30_000).collect();
        let mut counts = [f32::NAN; EXPONENTS];
        exponents(Floats::Wide(&many), &mut counts, Par(2));
        let seen: Vec<(usize, f32)> = (0..).zip(counts).filter(|(_, count)| *count > 0.0).collect();
        assert_eq!(seen, [(0, 60_000.0), (125, 30_000.0), (127, 60_000.0), (128, 30_000.0), (255, 30_000.0)]);
        let mut ages = [100.0; EXPONENTS];
        assert_eq!(delayed_scale(Narrow::F8E4M3, &ages, 2.0), 1.0);
        age(&mut ages, &counts, f32::NAN);
        assert_eq!(ages, [100.0; EXPONENTS]);
        age(&mut ages, &counts, 0.5);
        // Below 4 = 448 x 2^-7 / 0.875.
        assert_eq!(delayed_scale(Narrow::F8E4M3, &ages, 2.0), 2f32.powi(-6));
        assert_eq!(delayed_scale(Narrow::F8E5M2, &ages, 2.0), 2f32.powi(-13));
        let mut later = [0.0; EXPONENTS];
        later[125] = 1.0;
        age(&mut ages, &later, 1.0);
        assert_eq!(delayed_scale(Narrow::F8E4M3, &ages, 2.0), 2f32.powi(-6), "3 was seen one step before");
        age(&mut ages, &later, 1.0);
        assert_eq!(delayed_scale(Narrow::F8E4M3, &ages, 2.0), 2f32.powi(-9), "the last two steps had 0.25 alone");
    }

    /// The place of the scale of an element, by definition.
    fn place(index: usize, dims: &[usize], scales: &[usize]) -> usize {
        let (mut rest, mut place, mut stride) = (index, 0, 1);
        for (size, count) in dims.iter().zip(scales).rev() {
            place += rest % size / (size / count) * stride;
            (rest, stride) = (rest / size, stride * count);
        }
        place
    }

    #[test]
    fn blocks_are_divided_by_their_own_scales() {
        let cases: [(&[usize], &[usize]); 9] = [
            (&[3, 4, 1200], &[3, 4, 10]),
            (&[3, 600, 70], &[3, 4, 70]),
            (&[24, 36], &[2, 3]),
            (&[300, 700], &[1, 1]),
            (&[4, 6, 8], &[2, 6, 1]),
            (&[6, 4, 1, 30], &[1, 4, 1, 10]),
            (&[2, 8, 3, 500], &[2, 4, 3, 500]),
            (&[], &[]),
            (&[0, 5], &[0, 5]),
        ];
        for (dims, counts) in cases {
            let blocks = Blocks::new(dims, counts).unwrap();
            let x = normals(blocks.len(), 3);
            let mut stored = vec![0; 2 * x.len()];
            super::super::narrow::round(Narrow::Bf16, &x, &mut stored, Par(1));
            let narrow = Floats::Narrow(Narrow::Bf16, &stored);
            let mut wide = vec![0.0; x.len()];
            super::super::narrow::widen(Narrow::Bf16, &stored, &mut wide, Par(1));
            for (x, of) in [(Floats::Wide(&x), &x), (narrow, &wide)] {
                let mut want = vec![0f32; blocks.scales];
                of.iter().enumerate().for_each(|(i, x)| {
                    let max = &mut want[place(i, dims, counts)];
                    *max = max.max(x.abs());
                });
                for par in [Par(1), Par(3)] {
                    let (mut max, mut scales) = (vec![f32::NAN; blocks.scales], vec![0.0; blocks.scales]);
                    absmax(x, &blocks, &mut max, &mut Vec::new(), par);
                    assert_eq!(max, want, "{dims:?} {counts:?}");
                    scale_for(Narrow::F8E4M3, &max, &mut scales);
                    let (mut small, mut back) = (vec![0; of.len()], vec![0.0; of.len()]);
                    quantise(x, &scales, &blocks, (Narrow::F8E4M3, &mut small), par);
                    dequantise(Floats::Narrow(Narrow::F8E4M3, &small), &scales, &blocks, &mut back, par);
                    for (i, (&x, &back)) in of.iter().zip(&back).enumerate() {
                        let scale = scales[place(i, dims, counts)];
                        assert_eq!(back, Narrow::F8E4M3.nearest(x / scale) * scale, "{dims:?} {counts:?} at {i}");
                        assert!((back - x).abs() <= x.abs() / 16.0 + scale * 2f32.powi(-10), "{x} became {back}");
                    }
                }
            }
        }
        assert!(Blocks::new(&[4, 6], &[3, 6]).is_err() && Blocks::new(&[4], &[4, 1]).is_err());
    }
}
