//! The `k` highest elements of each row.

use super::par::{Par, Rows};
use std::cmp::Ordering;

/// Only the columns of some groups count: of `groups` runs of a row, the `from` whose `by` highest elements add up to most.
#[derive(Clone, Copy, Debug)]
pub struct GroupLimit {
    /// How many runs of equal length a row has.
    pub groups: usize,
    /// How many of them count.
    pub from: usize,
    /// How many elements make the score of a run.
    pub by: usize,
}

/// How columns are chosen.
#[derive(Clone, Copy, Debug)]
pub struct TopK<'a> {
    /// Columns of a row.
    pub columns: usize,
    /// How many of each row are chosen.
    pub k: usize,
    /// Added to each row before it is compared.
    pub bias: Option<&'a [f32]>,
    /// The limit on the groups of columns that count; `None`: all count.
    pub limit: Option<GroupLimit>,
}

/// A column and what it is compared by. A higher number is first, of equal ones the lower column.
type Candidate = (f32, usize);

fn order(a: Candidate, b: Candidate) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// The first of the candidates that come after `last`.
fn next(candidates: impl Iterator<Item = Candidate>, last: Option<Candidate>) -> Option<Candidate> {
    candidates.filter(|&c| last.is_none_or(|last| order(last, c).is_lt())).min_by(|&a, &b| order(a, b))
}

impl TopK<'_> {
    fn candidate(&self, row: &[f32], column: usize) -> Candidate {
        (row[column] + self.bias.map_or(0.0, |bias| bias[column]), column)
    }

    /// The score of a group of columns, as a candidate among groups.
    fn group(&self, row: &[f32], limit: GroupLimit, group: usize) -> Candidate {
        let size = self.columns / limit.groups;
        let (mut sum, mut last) = (0.0, None);
        for _ in 0..limit.by {
            last = next((group * size..(group + 1) * size).map(|column| self.candidate(row, column)), last);
            sum += last.map_or(0.0, |(score, _)| score);
        }
        (sum, group)
    }

    /// The last group that counts.
    fn last_group(&self, row: &[f32], limit: GroupLimit) -> Option<Candidate> {
        (0..limit.from).fold(None, |last, _| next((0..limit.groups).map(|g| self.group(row, limit, g)), last))
    }

    fn row(&self, row: &[f32], values: &mut [f32], index: &mut [i32]) {
        let open = self.limit.and_then(|limit| Some((limit, self.last_group(row, limit)?)));
        let mut last = None;
        for (value, index) in values.iter_mut().zip(index) {
            let columns = (0..self.columns).filter(|column| {
                open.is_none_or(|(limit, last)| {
                    order(self.group(row, limit, column / (self.columns / limit.groups)), last).is_le()
                })
            });
            last = next(columns.map(|column| self.candidate(row, column)), last);
            let column = last.map_or(0, |(_, column)| column);
            (*value, *index) = (row[column], column as i32);
        }
    }
}

/// The values and columns of the `k` highest of each row of `x` plus bias, highest first. The values are without the bias.
///
/// # Panics
/// If the sizes do not agree.
pub fn top_k(x: &[f32], choice: &TopK<'_>, values: &mut [f32], index: &mut [i32], par: Par) {
    let TopK { columns, k, .. } = *choice;
    let rows = x.len() / columns.max(1);
    assert!(values.len() == rows * k && index.len() == rows * k, "k values and columns of each row");
    let parts = (Rows(x, columns), Rows(values, k), Rows(index, k));
    par.rows(rows, columns * k, parts, &|_, (x, values, index)| {
        let rows = x.0.chunks_exact(columns.max(1));
        let out = values.0.chunks_exact_mut(k.max(1)).zip(index.0.chunks_exact_mut(k.max(1)));
        rows.zip(out).for_each(|(row, (values, index))| choice.row(row, values, index));
    });
}

/// The gradient of [`top_k`]: each of `dvalues` in its column, all else 0.
///
/// # Panics
/// If the sizes do not agree.
pub fn top_k_grad(index: &[i32], dvalues: &[f32], k: usize, columns: usize, out: &mut [f32]) {
    assert!(index.len() == dvalues.len() && index.len() * columns == out.len() * k, "k columns of each row");
    out.fill(0.0);
    for (choice, (&column, &dvalue)) in index.iter().zip(dvalues).enumerate() {
        if let Some(column) = usize::try_from(column).ok().filter(|&column| column < columns) {
            out[choice / k * columns + column] += dvalue;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_come_first_and_the_bias_only_chooses() {
        let x = [0.1, 0.9, 0.4, 0.9, 0.0, f32::NAN];
        let (mut values, mut index) = ([0.0; 3], [0; 3]);
        let plain = TopK { columns: 5, k: 3, bias: None, limit: None };
        top_k(&x[..5], &plain, &mut values, &mut index, Par(1));
        assert_eq!((values, index), ([0.9, 0.9, 0.4], [1, 3, 2]));
        let biased = TopK { bias: Some(&[1.0, 0.0, 0.0, 0.0, 2.0]), ..plain };
        top_k(&x[..5], &biased, &mut values, &mut index, Par(1));
        assert_eq!((values, index), ([0.0, 0.1, 0.9], [4, 0, 1]));
        let rows = TopK { columns: 2, k: 1, ..plain };
        top_k(&x, &rows, &mut values, &mut index, Par(1));
        assert_eq!(index, [1, 1, 1], "what is not a number comes first, and nothing breaks");
        let mut dx = [5.0; 6];
        top_k_grad(&index, &[1.0, 2.0, 3.0], 1, 2, &mut dx);
        assert_eq!(dx, [0.0, 1.0, 0.0, 2.0, 0.0, 3.0]);
    }

    #[test]
    fn closed_groups_are_passed_over() {
        let x = [0.9, 0.0, 0.5, 0.6, 0.4, 0.3];
        let (mut values, mut index) = ([0.0; 2], [0; 2]);
        let limit = GroupLimit { groups: 3, from: 1, by: 2 };
        let choice = TopK { columns: 6, k: 2, bias: None, limit: Some(limit) };
        top_k(&x, &choice, &mut values, &mut index, Par(1));
        assert_eq!(index, [3, 2]);
        let one = TopK { limit: Some(GroupLimit { by: 1, ..limit }), ..choice };
        top_k(&x, &one, &mut values, &mut index, Par(1));
        assert_eq!(index, [0, 1]);
    }
}
