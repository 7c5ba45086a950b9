//! Attention to chosen keys and the loss of an indexer, against dense attention and against the formula of Megatron Core.

use ir::ops::{
    Attention, AttentionSettings, IndexLoss, IndexLossGrad, IndexScores, KeyMass, Op, SelectKeys, SparseAttention,
};
use ir::types::{DType, Type};
use meshwright_reference::ops::evaluate;
use meshwright_reference::{Array, Context, Tensor, random};

/// Two sequences of seven tokens, of which the first has two documents.
const B: usize = 2;
const S: usize = 7;
/// Heads of an indexer.
const N: usize = 3;
/// Key heads, and query heads of each.
const G: usize = 2;
const R: usize = 2;
/// Sizes of keys and of values.
const D: usize = 4;
const C: usize = 5;

const SCALE: f64 = 0.6;

fn reals(name: &str, dims: &[usize]) -> Array<f64> {
    let key = random::parameter_key(3, name);
    Array::Real(Tensor::from_fn(dims, |i| 2.0 * f64::from(random::uniform(key, i as u64)) - 1.0))
}

/// Positions and segments.
fn places() -> [Array<f64>; 2] {
    let starts_at = |i: usize| if (3..S).contains(&i) { 3 } else { 0 };
    let positions = Tensor::from_fn(&[B, S], |i| (i % S - starts_at(i)) as i32);
    let segments = Tensor::from_fn(&[B, S], |i| i32::from(starts_at(i) > 0));
    [positions, segments].map(Array::Int)
}

/// The results of an op.
fn run(op: impl Into<Op>, operands: &[&Array<f64>]) -> Vec<Array<f64>> {
    let op = op.into();
    let ty = |array: &&Array<f64>| {
        let sizes: Vec<u64> = array.dims().iter().map(|&size| size as u64).collect();
        Type::of(if array.int().is_ok() { DType::I32 } else { DType::F32 }, &sizes)
    };
    let types: Vec<Type> = operands.iter().map(ty).collect();
    let results = op.infer(&types.iter().collect::<Vec<_>>()).unwrap();
    let dims: Vec<Vec<usize>> =
        results.iter().map(|ty| ty.sizes().iter().map(|&size| size as usize).collect()).collect();
    evaluate(&op, operands, &dims, Context::default()).unwrap()
}

/// Operands of an indexer and of an attention.
struct Case {
    index: [Array<f64>; 3],
    heads: [Array<f64>; 3],
    places: [Array<f64>; 2],
}

impl Case {
    fn new() -> Case {
        Case {
            index: [reals("iq", &[B, S, N, D]), reals("ik", &[B, S, D]), reals("iw", &[B, S, N])],
            heads: [reals("q", &[B, S, G, R, D]), reals("k", &[B, S, G, D]), reals("v", &[B, S, G, C])],
            places: places(),
        }
    }

    fn choice(&self, keys: u64) -> Array<f64> {
        let ([q, k, w], [pos, seg]) = (&self.index, &self.places);
        run(SelectKeys { keys }, &[q, k, w, pos, pos, seg, seg]).remove(0)
    }

    fn is_visible(&self, query: usize, key: usize) -> bool {
        let [pos, seg] = self.places.each_ref().map(|places| &places.int().unwrap().data);
        query / S == key / S && seg[query] == seg[key] && pos[key] <= pos[query]
    }

    /// The score of the indexer of a query and a key, of all tokens.
    fn score(&self, query: usize, key: usize) -> f64 {
        let [q, k, w] = self.index.each_ref().map(|x| &x.real().unwrap().data);
        let product = |n: usize| (0..D).map(|i| q[(query * N + n) * D + i] * k[key * D + i]).sum::<f64>();
        (0..N).map(|n| w[query * N + n] * product(n).max(0.0)).sum()
    }
}

fn assert_close(got: &[f64], want: &[f64], within: f64) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!(got == want || (got - want).abs() <= within, "{got} is not {want}");
    }
}

#[test]
fn all_visible_keys_make_dense_attention() {
    let case = Case::new();
    let ([q, k, v], [pos, seg]) = (&case.heads, &case.places);
    let dense = run(Attention(AttentionSettings::new(SCALE, true)), &[q, k, v, pos, pos, seg, seg]);
    for keys in [S as u64, 12] {
        let sparse = run(SparseAttention { scale: SCALE }, &[q, k, v, &case.choice(keys)]);
        for (sparse, dense) in sparse.iter().zip(&dense) {
            assert_close(&sparse.real().unwrap().data, &dense.real().unwrap().data, 1e-14);
        }
    }
}

