//! The divergence of an indexer's scores from the mass of attention, over rows of choices.

use crate::cpu::par::{Par, Rows};

/// The softmax of scores at named keys, and what the mass is divided by.
struct Row {
    /// The log-sum-exp of the scores.
    lse: f32,
    /// The sum of the mass.
    sum: f32,
}

impl Row {
    /// `None` if there is no mass.
    fn of(scores: &[f32], mass: &[f32], index: &[i32]) -> Option<Row> {
        let sum: f32 = named(index).map(|place| mass[place]).sum();
        let most = named(index).map(|place| scores[place]).fold(f32::NEG_INFINITY, f32::max);
        let exponentials: f32 = named(index).map(|place| (scores[place] - most).exp()).sum();
        (sum > 0.0).then(|| Row { lse: most + exponentials.ln(), sum })
    }
}

/// The places of a row that name a key.
fn named(index: &[i32]) -> impl Iterator<Item = usize> {
    (0..index.len()).filter(|&place| index[place] >= 0)
}

/// The sum over rows of `j` choices of `sum p ln(p / softmax(scores))`, with `p` the mass divided by its sum.
///
/// # Panics
/// If the sizes differ.
pub fn index_loss(scores: &[f32], mass: &[f32], index: &[i32], j: usize) -> f32 {
    assert_eq!([scores.len(), mass.len()], [index.len(); 2], "a number a choice");
    let rows = (0..index.len()).step_by(j.max(1)).map(|at| {
        let row = at..at + j;
        divergence(&scores[row.clone()], &mass[row.clone()], &index[row])
    });
    rows.sum::<f64>() as f32
}

fn divergence(scores: &[f32], mass: &[f32], index: &[i32]) -> f64 {
    let Some(Row { lse, sum }) = Row::of(scores, mass, index) else { return 0.0 };
    let terms = named(index).filter(|&place| mass[place] > 0.0).map(|place| {
        let p = mass[place] / sum;
        f64::from(p * (p.ln() - (scores[place] - lse)))
    });
    terms.sum()
}

/// `(softmax(scores) - p) dloss` at named keys of rows that have mass, else 0.
///
/// # Panics
/// If the sizes differ.
pub fn index_loss_grad(scores: &[f32], mass: &[f32], index: &[i32], j: usize, dloss: f32, out: &mut [f32], par: Par) {
    assert_eq!([scores.len(), mass.len(), out.len()], [index.len(); 3], "a number a choice");
    let (rows, parts) = (index.len() / j.max(1), (Rows(scores, j), Rows(mass, j), Rows(index, j), Rows(out, j)));
    par.rows(rows, 8 * j, parts, &|_, (scores, mass, index, out)| {
        let rows = scores.0.chunks_exact(j.max(1)).zip(mass.0.chunks_exact(j.max(1)));
        let rows = rows.zip(index.0.chunks_exact(j.max(1))).zip(out.0.chunks_exact_mut(j.max(1)));
        for (((scores, mass), index), out) in rows {
            out.fill(0.0);
            let Some(Row { lse, sum }) = Row::of(scores, mass, index) else { continue };
            for place in named(index) {
                out[place] = ((scores[place] - lse).exp() - mass[place] / sum) * dloss;
            }
        }
    });
}
