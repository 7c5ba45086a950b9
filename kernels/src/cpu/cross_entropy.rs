//! Cross-entropy of rows of logits against labels, in one kernel or in the pieces that a sharded vocabulary needs.
//!
//! `logits` has a row of `v` elements for each label. A negative label is ignored: its row adds no loss and no gradient. If
//! the row is a shard of a larger vocabulary, `origin` is the shard's first index, and a label outside the shard selects no
//! logit.

use super::math::{exp, ln};
use super::par::{Par, Rows};
use super::simd::{max, simd, sum};

/// The sum over rows of `lse - logits[label]`, with `lse[row] = ln sum e^logits`.
///
/// # Panics
/// If the numbers of rows and labels differ.
pub fn cross_entropy(logits: &[f32], v: usize, labels: &[i32], loss: &mut f32, lse: &mut [f32], par: Par) {
    check(logits, v, labels.len());
    assert_eq!(lse.len(), labels.len(), "one sum per row");
    par.rows(labels.len(), 2 * v, (Rows(logits, v), Rows(&mut *lse, 1)), &|_, (logits, lse)| {
        lse_rows(logits.0, v, lse.0);
    });
    let mut total = 0.0;
    for ((row, &label), &lse) in labels.iter().enumerate().zip(&*lse) {
        if label >= 0 {
            let picked = index(label, 0, v).map_or(0.0, |i| logits[row * v + i]);
            total += f64::from(lse) - f64::from(picked);
        }
    }
    *loss = total as f32;
}

/// The gradient of the loss by `logits`, times `dloss`: `(e^(logits - lse) - [label - origin = j]) dloss`. The logits
/// may be a shard; `lse` is that of the whole row.
///
/// # Panics
/// If the numbers of rows and labels differ.
pub fn cross_entropy_grad(logits: Shard<'_>, labels: &[i32], lse: &[f32], dloss: f32, out: &mut [f32], par: Par) {
    let Shard { values, v, origin } = logits;
    check(values, v, labels.len());
    assert!(lse.len() == labels.len() && out.len() == values.len(), "one sum per row, out as logits");
    let parts = (Rows(values, v), Rows(labels, 1), Rows(lse, 1), Rows(out, v));
    par.rows(labels.len(), 2 * v, parts, &|_, (values, labels, lse, out)| {
        grad_rows(values.0, v, labels.0, lse.0, dloss, out.0);
        for (&label, out) in labels.0.iter().zip(out.0.chunks_exact_mut(v.max(1))) {
            if let Some(i) = index(label, origin, v) {
                out[i] -= dloss;
            }
        }
    });
}

/// Rows of logits, or a range of their columns.
#[derive(Clone, Copy, Debug)]
pub struct Shard<'a> {
    /// The elements, row by row.
    pub values: &'a [f32],
    /// Elements per row.
    pub v: usize,
    /// Index in the whole row of the first element.
    pub origin: i64,
}

/// `out[row] = sum e^(logits - max[row])`
///
/// # Panics
/// If the sizes do not agree.
pub fn sum_exp(logits: &[f32], v: usize, max: &[f32], out: &mut [f32], par: Par) {
    check(logits, v, max.len());
    assert_eq!(out.len(), max.len(), "one sum per row");
    par.rows(max.len(), 2 * v, (Rows(logits, v), Rows(max, 1), Rows(out, 1)), &|_, (logits, max, out)| {
        sum_exp_rows(logits.0, v, max.0, out.0);
    });
}

/// `out[row] = x[row, label - origin]`, or 0 where that is outside the row.
///
/// # Panics
/// If the sizes do not agree.
pub fn pick(x: Shard<'_>, labels: &[i32], out: &mut [f32]) {
    check(x.values, x.v, labels.len());
    assert_eq!(out.len(), labels.len(), "one value per row");
    for (row, (&label, out)) in labels.iter().zip(out).enumerate() {
        *out = index(label, x.origin, x.v).map_or(0.0, |i| x.values[row * x.v + i]);
    }
}

/// The gradient of [`pick`]: `dx[row, label - origin] = dy[row]`, all else 0. Rows of `dx` have `v` elements.
///
/// # Panics
/// If the sizes do not agree.
pub fn pick_grad(dy: &[f32], labels: &[i32], v: usize, origin: i64, dx: &mut [f32]) {
    check(dx, v, labels.len());
    assert_eq!(dy.len(), labels.len(), "one value per row");
    dx.fill(0.0);
    for (row, (&label, &dy)) in labels.iter().zip(dy).enumerate() {
        if let Some(i) = index(label, origin, v) {
            dx[row * v + i] = dy;
        }
    }
}

fn check(x: &[f32], v: usize, rows: usize) {
    assert_eq!(x.len(), v * rows, "a row of v elements for each label");
}

/// The place of `label` in a row of `v` elements that starts at `origin`, if it is there.
fn index(label: i32, origin: i64, v: usize) -> Option<usize> {
    let place = usize::try_from(i64::from(label) - origin).ok()?;
    (label >= 0 && place < v).then_some(place)
}

