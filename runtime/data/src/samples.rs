//! The samples of a run: those of files, of examples with images, or of a program's own source.

use super::DataError;
use super::blend::Blend;
use super::images::ImageSamples;
use super::sampler::Batch;
use super::source::SourceSamples;

/// Samples of a run, by number.
pub enum Samples<'a> {
    /// Samples of one set of files or several.
    Files(Blend<'a>),
    /// Examples with images.
    Images(ImageSamples<'a>),
    /// Samples that a program makes.
    Source(SourceSamples<'a>),
}

impl Samples<'_> {
    /// Samples of an epoch; `None` if there are no epochs.
    pub fn windows(&self) -> Option<u64> {
        match self {
            Samples::Files(blend) => Some(blend.windows()),
            Samples::Images(images) => Some(images.windows()),
            Samples::Source(source) => source.windows,
        }
    }

    /// Replaces `batch` by the samples `first .. first + count` of the run.
    ///
    /// # Errors
    /// [`DataError::OutOfRange`], [`DataError::Source`], and those of a file that cannot be read.
    pub fn fill(&self, first: u64, count: usize, batch: &mut Batch) -> Result<(), DataError> {
        match self {
            Samples::Files(blend) => blend.fill(first, count, batch),
            Samples::Images(images) => {
                batch.clear();
                (first..first + count as u64).try_for_each(|sample| images.add(sample, batch))
            }
            Samples::Source(source) => {
                batch.clear();
                (first..first + count as u64).try_for_each(|sample| source.add(sample, batch))
            }
        }
    }
}
