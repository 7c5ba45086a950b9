//! Stage placement of an imported schedule, inferred from its rows.

use ir::schedule::{Action, Item, Schedule};
use scheduler::placement::{Pipeline, Placement};

/// The most stages times micro-batches, equal to the limit for built-in schedules.
const MOST_CELLS: u64 = 1 << 20;

/// Placement of a schedule on its ranks.
pub(super) struct InferredPlacement {
    ranks: u32,
    microbatches: u32,
    slices: u32,
    /// By stage: its first rank.
    first: Vec<u32>,
    /// The placement, if it is one that has a name.
    known: Option<Pipeline>,
}

/// Error of a schedule that names more stages, micro-batches or slices than its actions can be of.
#[derive(Debug, thiserror::Error)]
#[error(
    "it names stages up to {}, micro-batches up to {} and slices up to {}, more than its {items} actions can be",
    .stages.saturating_sub(1), .microbatches.saturating_sub(1), .slices - 1
)]
pub(super) struct TooManyCells {
    stages: u64,
    microbatches: u64,
    slices: u64,
    items: u64,
}

impl InferredPlacement {
    /// Reads a schedule.
    pub(super) fn of(schedule: &Schedule) -> Result<InferredPlacement, TooManyCells> {
        let ranks = schedule.rows.len() as u32;
        let (mut stages, mut microbatches, mut slices, mut items) = (0_u64, 0_u64, 1_u64, 0_u64);
        for item in schedule.rows.iter().flatten().flat_map(Action::items) {
            stages = stages.max(item.stage.map_or(0, |stage| u64::from(stage) + 1));
            microbatches = microbatches.max(item.microbatch.map_or(0, |microbatch| u64::from(microbatch) + 1));
            slices = slices.max(item.slice.map_or(1, |slice| u64::from(slice) + 1));
            items += 1;
        }
        let cells = stages.saturating_mul(microbatches).saturating_mul(slices);
        if cells > MOST_CELLS || cells > items {
            return Err(TooManyCells { stages, microbatches, slices, items });
        }
        let mut first = vec![None; stages as usize];
        for (rank, item) in worked(schedule) {
            if let Some(stage) = item.stage {
                first[stage as usize].get_or_insert(rank);
            }
        }
        let first = first.into_iter().map(|rank| rank.unwrap_or(0)).collect();
        let mut laid =
            InferredPlacement { ranks, microbatches: microbatches as u32, slices: slices as u32, first, known: None };
        laid.known = Placement::ALL.into_iter().find_map(|placement| laid.matches(placement, schedule));
        Ok(laid)
    }

    fn matches(&self, placement: Placement, schedule: &Schedule) -> Option<Pipeline> {
        let chunks = match placement {
            Placement::Chain => 1,
            Placement::Bidirectional => 2,
            Placement::Loop | Placement::V => self.stages().div_ceil(self.ranks),
        };
        let pipeline =
            Pipeline { chunks, slices: self.slices, ..Pipeline::new(placement, self.ranks, self.microbatches) };
        let fits = pipeline.stages() == self.stages()
            && worked(schedule).all(|(rank, item)| match (item.stage, item.microbatch) {
                (Some(stage), Some(microbatch)) => pipeline.rank(stage, microbatch) == rank,
                _ => true,
            });
        fits.then_some(pipeline)
    }

    /// The pipeline, if its placement has a name.
    pub(super) fn pipeline(&self) -> Option<&Pipeline> {
        self.known.as_ref()
    }

    pub(super) fn ranks(&self) -> u32 {
        self.ranks
    }

    pub(super) fn stages(&self) -> u32 {
        self.first.len() as u32
    }

    pub(super) fn microbatches(&self) -> u32 {
        self.microbatches
    }

    /// The most stages on a rank.
    pub(super) fn chunks(&self) -> u32 {
        if let Some(pipeline) = self.known {
            return pipeline.chunks;
        }
        let stages = (0..self.ranks).map(|rank| self.first.iter().filter(|&&first| first == rank).count() as u32);
        stages.max().unwrap_or(1)
    }

    /// The rank that should run a stage for a micro-batch.
    pub(super) fn rank(&self, stage: u32, microbatch: u32) -> u32 {
        self.known.map_or_else(|| self.first[stage as usize], |pipeline| pipeline.rank(stage, microbatch))
    }
}

/// Items that belong to a stage, with their rank.
fn worked(schedule: &Schedule) -> impl Iterator<Item = (u32, Item)> {
    let rows = schedule.rows.iter().enumerate();
    rows.flat_map(|(rank, row)| row.iter().flat_map(Action::items).map(move |item| (rank as u32, item)))
        .filter(|(_, item)| item.stage.is_some())
}
