//! A timeline as text: one line a rank, time from left to right.
//!
//! ```text
//! rank 0  F0 F1 ..... B0--- B1---
//! rank 1  .. F0 B0--- F1 B1--- ..
//! ```
//!
//! The shortest F is one cell, as wide as the longest label and a blank; `-` goes on with an action, `.` is idle. The
//! stage is left out where each rank has one. What does not fit the width goes on in a next block of lines.

use crate::simulate::{Slot, Timeline};
use ir::schedule::{Action, Item, Kind};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Draws a timeline in lines of at most `width` characters (more only if one cell is wider), with ANSI colours if asked.
pub fn grid(timeline: &Timeline, width: usize, colour: bool) -> String {
    let scale = Scale::of(timeline);
    let rank_width = (timeline.rows.len().max(1) - 1).to_string().len();
    let prefix = "rank ".len() + rank_width + 2;
    let lines: Vec<Vec<Glyph>> = timeline.rows.iter().map(|row| scale.line(row)).collect();
    let block = (width.saturating_sub(prefix) / scale.cell).max(1) * scale.cell;

    let mut out = String::new();
    for from in (0..scale.columns).step_by(block) {
        let to = (from + block).min(scale.columns);
        if scale.columns > block {
            let blank = if from == 0 { "" } else { "\n" };
            let _ = writeln!(out, "{blank}time {} to {}", scale.time(from), scale.time(to).min(timeline.makespan));
        }
        for (rank, line) in lines.iter().enumerate() {
            let text = render(&line[from..to], colour);
            let _ = writeln!(out, "rank {rank:rank_width$}  {text}");
        }
    }
    out
}

/// A character and the kind whose colour it has.
type Glyph = (char, Option<Ink>);

#[derive(Clone, Copy, PartialEq)]
enum Ink {
    One(Kind),
    Pair,
}

impl Ink {
    /// The colours of the zero-bubble papers and of PyTorch: F blue, I teal, W green, B orange, overlap purple.
    fn code(self) -> u8 {
        match self {
            Ink::One(Kind::F) => 34,
            Ink::One(Kind::I) => 36,
            Ink::One(Kind::W) => 32,
            Ink::One(Kind::B) => 33,
            Ink::Pair => 35,
            Ink::One(_) => 37,
        }
    }
}

struct Scale {
    /// Columns of a cell: the longest label and a blank.
    cell: usize,
    /// Columns of the whole makespan.
    columns: usize,
    /// Columns per second.
    per_second: f64,
    makespan: f64,
    with_stage: bool,
}

/// An action is at most so many cells wide on average, however short the shortest F is.
const MOST_CELLS: f64 = 4.0;

impl Scale {
    fn of(timeline: &Timeline) -> Scale {
        let with_stage = timeline.rows.iter().any(|row| stages(row).len() > 1);
        let timed = || timeline.rows.iter().flatten().filter(|slot| slot.end > slot.start);
        let cell = 1 + timed().map(|slot| label(&slot.action, with_stage).len()).max().unwrap_or(1);

        let forwards = timed().filter(|slot| matches!(slot.action, Action::One(Item { kind: Kind::F, .. })));
        let shortest = forwards.map(|slot| slot.end - slot.start).fold(timeline.makespan, f64::min);
        let most = timeline.rows.iter().map(Vec::len).max().unwrap_or(0) as f64 * MOST_CELLS;
        let cells = if shortest > 0.0 { (timeline.makespan / shortest).min(most) } else { 0.0 };
        let per_second = if cells > 0.0 { cells * cell as f64 / timeline.makespan } else { 0.0 };
        let columns = (cells * cell as f64).round() as usize;
        Scale { cell, columns, per_second, makespan: timeline.makespan, with_stage }
    }

    fn column(&self, time: f64) -> usize {
        (time * self.per_second).round() as usize
    }

    /// The time of a column, to five digits.
    fn time(&self, column: usize) -> f64 {
        let time = column as f64 / self.per_second;
        format!("{time:.4e}").parse().unwrap_or(time)
    }

    fn line(&self, row: &[Slot]) -> Vec<Glyph> {
        let mut line = Vec::with_capacity(self.columns);
        for slot in row {
            fill(&mut line, self.column(slot.start), "", '.', None);
            let ink = match slot.action {
                Action::One(item) => Ink::One(item.kind),
                Action::Pair(..) => Ink::Pair,
            };
            fill(&mut line, self.column(slot.end), &label(&slot.action, self.with_stage), '-', Some(ink));
        }
        fill(&mut line, self.column(self.makespan), "", '.', None);
        line
    }
}

/// Goes on to column `to`: a label if it fits, else its first letter; then filler, then a blank.
fn fill(line: &mut Vec<Glyph>, to: usize, label: &str, filler: char, ink: Option<Ink>) {
    let room = to.saturating_sub(line.len());
    let text = if room > 1 { room - 1 } else { room };
    let shown = if label.len() <= text { label.len() } else { label.len().min(1) };
    let letters = label.chars().take(shown).chain(std::iter::repeat(filler)).take(text);
    line.extend(letters.map(|letter| (letter, ink)));
    line.extend(std::iter::repeat_n((' ', None), room - text));
}

fn stages(row: &[Slot]) -> BTreeSet<u32> {
    row.iter().flat_map(|slot| slot.action.items()).filter_map(|item| item.stage).collect()
}

fn label(action: &Action, with_stage: bool) -> String {
    let plain = |item: Item| if with_stage { item } else { Item { stage: None, ..item } };
    match *action {
        Action::One(item) => plain(item).to_string(),
        Action::Pair(a, b) => Action::Pair(plain(a), plain(b)).to_string(),
    }
}

fn render(line: &[Glyph], colour: bool) -> String {
    let mut out = String::new();
    for run in line.chunk_by(|a, b| a.1 == b.1) {
        let text: String = run.iter().map(|glyph| glyph.0).collect();
        match run[0].1.filter(|_| colour) {
            Some(ink) => drop(write!(out, "\x1b[{}m{text}\x1b[0m", ink.code())),
            None => out.push_str(&text),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests;
