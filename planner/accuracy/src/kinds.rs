//! Errors by kinds of jobs, over all stacks.

use super::score::{Prediction, Scored};
use super::summary::{Summary, summary};
use cost::LayerKind;

/// Kind of a job, and whether a run is of it.
struct Kind {
    name: &'static str,
    holds: fn(&Scored<'_>, &Prediction) -> bool,
}

impl Kind {
    /// Returns whether a run is of this kind, has a prediction and is not reported apart.
    fn has(&self, row: &Scored<'_>) -> bool {
        !row.run.apart && row.prediction.as_ref().is_ok_and(|prediction| (self.holds)(row, prediction))
    }
}

/// Parameters below which a model is small: its layers are too short to keep a device busy.
const SMALL: f64 = 2e9;

const KINDS: [Kind; 8] = [
    Kind { name: "dense, 16 bits", holds: |_, it| is(it, LayerKind::Dense, false) },
    Kind { name: "dense, fewer bits", holds: |_, it| is(it, LayerKind::Dense, true) },
    Kind { name: "experts, 16 bits", holds: |_, it| is(it, LayerKind::Experts, false) },
    Kind { name: "experts, fewer bits", holds: |_, it| is(it, LayerKind::Experts, true) },
    Kind { name: "latent attention, 16 bits", holds: |_, it| is(it, LayerKind::Latent, false) },
    Kind { name: "latent attention, fewer bits", holds: |_, it| is(it, LayerKind::Latent, true) },
    Kind { name: "fine-tuning", holds: |row, _| row.run.source.ends_with("fine-tuning") },
    Kind { name: "fewer than 2 billion parameters", holds: |_, it| it.job.sizes[0] < SMALL },
];

fn is(prediction: &Prediction, layers: LayerKind, narrow: bool) -> bool {
    prediction.job.regime.layers == layers && prediction.job.regime.narrow == narrow
}

/// Returns the errors in step time by kind. A run can be of several; those that are reported apart are left out.
pub fn by_kind(scored: &[Scored<'_>]) -> Vec<Summary> {
    KINDS
        .iter()
        .map(|kind| summary(kind.name, &scored.iter().filter(|row| kind.has(row)).collect::<Vec<_>>()))
        .collect()
}
