//! Real text as micro-batches: the same samples in the same order, however many of them a micro-batch has.

use meshwright::runtime::data::sampler::{Batch, Sampler};
use meshwright::runtime::data::text::TextData;
use std::path::Path;

/// Tokens of a sequence.
pub(crate) const SEQ: u64 = 16;
/// Sequences of a step.
pub(crate) const GLOBAL_BATCH: u64 = 16;

/// The micro-batches of each step, every one of so many sequences.
pub(crate) fn steps(steps: u64, sequences: u64) -> Vec<Vec<Batch>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("LICENSE-APACHE");
    let text = TextData::load(&path, 0.0, u64::MAX).expect("the licence is a text");
    let sampler = Sampler::new(&text.train, SEQ as usize, 0).expect("it is longer than a sequence");
    assert!(GLOBAL_BATCH.is_multiple_of(sequences), "micro-batches of {sequences} do not make {GLOBAL_BATCH}");
    let step = |step: u64| {
        let first = step * GLOBAL_BATCH;
        (first..first + GLOBAL_BATCH)
            .step_by(sequences as usize)
            .map(|sample| micro(&sampler, sample, sequences))
            .collect()
    };
    (0..steps).map(step).collect()
}

fn micro(sampler: &Sampler<'_>, first: u64, sequences: u64) -> Batch {
    let mut batch = Batch::default();
    sampler.fill(first, sequences as usize, &mut batch).expect("all bytes are tokens");
    for row in 0..sequences {
        let start = (row * SEQ) as usize;
        split(first + row, start..start + SEQ as usize, &mut batch);
    }
    batch
}

/// Cuts a sequence into two segments and ignores some of its first labels, other ones in each sample: so attention has a
/// border to keep to, and micro-batches differ in how many labels count.
fn split(sample: u64, row: std::ops::Range<usize>, batch: &mut Batch) {
    let border = row.start + 4 + (sample % 9) as usize;
    batch.labels[border - 1] = -1;
    batch.labels[row.start..row.start + (sample % 4) as usize].fill(-1);
    batch.segments[border..row.end].fill(1);
    (0..).zip(&mut batch.positions[border..row.end]).for_each(|(position, place)| *place = position);
}
