//! Gather of entries of one dim by index, and scatter-add at the indices.

use super::par::{Par, Rows};
use super::reduce::add_rows;

/// The sizes of a tensor `[b, m, n, h]` and of an index `[b, k]` that selects entries of n.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    /// The dims that both have.
    pub batches: usize,
    /// The dims before n.
    pub outer: usize,
    /// The entries that are here.
    pub len: usize,
    /// The indices of each batch.
    pub picks: usize,
    /// The dims behind n.
    pub inner: usize,
    /// The first entry that is here: the tensor may be a shard of a larger one.
    pub origin: i64,
}

impl Selection {
    /// Offset in the tensor of the entry that a selected row refers to, if the tensor has it.
    fn entry(&self, index: &[i32], row: usize) -> Option<usize> {
        let (block, pick) = (row / self.picks, row % self.picks);
        let id = i64::from(index[block / self.outer * self.picks + pick]) - self.origin;
        let entry = usize::try_from(id).ok().filter(|&entry| entry < self.len)?;
        Some((block * self.len + entry) * self.inner)
    }
}

/// `out[b, m, k] = x[b, m, index[b, k] - origin]`, zeros where that is outside.
///
/// # Panics
/// If a slice does not have the size of the selection.
pub fn take<T: Copy + Default + Send + Sync>(x: &[T], index: &[i32], of: Selection, out: &mut [T], par: Par) {
    let (rows, inner) = (of.batches * of.outer * of.picks, of.inner);
    assert_eq!(out.len(), rows * inner, "out is b x m x k x h");
    if out.is_empty() {
        return;
    }
    par.rows(rows, inner, Rows(out, inner), &|range, out: Rows<&mut [T]>| {
        for (row, out) in range.zip(out.0.chunks_exact_mut(inner)) {
            match of.entry(index, row) {
                Some(at) => out.copy_from_slice(&x[at..at + inner]),
                None => out.fill(T::default()),
            }
        }
    });
}

/// The transpose of [`take`]: `out[b, m, index[b, k] - origin] += y[b, m, k]`, from zero.
///
/// # Panics
/// If a slice does not have the size of the selection.
pub fn scatter_add(y: &[f32], index: &[i32], of: Selection, out: &mut [f32]) {
    assert_eq!(y.len(), of.batches * of.outer * of.picks * of.inner, "y is b x m x k x h");
    out.fill(0.0);
    if of.inner == 0 {
        return;
    }
    for (row, y) in y.chunks_exact(of.inner).enumerate() {
        if let Some(at) = of.entry(index, row) {
            add_rows(y, &mut out[at..at + of.inner]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{integers, normals};
    use super::*;

    #[test]
    fn takes_and_adds_back() {
        for (sizes, origin) in
            [([2, 3, 4, 5, 6], 0), ([1, 1, 8, 3, 1], 4), ([3, 2, 0, 2, 2], 0), ([2, 40, 5, 30, 33], -3)]
        {
            let [batches, outer, len, picks, inner] = sizes;
            let selection = Selection { batches, outer, len, picks, inner, origin };
            let index = integers(batches * picks, 1, -4, 9);
            let (x, y) = (normals(batches * outer * len * inner, 2), normals(batches * outer * picks * inner, 3));
            let mut out = vec![f32::NAN; y.len()];
            let mut sum = vec![f32::NAN; x.len()];
            take(&x, &index, selection, &mut out, Par(2));
            scatter_add(&y, &index, selection, &mut sum);
            let mut expected = vec![0.0; x.len()];
            for place in 0..y.len() {
                let (row, h) = (place / inner, place % inner);
                let (block, pick) = (row / picks, row % picks);
                let id = i64::from(index[block / outer * picks + pick]) - origin;
                let at = (0..len as i64).contains(&id).then(|| (block * len + id as usize) * inner + h);
                assert_eq!(out[place], at.map_or(0.0, |at| x[at]));
                at.into_iter().for_each(|at| expected[at] += y[place]);
            }
            assert_eq!(sum, expected);
        }
    }
}
