//! Rotary position embedding.

use super::par::{Par, Rows};
use super::simd::simd;

/// Pairs rotated together: their sines and cosines stay in registers and the L1 cache.
const PAIRS: usize = 64;

/// The shape of what [`rope`] rotates: `heads` heads of size `d` in each row.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Heads per row.
    pub heads: usize,
    /// Size of a head.
    pub d: usize,
}

/// How pairs of elements turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// Radians per position of each pair.
    pub frequencies: &'a [f64],
    /// Others in long sequences.
    pub beyond: Option<Beyond<'a>>,
    /// The factor of what turns.
    pub gain: f32,
    /// They turn the other way.
    pub inverse: bool,
}

/// The frequencies of rows in sequences that are longer than a context.
#[derive(Clone, Copy, Debug)]
pub struct Beyond<'a> {
    /// The length of each row's sequence.
    pub lengths: &'a [i32],
    /// Tokens of the context.
    pub context: u64,
    /// Radians per position of each pair.
    pub frequencies: &'a [f64],
}

/// Rotates pairs of elements by angles that grow with the position, as Hugging Face's Llama does. With `n` frequencies, in a row
/// at position `pos`, elements `i` and `i + n` of each head turn by `pos frequencies[i]` radians, and back if `inverse`, and are
/// multiplied by the gain; rows of long sequences have the frequencies of `beyond`. Elements from `2 n` on are copied. The gradient of a rotation is the inverse rotation with the same gain.
///
/// # Panics
/// If `x` and `out` are not rows x heads x d with one row per position, or if there are more than d / 2 frequencies. If `beyond` has
/// another number of them, or of rows.
pub fn rope(x: &[f32], shape: Heads, pos: &[i32], turn: Turn<'_>, out: &mut [f32], par: Par) {
    let Turn { frequencies, beyond, gain, inverse } = turn;
    let turned = 2 * frequencies.len();
    assert!(turned <= shape.d, "one frequency for each pair");
    if let Some(beyond) = beyond {
        let sizes = [beyond.lengths.len(), beyond.frequencies.len()];
        assert_eq!(sizes, [pos.len(), frequencies.len()], "one length for each row, and one frequency for each pair");
    }
    let width = shape.heads * shape.d;
    assert!(x.len() == pos.len() * width && out.len() == x.len(), "x and out are rows x heads x d");
    let parts = (Rows(x, width), Rows(pos, 1), beyond.map(|beyond| Rows(beyond.lengths, 1)), Rows(out, width));
    par.rows(pos.len(), 2 * width, parts, &|_, (x, pos, lengths, out)| {
        for first in (0..turned / 2).step_by(PAIRS) {
            let pairs = first..(first + PAIRS).min(turned / 2);
            let short = speeds(&frequencies[pairs.clone()], inverse);
            let long = lengths.as_ref().zip(beyond).map(|(lengths, beyond)| Long {
                lengths: lengths.0,
                context: beyond.context,
                speeds: speeds(&beyond.frequencies[pairs], inverse),
            });
            rotate_rows(x.0, shape, pos.0, first, turned / 2, &Speeds { short, long, gain }, out.0);
        }
        if turned < shape.d {
            for (out, x) in out.0.chunks_exact_mut(shape.d).zip(x.0.chunks_exact(shape.d)) {
                out[turned..].copy_from_slice(&x[turned..]);
            }
        }
    });
}

/// Turns per position of some pairs, and the factor of what turns.
struct Speeds<'a> {
    short: [f64; PAIRS],
    long: Option<Long<'a>>,
    gain: f32,
}

/// Those of rows in sequences that are longer than a context.
struct Long<'a> {
    lengths: &'a [i32],
    context: u64,
    speeds: [f64; PAIRS],
}

impl Speeds<'_> {
    #[inline(always)]
    fn of(&self, row: usize) -> &[f64; PAIRS] {
        match &self.long {
            Some(long) if i64::from(long.lengths[row]) > long.context as i64 => &long.speeds,
            _ => &self.short,
        }
    }
}

/// Turns per position of some pairs. An inverse rotation turns the other way.
fn speeds(frequencies: &[f64], inverse: bool) -> [f64; PAIRS] {
    let mut speeds = [0.0; PAIRS];
    for (speed, frequency) in speeds.iter_mut().zip(frequencies) {
        *speed = if inverse { -frequency } else { *frequency } / std::f64::consts::TAU;
    }
    speeds
}

simd! {
    fn rotate_rows(
        x: &[f32],
        shape: Heads,
        pos: &[i32],
        first: usize,
        half: usize,
        speeds: &Speeds<'_>,
        out: &mut [f32],
    ) {
        let (Heads { heads, d }, gain) = (shape, speeds.gain);
        let pairs = PAIRS.min(half - first);
        let (mut cos, mut sin) = ([0.0f32; PAIRS], [0.0f32; PAIRS]);
        for (row, &pos) in pos.iter().enumerate() {
            let speed = speeds.of(row);
            for i in 0..PAIRS {
                [cos[i], sin[i]] = cos_sin(f64::from(pos) * speed[i]).map(|part| gain * part);
            }
            for head in row * heads..(row + 1) * heads {
                let (low, high) = (head * d + first, head * d + half + first);
                let (x_low, x_high) = (&x[low..low + pairs], &x[high..high + pairs]);
                let (out_low, out_high) = out[low..high + pairs].split_at_mut(half);
                let (cos, sin) = (&cos[..pairs], &sin[..pairs]);
                for i in 0..pairs {
                    out_low[i] = x_low[i] * cos[i] - x_high[i] * sin[i];
                    out_high[i] = x_high[i] * cos[i] + x_low[i] * sin[i];
                }
            }
        }
    }
}

