//! Float formats narrower than f32, in which tensors are stored. Kernels compute in f32: [`widen`] and [`round`] convert.
//!
//! | format | bits of exponent, mantissa | largest | infinities |
//! |---|---|---|---|
//! | bf16 | 8, 7 | 3.39e38 | yes |
//! | f16 | 5, 10 | 65504 | yes |
//! | f8e4m3 | 4, 3 | 448 | no: `S.1111.111` is the one NaN |
//! | f8e5m2 | 5, 2 | 57344 | yes |
//!
//! The 8-bit formats are those of Micikevicius et al., "FP8 Formats for Deep Learning" (2022). Every narrow number is an f32, so widening is
//! exact. Rounding is to nearest, ties to even. What exceeds a 16-bit format becomes infinite. What exceeds an 8-bit format
//! becomes the largest finite number, as that paper's conversions saturate; infinities saturate too.

mod floats;
mod instructions;

pub(crate) use self::floats::SharedFloats;
pub use self::floats::{Floats, FloatsMut};

use crate::cpu::Par;
use crate::cpu::par::Rows;
use crate::cpu::simd::simd;
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

/// A format narrower than f32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Narrow {
    /// The upper half of an f32.
    Bf16,
    /// IEEE half.
    F16,
    /// 8 bits for weights and activations.
    F8E4M3,
    /// 8 bits for gradients.
    F8E5M2,
}

impl Narrow {
    /// All formats.
    pub const ALL: [Narrow; 4] = [Narrow::Bf16, Narrow::F16, Narrow::F8E4M3, Narrow::F8E5M2];

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Narrow::Bf16 | Narrow::F16 => 2,
            Narrow::F8E4M3 | Narrow::F8E5M2 => 1,
        }
    }

    /// The largest finite number.
    pub fn largest(self) -> f32 {
        match self {
            Narrow::Bf16 => f32::from_bits(0x7f7f_0000),
            Narrow::F16 => 65504.0,
            Narrow::F8E4M3 => 448.0,
            Narrow::F8E5M2 => 57344.0,
        }
    }

    /// The nearest number of the format.
    pub fn nearest(self, x: f32) -> f32 {
        let (mut stored, mut wide) = ([0; 2], [0.0]);
        round_part(self, &[x], &mut stored[..self.bytes()]);
        widen_part(self, &stored[..self.bytes()], &mut wide);
        wide[0]
    }
}

/// Writes the numbers that `from` stores, little-endian.
///
/// # Panics
/// If `from` has not the bytes of `to.len()` elements.
pub fn widen(format: Narrow, from: &[u8], to: &mut [f32], par: Par) {
    assert_eq!(from.len(), to.len() * format.bytes(), "an element for each number");
    let parts = (Rows(from, format.bytes()), Rows(&mut *to, 1));
    par.rows(from.len() / format.bytes(), 1, parts, &|_, (from, to)| widen_part(format, from.0, to.0));
}

/// Stores the nearest numbers of the format, little-endian.
///
/// # Panics
/// If `to` has not the bytes of `from.len()` elements.
pub fn round(format: Narrow, from: &[f32], to: &mut [u8], par: Par) {
    assert_eq!(to.len(), from.len() * format.bytes(), "an element for each number");
    let parts = (Rows(from, 1), Rows(&mut *to, format.bytes()));
    par.rows(from.len(), 1, parts, &|_, (from, to)| round_part(format, from.0, to.0));
}

/// Replaces numbers by the nearest ones of the format.
pub fn settle(format: Narrow, numbers: &mut [f32]) {
    if format == Narrow::Bf16 {
        return settle_bf16(numbers);
    }
    let mut stored = [0; 512];
    for part in numbers.chunks_mut(stored.len() / format.bytes()) {
        let stored = &mut stored[..part.len() * format.bytes()];
        round_part(format, part, stored);
        widen_part(format, stored, part);
    }
}

/// Writes the nearest numbers of the format, as f32.
///
/// # Panics
/// If the sizes differ.
pub fn settle_to(format: Narrow, from: &[f32], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "a number for each");
    if format == Narrow::Bf16 {
        return settle_bf16_to(from, to);
    }
    to.copy_from_slice(from);
    settle(format, to);
}

/// Memory of f32 numbers, for elements of any format.
pub(crate) fn bytes_of(numbers: &mut [f32]) -> &mut [u8] {
    let len = size_of_val(numbers);
    // SAFETY: the bytes are those of the slice, and every pattern of bits is a number of either type.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), len) }
}

