//! Faults of a file of an example.

use std::fmt;

/// Why a file is no example for an encoder; the text is a predicate of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ExampleFault {
    /// It is no safetensors file.
    Header(String),
    /// It has other bytes than its header counts.
    Length(u64),
    /// It lacks a tensor.
    Missing(&'static str),
    /// A tensor is not of integers.
    Integers(&'static str),
    /// Pixels of another type or rank than the encoder reads: images, or patches.
    Pixels { of_patches: bool },
    /// Sizes that are not those of images within the padded ones.
    Sizes { images: usize, height: usize, width: usize },
    /// It has no tokens.
    Empty,
    /// Tokens without a label each.
    Labels { tokens: usize, labels: usize },
    /// Pixels of another number of channels than the encoder reads.
    Channels { own: u64, read: u64 },
    /// Patches of other numbers than the encoder reads.
    Numbers { own: u64, read: u64 },
    /// Another number of patches than the sizes of images count.
    Grid { patches: usize, counted: usize },
    /// Images of several times.
    Video(i32),
    /// An image that is no whole rows.
    Rows { size: [usize; 2], row: usize },
    /// Another number of image tokens than of rows.
    Tokens { token: u64, tokens: usize, rows: usize },
    /// More patches than a sequence has.
    Patches { own: usize, most: u64 },
}

impl fmt::Display for ExampleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExampleFault::Header(why) => write!(f, "is no safetensors file of an example: {why}"),
            ExampleFault::Length(bytes) => {
                write!(f, "is cut off or too long: {bytes} bytes are not those that its header counts")
            }
            ExampleFault::Missing(name) => write!(f, "has no `{name}`"),
            ExampleFault::Integers(name) => write!(f, "has a `{name}` that is not of integers"),
            ExampleFault::Pixels { of_patches } => {
                let sizes = if *of_patches { "[patches, numbers]" } else { "[images, channels, height, width]" };
                write!(f, "has `pixel_values` that are not {sizes} of f32, bf16 or f16")
            }
            ExampleFault::Sizes { images, height, width } => {
                write!(
                    f,
                    "has `image_sizes` that are not those of {images} images of at most {height} x {width} pixels"
                )
            }
            ExampleFault::Empty => f.write_str("has no tokens"),
            ExampleFault::Labels { tokens, labels } => write!(f, "has {tokens} tokens, but {labels} labels"),
            ExampleFault::Channels { own, read } => {
                write!(f, "has pixels of {own} numbers, but the encoder reads {read}")
            }
            ExampleFault::Numbers { own, read } => {
                write!(f, "has patches of {own} numbers, but the encoder reads {read}")
            }
            ExampleFault::Grid { patches, counted } => {
                write!(f, "has {patches} patches, but `image_grid_thw` counts {counted}")
            }
            ExampleFault::Video(times) => {
                write!(f, "has an `image_grid_thw` of {times} times; videos are not read, only images")
            }
            ExampleFault::Rows { size: [height, width], row } => {
                write!(f, "has an image of {height} x {width} pixels, which are no whole rows of {row} x {row} pixels")
            }
            ExampleFault::Tokens { token, tokens, rows } => {
                write!(f, "has {tokens} tokens {token} for {rows} rows of images")
            }
            ExampleFault::Patches { own, most } => {
                write!(f, "has {own} patches of images, more than the {most} of a sequence")
            }
        }
    }
}