#[test]
fn chosen_keys_are_visible_and_have_the_highest_scores() {
    let case = Case::new();
    let choice = case.choice(3);
    for (query, row) in choice.int().unwrap().rows().enumerate() {
        let keys: Vec<usize> = row.iter().filter(|&&key| key >= 0).map(|&key| query / S * S + key as usize).collect();
        let visible: Vec<usize> = (0..B * S).filter(|&key| case.is_visible(query, key)).collect();
        assert_eq!(keys.len(), visible.len().min(3));
        assert!(keys.is_sorted() && keys.iter().all(|key| visible.contains(key)));
        let least = keys.iter().map(|&key| case.score(query, key)).fold(f64::INFINITY, f64::min);
        let rest = visible.iter().filter(|key| !keys.contains(key));
        assert!(rest.into_iter().all(|&key| case.score(query, key) <= least));
    }
}

/// `compute_dsa_indexer_loss` of Megatron Core (`experimental_attention_variant/dsa.py`) with `sparse_loss`, on matrices of all pairs, and the
/// gradient of its sum over tokens by scores. It adds 1e-10 within logarithms.
fn megatron(case: &Case, chosen: &Tensor<i32>) -> (f64, Vec<Vec<f64>>) {
    let [q, k, _] = case.heads.each_ref().map(|x| &x.real().unwrap().data);
    let tokens = B * S;
    let mut loss = 0.0;
    let mut slopes = Vec::new();
    for query in 0..tokens {
        let row = &chosen.data[query * chosen.columns()..][..chosen.columns()];
        let is_chosen = |key: usize| key / S == query / S && row.contains(&((key % S) as i32));
        let masked = |score: f64, key: usize| if is_chosen(key) { score } else { f64::NEG_INFINITY };
        let mut attended = vec![0.0; tokens];
        for (g, r) in (0..G).flat_map(|g| (0..R).map(move |r| (g, r))) {
            let product = |key: usize| {
                let terms = (0..D).map(|i| q[((query * G + g) * R + r) * D + i] * k[(key * G + g) * D + i]);
                masked(SCALE * terms.sum::<f64>(), key)
            };
            let weights = softmax((0..tokens).map(product).collect());
            attended.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += weight);
        }
        let total: f64 = attended.iter().sum();
        let target: Vec<f64> = attended.iter().map(|weight| weight / total).collect();
        let index = softmax((0..tokens).map(|key| masked(case.score(query, key), key)).collect());
        loss += target.iter().zip(&index).map(|(p, q)| p * ((p + 1e-10).ln() - (q + 1e-10).ln())).sum::<f64>();
        let by_softmax: Vec<f64> = target.iter().zip(&index).map(|(p, q)| -p / (q + 1e-10)).collect();
        let shared: f64 = by_softmax.iter().zip(&index).map(|(slope, q)| slope * q).sum();
        slopes.push(by_softmax.iter().zip(&index).map(|(slope, q)| q * (slope - shared)).collect());
    }
    (loss / tokens as f64, slopes)
}

fn softmax(scores: Vec<f64>) -> Vec<f64> {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

#[test]
fn the_loss_of_an_indexer_is_that_of_megatron() {
    let case = Case::new();
    for keys in [2, 4, 7] {
        let choice = case.choice(keys);
        let ([q, k, v], [iq, ik, iw]) = (&case.heads, &case.index);
        let lse = run(SparseAttention { scale: SCALE }, &[q, k, v, &choice]).remove(1);
        let scores = run(IndexScores, &[iq, ik, iw, &choice]).remove(0);
        let mass = run(KeyMass { scale: SCALE }, &[q, k, &lse, &choice]).remove(0);
        let loss = run(IndexLoss, &[&scores, &mass, &choice]).remove(0);
        let one = Array::Real(Tensor::scalar(1.0));
        let slopes = run(IndexLossGrad, &[&scores, &mass, &choice, &one]).remove(0);
        let chosen = choice.int().unwrap();
        let (want, by_key) = megatron(&case, chosen);
        let mean = loss.real().unwrap().data[0] / (B * S) as f64;
        assert!(mean > 0.0 && (mean - want).abs() < 1e-8, "{mean} is not {want}");
        for (at, &key) in chosen.data.iter().enumerate().filter(|(_, key)| **key >= 0) {
            let query = at / chosen.columns();
            let want = by_key[query][query / S * S + key as usize];
            assert_close(&[slopes.real().unwrap().data[at]], &[want], 1e-8);
        }
    }
}