pub(crate) fn widen_part(format: Narrow, from: &[u8], to: &mut [f32]) {
    widen_rows(format, from, [to.len(), to.len()], to);
}

/// Writes the numbers of rows of `len` elements, one row after the other. Rows of `from` start `stride` elements apart.
///
/// # Panics
/// If `from` has not the rows that `to` holds.
pub(crate) fn widen_rows(format: Narrow, from: &[u8], [len, stride]: [usize; 2], to: &mut [f32]) {
    let rows = [len, stride];
    match format {
        Narrow::Bf16 => widen_bf16(from.as_chunks().0, rows, to),
        Narrow::F16 => widen_f16(from.as_chunks().0, rows, to),
        Narrow::F8E4M3 => widen_f8e4m3(from, rows, to),
        Narrow::F8E5M2 => widen_f8e5m2(from, rows, to),
    }
}

pub(crate) fn round_part(format: Narrow, from: &[f32], to: &mut [u8]) {
    match format {
        Narrow::Bf16 => {
            let to = to.as_chunks_mut().0;
            let done = instructions::round_bf16(from, to);
            round_bf16(&from[done..], &mut to[done..]);
        }
        Narrow::F16 => round_f16(from, to.as_chunks_mut().0),
        Narrow::F8E4M3 => round_f8e4m3(from, to),
        Narrow::F8E5M2 => round_f8e5m2(from, to),
    }
}

simd! {
    fn widen_bf16(from: &[[u8; 2]], rows: [usize; 2], to: &mut [f32]) {
        each(from, rows, to, #[inline(always)] |x| f32::from_bits(u32::from(u16::from_le_bytes(x)) << 16));
    }

    fn widen_f16(from: &[[u8; 2]], rows: [usize; 2], to: &mut [f32]) {
        each(from, rows, to, #[inline(always)] |x| number::<10, 15>(u32::from(u16::from_le_bytes(x)), 16, 0x7c00));
    }

    fn widen_f8e4m3(from: &[u8], rows: [usize; 2], to: &mut [f32]) {
        each(from, rows, to, #[inline(always)] |x| number::<3, 7>(u32::from(x), 8, 0x7f));
    }

    fn widen_f8e5m2(from: &[u8], rows: [usize; 2], to: &mut [f32]) {
        each(from, rows, to, #[inline(always)] |x| number::<2, 15>(u32::from(x), 8, 0x7c));
    }

    fn round_bf16(from: &[f32], to: &mut [[u8; 2]]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = (bf16(from) as u16).to_le_bytes();
        }
    }

    fn settle_bf16(numbers: &mut [f32]) {
        for x in numbers {
            *x = f32::from_bits(bf16(*x) << 16);
        }
    }

    fn settle_bf16_to(from: &[f32], to: &mut [f32]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = f32::from_bits(bf16(from) << 16);
        }
    }

    fn round_f8e4m3(from: &[f32], to: &mut [u8]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = f8::<3, 7>(from, 448.0, 0x7f);
        }
    }

    fn round_f8e5m2(from: &[f32], to: &mut [u8]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = f8::<2, 15>(from, 57344.0, 0x7e);
        }
    }
}

/// The bits of the nearest number of bf16.
#[inline(always)]
fn bf16(x: f32) -> u32 {
    let bits = x.to_bits();
    // Half of the last place, less one where the kept part is even: a tie then does not carry.
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if x.is_nan() { bits >> 16 | 0x40 } else { rounded }
}

/// Widens rows as [`widen_rows`] does.
#[inline(always)]
fn each<T: Copy>(from: &[T], [len, stride]: [usize; 2], to: &mut [f32], number: impl Fn(T) -> f32) {
    for (i, to) in to.chunks_exact_mut(len.max(1)).enumerate() {
        for (to, &from) in to.iter_mut().zip(&from[i * stride..][..len]) {
            *to = number(from);
        }
    }
}

/// The number that the lowest `width` bits store, with this number of bits of mantissa and this bias. Bits without sign from
/// `special` on are infinity or NaN.
#[inline(always)]
fn number<const MANTISSA: u32, const BIAS: u32>(stored: u32, width: u32, special: u32) -> f32 {
    let size = stored & ((1 << (width - 1)) - 1);
    let sign = (stored ^ size) << (32 - width);
    let normal = (size << (23 - MANTISSA)) + ((127 - BIAS) << 23);
    // Below the normal numbers, the mantissa counts from zero: it is what exceeds the least normal number.
    let least_normal = f32::from_bits((128 - BIAS) << 23);
    let small = f32::from_bits(normal + (1 << 23)) - least_normal;
    let finite = if size >> MANTISSA == 0 { small.to_bits() } else { normal };
    let widened = if size >= special { size << (23 - MANTISSA) | 0x7f80_0000 } else { finite };
    f32::from_bits(sign | widened)
}

