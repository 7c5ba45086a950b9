//! How far two computations of an attention may be apart, from the magnitudes of all that is summed, pair by pair.
//!
//! A score is off by its sum's rounding on both sides; so is a weight, relatively, and by that of its exponential, at most 4 u on each side.
//!
//! Tensor cores truncate sums (gemm.rs), which counts as two roundings. They multiply weights, and gradients by scores, that are rounded to
//! the operands' type, and so does a processor with products in bf16; weights below its normal numbers lose their places. Exponents to the base 2 have the roundings of the scale,
//! of the product, of the saved logarithm and of the difference.

use super::bounds::UNIT;
use super::written::Compared;
use device::sizes::in_blocks;
use ir::ops::AttentionSettings;
use ir::types::DType;
use kernels::cpu::attention::rounds_weights;
use kernels::cpu::narrow::Narrow;

const U: f64 = UNIT as f64;

/// Roundings of both sides together, in halves of the last place.
struct Roundings {
    /// Roundings of an addition to a sum of products.
    addition: f64,
    /// Roundings of an exponent, relative to its score and its logarithm.
    exponent: f64,
    /// The error of a weight that is multiplied, relative to it.
    weight: f64,
    /// The least weight that has no greater error.
    least: f64,
}

const SIMPLE: Roundings = Roundings { addition: 2.0, exponent: 4.0, weight: 0.0, least: 0.0 };

/// Bf16 has 8 bits of mantissa. Powers below 2^-126 become zero: they are off by 2^-8 of 2^-118.
const BF16: Roundings =
    Roundings { addition: 3.0, exponent: 6.0, weight: 1.0 / 256.0, least: 1.0 / (1u128 << 118) as f64 };

/// F16 has 11 bits of mantissa, and its last place is 2^-24 below 2^-14.
const F16: Roundings = Roundings { weight: 1.0 / 2048.0, least: 1.0 / 16_384.0, ..BF16 };

/// Sizes and tensors of an attention.
pub(super) struct Heads<'a> {
    /// b, s, g, r, d, t, c
    sizes: [usize; 7],
    operands: &'a [Vec<f32>],
    right: &'a [Vec<f32>],
    settings: &'a AttentionSettings,
    /// The largest factor of a weight.
    factor: f64,
    roundings: Roundings,
}

/// A query and a key that it sees.
struct Pair {
    row: usize,
    key: usize,
    score: f64,
    /// How far the score may be off.
    error: f64,
    /// The slope of the bound of scores.
    slope: f64,
    /// How far the slope may be off.
    slope_error: f64,
}

