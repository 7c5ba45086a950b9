//! Index of the positions of each F and each I or B in the rows. The simulator finds dependencies by it.

use super::SimulateError;
use ir::schedule::{Action, Item, Kind, Schedule};

/// A position in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActionPosition {
    /// The rank.
    pub rank: u32,
    /// Index of the action in the rank's row.
    pub position: u32,
}

/// An input of an action: the result of F, or the gradient of the inputs of I or B.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Need {
    pass: Pass,
    cell: u32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Pass {
    Forward,
    Backward,
    Weight,
}

impl Pass {
    fn of(kind: Kind) -> Option<Pass> {
        match kind {
            Kind::F => Some(Pass::Forward),
            Kind::I | Kind::B => Some(Pass::Backward),
            Kind::W => Some(Pass::Weight),
            _ => None,
        }
    }
}

/// Index of positions by (pass, stage, micro-batch, slice).
pub(super) struct ActionIndex {
    microbatches: usize,
    slices: usize,
    /// Number of cells per pass.
    cells: usize,
    by_number: Vec<Option<ActionPosition>>,
}

impl ActionIndex {
    /// Indexes a schedule with `stages` stages.
    pub(super) fn of(schedule: &Schedule, stages: usize) -> Result<ActionIndex, SimulateError> {
        let (mut count, mut extent) = (0, [0, 0, 1]);
        schedule.rows.iter().flatten().flat_map(Action::items).for_each(|item| {
            count += 1;
            for (most, index) in extent.iter_mut().zip([item.stage, item.microbatch, item.slice]) {
                *most = index.map_or(*most, |index| (index as usize + 1).max(*most));
            }
        });
        let [named, microbatches, slices] = extent;
        let cells = named.checked_mul(microbatches).and_then(|n| n.checked_mul(slices));
        let Some(cells) = cells.filter(|&cells| cells <= count) else {
            return Err(SimulateError::Incomplete { stages: named, microbatches, slices, items: count });
        };
        let by_number = vec![None; 3 * cells];
        let mut places = ActionIndex { microbatches, slices, cells, by_number };
        for (rank, row) in schedule.rows.iter().enumerate() {
            for (position, action) in row.iter().enumerate() {
                let place = ActionPosition { rank: rank as u32, position: position as u32 };
                action.items().try_for_each(|item| {
                    let added = places.add(item, place, stages);
                    added.map_err(|why| SimulateError::Item { rank, position, item, why })
                })?;
            }
        }
        Ok(places)
    }

    fn add(&mut self, item: Item, place: ActionPosition, stages: usize) -> Result<(), &'static str> {
        if item.stage.is_some_and(|stage| stage as usize >= stages) {
            return Err("names a stage that has no costs");
        }
        let Some(made) = self.made_by(item) else {
            return if Pass::of(item.kind).is_some() { Err("names no stage or no micro-batch") } else { Ok(()) };
        };
        let number = self.number(made);
        match self.by_number[number].replace(place) {
            Some(_) => Err("appears twice"),
            None => Ok(()),
        }
    }

    /// Returns the position of an input's producer, or `None` if it is in no row.
    pub(super) fn find(&self, need: Need) -> Option<ActionPosition> {
        self.by_number[self.number(need)]
    }

    /// Returns the number of different results.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Returns the number of cells per stage.
    fn per_stage(&self) -> u32 {
        (self.microbatches * self.slices) as u32
    }

    /// Returns the number of a result, below [`ActionIndex::len`].
    pub(super) fn number(&self, Need { pass, cell }: Need) -> usize {
        pass as usize * self.cells + cell as usize
    }

    /// Returns the result that the neighbouring stage computes from this one, or `None` at the last stage of the pass.
    pub(super) fn taker(&self, Need { pass, cell }: Need) -> Option<Need> {
        let cell = match pass {
            Pass::Forward => Some(cell + self.per_stage()).filter(|&cell| (cell as usize) < self.cells),
            Pass::Backward => cell.checked_sub(self.per_stage()),
            Pass::Weight => None,
        };
        cell.map(|cell| Need { pass, cell })
    }

    /// Returns the result of an item, or `None` if it is not an F, I, W or B of a stage and a micro-batch.
    pub(super) fn made_by(&self, item: Item) -> Option<Need> {
        let pass = Pass::of(item.kind)?;
        let row = item.stage? as usize * self.microbatches + item.microbatch? as usize;
        Some(Need { pass, cell: (row * self.slices) as u32 + item.slice.unwrap_or(0) })
    }

    /// Returns the unfused item that produces a result.
    pub(super) fn maker(&self, Need { pass, cell }: Need) -> Item {
        let kind = if pass == Pass::Forward { Kind::F } else { Kind::I };
        let (row, slice) = (cell as usize / self.slices, (cell as usize % self.slices) as u32);
        let item = Item::new(kind, (row / self.microbatches) as u32, (row % self.microbatches) as u32);
        Item { slice: (self.slices > 1).then_some(slice), ..item }
    }

    /// Returns the inputs of the item with this result, by the rules of [`super`].
    pub(super) fn needs(&self, Need { pass, cell }: Need) -> [Option<Need>; 3] {
        let (per_stage, slices) = (self.per_stage(), self.slices as u32);
        let slice = if slices > 1 { cell % slices } else { 0 };
        match pass {
            Pass::Forward => [
                (cell >= per_stage).then(|| Need { pass, cell: cell - per_stage }),
                (slice > 0).then(|| Need { pass, cell: cell - 1 }),
                None,
            ],
            Pass::Backward => [
                Some(Need { pass: Pass::Forward, cell }),
                (((cell + per_stage) as usize) < self.cells).then(|| Need { pass, cell: cell + per_stage }),
                (slice + 1 < slices).then(|| Need { pass, cell: cell + 1 }),
            ],
            Pass::Weight => [Some(Need { pass: Pass::Backward, cell }), None, None],
        }
    }
}
