//! Attention with grouped query heads, and rotary positions (Su et al. 2021).

use super::Context;
use super::norm::log_sum_exp;
use crate::random;
use crate::real::Real;
use crate::round::Within;
use crate::tensor::Tensor;
use ir::ops::{AttentionSettings, Dropout, Piece, Rope, Scaling};
use std::f64::consts::PI;

/// The angle per position of pair `i` in a head of size `d` in a sequence of a length, as `_compute_llama3_parameters`, `_compute_yarn_parameters`,
/// `_compute_longrope_parameters` and `_compute_linear_scaling_rope_parameters` of Hugging Face's `transformers` have it.
fn inverse_frequency(op: &Rope, i: usize, d: usize, length: i32) -> f64 {
    let plain = 1.0 / op.theta.powf(2.0 * i as f64 / d as f64);
    match op.scaling {
        None => plain,
        Some(Scaling::Pairs { ref divisors }) => 1.0 / (divisors[i] * op.theta.powf(2.0 * i as f64 / d as f64)),
        Some(Scaling::Lengths { ref short, ref long, context }) => {
            let divisors = if i64::from(length) > context as i64 { long } else { short };
            1.0 / (divisors[i] * op.theta.powf(2.0 * i as f64 / d as f64))
        }
        Some(Scaling::Linear { factor }) => plain / factor,
        Some(Scaling::Yarn { factor, low, high, context, fractional }) => {
            let [first, last] =
                [high, low].map(|turns| (context as f64 / (turns * 2.0 * PI)).ln() * d as f64 / (2.0 * op.theta.ln()));
            let (first, last) = if fractional { (first, last) } else { (first.floor(), last.ceil()) };
            let (first, last) = (first.max(0.0), last.min(d as f64 - 1.0));
            let ramp = (i as f64 - first) / (if first == last { 0.001 } else { last - first });
            let kept = 1.0 - ramp.clamp(0.0, 1.0);
            plain / factor * (1.0 - kept) + plain * kept
        }
        Some(Scaling::Llama3 { factor, low, high, context }) => {
            let (wavelength, context) = (2.0 * PI / plain, context as f64);
            if wavelength < context / high {
                plain
            } else if wavelength > context / low {
                plain / factor
            } else {
                let smooth = (context / wavelength - low) / (high - low);
                (1.0 - smooth) * plain / factor + smooth * plain
            }
        }
    }
}

/// Rotates elements `i` and `i + n/2` of the first `n` of each head by `pos` times the pair's inverse frequency, backwards if
/// inverse, and multiplies them by the gain; the others stay. `x` is `[b, s, *n, d]`, `pos` and the lengths of sequences are `[b, s]`.
pub(super) fn rope<R: Real>(op: &Rope, x: &Tensor<R>, pos: &Tensor<i32>, lengths: Option<&Tensor<i32>>) -> Tensor<R> {
    let (d, turned) = (x.columns(), op.turned.map_or(x.columns(), |turned| turned as usize));
    let half = turned / 2;
    let heads: usize = x.dims[pos.dims.len()..x.dims.len() - 1].iter().product();
    let mut out = x.clone();
    for (row, head) in out.data.chunks_exact_mut(d.max(1)).enumerate() {
        let sign = if op.inverse { -1.0 } else { 1.0 };
        let length = lengths.map_or(0, |lengths| lengths.data[row / heads]);
        for i in 0..half {
            let angle = sign * f64::from(pos.data[row / heads]) * inverse_frequency(op, i, turned, length);
            let (sin, cos) = (R::of(op.gain * angle.sin()), R::of(op.gain * angle.cos()));
            let (a, b) = (head[i], head[i + half]);
            head[i] = a * cos - b * sin;
            head[i + half] = b * cos + a * sin;
        }
    }
    out
}

