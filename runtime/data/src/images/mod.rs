//! Examples with images: a folder of safetensors files, one for each example, with the tensors that the processor of a model gives.
//!
//! | tensor | sizes | |
//! |---|---|---|
//! | `input_ids` | `[n]` or `[1, n]` | tokens, of which the image token stands for each row of an image |
//! | `labels` | the same | if there, the id where the loss counts it, else a negative number such as -100 |
//! | `pixel_values` | `[images, channels, height, width]` | pixels, already scaled; absent without images |
//! | `image_sizes` | `[images, 2]` | height and width of each image, if images are padded to one size |
//!
//! Where an encoder's patches have several frames, two of them differ:
//!
//! | tensor | sizes | |
//! |---|---|---|
//! | `pixel_values` | `[patches, numbers]` | numbers of patches; those of one row of tokens follow each other |
//! | `image_grid_thw` | `[images, 3]` | 1, and the rows and columns of patches of each image |
//!
//! Examples fill windows of a sequence's tokens and patches in their order: [`ImageWindows`].

mod fault;
mod file;
mod folder;
mod grid;
mod patches;
mod pixels;
mod table;
mod windows;

pub use folder::ImageExamples;
pub use patches::ImageBatch;
pub use windows::{ImageSamples, ImageWindows};

#[cfg(test)]
mod tests;
