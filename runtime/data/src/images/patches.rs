//! The patches of a batch: numbers and places of the patches of each sequence, and the row of each token.

use ir::models::Vision;

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
    /// The row of an image that each token stands for, among those of its sequence; -1: none.
    pub slots: Vec<i32>,
}

/// An image.
#[derive(Clone, Copy)]
pub(super) struct Image<'a> {
    /// Its number in its sequence.
    pub(super) number: usize,
    /// Its pixels, `[channels, height, width]` of the size to which it is padded.
    pub(super) pixels: &'a [f32],
    /// That size.
    pub(super) padded: [usize; 2],
    /// Its own height and width.
    pub(super) size: [usize; 2],
}

impl ImageBatch {
    /// Adds the patches of an image. Patches of one row of tokens follow each other.
    pub(super) fn push(&mut self, vision: &Vision, image: Image<'_>) {
        let Image { number, pixels, padded, size } = image;
        let (side, channels) = (vision.side as usize, vision.channels as usize);
        let merge = vision.projector.merge.unwrap_or(1) as usize;
        let [rows, columns] = size.map(|pixels| pixels / side);
        for block in 0..rows / merge * (columns / merge) {
            let (top, left) = (block / (columns / merge) * merge, block % (columns / merge) * merge);
            for at in 0..merge * merge {
                let (row, column) = (top + at / merge, left + at % merge);
                for channel in 0..channels {
                    for y in row * side..(row + 1) * side {
                        let begin = (channel * padded[0] + y) * padded[1] + column * side;
                        self.patches.extend_from_slice(&pixels[begin..begin + side]);
                    }
                }
                self.rows.push(row as i32);
                self.columns.push(column as i32);
                self.images.push(number as i32);
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
    }

    pub(crate) fn clear(&mut self) {
        self.patches.clear();
        [&mut self.rows, &mut self.columns, &mut self.images, &mut self.slots].into_iter().for_each(Vec::clear);
    }
}
