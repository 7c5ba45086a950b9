//! Patches and windows by hand, and files that are no examples.

use super::super::DataError;
use super::super::sampler::Batch;
use super::super::samples::Samples;
use super::grid::grid;
use super::patches::{Image, Pixels};
use super::{ImageBatch, ImageExamples, ImageWindows};
use ir::models::{Activation, Frequencies, Norm, Projector, Square, Stem, Vision};
use safetensors::tensor::{Dtype, TensorView, serialize};
use std::fs;
use std::path::Path;

/// An encoder of patches of one pixel of one channel, 2 x 2 of which are a row; a sequence has 16.
fn vision() -> Vision {
    Vision {
        patches: 16,
        side: 1,
        channels: 1,
        frames: None,
        hidden: 8,
        feed_forward: 8,
        activation: Activation::Silu,
        gated: true,
        biased: false,
        layers: 1,
        heads: 2,
        stem: Stem::Norm,
        theta: 10_000.0,
        frequencies: Frequencies::ByParity,
        norm: Norm::Rms,
        norm_eps: 1e-5,
        deviation: 0.02,
        projector: Projector { merge: Some(2), square: Square::Matrix, activation: Activation::GeluErf, bias: false },
        deep: Vec::new(),
        sections: None,
        token: 9,
    }
}

#[test]
fn patches_of_a_row_follow_each_other() {
    let (mut batch, pixels) =
        (ImageBatch::default(), [1, 2, 3, 4, 0, 5, 6, 7, 8, 0].map(|number: u8| f32::from(number)));
    // The last column is padding.
    let pixels = Pixels::Padded { pixels: &pixels, size: [2, 5] };
    batch.push(&vision(), Image { number: 3, pixels, size: [2, 4] });
    assert_eq!(batch.patches, [1.0, 2.0, 5.0, 6.0, 3.0, 4.0, 7.0, 8.0]);
    assert_eq!((batch.rows, batch.columns), (vec![0, 0, 1, 1, 0, 0, 1, 1], vec![0, 1, 0, 1, 2, 3, 2, 3]));
    assert_eq!(batch.images, [3; 8]);
}

/// Positions of `get_rope_index` of `transformers` 5.24: two tokens, an image of 2 x 3 rows, a token, and the begin of an image of 1 x 2.
#[test]
fn tokens_behind_an_image_count_its_longer_side() {
    let are_rows: Vec<bool> = [vec![false; 2], vec![true; 6], vec![false], vec![true]].concat();
    let [times, rows, columns] = grid(&are_rows, &[[4, 6], [2, 4]], &vision());
    assert_eq!(times, [0, 1, 2, 2, 2, 2, 2, 2, 5, 6]);
    assert_eq!(rows, [0, 1, 2, 2, 2, 3, 3, 3, 5, 6]);
    assert_eq!(columns, [0, 1, 2, 3, 4, 2, 3, 4, 5, 6]);
}

/// Writes an example whose images are squares with these numbers of pixels a side, padded to the largest.
fn write(path: &Path, ids: &[i32], sides: &[usize]) {
    let bytes = |numbers: &[i32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let largest = sides.iter().copied().max().unwrap_or(0);
    let sizes: Vec<i32> = sides.iter().flat_map(|side| [*side as i32; 2]).collect();
    let (ids_bytes, sizes) = (bytes(ids), bytes(&sizes));
    let pixels = vec![0; 4 * sides.len() * largest * largest];
    let mut tensors = vec![("input_ids", TensorView::new(Dtype::I32, vec![ids.len()], &ids_bytes).unwrap())];
    if largest > 0 {
        let shape = vec![sides.len(), 1, largest, largest];
        tensors.push(("pixel_values", TensorView::new(Dtype::F32, shape, &pixels).unwrap()));
        tensors.push(("image_sizes", TensorView::new(Dtype::I32, vec![sides.len(), 2], &sizes).unwrap()));
    }
    fs::write(path, serialize(tensors, None).unwrap()).unwrap();
}

fn why(folder: &Path) -> String {
    ImageExamples::open(folder, &vision(), Some(0.1)).unwrap_err().to_string()
}

#[test]
fn windows_have_whole_examples_and_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    for (number, (ids, sides)) in
        [(&[1, 9, 2, 9][..], &[2, 2][..]), (&[3, 4], &[]), (&[9, 9, 9, 9, 5], &[4]), (&[6, 7], &[])].iter().enumerate()
    {
        write(&folder.path().join(format!("{number}.safetensors")), ids, sides);
    }
    let [train, valid] = ImageExamples::open(folder.path(), &vision(), Some(0.1)).unwrap();
    assert_eq!((train.examples(), valid.examples(), train.tokens()), (3, 1, 11));
    let windows = ImageWindows::of(train, &vision(), 7).unwrap();
    let (samples, mut batch) = (Samples::Images(windows.samples(None)), Batch::default());
    samples.fill(0, 2, &mut batch).unwrap();
    assert_eq!(samples.windows(), Some(2));
    // The first two examples, and once more what they have; then the third.
    assert_eq!(batch.tokens, [1, -1, 2, -1, 3, 4, 1, -1, -1, -1, -1, 5, -1, -1]);
    assert_eq!(batch.images.slots, [-1, 0, -1, 1, -1, -1, -1, 0, 1, 2, 3, -1, -1, -1]);
    assert_eq!(batch.labels, [-1, 2, -1, -1, 4, -1, -1, -1, -1, -1, 5, -1, -1, -1]);
    assert_eq!(batch.segments[..7], [0, 0, 0, 0, 1, 1, 2]);
    // Two images of four patches and eight that no image has, then one of sixteen.
    let images = [vec![0; 4], vec![1; 4], vec![2; 8], vec![0; 16]].concat();
    assert_eq!((batch.images.images, batch.images.patches.len()), (images, 32));
}

#[test]
fn files_that_are_no_examples_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        ImageExamples::open(folder.path(), &vision(), Some(0.1)),
        Err(DataError::FewExamples { files: 0, .. })
    ));
    let path = folder.path().join("0.safetensors");
    write(&path, &[1, 9], &[4]);
    assert!(why(folder.path()).contains("has 1 tokens 9 for 4 rows of images"), "{}", why(folder.path()));
    write(&path, &[1, 9], &[3]);
    assert!(why(folder.path()).contains("3 x 3 pixels, which are no whole rows of 2 x 2"), "{}", why(folder.path()));
    write(&path, &[], &[]);
    assert!(why(folder.path()).contains("has no tokens"), "{}", why(folder.path()));
    write(&path, &[1, 9], &[2]);
    let whole = fs::read(&path).unwrap();
    for length in [0, 7, 20, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(why(folder.path()).contains("0.safetensors"), "{length}: {}", why(folder.path()));
    }
}
