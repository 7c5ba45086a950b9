//! Attention to chosen keys, the indexer that chooses them, and its loss. A choice that names no key is left out.

use super::norm::log_sum_exp;
use crate::real::Real;
use crate::tensor::Tensor;

/// q `[b, s, n, d]`, k `[b, t, d]` and w `[b, s, n]`.
#[derive(Clone, Copy)]
pub(super) struct Indexer<'a, R> {
    pub(super) q: &'a Tensor<R>,
    pub(super) k: &'a Tensor<R>,
    pub(super) w: &'a Tensor<R>,
}

/// Positions and segments of queries and of keys.
pub(super) struct Places<'a> {
    pub(super) qpos: &'a Tensor<i32>,
    pub(super) kpos: &'a Tensor<i32>,
    pub(super) qseg: &'a Tensor<i32>,
    pub(super) kseg: &'a Tensor<i32>,
}

impl Places<'_> {
    fn is_visible(&self, query: usize, key: usize) -> bool {
        self.qseg.data[query] == self.kseg.data[key] && self.kpos.data[key] <= self.qpos.data[query]
    }
}

/// The keys that a row of `[b, s, j]` names, as rows of `[b, t]`, each with its place among the choices.
fn chosen(index: &Tensor<i32>, query: usize, s: usize, t: usize) -> Vec<(usize, usize)> {
    let j = index.columns();
    let keys = (query * j..(query + 1) * j).filter_map(|at| Some((at, usize::try_from(index.data[at]).ok()?)));
    keys.filter(|(_, key)| *key < t).map(|(at, key)| (at, query / s * t + key)).collect()
}

impl<R: Real> Indexer<'_, R> {
    /// `sum_n w_n relu(q_n k)` of a query and a key.
    fn score(&self, query: usize, key: usize) -> R {
        let heads = self.w.columns();
        (0..heads).map(|n| self.w.data[query * heads + n] * self.product(query * heads + n, key).max(R::zero())).sum()
    }

    /// The product of a row of q and one of k.
    fn product(&self, head: usize, key: usize) -> R {
        let d = self.k.columns();
        (0..d).map(|i| self.q.data[head * d + i] * self.k.data[key * d + i]).sum()
    }

    /// The places of the `count` visible keys with the highest scores, ascending, then -1.
    pub(super) fn select(&self, places: &Places<'_>, dims: &[usize]) -> Tensor<i32> {
        let (s, t) = (self.q.dims[1], self.k.dims[1]);
        let (rows, count) = (dims[0] * dims[1], dims[2]);
        let mut data = Vec::new();
        for query in 0..rows {
            let first = query / s * t;
            let visible = (0..t).filter(|key| places.is_visible(query, first + key));
            let mut keys: Vec<(R, usize)> = visible.map(|key| (self.score(query, first + key), key)).collect();
            // The sort is stable, so the lower place is first among equals.
            keys.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(std::cmp::Ordering::Equal));
            let mut places: Vec<i32> = keys.iter().take(count).map(|(_, key)| *key as i32).collect();
            places.sort_unstable();
            places.resize(count, -1);
            data.extend(places);
        }
        Tensor { dims: dims.to_vec(), data }
    }

    /// The scores of choices.
    pub(super) fn scores(&self, index: &Tensor<i32>) -> Tensor<R> {
        let mut out = Tensor::zeros(&index.dims);
        for query in 0..index.data.len() / index.columns().max(1) {
            for (at, key) in chosen(index, query, self.q.dims[1], self.k.dims[1]) {
                out.data[at] = self.score(query, key);
            }
        }
        out
    }

    /// The cotangents of q, k and w. At 0 the slope of relu is 0.
    pub(super) fn gradient(&self, index: &Tensor<i32>, dscores: &Tensor<R>) -> [Tensor<R>; 3] {
        let [mut dq, mut dk, mut dw] = [self.q, self.k, self.w].map(|x| Tensor::zeros(&x.dims));
        let (heads, d) = (self.w.columns(), self.k.columns());
        for query in 0..index.data.len() / index.columns().max(1) {
            for (at, key) in chosen(index, query, self.q.dims[1], self.k.dims[1]) {
                for head in query * heads..(query + 1) * heads {
                    let (product, slope) = (self.product(head, key), dscores.data[at]);
                    if product > R::zero() {
                        dw.data[head] += slope * product;
                        for i in 0..d {
                            dq.data[head * d + i] += slope * self.w.data[head] * self.k.data[key * d + i];
                            dk.data[key * d + i] += slope * self.w.data[head] * self.q.data[head * d + i];
                        }
                    }
                }
            }
        }
        [dq, dk, dw]
    }
}

/// q `[b, s, g, r, d]`, k `[b, t, g, d]`, and choices `[b, s, j]`.
#[derive(Clone, Copy)]
pub(super) struct SparseAttention<'a, R> {
    pub(super) q: &'a Tensor<R>,
    pub(super) k: &'a Tensor<R>,
    pub(super) index: &'a Tensor<i32>,
    pub(super) scale: f64,
}

