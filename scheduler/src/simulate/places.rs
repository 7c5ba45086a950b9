//! Where each F and each I or B stands in the rows: the index that dependencies are found by.

use super::SimulateError;
use ir::schedule::{Action, Item, Kind, Schedule};

/// A position in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The rank.
    pub rank: u32,
    /// The index of the action in the rank's row.
    pub position: u32,
}

/// What an action needs: a forward, or a gradient of the inputs, be it from I or from B.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Need {
    pass: Pass,
    cell: usize,
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

/// The index: for each pass, places by (stage, micro-batch, slice).
pub(super) struct Places {
    stages: usize,
    microbatches: usize,
    slices: usize,
    by_pass: [Vec<Option<Place>>; 3],
}

impl Places {
    /// Indexes a schedule of so many stages.
    pub(super) fn of(schedule: &Schedule, stages: usize) -> Result<Places, SimulateError> {
        let (mut count, mut extent) = (0, [0, 0, 1]);
        for item in schedule.rows.iter().flatten().flat_map(Action::items) {
            count += 1;
            for (most, index) in extent.iter_mut().zip([item.stage, item.microbatch, item.slice]) {
                *most = index.map_or(*most, |index| (index as usize + 1).max(*most));
            }
        }
        let [named, microbatches, slices] = extent;
        let cells = named.checked_mul(microbatches).and_then(|n| n.checked_mul(slices));
        let Some(cells) = cells.filter(|&cells| cells <= count) else {
            return Err(SimulateError::Incomplete { stages: named, microbatches, slices, items: count });
        };
        let by_pass = [vec![None; cells], vec![None; cells], vec![None; cells]];
        let mut places = Places { stages: named, microbatches, slices, by_pass };
        for (rank, row) in schedule.rows.iter().enumerate() {
            for (position, action) in row.iter().enumerate() {
                for item in action.items() {
                    let wrong = |why| SimulateError::Item { rank, position, item, why };
                    places.add(item, Place { rank: rank as u32, position: position as u32 }, stages).map_err(wrong)?;
                }
            }
        }
        Ok(places)
    }

    fn add(&mut self, item: Item, place: Place, stages: usize) -> Result<(), &'static str> {
        if item.stage.is_some_and(|stage| stage as usize >= stages) {
            return Err("names a stage that has no costs");
        }
        let Some(made) = self.made_by(item) else {
            return if Pass::of(item.kind).is_some() { Err("names no stage or no micro-batch") } else { Ok(()) };
        };
        match self.by_pass[made.pass as usize][made.cell].replace(place) {
            Some(_) => Err("stands twice"),
            None => Ok(()),
        }
    }

    /// Where what is needed is made; `None` if it stands in no row.
    pub(super) fn find(&self, need: Need) -> Option<Place> {
        self.by_pass[need.pass as usize][need.cell]
    }

    /// How many different results there are.
    pub(super) fn len(&self) -> usize {
        self.by_pass.iter().map(Vec::len).sum()
    }

    /// The number of a result, below [`Places::len`].
    pub(super) fn number(&self, Need { pass, cell }: Need) -> usize {
        pass as usize * self.by_pass[0].len() + cell
    }

    /// What the neighbouring stage makes of a forward or of a gradient of the inputs; `None` at the end of the way.
    pub(super) fn taker(&self, Need { pass, cell }: Need) -> Option<Need> {
        let per_stage = self.microbatches * self.slices;
        let cell = match pass {
            Pass::Forward => Some(cell + per_stage).filter(|&cell| cell < self.by_pass[0].len()),
            Pass::Backward => cell.checked_sub(per_stage),
            Pass::Weight => None,
        };
        cell.map(|cell| Need { pass, cell })
    }

    /// What an item makes; `None` if it is not an F, I, W or B of a stage and a micro-batch.
    pub(super) fn made_by(&self, item: Item) -> Option<Need> {
        let (stage, microbatch) = (item.stage? as usize, item.microbatch? as usize);
        let cell = (stage * self.microbatches + microbatch) * self.slices + item.slice.unwrap_or(0) as usize;
        Some(Need { pass: Pass::of(item.kind)?, cell })
    }

    /// An unfused item that would make what is needed.
    pub(super) fn maker(&self, Need { pass, cell }: Need) -> Item {
        let kind = if pass == Pass::Forward { Kind::F } else { Kind::I };
        let (row, slice) = (cell / self.slices, (cell % self.slices) as u32);
        let item = Item::new(kind, (row / self.microbatches) as u32, (row % self.microbatches) as u32);
        Item { slice: (self.slices > 1).then_some(slice), ..item }
    }

    /// What an item needs, by the rules in the head of [`super`].
    pub(super) fn needs(&self, item: Item) -> [Option<Need>; 3] {
        let Some(Need { pass, cell }) = self.made_by(item) else { return [None; 3] };
        let (stage, slice) = (item.stage.unwrap_or(0) as usize, item.slice.unwrap_or(0) as usize);
        let per_stage = self.microbatches * self.slices;
        let forward = |cell| Some(Need { pass: Pass::Forward, cell });
        let backward = |cell| Some(Need { pass: Pass::Backward, cell });
        match pass {
            Pass::Forward => [
                if stage > 0 { forward(cell - per_stage) } else { None },
                if slice > 0 { forward(cell - 1) } else { None },
                None,
            ],
            Pass::Backward => [
                forward(cell),
                if stage + 1 < self.stages { backward(cell + per_stage) } else { None },
                if slice + 1 < self.slices { backward(cell + 1) } else { None },
            ],
            Pass::Weight => [backward(cell), None, None],
        }
    }
}
