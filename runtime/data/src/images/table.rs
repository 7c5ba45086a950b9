//! Positions of patches in a learned square table, between whose rows those of an image are interpolated.

/// The position of a patch: rows of the table, each with its share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TablePlace {
    pub(super) taps: [i32; 4],
    pub(super) shares: [f32; 4],
}

/// The position of the patch of a row and a column, in an image of these rows and columns. The image spans the whole table of `side`
/// positions a side, corner to corner: bilinear, as `get_vision_interpolation_indices_and_weights` of `transformers` computes it.
pub(super) fn place(patch: [usize; 2], sides: [usize; 2], side: usize) -> TablePlace {
    let [rows, columns] = [0, 1].map(|axis| along(patch[axis], sides[axis], side));
    let mut placed = TablePlace { taps: [0; 4], shares: [0.0; 4] };
    for (at, (tap, share)) in placed.taps.iter_mut().zip(&mut placed.shares).enumerate() {
        let (row, column) = (rows[at / 2], columns[at % 2]);
        *tap = (row.at * side + column.at) as i32;
        *share = row.share * column.share;
    }
    placed
}

/// A place on one side of the table, with its share.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tap {
    at: usize,
    share: f32,
}

/// The two neighbours of a place on one side.
fn along(at: usize, length: usize, side: usize) -> [Tap; 2] {
    let last = side - 1;
    let source = at as f32 * last as f32 / (length - 1).max(1) as f32;
    let before = (source.floor() as usize).min(last);
    let share = source - before as f32;
    [Tap { at: before, share: 1.0 - share }, Tap { at: (before + 1).min(last), share }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_span_the_table_from_corner_to_corner() {
        let taps = |taps: [(usize, f32); 2]| taps.map(|(at, share)| Tap { at, share });
        // Five places over three positions: each second one is between two.
        assert_eq!(along(0, 5, 3), taps([(0, 1.0), (1, 0.0)]));
        assert_eq!(along(1, 5, 3), taps([(0, 0.5), (1, 0.5)]));
        assert_eq!(along(4, 5, 3), taps([(2, 1.0), (2, 0.0)]));
        assert_eq!(along(0, 1, 3), taps([(0, 1.0), (1, 0.0)]));
        let placed = place([1, 3], [5, 5], 3);
        assert_eq!(placed, TablePlace { taps: [1, 2, 4, 5], shares: [0.25; 4] });
    }
}