impl<R: Real> SparseAttention<'_, R> {
    /// For a row of q: the places of its choices, and the rows of k and v there.
    fn keys(&self, row: usize) -> Vec<(usize, usize)> {
        let [s, g, r, t] = [self.q.dims[1], self.q.dims[2], self.q.dims[3], self.k.dims[1]];
        let keys = chosen(self.index, row / (g * r), s, t);
        keys.into_iter().map(|(at, key)| (at, key * g + row / r % g)).collect()
    }

    fn score(&self, row: usize, key: usize) -> R {
        R::of(self.scale) * dot(self.q, row, self.k, key)
    }

    fn rows(&self) -> usize {
        self.q.dims[..4].iter().product()
    }

    /// `out = sum of p v` with `p = e^(scale q k - lse)` over the chosen keys, and lse; without keys 0 and -inf.
    pub(super) fn forward(&self, v: &Tensor<R>) -> [Tensor<R>; 2] {
        let (dims, c) = (&self.q.dims[..4], v.columns());
        let (mut out, mut lse) = (Tensor::zeros(&[dims, &[c]].concat()), Tensor::zeros(dims));
        for row in 0..self.rows() {
            let keys = self.keys(row);
            let scores: Vec<R> = keys.iter().map(|&(_, key)| self.score(row, key)).collect();
            lse.data[row] = log_sum_exp(&scores);
            for (&(_, key), score) in keys.iter().zip(scores) {
                add_scaled(&mut out, row, (score - lse.data[row]).exp(), v, key);
            }
        }
        [out, lse]
    }

    /// The cotangents of q, k and v: with `ds = scale p (dout v - dout out)`, `dq = ds k`, `dk = ds q` and `dv = p dout`.
    pub(super) fn backward(&self, v: &Tensor<R>, out: &Tensor<R>, lse: &Tensor<R>, dout: &Tensor<R>) -> [Tensor<R>; 3] {
        let [mut dq, mut dk, mut dv] = [self.q, self.k, v].map(|x| Tensor::zeros(&x.dims));
        for row in 0..self.rows() {
            let shared = dot(dout, row, out, row);
            for (_, key) in self.keys(row) {
                let p = (self.score(row, key) - lse.data[row]).exp();
                let ds = R::of(self.scale) * p * (dot(dout, row, v, key) - shared);
                add_scaled(&mut dq, row, ds, self.k, key);
                add_scaled(&mut dk, key, ds, self.q, row);
                add_scaled(&mut dv, key, p, dout, row);
            }
        }
        [dq, dk, dv]
    }

    /// The weights of choices, summed over heads.
    pub(super) fn mass(&self, lse: &Tensor<R>) -> Tensor<R> {
        let mut mass = Tensor::zeros(&self.index.dims);
        for row in 0..self.rows() {
            for (at, key) in self.keys(row) {
                mass.data[at] += (self.score(row, key) - lse.data[row]).exp();
            }
        }
        mass
    }
}

/// The product of two rows.
fn dot<R: Real>(a: &Tensor<R>, i: usize, b: &Tensor<R>, j: usize) -> R {
    let n = a.columns();
    (0..n).map(|at| a.data[i * n + at] * b.data[j * n + at]).sum()
}

/// Adds `by` times a row of `x` to a row.
fn add_scaled<R: Real>(out: &mut Tensor<R>, row: usize, by: R, x: &Tensor<R>, from: usize) {
    let n = x.columns();
    (0..n).for_each(|at| out.data[row * n + at] += by * x.data[from * n + at]);
}

/// Scores and mass of the choices of a row that name a key, with their places.
fn named<R: Real>(row: usize, x: [&Tensor<R>; 2], index: &Tensor<i32>) -> (Vec<usize>, [Vec<R>; 2]) {
    let j = index.columns();
    let places: Vec<usize> = (row * j..(row + 1) * j).filter(|&at| index.data[at] >= 0).collect();
    let numbers = x.map(|x| places.iter().map(|&at| x.data[at]).collect());
    (places, numbers)
}

/// The sum over rows of `sum p ln(p / softmax(scores))`, with `p` the mass divided by its sum.
pub(super) fn index_loss<R: Real>(scores: &Tensor<R>, mass: &Tensor<R>, index: &Tensor<i32>) -> Tensor<R> {
    let mut loss = R::zero();
    for row in 0..index.data.len() / index.columns().max(1) {
        let (_, [scores, mass]) = named(row, [scores, mass], index);
        let (lse, total) = (log_sum_exp(&scores), mass.iter().copied().sum::<R>());
        for (score, mass) in scores.into_iter().zip(mass) {
            if mass > R::zero() && total > R::zero() {
                let p = mass / total;
                loss += p * (p.ln() - (score - lse));
            }
        }
    }
    Tensor::scalar(loss)
}

/// `(softmax(scores) - p) dloss`; 0 where no key is named, and in rows without mass.
pub(super) fn index_loss_grad<R: Real>(
    scores: &Tensor<R>,
    mass: &Tensor<R>,
    index: &Tensor<i32>,
    dloss: &Tensor<R>,
) -> Tensor<R> {
    let mut out = Tensor::zeros(&scores.dims);
    for row in 0..index.data.len() / index.columns().max(1) {
        let (places, [scores, mass]) = named(row, [scores, mass], index);
        let (lse, total) = (log_sum_exp(&scores), mass.iter().copied().sum::<R>());
        if total > R::zero() {
            for (at, (score, mass)) in places.into_iter().zip(scores.into_iter().zip(mass)) {
                out.data[at] = ((score - lse).exp() - mass / total) * dloss.data[0];
            }
        }
    }
    out
}
