//! Examples with images that a request names, for the encoder of its model.

use super::request::TrainRequest;
use crate::error::Error;
use data::DataError;
use data::images::{ImageExamples, ImageWindows};
use ir::catalogue::Code;
use ir::models::Vision;

/// Examples with images, and the encoder that reads them.
pub(super) struct OpenedImages {
    train: ImageExamples,
    valid: ImageExamples,
    vision: Vision,
}

impl OpenedImages {
    /// Opens the folder of the request, and that of its held-out examples, or holds out a share of the former.
    ///
    /// # Errors
    /// An option is for other data, or a folder has no examples for the encoder.
    pub(super) fn of(request: &TrainRequest, vision: &Vision) -> Result<OpenedImages, Error> {
        let options = [
            ("blend", request.blend.is_some()),
            ("data_format", request.data_format.is_some()),
            ("eos", request.eos.is_some()),
            ("loss_on", request.loss_on.is_some()),
        ];
        if let Some((name, _)) = options.iter().find(|(_, is_given)| *is_given) {
            let message =
                format!("`{name}` is not for examples with images, which `+images=` behind the model's name asks for");
            return Err(Error::input(Code::BadOption, message).help("leave the option out"));
        }
        let share = request.valid.is_none().then_some(request.valid_fraction);
        let [train, rest] = ImageExamples::open(&request.data, vision, share)?;
        let valid = match &request.valid {
            None => rest,
            Some(folder) => {
                let [valid, _] = ImageExamples::open(folder, vision, None)?;
                valid
            }
        };
        Ok(OpenedImages { train, valid, vision: vision.clone() })
    }

    /// Checks that the model knows the tokens.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn check_vocabulary(&self, vocabulary: u64) -> Result<(), DataError> {
        [&self.train, &self.valid].into_iter().try_for_each(|half| half.check_vocabulary(vocabulary))
    }

    /// The windows of `seq` tokens to train on, and those of the held-out examples.
    ///
    /// # Errors
    /// An example has more patches than a sequence.
    pub(super) fn windows(self, seq: usize) -> Result<ImageSides, DataError> {
        let OpenedImages { train, valid, vision } = self;
        let train = ImageWindows::of(train, &vision, seq)?;
        Ok(ImageSides { train, valid: ImageWindows::of(valid, &vision, seq)? })
    }
}

/// Windows of the training and of the held-out examples.
pub(super) struct ImageSides {
    pub(super) train: ImageWindows,
    pub(super) valid: ImageWindows,
}

impl ImageSides {
    /// The examples of both.
    pub(super) fn halves(&self) -> impl Iterator<Item = &ImageExamples> {
        [&self.train, &self.valid].into_iter().map(ImageWindows::examples)
    }
}
