//! The images of a sequence as text: a number of patches, or sizes in pixels, each with the mean number of such images in a sequence.

use ir::models::Vision;

/// The images of a sequence.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Images {
    /// Patches.
    Patches(u64),
    /// Sizes.
    Sizes(Vec<ImageSize>),
}

/// Images of one size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ImageSize {
    /// Pixels of both sides.
    sides: [u64; 2],
    /// Their mean number in a sequence.
    count: f64,
}

impl Images {
    /// Reads `4096`, or `1024x1024:0.3,512x512:0.7`; a size without a number is one image of each sequence.
    pub(crate) fn parse(text: &str) -> Option<Images> {
        if let Ok(patches) = text.trim().parse() {
            return Some(Images::Patches(patches));
        }
        text.split(',').map(ImageSize::parse).collect::<Option<_>>().map(Images::Sizes)
    }

    /// The patches of a sequence: of sizes as many as there are on average, in whole rows. A side that is no whole number of rows is
    /// padded or scaled up to one.
    pub(crate) fn patches(&self, vision: &Vision) -> u64 {
        let sizes = match self {
            Images::Patches(patches) => return *patches,
            Images::Sizes(sizes) => sizes,
        };
        let row = vision.side.saturating_mul(vision.projector.merge.unwrap_or(1)).max(1);
        let rows: f64 = sizes.iter().map(|size| size.count * size.rows(row)).sum();
        (rows.ceil() as u64).saturating_mul(vision.merged())
    }
}

impl ImageSize {
    fn parse(text: &str) -> Option<ImageSize> {
        let (sides, count) = text.trim().split_once(':').unwrap_or((text.trim(), "1"));
        let (height, width) = sides.split_once('x')?;
        let count: f64 = count.parse().ok().filter(|count: &f64| count.is_finite() && *count > 0.0)?;
        Some(ImageSize { sides: [side(height)?, side(width)?], count })
    }

    /// The rows of an image, each a square of so many pixels a side.
    fn rows(&self, pixels: u64) -> f64 {
        self.sides.iter().map(|side| side.div_ceil(pixels) as f64).product()
    }
}

/// The pixels of a side as text.
fn side(text: &str) -> Option<u64> {
    text.parse().ok().filter(|side| (1..=MOST_SIDE).contains(side))
}

/// Most pixels of a side.
const MOST_SIDE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use ir::models::read_encoder;

    const MISTRAL: &str = r#"{"model_type": "mistral3", "vision_config": {"model_type": "pixtral", "patch_size": 14}}"#;

    #[test]
    fn sizes_are_patches_of_whole_rows() {
        let patches = |text: &str| {
            let images = Images::parse(text).unwrap();
            let file = serde_json::from_str(MISTRAL).unwrap();
            images.patches(&read_encoder(&file).unwrap().vision)
        };
        // A row is a square of 28 pixels: 55 x 55 of them; half of 37 x 37, and twice 1 x 2.
        assert_eq!(patches("1540x1540"), 55 * 55 * 4);
        assert_eq!(patches("1024x1024:0.5,28x56:2"), (685 + 4) * 4);
        assert_eq!(patches("63"), 63);
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "1024", "1024x", "0x4", "10x10:0", "10x10:-1", "10x10:nan", "4,10x10"] {
            assert_eq!(Images::parse(text).filter(|images| !matches!(images, Images::Patches(_))), None, "{text}");
        }
    }
}
