//! A timeline as text: one line a rank, time from left to right.
//!
//! ```text
//! rank 0  F0=F1 ..... B0--- B1====
//! rank 1  .. F0=B0====F1=B1====...
//! time    0           4
//!         = critical path   . waits for another rank
//! ```
//!
//! The shortest F is one cell, as wide as the longest label and a blank. `-` continues an action, `=` one of the critical
//! path. The characters of idle time give its reason. The stage is omitted if each rank has one. Time beyond the width
//! continues in a next block of lines.

mod glyph;
mod scale;

use glyph::{Glyph, Line, legend, render};
use scale::Scale;
use scheduler::simulate::Timeline;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The most characters that are drawn: lines grow with the ranks as their number does.
const MOST_CHARACTERS: usize = 20_000_000;

/// Draws a timeline in lines of at most `width` characters (more only if one cell is wider), with ANSI colours if asked.
pub fn grid(timeline: &Timeline, width: usize, colour: bool) -> String {
    let scale = Scale::of(timeline);
    let ranks = timeline.rows.len();
    if ranks.saturating_mul(scale.columns) > MOST_CHARACTERS {
        let columns = scale.columns;
        return format!(
            "{ranks} ranks x {columns} columns are not drawn: --format json, html and trace tell every action\n"
        );
    }
    let prefix = prefix(timeline);
    let lines = lines(timeline, &scale, true);
    let block = scale.block(width.saturating_sub(prefix));

    let mut out = String::new();
    for from in (0..scale.columns).step_by(block) {
        let to = (from + block).min(scale.columns);
        if from > 0 {
            out.push('\n');
        }
        write_block(&mut out, &lines, from, to, prefix, colour, &[]);
        let ruler = format!("{:prefix$}{}", "time", scale.ruler(from, to));
        let _ = writeln!(out, "{}", ruler.trim_end());
    }
    let legend = legend(lines.iter().flatten());
    if !legend.is_empty() {
        let _ = writeln!(out, "{:prefix$}{legend}", "");
    }
    out
}

/// Draws a timeline that does not go on: its last block of lines, with a mark behind each rank that has one.
pub fn broken_grid(timeline: &Timeline, width: usize, marks: &[Option<String>]) -> String {
    let scale = Scale::of(timeline);
    let prefix = prefix(timeline);
    let lines = lines(timeline, &scale, false);
    let block = scale.block(width.saturating_sub(prefix));
    let from = scale.columns.saturating_sub(1) / block * block;

    let mut out = String::new();
    if from > 0 {
        let _ = writeln!(out, "from time {} on", scale.time(from));
    }
    write_block(&mut out, &lines, from, scale.columns, prefix, false, marks);
    out
}

/// Columns of `rank 12  `.
fn prefix(timeline: &Timeline) -> usize {
    "rank ".len() + (timeline.rows.len().max(1) - 1).to_string().len() + 2
}

/// The lines of all ranks; one that is to be marked ends with its last action.
fn lines(timeline: &Timeline, scale: &Scale, to_the_end: bool) -> Vec<Vec<Glyph>> {
    let critical: BTreeSet<(u32, u32)> = if to_the_end {
        timeline.critical_path().iter().map(|place| (place.rank, place.position)).collect()
    } else {
        BTreeSet::new()
    };
    let lines = timeline.rows.iter().enumerate().map(|(rank, row)| {
        let mut line = Line::new(scale);
        for (position, slot) in row.iter().enumerate() {
            line.gap(timeline, slot);
            line.action(slot, critical.contains(&(rank as u32, position as u32)));
        }
        if to_the_end {
            line.rest(timeline.makespan);
        }
        line.glyphs
    });
    lines.collect()
}

fn write_block(
    out: &mut String,
    lines: &[Vec<Glyph>],
    from: usize,
    to: usize,
    prefix: usize,
    colour: bool,
    marks: &[Option<String>],
) {
    let rank_width = prefix - "rank ".len() - 2;
    for (rank, line) in lines.iter().enumerate() {
        let text = render(&line[from.min(line.len())..to.min(line.len())], colour);
        let mark = match marks.get(rank).and_then(Option::as_ref) {
            Some(mark) if text.is_empty() => format!("<-- {mark}"),
            Some(mark) => format!(" <-- {mark}"),
            None => String::new(),
        };
        let _ = writeln!(out, "rank {rank:rank_width$}  {text}{mark}");
    }
}

#[cfg(test)]
mod tests;
