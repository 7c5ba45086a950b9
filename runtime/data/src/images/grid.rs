//! Times, rows and columns of tokens, by which the positions of models such as Qwen3-VL turn: those of text are one number, and an
//! image counts as its longer side (`get_rope_index` of `transformers`).

use ir::models::Vision;

/// The places of the tokens of an example. `is_row` says which tokens are rows of images, whose sizes in pixels are `sizes`.
pub(super) fn grid(is_row: &[bool], sizes: &[[usize; 2]], vision: &Vision) -> [Vec<i32>; 3] {
    let pixels = (vision.side * vision.projector.merge.unwrap_or(1)) as usize;
    let mut sizes = sizes.iter().map(|size| size.map(|side| side / pixels));
    let (mut grid, mut next, mut at) = ([const { Vec::new() }; 3], 0, 0);
    while at < is_row.len() {
        let [rows, columns] = if is_row[at] { sizes.next().unwrap_or([1, 1]) } else { [1, 1] };
        for row in 0..rows * columns {
            let places = [0, row / columns, row % columns];
            grid.iter_mut().zip(places).for_each(|(side, place)| side.push(next + place as i32));
        }
        (next, at) = (next + rows.max(columns) as i32, at + rows * columns);
    }
    // An image that is cut off at the end of its sequence.
    grid.iter_mut().for_each(|side| side.truncate(is_row.len()));
    grid
}
