//! torchtitan's division of a model's layers among pipeline stages, where a file states no modules.

use crate::flag_error::FlagError;

/// Division of layers by how many layers the ends of the model count as. The rule is that of torchtitan 0.3
/// (`distributed/pipeline_parallel.py`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageWeights {
    /// Pipeline ranks.
    pub(crate) ranks: u64,
    /// True if the schedule has several stages on a rank.
    pub(crate) is_looped: bool,
    /// Layers of a stage at most, if the file says.
    pub(crate) layers_per_stage: Option<u64>,
    /// Layers that the embedding counts as.
    pub(crate) first: i64,
    /// Layers that the norm and the head count as.
    pub(crate) last: i64,
}

impl StageWeights {
    /// The keys `vp` and `stages` for a model, by its number of layers.
    ///
    /// # Errors
    /// torchtitan refuses the division.
    pub fn keys(&self, layers: u64) -> Result<String, FlagError> {
        let StageWeights { ranks, is_looped, layers_per_stage, first, last } = *self;
        let (first, last) = (weight(first)?, weight(last)?);
        let places = layers + first + last;
        let stages = match layers_per_stage {
            Some(per_stage) => places.div_ceil(per_stage),
            None => ranks.saturating_mul(if is_looped { 2 } else { 1 }),
        };
        if !stages.is_multiple_of(ranks) {
            return Err(format!("{places} layers and ends make {stages} stages, no multiple of {ranks} ranks").into());
        }
        let of_rank = stages / ranks;
        if is_looped != (of_rank > 1) {
            let wants = if is_looped { "several stages" } else { "one stage" };
            return Err(format!("the schedule has {wants} on a rank, and {layers} layers make {of_rank}").into());
        }
        let (each, more) = (places / stages, places % stages);
        if first.max(last).max(1) > each {
            return Err(
                format!("{stages} stages of {layers} layers: an end counts as more layers than a stage has").into()
            );
        }
        // The first stage begins with the embedding, which is a block of its own.
        let starts = (1..stages).map(|stage| 1 + stage * each + stage.min(more) - first);
        let starts: Vec<String> = starts.map(|start| start.to_string()).collect();
        let vp = if of_rank > 1 { format!(",vp={of_rank}") } else { String::new() };
        Ok(format!("{vp},stages={}", starts.join(",")))
    }
}

/// An end's weight in layers; torchtitan's parser takes negative ones, which make no division.
fn weight(layers: i64) -> Result<u64, FlagError> {
    u64::try_from(layers)
        .ok()
        .filter(|&layers| layers < 1 << 16)
        .ok_or_else(|| format!("an end counts as {layers} layers").into())
}
