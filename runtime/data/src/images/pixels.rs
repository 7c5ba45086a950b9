//! The pixels of an example's file: images that are padded to one size, or patches.

use super::fault::ExampleFault;
use super::patches::Pixels;
use ir::models::Vision;
use ir::types::DType;
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;

/// Pixels in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredPixels {
    pub(super) dtype: DType,
    pub(super) form: PixelForm,
    /// The first byte, and the one behind the last.
    pub(super) bytes: [u64; 2],
}

/// The sizes of pixels.
#[derive(Clone, Copy, Debug)]
pub(super) enum PixelForm {
    /// Images of one size, to which they are padded.
    Images { images: usize, channels: usize, height: usize, width: usize },
    /// Patches of all images.
    Patches { patches: usize, numbers: usize },
}

/// The pixels of an example.
pub(super) struct ReadPixels {
    pub(super) numbers: Vec<f32>,
    pub(super) form: PixelForm,
}

impl PixelForm {
    /// The sizes of a tensor, with its element type.
    pub(super) fn of(info: &TensorInfo) -> Option<(DType, PixelForm)> {
        let dtype = match info.dtype {
            Dtype::F32 => DType::F32,
            Dtype::BF16 => DType::BF16,
            Dtype::F16 => DType::F16,
            _ => return None,
        };
        let form = match *info.shape.as_slice() {
            [images, channels, height, width] => PixelForm::Images { images, channels, height, width },
            [patches, numbers] => PixelForm::Patches { patches, numbers },
            _ => return None,
        };
        Some((dtype, form))
    }

    /// Checks that an encoder reads such pixels.
    pub(super) fn check(self, vision: &Vision) -> Result<(), ExampleFault> {
        match (self, vision.frames.is_some()) {
            (PixelForm::Images { channels, .. }, false) if channels as u64 != vision.channels => {
                Err(ExampleFault::Channels { own: channels as u64, read: vision.channels })
            }
            (PixelForm::Patches { numbers, .. }, true) if numbers as u64 != vision.pixels() => {
                Err(ExampleFault::Numbers { own: numbers as u64, read: vision.pixels() })
            }
            (PixelForm::Images { .. }, false) | (PixelForm::Patches { .. }, true) => Ok(()),
            (_, of_patches) => Err(ExampleFault::Pixels { of_patches }),
        }
    }
}

impl ReadPixels {
    /// Each image of an example: its pixels and its size, of `sizes` in pixels.
    pub(super) fn images<'a>(
        &'a self,
        sizes: &'a [[usize; 2]],
        vision: &'a Vision,
    ) -> impl Iterator<Item = (Pixels<'a>, [usize; 2])> {
        let mut begin = 0;
        sizes.iter().map(move |&size| {
            let length = match self.form {
                PixelForm::Images { channels, height, width, .. } => channels * height * width,
                PixelForm::Patches { numbers, .. } => numbers * patches_of(size, vision),
            };
            let own = &self.numbers[begin..begin + length];
            begin += length;
            match self.form {
                PixelForm::Images { height, width, .. } => {
                    (Pixels::Padded { pixels: own, size: [height, width] }, size)
                }
                PixelForm::Patches { .. } => (Pixels::Patches(own), size),
            }
        })
    }
}

/// Patches of an image of a size in pixels.
pub(super) fn patches_of(size: [usize; 2], vision: &Vision) -> usize {
    size.map(|pixels| pixels / vision.side as usize).iter().product()
}

/// The sizes of images in pixels: stated, or those of the pixels.
pub(super) fn sizes_of(
    stated: Option<Vec<i32>>,
    grid: Option<Vec<i32>>,
    form: PixelForm,
    vision: &Vision,
) -> Result<Vec<[usize; 2]>, ExampleFault> {
    match form {
        PixelForm::Images { images, height, width, .. } => sizes_of_images(stated, images, height, width),
        PixelForm::Patches { patches, .. } => {
            sizes_of_patches(&grid.ok_or(ExampleFault::Missing("image_grid_thw"))?, patches, vision)
        }
    }
}

fn sizes_of_images(
    stated: Option<Vec<i32>>,
    images: usize,
    height: usize,
    width: usize,
) -> Result<Vec<[usize; 2]>, ExampleFault> {
    let Some(stated) = stated.filter(|_| images > 0) else { return Ok(vec![[height, width]; images]) };
    let sizes: Vec<[usize; 2]> = stated.chunks_exact(2).map(|size| [size[0], size[1]].map(unsigned)).collect();
    let are_within = sizes.iter().all(|size| size[0] <= height && size[1] <= width);
    if sizes.len() == images && are_within { Ok(sizes) } else { Err(ExampleFault::Sizes { images, height, width }) }
}

fn sizes_of_patches(grid: &[i32], patches: usize, vision: &Vision) -> Result<Vec<[usize; 2]>, ExampleFault> {
    let side = vision.side as usize;
    if let Some(&time) = grid.iter().step_by(3).find(|time| **time != 1) {
        return Err(ExampleFault::Video(time));
    }
    let sizes = grid.chunks_exact(3).map(|size| [size[1], size[2]].map(|rows| unsigned(rows).saturating_mul(side)));
    let sizes: Vec<[usize; 2]> = sizes.collect();
    let counted = sizes.iter().fold(0, |sum: usize, &size| sum.saturating_add(patches_of(size, vision)));
    if counted == patches { Ok(sizes) } else { Err(ExampleFault::Grid { patches, counted }) }
}

/// A size that is never below another if it is negative.
fn unsigned(size: i32) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
