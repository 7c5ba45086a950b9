//! The keys with the highest scores of each query.

use super::{Indexer, IndexerInputs, Load, carve, product, share};
use crate::cpu::Par;
use crate::cpu::matrix::Matrix;

/// Keys whose scores are computed at a time.
const KEYS: usize = 512;

/// Positions and segments of queries `[b, s]` and keys `[b, t]`.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Positions of queries.
    pub qpos: &'a [i32],
    /// Positions of keys.
    pub kpos: &'a [i32],
    /// Segments of queries.
    pub qseg: &'a [i32],
    /// Segments of keys.
    pub kseg: &'a [i32],
}

impl Places<'_> {
    fn is_visible(&self, query: usize, key: usize) -> bool {
        self.qseg[query] == self.kseg[key] && self.kpos[key] <= self.qpos[query]
    }
}

/// The `j` visible keys with the highest scores `sum_n w_n relu(q_n k)` of each query, ascending, then -1; of equal scores the
/// lower place wins.
///
/// # Panics
/// If a slice has not its size.
pub fn select(
    indexer: &Indexer,
    x: IndexerInputs<'_>,
    places: Places<'_>,
    out: &mut [i32],
    par: Par,
    scratch: &mut Vec<f32>,
) {
    let Indexer { b, s, t, n, d, j } = *indexer;
    let IndexerInputs { q, k, w } = x;
    indexer.check(x, out);
    assert_eq!([places.qpos.len(), places.qseg.len()], [b * s; 2], "places of queries");
    assert_eq!([places.kpos.len(), places.kseg.len()], [b * t; 2], "places of keys");
    let target = Choices(out.as_mut_ptr());
    let load = Load { units: b * s, flops: 2 * n * d * t, scratch: n * KEYS + 2 * t };
    share(load, par, scratch, &|query, scratch| {
        let [products, scores, order] = carve(scratch, [n * KEYS, t, t]);
        let first = query / s * t;
        let weights = &w[query * n..][..n];
        for start in (0..t).step_by(KEYS) {
            let keys = start..t.min(start + KEYS);
            let scores = &mut scores[keys.clone()];
            scores.fill(f32::NEG_INFINITY);
            if !keys.clone().any(|key| places.is_visible(query, first + key)) {
                continue;
            }
            let (rows, columns) = (Matrix::rows(&q[query * n * d..], d), Matrix::rows(&k[(first + start) * d..], d));
            product([n, keys.len(), d], rows, columns.transposed(), products, 1.0);
            for (column, score) in scores.iter_mut().enumerate() {
                if places.is_visible(query, first + start + column) {
                    let terms = weights.iter().zip(products[column..].iter().step_by(keys.len()));
                    // A sum from 0 on is no negative zero, which would be below zero.
                    *score = terms.fold(0.0, |sum, (w, product)| sum + w * product.max(0.0));
                }
            }
        }
        // SAFETY: a row of choices is one thread's.
        let chosen = unsafe { std::slice::from_raw_parts_mut(target.row(query, j), j) };
        best(scores, order, chosen);
    });
}

/// Choices that several threads write, each in rows of its own.
#[derive(Clone, Copy)]
struct Choices(*mut i32);

// SAFETY: threads write different rows.
unsafe impl Send for Choices {}
// SAFETY: as above.
unsafe impl Sync for Choices {}

impl Choices {
    fn row(self, row: usize, width: usize) -> *mut i32 {
        self.0.wrapping_add(row * width)
    }
}

/// The places of the highest scores above negative infinity, ascending, then -1. `order` is scratch memory of the same size.
fn best(scores: &[f32], order: &mut [f32], chosen: &mut [i32]) {
    let (mut visible, most) = (0, chosen.len());
    for &score in scores.iter().filter(|score| **score != f32::NEG_INFINITY) {
        order[visible] = score;
        visible += 1;
    }
    // All scores above the limit are chosen, and the first ones of those that equal it.
    let (mut limit, mut equal) = (f32::NEG_INFINITY, 0);
    if visible > most && most > 0 {
        let (higher, at, _) = order[..visible].select_nth_unstable_by(most - 1, |a, b| b.total_cmp(a));
        limit = *at;
        equal = most - higher.iter().filter(|score| score.total_cmp(&limit).is_gt()).count();
    }
    let mut places = chosen.iter_mut();
    for (place, score) in scores.iter().enumerate().filter(|(_, score)| **score != f32::NEG_INFINITY) {
        let order = score.total_cmp(&limit);
        if order.is_lt() || order.is_eq() && equal == 0 {
            continue;
        }
        equal -= usize::from(order.is_eq());
        if let Some(to) = places.next() {
            *to = place as i32;
        }
    }
    places.for_each(|place| *place = -1);
}

#[cfg(test)]
mod tests {
    use super::best;

    #[test]
    fn the_lower_place_wins_among_equal_scores() {
        let none = f32::NEG_INFINITY;
        let cases: [(&[f32], &[i32]); 6] = [
            (&[1.0, 3.0, none, 2.0, 0.0], &[1, 3]),
            (&[0.0, 0.0, 1.0, 0.0], &[0, 2]),
            (&[none, 5.0, none], &[1, -1]),
            (&[none], &[-1, -1]),
            (&[], &[-1, -1]),
            (&[2.0, 2.0, 2.0], &[0, 1]),
        ];
        for (scores, expected) in cases {
            let (mut order, mut chosen) = (vec![0.0; scores.len()], vec![7; 2]);
            best(scores, &mut order, &mut chosen);
            assert_eq!(chosen, expected, "{scores:?}");
        }
    }
}