simd! {
    fn lse_rows(logits: &[f32], v: usize, lse: &mut [f32]) {
        for (row, lse) in lse.iter_mut().enumerate() {
            let x = &logits[row * v..(row + 1) * v];
            let max = max(x);
            *lse = if max > f32::NEG_INFINITY {
                max + ln::<FMA>(sum(x, #[inline(always)] |v| exp::<FMA>(v - max)))
            } else {
                max
            };
        }
    }

    fn sum_exp_rows(logits: &[f32], v: usize, max: &[f32], out: &mut [f32]) {
        for (row, (out, &max)) in out.iter_mut().zip(max).enumerate() {
            *out = sum(&logits[row * v..(row + 1) * v], #[inline(always)] |v| exp::<FMA>(v - max));
        }
    }

    fn grad_rows(logits: &[f32], v: usize, labels: &[i32], lse: &[f32], dloss: f32, out: &mut [f32]) {
        for (row, (&label, &lse)) in labels.iter().zip(lse).enumerate() {
            let (x, out) = (&logits[row * v..(row + 1) * v], &mut out[row * v..(row + 1) * v]);
            if label < 0 {
                out.fill(0.0);
                continue;
            }
            for (out, &x) in out.iter_mut().zip(x) {
                *out = exp::<FMA>(x - lse) * dloss;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, doubles, integers, normals};
    use super::*;

    fn exact_lse(row: &[f32]) -> f64 {
        doubles(row).into_iter().map(f64::exp).sum::<f64>().ln()
    }

    #[test]
    fn loss_and_gradient() {
        for (rows, v) in [(0, 7), (1, 1), (5, 33), (40, 1000), (300, 999)] {
            let logits: Vec<f32> = normals(rows * v, 1).iter().map(|x| 5.0 * x).collect();
            let labels: Vec<i32> = integers(rows, 2, -1, v as i32);
            let (mut loss, mut lse) = (f32::NAN, vec![f32::NAN; rows]);
            cross_entropy(&logits, v, &labels, &mut loss, &mut lse, Par(2));
            let mut dx = vec![f32::NAN; rows * v];
            let whole = Shard { values: &logits, v, origin: 0 };
            cross_entropy_grad(whole, &labels, &lse, 0.5, &mut dx, Par(2));
            let (mut exact_loss, mut exact_dx) = (0.0, vec![0.0; rows * v]);
            for (r, &label) in labels.iter().enumerate().filter(|(_, l)| **l >= 0) {
                let row = &logits[r * v..(r + 1) * v];
                exact_loss += exact_lse(row) - f64::from(row[label as usize]);
                for j in 0..v {
                    let p = (f64::from(row[j]) - exact_lse(row)).exp();
                    exact_dx[r * v + j] = 0.5 * (p - f64::from(u8::from(j as i32 == label)));
                }
            }
            assert_close(&[loss], &[exact_loss], 1e-6);
            assert_close(&dx, &exact_dx, 1e-6);
        }
    }

    #[test]
    fn shards_add_up_to_the_whole() {
        let (rows, v, cut) = (6, 50, 30);
        let logits = normals(rows * v, 3);
        let labels = [0, 29, 30, 49, -1, 7];
        let columns =
            |from: usize, to: usize| -> Vec<f32> { logits.chunks(v).flat_map(|row| row[from..to].to_vec()).collect() };
        let (mut loss, mut lse) = (0.0, vec![0.0; rows]);
        cross_entropy(&logits, v, &labels, &mut loss, &mut lse, Par(1));
        let mut grad = vec![0.0; rows * v];
        cross_entropy_grad(Shard { values: &logits, v, origin: 0 }, &labels, &lse, 2.0, &mut grad, Par(1));
        let (mut sums, mut picked) = (vec![0.0f64; rows], vec![0.0f32; rows]);
        for (from, to) in [(0, cut), (cut, v)] {
            let (part, width) = (columns(from, to), to - from);
            let shard = Shard { values: &part, v: width, origin: from as i64 };
            let (mut sum, mut value) = (vec![0.0; rows], vec![0.0; rows]);
            sum_exp(&part, width, &[1.5; 6], &mut sum, Par(1));
            pick(shard, &labels, &mut value);
            let mut part_grad = vec![f32::NAN; part.len()];
            cross_entropy_grad(shard, &labels, &lse, 2.0, &mut part_grad, Par(1));
            let mut spread = vec![f32::NAN; part.len()];
            pick_grad(&[1.0; 6], &labels, width, from as i64, &mut spread);
            for r in 0..rows {
                sums[r] += f64::from(sum[r]);
                picked[r] += value[r];
                assert_eq!(part_grad[r * width..(r + 1) * width], grad[r * v + from..r * v + to]);
                for j in 0..width {
                    let hit = labels[r] == (from + j) as i32;
                    assert_eq!(spread[r * width + j], if hit { 1.0 } else { 0.0 });
                }
            }
        }
        let expected: Vec<f64> = sums.iter().map(|s| s.ln() + 1.5).collect();
        assert_close(&lse, &expected, 1e-6);
        for (r, &label) in labels.iter().enumerate() {
            assert_eq!(picked[r], if label < 0 { 0.0 } else { logits[r * v + label as usize] });
        }
    }
}