/// The operands of attention: q `[b, s, g, r, d]`, k `[b, t, g, d]`, v `[b, t, g, c]`, positions and segments of queries
/// `[b, s]` and of keys `[b, t]`.
pub(super) struct AttentionInputs<'a, R> {
    pub(super) q: &'a Tensor<R>,
    pub(super) k: &'a Tensor<R>,
    pub(super) v: &'a Tensor<R>,
    pub(super) qpos: &'a Tensor<i32>,
    pub(super) kpos: &'a Tensor<i32>,
    pub(super) qseg: &'a Tensor<i32>,
    pub(super) kseg: &'a Tensor<i32>,
    /// A further score of each query of a head, `[g, r]`, if any.
    pub(super) sink: Option<&'a Tensor<R>>,
    pub(super) settings: &'a AttentionSettings,
    pub(super) dropout: Option<Dropped>,
    pub(super) within: Within,
}

/// Numbers that are rounded: weights of values and of their cotangents, and cotangents of scores.
const FORWARD: u32 = 1;
const BACKWARD: u32 = 2;
const OF_SCORES: u32 = 3;

/// Dropout of weights `[b, s, g, r, t]`, whose numbers go by their index among those of the step (see [`random`]).
#[derive(Clone, Copy)]
pub(super) struct Dropped {
    p: f64,
    key: [u32; 2],
    microbatch: u64,
    piece: Option<Piece>,
}

impl Dropped {
    /// That of an attention's settings.
    pub(super) fn of(settings: &AttentionSettings, context: Context) -> Option<Dropped> {
        let AttentionSettings { dropout, piece, .. } = settings;
        let Dropout { p, path, .. } = dropout.as_ref()?;
        let key = random::dropout_key(context.seed, context.step, context.index, path);
        Some(Dropped { p: *p, key, microbatch: context.microbatch, piece: *piece })
    }
}

