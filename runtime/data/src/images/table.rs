//! Positions of patches in a learned square table, between whose rows those of an image are interpolated.

/// The position of a patch: rows of the table, each with its share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Placed {
    pub(super) taps: [i32; 4],
    pub(super) shares: [f32; 4],
}

/// The position of the patch of a row and a column, in an image of so many rows and columns. The image spans the whole table of
/// `side` positions a side, corner to corner: bilinear, as `get_vision_interpolation_indices_and_weights` of `transformers` computes it.
pub(super) fn place(patch: [usize; 2], sides: [usize; 2], side: usize) -> Placed {
    let [rows, columns] = [0, 1].map(|axis| along(patch[axis], sides[axis], side));
    let both = |at: usize| (rows[at / 2], columns[at % 2]);
    Placed {
        taps: [0, 1, 2, 3].map(|at| (both(at).0.0 * side + both(at).1.0) as i32),
        shares: [0, 1, 2, 3].map(|at| both(at).0.1 * both(at).1.1),
    }
}

/// The two neighbours of a place on one side, each with its share.
fn along(at: usize, length: usize, side: usize) -> [(usize, f32); 2] {
    let last = side - 1;
    let source = at as f32 * last as f32 / (length - 1).max(1) as f32;
    let before = (source.floor() as usize).min(last);
    let share = source - before as f32;
    [(before, 1.0 - share), ((before + 1).min(last), share)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_span_the_table_from_corner_to_corner() {
        // Five places over three positions: each second one lies between two.
        assert_eq!(along(0, 5, 3), [(0, 1.0), (1, 0.0)]);
        assert_eq!(along(1, 5, 3), [(0, 0.5), (1, 0.5)]);
        assert_eq!(along(4, 5, 3), [(2, 1.0), (2, 0.0)]);
        assert_eq!(along(0, 1, 3), [(0, 1.0), (1, 0.0)]);
        let placed = place([1, 3], [5, 5], 3);
        assert_eq!(placed, Placed { taps: [1, 2, 4, 5], shares: [0.25; 4] });
    }
}
