//! Embedding: rows of a table by index.

use super::par::{Par, Rows};
use super::reduce::add_rows;

/// `out[i] = table[ids[i] - origin]` for a table of rows of `h` elements, zeros where that is outside the table: the
/// table may be a shard of a larger one, whose first row is `origin`.
///
/// # Panics
/// If `out` has not `h` elements per id.
pub fn embedding<T: Copy + Default + Send + Sync>(
    ids: &[i32],
    table: &[T],
    h: usize,
    origin: i64,
    out: &mut [T],
    par: Par,
) {
    assert_eq!(out.len(), ids.len() * h, "out is ids x h");
    par.rows(ids.len(), h, (Rows(ids, 1), Rows(out, h)), &|_, (ids, out)| {
        for (&id, out) in ids.0.iter().zip(out.0.chunks_exact_mut(h.max(1))) {
            match row(id, origin, h, table.len()) {
                Some(start) => out.copy_from_slice(&table[start..start + h]),
                None => out.fill(T::default()),
            }
        }
    });
}

/// The gradient of [`embedding`] by the table: `dtable[ids[i] - origin] += dy[i]`, from zero unless `accumulate`. Ids that are
/// `pad` are left out.
///
/// # Panics
/// If `dy` has not `h` elements per id.
pub fn embedding_grad(
    ids: &[i32],
    dy: &[f32],
    h: usize,
    (origin, pad): (i64, Option<i32>),
    dtable: &mut [f32],
    accumulate: bool,
) {
    assert_eq!(dy.len(), ids.len() * h, "dy is ids x h");
    if !accumulate {
        dtable.fill(0.0);
    }
    for (&id, dy) in ids.iter().zip(dy.chunks_exact(h.max(1))) {
        if let Some(start) = row(id, origin, h, dtable.len()).filter(|_| Some(id) != pad) {
            add_rows(dy, &mut dtable[start..start + h]);
        }
    }
}

/// Start of the row of `id` in a table of `len` elements, if the table has it.
fn row(id: i32, origin: i64, h: usize, len: usize) -> Option<usize> {
    let start = usize::try_from(i64::from(id) - origin).ok()?.checked_mul(h)?;
    (start + h <= len).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{integers, normals};
    use super::*;

    #[test]
    fn looks_up_and_adds_back() {
        for (n, v, h, origin) in [(0, 3, 4, 0), (9, 0, 4, 0), (9, 5, 0, 2), (50, 8, 3, 4), (700, 20, 130, -3)] {
            let ids = integers(n, 1, -2, 15);
            let (table, dy) = (normals(v * h, 2), normals(n * h, 3));
            let mut out = vec![f32::NAN; n * h];
            let mut dtable = vec![1.0; v * h];
            embedding(&ids, &table, h, origin, &mut out, Par(2));
            let pad = Some(5);
            embedding_grad(&ids, &dy, h, (origin, pad), &mut dtable, true);
            let mut expected = vec![1.0f32; v * h];
            for (i, &id) in ids.iter().enumerate() {
                let row = i64::from(id) - origin;
                for j in 0..h {
                    let inside = (0..v as i64).contains(&row).then(|| row as usize * h + j);
                    assert_eq!(out[i * h + j], inside.map_or(0.0, |at| table[at]));
                    if let Some(at) = inside.filter(|_| Some(id) != pad) {
                        expected[at] += dy[i * h + j];
                    }
                }
            }
            assert_eq!(dtable, expected);
            embedding_grad(&[], &[], h, (origin, None), &mut dtable, false);
            assert!(dtable.iter().all(|v| *v == 0.0));
        }
    }
}
