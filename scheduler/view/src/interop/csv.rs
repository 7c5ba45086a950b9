//! Schedules as the CSV files of `torch.distributed.pipelining`: a line per rank, a cell per action.
//!
//! ```text
//! 0F0,0F1,,0B0,0B1
//! 1F0,1B0,1F1,1B1
//! ```
//!
//! `2F3` is stage 2, micro-batch 3; `2I3` and `2W3` are the two halves of `2B3`; `(0F3;7B1)OVERLAP_F_B` is a pair. An empty
//! cell is a step in which the rank idles.
//!
//! The output of `_dump_csv` as `compute_comms` also has messages (`0SEND_F1`, `1RECV_F1`, `1SEND_B1`, `0RECV_B1`) and
//! parameter and buffer actions (`0UNSHARD`, `0REDUCE_GRAD`, `0WAIT_SEND_F1`) between them.
//! Source: `_Action` and `_load_csv` of torch/distributed/pipelining/schedules.py, PyTorch 2.9 and 2.15.

use super::comms::{self, Message};
use super::{ImportedSchedule, ReadError};
use ir::schedule::{Action, Item, Kind, Schedule};
use scheduler::actions::with_step_end;
use std::collections::BTreeMap;

/// How torch marks two actions that run overlapped.
const OVERLAP: &str = "OVERLAP_F_B";

/// The care for sharded parameters, gradients and buffers that a schedule of ours does not name.
const CARE: [&str; 6] = ["UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD", "WAIT_SEND_F", "WAIT_SEND_B"];

/// Contents of a cell.
pub(super) enum Cell {
    Compute(Action),
    Message(Message),
    Care(&'static str),
}

/// A cell and its position.
pub(super) struct Placed {
    /// From 1, as editors count.
    pub(super) line: usize,
    /// From 1, empty ones counted.
    pub(super) column: usize,
    pub(super) cell: Cell,
}

impl Placed {
    /// The action of a cell that computes.
    fn action(&self) -> Option<Action> {
        match self.cell {
            Cell::Compute(action) => Some(action),
            Cell::Message(_) | Cell::Care(_) => None,
        }
    }
}

/// A schedule as torch's `_load_csv` with `compute_only` reads it. Torch adds the end of the step.
///
/// # Errors
/// The schedule has slices, which torch does not have.
pub fn write_csv(schedule: &Schedule) -> Result<String, ReadError> {
    let mut out = String::new();
    for row in &schedule.rows {
        let mut cells = Vec::with_capacity(row.len());
        for action in row.iter().filter(|action| action.items().all(|item| item.microbatch.is_some())) {
            if action.items().any(|item| item.slice.is_some()) {
                return Err(ReadError::Sliced);
            }
            cells.push(match action {
                Action::One(item) => item.to_string(),
                Action::Pair(a, b) => format!("({a};{b}){OVERLAP}"),
            });
        }
        out.push_str(&cells.join(","));
        out.push('\n');
    }
    Ok(out)
}

/// Reads a schedule, with or without messages. Messages are matched with each other and with what is computed.
///
/// # Errors
/// A cell is no action, or a message does not fit.
pub fn read_csv(text: &str) -> Result<ImportedSchedule, ReadError> {
    let mut rows = Vec::new();
    for (number, line) in text.trim_end().lines().enumerate() {
        rows.push(read_line(number + 1, line)?);
    }
    if rows.iter().all(Vec::is_empty) {
        return Err(ReadError::Empty);
    }
    let messages = comms::check(&rows)?;
    let mut care: BTreeMap<&str, usize> = BTreeMap::new();
    for placed in rows.iter().flatten() {
        if let Cell::Care(word) = placed.cell {
            *care.entry(word).or_default() += 1;
        }
    }
    let mut notes = Vec::new();
    if messages > 0 {
        notes.push(format!("{messages} messages have a sender and a receiver each, in the same order at both ends"));
    }
    if !care.is_empty() {
        let counts: Vec<String> = care.iter().map(|(word, count)| format!("{count} {word}")).collect();
        notes.push(format!("left out, since they take no time here: {}", counts.join(", ")));
    }
    let rows = rows.iter().map(|row| with_step_end(row.iter().filter_map(Placed::action))).collect();
    Ok(ImportedSchedule { schedule: Schedule { name: "foreign".into(), rows }, notes })
}

fn read_line(line: usize, text: &str) -> Result<Vec<Placed>, ReadError> {
    let mut placed = Vec::new();
    for (at, text) in text.split(',').map(str::trim).enumerate() {
        if !text.is_empty() {
            let column = at + 1;
            let cell = read_cell(text).map_err(|why| ReadError::Cell { line, column, text: text.into(), why })?;
            placed.push(Placed { line, column, cell });
        }
    }
    Ok(placed)
}

fn read_cell(text: &str) -> Result<Cell, String> {
    if let Some(rest) = text.strip_prefix('(') {
        let inside = rest.strip_suffix(OVERLAP).and_then(|rest| rest.strip_suffix(')'));
        let Some((a, b)) = inside.and_then(|inside| inside.split_once(';')) else {
            return Err(format!("should be a pair such as (0F3;7B1){OVERLAP}"));
        };
        return Ok(Cell::Compute(Action::Pair(item(a.trim())?, item(b.trim())?)));
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (stage, word) = text.split_at(digits);
    let bare = word.trim_end_matches(|c: char| c.is_ascii_digit());
    if let Some(care) = CARE.iter().find(|care| **care == bare && digits > 0) {
        return Ok(Cell::Care(care));
    }
    match comms::message(stage, word) {
        Some(message) => Ok(Cell::Message(message)),
        None => item(text).map(|item| Cell::Compute(Action::One(item))),
    }
}

/// F, I, W or B of a stage and a micro-batch.
fn item(text: &str) -> Result<Item, String> {
    let item = text.parse::<Item>().ok().filter(|item| {
        let computes = matches!(item.kind, Kind::F | Kind::I | Kind::W | Kind::B);
        computes && item.stage.is_some() && item.microbatch.is_some() && item.slice.is_none()
    });
    item.ok_or_else(|| "is no action: stage, then F, I, W or B, then micro-batch, such as 2F0".to_string())
}

#[cfg(test)]
mod tests;
