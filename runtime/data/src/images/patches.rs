//! The patches of a batch: numbers and places of the patches of each sequence, and the row of each token.

use super::table::place;
use ir::models::{Stem, Vision};

/// The images of a batch. Each sequence has the same number of patches; those that no image has are zeros, and see each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageBatch {
    /// The numbers of each patch: channels, rows and columns of pixels.
    pub patches: Vec<f32>,
    /// The row of each patch in its image.
    pub rows: Vec<i32>,
    /// The column of each patch in its image.
    pub columns: Vec<i32>,
    /// The number of the image of each patch in its sequence, from 0.
    pub images: Vec<i32>,
    /// Four rows of the table of positions for each patch, if the encoder has one.
    pub taps: Vec<i32>,
    /// The share of each of these rows in the position of the patch.
    pub shares: Vec<f32>,
    /// The row of an image that each token stands for, among those of its sequence; -1: none.
    pub slots: Vec<i32>,
    /// The time, the row and the column of each token, where tokens turn by them.
    pub grid: [Vec<i32>; 3],
}

/// An image.
#[derive(Clone, Copy)]
pub(super) struct Image<'a> {
    /// Its number in its sequence.
    pub(super) number: usize,
    /// Its pixels.
    pub(super) pixels: Pixels<'a>,
    /// Its height and width in pixels.
    pub(super) size: [usize; 2],
}

/// The pixels of an image.
#[derive(Clone, Copy)]
pub(super) enum Pixels<'a> {
    /// `[channels, height, width]` of the size to which it is padded.
    Padded { pixels: &'a [f32], size: [usize; 2] },
    /// The numbers of its patches, of which those of one row of tokens follow each other.
    Patches(&'a [f32]),
}

impl ImageBatch {
    /// Adds the patches of an image. Patches of one row of tokens follow each other.
    pub(super) fn push(&mut self, vision: &Vision, image: Image<'_>) {
        let Image { number, pixels, size } = image;
        let merge = vision.projector.merge.unwrap_or(1) as usize;
        let sides = size.map(|pixels| pixels / vision.side as usize);
        let [rows, columns] = sides;
        if let Pixels::Patches(numbers) = pixels {
            self.patches.extend_from_slice(numbers);
        }
        for block in 0..rows / merge * (columns / merge) {
            let (top, left) = (block / (columns / merge) * merge, block % (columns / merge) * merge);
            for at in 0..merge * merge {
                let patch = [top + at / merge, left + at % merge];
                if let Pixels::Padded { pixels, size } = pixels {
                    self.cut_out(vision, pixels, size, patch);
                }
                if let Stem::Positions { side } = vision.stem {
                    let placed = place(patch, sides, side as usize);
                    self.taps.extend(placed.taps);
                    self.shares.extend(placed.shares);
                }
                self.rows.push(patch[0] as i32);
                self.columns.push(patch[1] as i32);
                self.images.push(number as i32);
            }
        }
    }

    /// Adds the numbers of the patch of a row and a column, of pixels that are padded to a size.
    fn cut_out(&mut self, vision: &Vision, pixels: &[f32], size: [usize; 2], patch: [usize; 2]) {
        let (side, [height, width], [row, column]) = (vision.side as usize, size, patch);
        for channel in 0..vision.channels as usize {
            for y in row * side..(row + 1) * side {
                let begin = (channel * height + y) * width + column * side;
                self.patches.extend_from_slice(&pixels[begin..begin + side]);
            }
        }
    }

    /// Fills the patches of a sequence that begins at patch `begin` and has `images` images.
    pub(super) fn fill(&mut self, vision: &Vision, begin: usize, images: usize) {
        let patches = begin + vision.patches as usize;
        self.patches.resize(patches * vision.pixels() as usize, 0.0);
        self.rows.resize(patches, 0);
        self.columns.resize(patches, 0);
        self.images.resize(patches, images as i32);
        if matches!(vision.stem, Stem::Positions { .. }) {
            self.taps.resize(4 * patches, 0);
            self.shares.resize(4 * patches, 0.0);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.patches.clear();
        self.shares.clear();
        let ImageBatch { rows, columns, images, taps, slots, grid, .. } = self;
        [rows, columns, images, taps, slots].into_iter().chain(grid).for_each(Vec::clear);
    }
}