/// Elements that are rounded at a time where a library wants aligned ones.
const PIECE: usize = 256;

fn round_f16(from: &[f32], to: &mut [[u8; 2]]) {
    let mut bits = [0; PIECE];
    for (from, to) in from.chunks(PIECE).zip(to.chunks_mut(PIECE)) {
        bits[..to.len()].reinterpret_cast_mut::<f16>().convert_from_f32_slice(from);
        to.iter_mut().zip(bits).for_each(|(to, bits)| *to = bits.to_le_bytes());
    }
}

/// The nearest 8-bit number with this number of bits of mantissa and this bias, which saturates.
#[inline(always)]
fn f8<const MANTISSA: u32, const BIAS: u32>(x: f32, largest: f32, nan: u8) -> u8 {
    let sign = (x.to_bits() >> 24 & 0x80) as u8;
    // A NaN is larger than nothing, so it stays.
    let size = if x.abs() > largest { largest } else { x.abs() };
    let shift = 23 - MANTISSA;
    let rounded = size.to_bits().wrapping_add((1 << (shift - 1)) - 1 + (size.to_bits() >> shift & 1)) >> shift;
    let normal = rounded.wrapping_sub((127 - BIAS) << MANTISSA);
    // Below the normal numbers, places are all alike: they are the last ones of a number so large that they are its units.
    let unit = f32::from_bits((127 + 23 + 1 - BIAS - MANTISSA) << 23);
    let small = (size + unit).to_bits().wrapping_sub(unit.to_bits());
    let least_normal = f32::from_bits((128 - BIAS) << 23);
    let stored = if size < least_normal { small } else { normal };
    if x.is_nan() { sign | nan } else { sign | stored as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All numbers of a format by their bits, in order of size, without NaN.
    fn numbers(format: Narrow) -> Vec<f32> {
        let count = 1usize << (8 * format.bytes());
        let stored: Vec<u8> = (0..count).flat_map(|bits| bits.to_le_bytes()[..format.bytes()].to_vec()).collect();
        let mut numbers = vec![0.0; count];
        widen(format, &stored, &mut numbers, Par(2));
        numbers.retain(|x| !x.is_nan());
        numbers.sort_by(f32::total_cmp);
        numbers
    }

    /// The number by definition.
    fn defined(format: Narrow, bits: u32) -> f64 {
        let (mantissa_bits, bias, special) = match format {
            Narrow::Bf16 => (7, 127, 0x7f80),
            Narrow::F16 => (10, 15, 0x7c00),
            Narrow::F8E4M3 => (3, 7, 0x7f),
            Narrow::F8E5M2 => (2, 15, 0x7c),
        };
        let top = 1 << (8 * format.bytes() - 1);
        let (sign, size) = (if bits & top == 0 { 1.0 } else { -1.0 }, bits & (top - 1));
        let (exponent, mantissa) = ((size >> mantissa_bits) as i32, size & ((1 << mantissa_bits) - 1));
        let fraction = f64::from(mantissa) / 2f64.powi(mantissa_bits);
        sign * match size {
            _ if size > special || size == special && format == Narrow::F8E4M3 => f64::NAN,
            _ if size == special => f64::INFINITY,
            _ if exponent == 0 => fraction * 2f64.powi(1 - bias),
            _ => (1.0 + fraction) * 2f64.powi(exponent - bias),
        }
    }

    #[test]
    fn every_number_is_as_defined() {
        for format in Narrow::ALL {
            for bits in 0..1u32 << (8 * format.bytes()) {
                let (mut wide, defined) = ([0.0], defined(format, bits) as f32);
                widen(format, &bits.to_le_bytes()[..format.bytes()], &mut wide, Par(1));
                let same = wide[0].to_bits() == defined.to_bits() || wide[0].is_nan() && defined.is_nan();
                assert!(same, "{format:?} {bits:#x}: {} for {defined}", wide[0]);
            }
        }
    }

    #[test]
    fn rows_are_widened_side_by_side() {
        for format in Narrow::ALL {
            let stored: Vec<u8> = (0..format.bytes() as u8 * 100).collect();
            let mut all = vec![0.0; 100];
            widen(format, &stored, &mut all, Par(1));
            for [len, stride] in [[1, 7], [8, 9], [13, 20], [20, 20]] {
                let mut rows = vec![f32::NAN; 4 * len];
                widen_rows(format, &stored, [len, stride], &mut rows);
                let want = (0..4).flat_map(|i| &all[i * stride..][..len]);
                assert!(rows.iter().zip(want).all(|(x, y)| x.to_bits() == y.to_bits()), "{format:?} {len} {stride}");
            }
        }
    }

    #[test]
    fn every_number_stays_itself() {
        for format in Narrow::ALL {
            let numbers = numbers(format);
            let finite = numbers.iter().filter(|x| x.is_finite());
            assert!(finite.clone().all(|&x| format.nearest(x).to_bits() == x.to_bits()), "{format:?}");
            assert_eq!(finite.copied().fold(0.0, f32::max), format.largest(), "{format:?}");
            assert!(format.nearest(f32::NAN).is_nan() && format.nearest(-f32::NAN).is_nan(), "{format:?}");
        }
    }

    #[test]
    fn settled_numbers_are_those_that_are_stored() {
        let all: Vec<f32> = (0..=u16::MAX).map(|upper| f32::from_bits(u32::from(upper) << 16 | 0x8000)).collect();
        for format in Narrow::ALL {
            let (mut settled, mut written) = (all.clone(), vec![0.0; all.len()]);
            settle_to(format, &all, &mut written);
            settle(format, &mut settled);
            assert!(settled.iter().zip(&written).all(|(x, y)| x.to_bits() == y.to_bits()), "{format:?}");
            let same =
                |(&x, &got): (&f32, &f32)| got.to_bits() == format.nearest(x).to_bits() || x.is_nan() && got.is_nan();
            assert!(all.iter().zip(&settled).all(same), "{format:?}");
        }
    }

    #[test]
    fn a_run_of_numbers_is_rounded_as_each_is() {
        for lower in [0, 1, 0x7fff, 0x8000, 0x8001] {
            let all: Vec<f32> = (0..=u16::MAX).map(|upper| f32::from_bits(u32::from(upper) << 16 | lower)).collect();
            // Small numbers are in runs of their own, and between others.
            let mixed = (0..all.len()).map(|i| all[i * 257 % all.len()]).collect::<Vec<_>>();
            for numbers in [&all[..], &mixed, &mixed[..45]] {
                let mut stored = vec![0; 2 * numbers.len()];
                round(Narrow::Bf16, numbers, &mut stored, Par(1));
                for (number, stored) in numbers.iter().zip(stored.as_chunks().0) {
                    let rounded = (bf16(*number) as u16).to_le_bytes();
                    assert!(*stored == rounded, "{number:e}: {stored:?} for {rounded:?}");
                }
            }
        }
    }

    #[test]
    fn what_lies_between_goes_to_the_nearest() {
        for format in Narrow::ALL {
            let numbers: Vec<f32> = numbers(format).into_iter().filter(|x| x.is_finite()).collect();
            for (place, pair) in numbers.windows(2).enumerate() {
                let [low, high] = [pair[0], pair[1]];
                let middle = ((f64::from(low) + f64::from(high)) / 2.0) as f32;
                if low == high || low == middle {
                    continue;
                }
                assert_eq!(format.nearest(middle.next_down()), low, "{format:?} below {middle}");
                assert_eq!(format.nearest(middle.next_up()), high, "{format:?} above {middle}");
                // Neighbours alternate between even and odd; zero is even, and has a neighbour twice: itself, negative.
                let zero = numbers.iter().position(|x| x.to_bits() == 0).unwrap();
                let even = |at: usize| at.abs_diff(if at < zero { zero - 1 } else { zero }).is_multiple_of(2);
                let want = if even(place) { low } else { high };
                assert_eq!(format.nearest(middle), want, "{format:?} at {middle}, between {low} and {high}");
            }
        }
    }

    #[test]
    fn what_is_too_large_overflows_or_saturates() {
        for (format, beyond) in [(Narrow::Bf16, f32::MAX), (Narrow::F16, 65520.0)] {
            assert_eq!([beyond, -beyond].map(|x| format.nearest(x)), [f32::INFINITY, f32::NEG_INFINITY]);
        }
        assert_eq!(Narrow::F16.nearest(65519.0), 65504.0);
        for format in [Narrow::F8E4M3, Narrow::F8E5M2] {
            for x in [format.largest() * 1.01, f32::MAX, f32::INFINITY] {
                assert_eq!([x, -x].map(|x| format.nearest(x)), [format.largest(), -format.largest()], "{format:?} {x}");
            }
        }
    }
}
