//! Mapping from time to columns.

use super::glyph::label;
use crate::draw::axis;
use ir::schedule::{Action, Item, Kind};
use scheduler::simulate::{Slot, Timeline};
use std::collections::BTreeSet;

/// Columns for seconds.
pub(super) struct Scale {
    /// Columns of a cell: the longest label of a single action, and a blank.
    cell: usize,
    /// Columns of the whole makespan.
    pub(super) columns: usize,
    /// Columns per second.
    per_second: f64,
    pub(super) with_stage: bool,
}

/// Largest average width of an action in cells, however short the shortest F is.
const MOST_CELLS: f64 = 4.0;

/// Columns from one number of the ruler to the next, at least.
const RULER: f64 = 15.0;

impl Scale {
    /// The scale at which the shortest F, and the shortest pair, hold their labels.
    pub(super) fn of(timeline: &Timeline) -> Scale {
        let with_stage = timeline.rows.iter().any(|row| stages(row).len() > 1);
        let timed = timeline.rows.iter().flatten().filter(|slot| slot.end > slot.start);
        let (pairs, singles): (Vec<&Slot>, Vec<&Slot>) = timed.partition(|slot| is_pair(slot));
        let of_pair = cell_of(&pairs, with_stage);
        let cell = cell_of(&singles, with_stage).or(of_pair).unwrap_or(2);
        let forwards = singles.into_iter().filter(|slot| is_forward(slot));
        let per_f = cell as f64 / shortest(forwards).min(timeline.makespan);
        let per_pair = of_pair.map_or(0.0, |pair| pair as f64 / shortest(pairs.iter().copied()).min(timeline.makespan));
        let actions = timeline.rows.iter().map(Vec::len).max().unwrap_or(0);
        let most = actions as f64 * MOST_CELLS * cell as f64 / timeline.makespan;
        let per_second = if timeline.makespan > 0.0 { per_f.max(per_pair).min(most) } else { 0.0 };
        let columns = (timeline.makespan * per_second).round() as usize;
        Scale { cell, columns, per_second, with_stage }
    }

    /// Columns of a block of lines that fits.
    pub(super) fn block(&self, room: usize) -> usize {
        (room / self.cell).max(1) * self.cell
    }

    pub(super) fn column(&self, time: f64) -> usize {
        (time * self.per_second).round() as usize
    }

    /// The time of a column, to five digits.
    pub(super) fn time(&self, column: usize) -> f64 {
        let time = column as f64 / self.per_second;
        format!("{time:.4e}").parse().unwrap_or(time)
    }

    /// Times, each beginning at its column.
    pub(super) fn ruler(&self, from: usize, to: usize) -> String {
        let mut ruler = String::new();
        let step = axis::step(RULER / self.per_second);
        let first = (from as f64 / self.per_second / step).ceil() as u64;
        for number in first.. {
            let time = number as f64 * step;
            let text = axis::label(time, step);
            let column = self.column(time).saturating_sub(from);
            if from + column + text.len() > to {
                break;
            }
            if ruler.is_empty() || column > ruler.len() {
                ruler.extend(std::iter::repeat_n(' ', column - ruler.len()));
                ruler.push_str(&text);
            }
        }
        ruler
    }
}

/// Columns of the longest label of some actions, and a blank.
fn cell_of(slots: &[&Slot], with_stage: bool) -> Option<usize> {
    slots.iter().map(|slot| label(&slot.action, with_stage).len() + 1).max()
}

fn shortest<'a>(slots: impl Iterator<Item = &'a Slot>) -> f64 {
    slots.map(|slot| slot.end - slot.start).fold(f64::INFINITY, f64::min)
}

fn is_forward(slot: &Slot) -> bool {
    matches!(slot.action, Action::One(Item { kind: Kind::F, .. }))
}

fn is_pair(slot: &Slot) -> bool {
    matches!(slot.action, Action::Pair(..))
}

fn stages(row: &[Slot]) -> BTreeSet<u32> {
    row.iter().flat_map(|slot| slot.action.items()).filter_map(|item| item.stage).collect()
}
