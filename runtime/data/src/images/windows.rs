//! Windows of examples with images: as many examples as follow each other within the tokens and the patches of a sequence.

use super::super::DataError;
use super::super::sampler::{Batch, shuffled};
use super::fault::ExampleFault;
use super::file::{damaged, is_token};
use super::folder::ImageExamples;
use super::grid::grid;
use super::patches::Image;
use ir::models::Vision;
use std::ops::Range;

/// The windows of a half of the examples.
#[derive(Debug)]
pub struct ImageWindows {
    examples: ImageExamples,
    vision: Vision,
    seq: usize,
    /// The examples of each window.
    windows: Vec<Range<usize>>,
}

impl ImageWindows {
    /// Fills windows of `seq` tokens with examples in their order. Tokens of an example beyond a window are cut off.
    ///
    /// # Errors
    /// An example has more patches than a sequence, or the sequence has no tokens.
    pub fn of(examples: ImageExamples, vision: &Vision, seq: usize) -> Result<ImageWindows, DataError> {
        if seq == 0 {
            return Err(DataError::EmptySequence);
        }
        let (mut windows, mut begin, mut used) = (Vec::new(), 0, [0; 2]);
        for (number, file) in examples.files.iter().enumerate() {
            let own = [file.ids.len().min(seq), file.patches(vision)];
            if own[1] as u64 > vision.patches {
                let fault = ExampleFault::Patches { own: own[1], most: vision.patches };
                return Err(damaged(&file.path, &fault));
            }
            if number > begin && (used[0] + own[0] > seq || (used[1] + own[1]) as u64 > vision.patches) {
                windows.push(begin..number);
                (begin, used) = (number, [0; 2]);
            }
            used = [used[0] + own[0], used[1] + own[1]];
        }
        windows.push(begin..examples.files.len());
        Ok(ImageWindows { examples, vision: vision.clone(), seq, windows })
    }

    /// The examples.
    pub fn examples(&self) -> &ImageExamples {
        &self.examples
    }

    /// The samples in an order that `seed` fixes, another one each epoch, or in that of the examples.
    pub fn samples(&self, seed: Option<u64>) -> ImageSamples<'_> {
        ImageSamples { windows: self, seed }
    }

    /// Adds a window to a batch.
    fn push(&self, window: usize, batch: &mut Batch) -> Result<(), DataError> {
        let (vision, begin) = (&self.vision, batch.tokens.len());
        let (first_patch, mut images, mut rows) = (batch.images.rows.len(), 0, 0);
        for (segment, file) in (0..).zip(&self.examples.files[self.windows[window].clone()]) {
            let inputs = file.ids.len().min(self.seq);
            let mut ids = file.ids[..inputs].to_vec();
            let are_rows: Vec<bool> = ids.iter().map(|id| is_token(*id, vision.token)).collect();
            if vision.sections.is_some() {
                let grid = grid(&are_rows, &file.sizes, vision);
                batch.images.grid.iter_mut().zip(grid).for_each(|(all, own)| all.extend(own));
            }
            for (id, is_row) in ids.iter_mut().zip(are_rows) {
                batch.images.slots.push(if is_row { rows } else { -1 });
                rows += i32::from(is_row);
                // No row of the embedding.
                *id = if is_row { -1 } else { *id };
            }
            batch.push_segment(segment, &ids, file.targets(inputs, vision));
            batch.has_examples |= file.labels.is_some();
            let pixels = file.pixels()?;
            for (pixels, size) in pixels.iter().flat_map(|pixels| pixels.images(&file.sizes, vision)) {
                batch.images.push(vision, Image { number: images, pixels, size });
                images += 1;
            }
            // Rows of tokens that were cut off are there all the same.
            rows = (batch.images.rows.len() - first_patch) as i32 / vision.merged() as i32;
        }
        batch.images.fill(vision, first_patch, images);
        batch.repeat(begin, self.seq);
        batch.images.slots.resize(batch.tokens.len(), -1);
        for side in batch.images.grid.iter_mut().filter(|side| !side.is_empty()) {
            let own = side.len() - begin;
            (own..self.seq).for_each(|at| side.push(side[begin + at % own]));
        }
        Ok(())
    }
}

/// The samples of windows of examples with images.
#[derive(Clone, Copy)]
pub struct ImageSamples<'a> {
    windows: &'a ImageWindows,
    seed: Option<u64>,
}

impl ImageSamples<'_> {
    /// Samples of an epoch.
    pub fn windows(&self) -> u64 {
        self.windows.windows.len() as u64
    }

    /// Adds a sample of the run to a batch.
    pub(crate) fn add(&self, sample: u64, batch: &mut Batch) -> Result<(), DataError> {
        self.windows.push(shuffled(sample, self.windows(), self.seed) as usize, batch)
    }
}