impl<'a> Heads<'a> {
    pub(super) fn new(compared: &Compared<'a>, settings: &'a AttentionSettings) -> Result<Heads<'a>, String> {
        let [q, k, v] = [0, 1, 2].map(|at| compared.site.operand(at));
        let (q, k, v) = (q?, k?, v?);
        let (&[b, s, g, r, d], &t, &c) = (&q[..], &k[1], &v[3]) else { return Err("wants q of five dims".to_string()) };
        let [b, s, t] = in_blocks(settings.block, b, s, t);
        let factor = settings.dropout.as_ref().map_or(1.0, |dropout| 1.0 / (1.0 - dropout.p));
        let Compared { operands, right, .. } = *compared;
        let roundings = roundings(compared.site.operands[0].dtype, compared.on_tensor_cores);
        Ok(Heads { sizes: [b, s, g, r, d, t, c], operands, right, settings, factor, roundings })
    }

    /// Signed and unsigned sums of the products of two rows.
    fn dot(&self, [a, b]: [usize; 2], [i, j]: [usize; 2], n: usize) -> [f64; 2] {
        let (a, b) = (&self.operands[a][i * n..][..n], &self.operands[b][j * n..][..n]);
        let terms = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
        terms.fold([0.0, 0.0], |[sum, size], term| [sum + term, size + term.abs()])
    }

    /// All pairs; positions and segments are four operands from one on.
    fn pairs(&self, places: usize) -> Vec<Pair> {
        let [b, s, g, r, d, t, _] = self.sizes;
        let [qpos, kpos, qseg, kseg] = [0, 1, 2, 3].map(|i| &self.operands[places + i]);
        let mut pairs = Vec::new();
        for row in 0..b * s * g * r {
            let (place, head) = (row / (g * r), row / r % g);
            for at in 0..t {
                let of = place / s * t + at;
                let back = f64::from(qpos[place]) - f64::from(kpos[of]);
                let chunk_of = |pos: f32, chunk: u64| f64::from(pos).div_euclid(chunk as f64);
                let is_near = self.settings.window.is_none_or(|window| back < window as f64)
                    && self.settings.chunk.is_none_or(|n| chunk_of(qpos[place], n) == chunk_of(kpos[of], n));
                if qseg[place] == kseg[of] && (!self.settings.causal || back >= 0.0) && is_near {
                    pairs.push(self.pair(row, of * g + head, d));
                }
            }
        }
        pairs
    }

    /// A bound takes a quotient, a product and two hyperbolic tangents, each at most 4 u off.
    fn pair(&self, row: usize, key: usize, d: usize) -> Pair {
        let AttentionSettings { scale, softcap, .. } = *self.settings;
        let [sum, size] = self.dot([0, 1], [row, key], d);
        let error = self.roundings.addition * (d + 2) as f64 * U * scale.abs() * size;
        let Some(softcap) = softcap else {
            return Pair { row, key, score: scale * sum, error, slope: 1.0, slope_error: 0.0 };
        };
        let share = (scale * sum / softcap).tanh();
        let error = error + 12.0 * U * softcap * share.abs();
        let slope_error = 2.0 * share.abs() * error / softcap + 4.0 * U;
        Pair { row, key, score: softcap * share, error, slope: 1.0 - share * share, slope_error }
    }

    /// The errors of the result and of the log-sum-exp.
    pub(super) fn forward(&self) -> Vec<Vec<f32>> {
        let [.., t, c] = self.sizes;
        let (lse, v) = (&self.right[1], &self.operands[2]);
        let (mut out, mut sums) = (vec![0.0; self.right[0].len()], vec![0f64; lse.len()]);
        let pairs = self.pairs(3);
        for pair in &pairs {
            let exponent = self.roundings.exponent * U * (pair.score.abs() + f64::from(lse[pair.row]).abs());
            let of_score = pair.error + exponent + 8.0 * U;
            sums[pair.row] = sums[pair.row].max(of_score + 4.0 * (t + 8) as f64 * U);
        }
        for &Pair { row, key, score, error, .. } in &pairs {
            let weight =
                (score - f64::from(lse[row]) + error + sums[row]).exp().max(self.roundings.least) * self.factor;
            for i in 0..c {
                let of_weight = 2.5 * sums[row] + self.roundings.weight;
                out[row * c + i] += of_weight * weight * f64::from(v[key * c + i].abs());
            }
        }
        let of_lse =
            |(lse, sum): (&f32, f64)| if sum == 0.0 { 0.0 } else { (sum + 4.0 * U * f64::from(lse.abs())) as f32 };
        vec![narrow(out), lse.iter().zip(sums).map(of_lse).collect()]
    }

    /// The errors of the gradients.
    pub(super) fn backward(&self) -> Vec<Vec<f32>> {
        let [_, s, _, r, d, t, c] = self.sizes;
        let [q, k, lse, dout] = [0, 1, 4, 5].map(|at| &self.operands[at]);
        let mut errors: Vec<Vec<f64>> = self.right.iter().map(|right| vec![0.0; right.len()]).collect();
        for Pair { row, key, score, error, slope, slope_error } in self.pairs(6) {
            let lse = f64::from(lse[row]);
            // Both have weights of exactly 0.
            if lse == f64::NEG_INFINITY {
                continue;
            }
            let Roundings { addition, exponent, weight: rounded, least } = self.roundings;
            let of_weight = error + exponent * U * (score.abs() + lse.abs()) + 8.0 * U;
            let weight = (score - lse + of_weight).exp().max(least);
            let [[by_weight, value], [delta, total]] =
                [self.dot([5, 2], [row, key], c), self.dot([5, 3], [row, row], c)];
            // The magnitude of what makes the gradient by the score, and the largest that it is.
            let size = weight * (self.factor * value + total);
            let dropped = if self.factor > 1.0 { delta.abs() } else { 0.0 };
            let largest = weight * (self.factor * by_weight - delta).abs().max(dropped);
            let of_score = 1.5 * (of_weight + addition * (c + 4) as f64 * U);
            let error = |terms: usize| {
                let of_sum = size * (of_score + addition * (terms + 2) as f64 * U) + largest.max(least) * rounded;
                of_sum * slope + size * slope_error
            };
            for i in 0..d {
                let [q, k] = [q[row * d + i], k[key * d + i]].map(|x| self.settings.scale.abs() * f64::from(x.abs()));
                errors[0][row * d + i] += k * error(t);
                errors[1][key * d + i] += q * error(r * s);
            }
            for i in 0..c {
                let size = weight * self.factor * f64::from(dout[row * c + i].abs());
                errors[2][key * c + i] += size * (1.5 * of_weight + rounded + addition * (r * s + 2) as f64 * U);
            }
        }
        errors.into_iter().map(narrow).collect()
    }
}

/// Roundings of an attention whose operands have a type. Each side that rounds its weights errs by as much.
fn roundings(dtype: DType, on_tensor_cores: bool) -> Roundings {
    let (format, of_type) = match dtype {
        DType::BF16 => (Narrow::Bf16, BF16),
        DType::F16 => (Narrow::F16, F16),
        _ => return SIMPLE,
    };
    let sides = [on_tensor_cores, rounds_weights(format)].into_iter().filter(|rounds| *rounds).count() as f64;
    let (weight, least) = (sides * of_type.weight, if sides > 0.0 { of_type.least } else { 0.0 });
    Roundings { weight, least, ..if on_tensor_cores { of_type } else { SIMPLE } }
}

fn narrow(errors: Vec<f64>) -> Vec<f32> {
    errors.into_iter().map(|error| error as f32).collect()
}