/// Cosine and sine of an angle in turns, absolute error below 3e-7. Whole turns go in double precision, so a large
/// position costs no accuracy; the rest folds to an eighth of a turn and goes through the Taylor series.
#[inline(always)]
fn cos_sin(turns: f64) -> [f32; 2] {
    // Adding and subtracting it rounds a double below 2^51 to the nearest integer.
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    let rounded = turns * 4.0 + ROUND;
    let quarters = rounded.to_bits() as u32;
    let angle = ((turns * 4.0 - (rounded - ROUND)) * std::f64::consts::FRAC_PI_2) as f32;
    let square = angle * angle;
    let sin = 1.0 / 362_880.0;
    let sin = sin * square - 1.0 / 5040.0;
    let sin = sin * square + 1.0 / 120.0;
    let sin = sin * square - 1.0 / 6.0;
    let sin = sin * square * angle + angle;
    let cos = 1.0 / 40320.0;
    let cos = cos * square - 1.0 / 720.0;
    let cos = cos * square + 1.0 / 24.0;
    let cos = cos * square - 0.5;
    let cos = cos * square + 1.0;
    let swap = quarters & 1 == 1;
    let (c, s) = (if swap { sin } else { cos }, if swap { cos } else { sin });
    let flip = |v: f32, bit: u32| f32::from_bits(v.to_bits() ^ ((bit & 2) << 30));
    [flip(c, quarters.wrapping_add(1)), flip(s, quarters)]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, integers, normals};
    use super::*;

    #[test]
    fn rotates_as_defined() {
        let sizes = [(0, 2, 4), (3, 0, 4), (1, 1, 2), (5, 3, 1), (4, 2, 7), (6, 4, 64), (3, 2, 300)];
        let parts = [(3, 2, 16, 2), (2, 1, 7, 1), (4, 3, 80, 20), (2, 2, 5, 0)];
        let whole = sizes.into_iter().map(|(rows, heads, d)| (rows, heads, d, d / 2));
        for (rows, heads, d, half) in whole.chain(parts) {
            let x = normals(rows * heads * d, 1);
            let pos = integers(rows, 2, -5, 1_000_000);
            let mut out = vec![f32::NAN; x.len()];
            // Neither a power law nor in order: each pair has its own.
            let frequencies: Vec<f64> = (0..half).map(|i| 1.0 / (1 + i * 37 % 101) as f64).collect();
            let turn = Turn { frequencies: &frequencies, beyond: None, gain: 1.25, inverse: false };
            rope(&x, Heads { heads, d }, &pos, turn, &mut out, Par(2));
            let exact: Vec<f64> = (0..x.len())
                .map(|at| {
                    let (row, i) = (at / (heads * d), at % d);
                    let value = f64::from(x[at]);
                    if i >= 2 * half {
                        return value;
                    }
                    let angle = f64::from(pos[row]) * frequencies[i % half];
                    let other = if i < half { -f64::from(x[at + half]) } else { f64::from(x[at - half]) };
                    1.25 * (value * angle.cos() + other * angle.sin())
                })
                .collect();
            assert_close(&out, &exact, 2e-6);
            let mut back = vec![f32::NAN; x.len()];
            let turn = Turn { frequencies: &frequencies, beyond: None, gain: 0.8, inverse: true };
            rope(&out, Heads { heads, d }, &pos, turn, &mut back, Par(1));
            assert_close(&back, &super::super::testing::doubles(&x), 2e-6);
        }
    }

    /// Each row turns as it would among rows of its own kind, at any split of the rows among threads.
    #[test]
    fn rows_of_long_sequences_have_their_own_frequencies() {
        let (rows, heads, d) = (400, 2, 150);
        let x = normals(rows * heads * d, 3);
        let (pos, lengths) = (integers(rows, 4, 0, 300), integers(rows, 5, 1, 300));
        let [short, long]: [Vec<f64>; 2] = [1.0, 3.0].map(|by| (0..70).map(|i| 1.0 / (by + f64::from(i))).collect());
        let turned = |frequencies, beyond| {
            let mut out = vec![f32::NAN; x.len()];
            let turn = Turn { frequencies, beyond, gain: 1.5, inverse: true };
            rope(&x, Heads { heads, d }, &pos, turn, &mut out, Par(3));
            out
        };
        let beyond = Beyond { lengths: &lengths, context: 150, frequencies: &long };
        let mixed = turned(&short, Some(beyond));
        let [all_short, all_long] = [turned(&short, None), turned(&long, None)];
        for (row, length) in lengths.iter().enumerate() {
            let part = row * heads * d..(row + 1) * heads * d;
            let own = if *length > 150 { &all_long } else { &all_short };
            assert_eq!(mixed[part.clone()], own[part], "row {row} of length {length}");
        }
    }
}
