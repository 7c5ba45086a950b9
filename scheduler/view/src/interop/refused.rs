//! Drawing of an invalid imported schedule, up to the point where it blocks.

use crate::grid::broken_grid;
use ir::schedule::{Action, Schedule};
use scheduler::check::{Invariant, Violation};
use scheduler::costs::StageCosts;
use scheduler::simulate::{Deadlock, SimulateError, StalledRank, simulate};
use std::fmt;

/// Error of a schedule, and the place where it stops.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub struct InvalidSchedule {
    /// All that the checker found; empty if the numbers alone are wrong.
    pub violations: Vec<Violation>,
    /// The defect of the numbers.
    why: String,
    /// The rows up to the positions where they stop, and a mark there.
    drawn: String,
}

/// Columns of the drawing: what a terminal has.
const WIDTH: usize = 100;

/// Number of violations that a message names; the rest are counted.
const TOLD: usize = 4;

impl InvalidSchedule {
    pub(super) fn plain(why: String) -> InvalidSchedule {
        InvalidSchedule { violations: Vec::new(), why, drawn: String::new() }
    }

    pub(super) fn drawn(schedule: &Schedule, costs: &StageCosts, violations: Vec<Violation>) -> InvalidSchedule {
        let drawn = draw(schedule, costs, &violations).unwrap_or_default();
        InvalidSchedule { violations, why: String::new(), drawn }
    }
}

impl fmt::Display for InvalidSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        for (number, violation) in self.violations.iter().take(TOLD).enumerate() {
            let blank = if number > 0 { "\n  " } else { "" };
            write!(f, "{blank}{violation}")?;
        }
        let rest = self.violations.len().saturating_sub(TOLD);
        if rest > 0 {
            write!(f, "\n  and {rest} more")?;
        }
        match self.drawn.trim_end() {
            "" => Ok(()),
            drawn => write!(f, "\n\n{drawn}\n"),
        }
    }
}

/// The rows as far as they run. A refused action ends its row, and then the rows that wait for it.
fn draw(schedule: &Schedule, costs: &StageCosts, violations: &[Violation]) -> Option<String> {
    let mut rows = schedule.clone();
    let mut marks: Vec<Option<String>> = vec![None; rows.rows.len()];
    for violation in violations.iter().filter(|v| !matches!(v.invariant, Invariant::Order | Invariant::StepEnd)) {
        let position = violation.position.filter(|&position| position < rows.rows[violation.rank].len());
        if let Some(position) = position {
            rows.rows[violation.rank].truncate(position);
            marks[violation.rank] = Some(violation.text.clone());
        } else if violation.position.is_none() {
            marks[violation.rank].get_or_insert_with(|| violation.text.clone());
        }
    }
    let timeline = match simulate(&rows, costs) {
        Err(SimulateError::Deadlock(Deadlock { ranks })) => {
            for (mark, stand) in marks.iter_mut().zip(&ranks) {
                *mark = waits(stand).or(mark.take());
            }
            rows.rows = ranks.into_iter().map(|stand| stand.done).collect();
            simulate(&rows, costs)
        }
        other => other,
    };
    Some(broken_grid(&timeline.ok()?, WIDTH, &marks))
}

fn waits(stand: &StalledRank) -> Option<String> {
    let blocked = stand.blocked.as_ref().filter(|blocked| !is_end(&blocked.at))?;
    Some(format!("{} {}", blocked.at, stand.wait()))
}

fn is_end(action: &Action) -> bool {
    action.items().all(|item| item.stage.is_none())
}