impl<R: Real> AttentionInputs<'_, R> {
    /// The rows of k and v that row `row` of q sees: of the same sequence, head and segment, not later if causal, within the window, and
    /// in the same chunk and block.
    fn keys(&self, row: usize) -> Vec<usize> {
        let &[_, s, g, r, _] = self.q.dims.as_slice() else { return Vec::new() };
        let t = self.k.dims[1];
        let (query, group) = (row / (g * r), row / r % g);
        let first = query / s * t;
        let keys = (first..first + t).filter(|&key| {
            let is_apart =
                self.settings.block.is_some_and(|block| query % s / block as usize != key % t / block as usize);
            !is_apart && self.is_visible(query, key)
        });
        keys.map(|key| key * g + group).collect()
    }

    /// True if a query sees a key of the same block by segments and positions.
    fn is_visible(&self, query: usize, key: usize) -> bool {
        let AttentionSettings { window, chunk, causal, .. } = self.settings;
        let [of_query, of_key] = [self.qpos.data[query], self.kpos.data[key]].map(i64::from);
        let back = of_query - of_key;
        let is_hidden = window.is_some_and(|window| back >= 0 && back as u64 >= window)
            || chunk.is_some_and(|chunk| of_query.div_euclid(chunk as i64) != of_key.div_euclid(chunk as i64))
            || *causal && back < 0;
        self.qseg.data[query] == self.kseg.data[key] && !is_hidden
    }

    /// Factor by which dropout multiplies the weight of a row of q and a row of k: 0 or `1 / (1 - p)`; 1 without dropout.
    fn kept(&self, row: usize, key: usize) -> R {
        let Some(Dropped { p, key: numbers, microbatch, piece }) = self.dropout else { return R::one() };
        let &[b, s, g, r, _] = self.q.dims.as_slice() else { return R::one() };
        let t = self.k.dims[1];
        let (origin, queries, keys) = piece.map_or((0, s, t), |piece| {
            let whole = piece.whole as usize;
            (piece.origin as usize, whole, whole)
        });
        let (sample, query, head) = (row / (s * g * r), origin + row / (g * r) % s, row % (g * r));
        let row = (sample * queries + query) * g * r + head;
        let weights = b * queries * g * r * keys;
        let counter = microbatch * weights as u64 + (row * keys + key / g % t) as u64;
        if random::uniform(numbers, counter) >= p as f32 { R::of(1.0 / (1.0 - p)) } else { R::zero() }
    }

    /// A score, and its derivative by the product before it is bounded.
    fn score(&self, query: &[R], key: usize) -> (R, R) {
        let score = R::of(self.settings.scale) * dot(query, row(self.k, key));
        let Some(softcap) = self.settings.softcap.map(R::of) else { return (score, R::one()) };
        let bounded = (score / softcap).tanh();
        (softcap * bounded, R::one() - bounded * bounded)
    }

    /// A number of a row of q and one of k, rounded to the type of q: an operand of a product.
    fn rounded(&self, x: R, kind: u32, row: usize, key: usize) -> R {
        self.within.round(x, kind, (row * self.k.data.len() + key) as u64)
    }

    /// `out = sum of kept p v` with `p = e^(scale q k - lse)` over the visible keys, where `kept p` is rounded to the type of v. Gives out
    /// `[b, s, g, r, c]` and lse `[b, s, g, r]`; a query that sees no key has out 0 and lse -inf.
    pub(super) fn forward(&self) -> [Tensor<R>; 2] {
        let c = self.v.columns();
        let rows = &self.q.dims[..4];
        let mut out = Tensor::zeros(&[rows, &[c]].concat());
        let mut lse = Tensor::zeros(rows);
        for (i, query) in self.q.rows().enumerate() {
            let keys = self.keys(i);
            let scores: Vec<R> = keys.iter().map(|&key| self.score(query, key).0).collect();
            let sink = self.sink.map(|sink| sink.data[i % sink.data.len()]);
            lse.data[i] = log_sum_exp(&scores.iter().copied().chain(sink).collect::<Vec<R>>());
            for (&key, score) in keys.iter().zip(scores) {
                let weight = self.kept(i, key) * (score - lse.data[i]).exp();
                add_scaled(&mut out, i, self.rounded(weight, FORWARD, i, key), row(self.v, key));
            }
        }
        [out, lse]
    }

    /// The cotangents of q, k and v: with `dp = kept dout v` and `ds = p (dp - dout out)` times the slope of the bound,
    /// `dq = scale ds k`, `dk = scale ds q`, `dv = kept p dout`, each summed over the other side. In these, `ds` and `kept p` are rounded
    /// to the type of q.
    pub(super) fn backward(&self, out: &Tensor<R>, lse: &Tensor<R>, dout: &Tensor<R>) -> [Tensor<R>; 3] {
        let [mut dq, mut dk, mut dv] = [self.q, self.k, self.v].map(|x| Tensor::zeros(&x.dims));
        for (i, query) in self.q.rows().enumerate() {
            let cotangent = row(dout, i);
            let shared = dot(cotangent, row(out, i));
            for key in self.keys(i) {
                let (score, slope) = self.score(query, key);
                let p = (score - lse.data[i]).exp();
                let kept = self.kept(i, key);
                let ds = slope * p * (kept * dot(cotangent, row(self.v, key)) - shared);
                let ds = R::of(self.settings.scale) * self.rounded(ds, OF_SCORES, i, key);
                add_scaled(&mut dq, i, ds, row(self.k, key));
                add_scaled(&mut dk, key, ds, query);
                add_scaled(&mut dv, key, self.rounded(kept * p, BACKWARD, i, key), cotangent);
            }
        }
        [dq, dk, dv]
    }
}

fn row<R: Real>(x: &Tensor<R>, index: usize) -> &[R] {
    &x.data[index * x.columns()..(index + 1) * x.columns()]
}

fn dot<R: Real>(a: &[R], b: &[R]) -> R {
    a.iter().zip(b).map(|(&a, &b)| a * b).sum()
}

/// Adds `by x` to a row.
fn add_scaled<R: Real>(out: &mut Tensor<R>, index: usize, by: R, x: &[R]) {
    let n = out.columns();
    out.data[index * n..(index + 1) * n].iter_mut().zip(x).for_each(|(out, &x)| *out += by * x);
}
