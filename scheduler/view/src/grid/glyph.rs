//! One rank's line, character by character.

use super::scale::Scale;
use ir::schedule::{Action, Item, Kind};
use scheduler::simulate::{Reason, Slot, Timeline};
use std::fmt::Write;

/// A character and the colour it has.
pub(super) type Glyph = (char, Option<Ink>);

/// An ANSI colour.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Ink {
    code: u8,
    bold: bool,
}

impl Ink {
    /// The colours of the zero-bubble papers and of PyTorch: F blue, I teal, W green, B orange, overlap purple.
    fn of(action: &Action, critical: bool) -> Ink {
        let code = match action {
            Action::Pair(..) => 35,
            Action::One(item) => match item.kind {
                Kind::F => 34,
                Kind::I => 36,
                Kind::W => 32,
                Kind::B => 33,
                _ => 37,
            },
        };
        Ink { code, bold: critical }
    }
}

/// Fillers of a grid, with their text in the legend.
const CRITICAL: (char, &str) = ('=', "critical path");
const DEPENDENCY: (char, &str) = ('.', "waits for another rank");
const LATENCY: (char, &str) = ('~', "in flight");
const MEMORY: (char, &str) = ('#', "blocked by the memory limit");
const RED: Ink = Ink { code: 31, bold: false };

/// A line that grows with time.
pub(super) struct Line<'a> {
    scale: &'a Scale,
    pub(super) glyphs: Vec<Glyph>,
}

impl Line<'_> {
    pub(super) fn new(scale: &Scale) -> Line<'_> {
        Line { scale, glyphs: Vec::with_capacity(scale.columns) }
    }

    /// The idle time before an action: first the other rank's work, then the message, or the memory limit.
    pub(super) fn gap(&mut self, timeline: &Timeline, slot: &Slot) {
        let end = self.scale.column(slot.start);
        let Some(wait) = slot.waited_on else { return self.idle(end, end, DEPENDENCY.0, None) };
        match wait.reason {
            Reason::Memory => self.idle(end, end, MEMORY.0, Some(RED)),
            Reason::Dependency | Reason::Latency => {
                let made = timeline.slot(wait.place).end;
                // A message that is on its way for less than a column is seen all the same.
                let seen = if made < slot.start { end.saturating_sub(2) } else { end };
                self.idle(self.scale.column(made).min(seen.max(self.glyphs.len() + 1)), end, DEPENDENCY.0, None);
            }
        }
    }

    /// The time after the last action.
    pub(super) fn rest(&mut self, makespan: f64) {
        let end = self.scale.column(makespan);
        self.idle(end, end, DEPENDENCY.0, None);
    }

    /// Idle to column `made` for one reason, then to `end` for a message; a blank parts it from what follows.
    fn idle(&mut self, made: usize, end: usize, filler: char, ink: Option<Ink>) {
        let room = end.saturating_sub(self.glyphs.len());
        let shown = if room > 1 { end - 1 } else { end };
        while self.glyphs.len() < shown {
            let glyph = if self.glyphs.len() < made { (filler, ink) } else { (LATENCY.0, None) };
            self.glyphs.push(glyph);
        }
        if room > 1 {
            self.glyphs.push((' ', None));
        }
    }

    /// An action: its label if it fits, else its letter; then filler, then a blank.
    pub(super) fn action(&mut self, slot: &Slot, critical: bool) {
        let room = self.scale.column(slot.end).saturating_sub(self.glyphs.len());
        let text = if room > 1 { room - 1 } else { room };
        let full = label(&slot.action, self.scale.with_stage);
        let shown = if full.len() <= text { full } else { letter(&slot.action).to_string() };
        let ink = Some(Ink::of(&slot.action, critical));
        let filler = if critical { CRITICAL.0 } else { '-' };
        let letters = shown.chars().chain(std::iter::repeat(filler)).take(text);
        self.glyphs.extend(letters.map(|letter| (letter, ink)));
        let end = if critical { (CRITICAL.0, ink) } else { (' ', None) };
        self.glyphs.extend(std::iter::repeat_n(end, room - text));
    }
}

pub(super) fn label(action: &Action, with_stage: bool) -> String {
    match *action {
        _ if with_stage => action.to_string(),
        Action::One(item) => without_stage(item).to_string(),
        Action::Pair(a, b) => Action::Pair(without_stage(a), without_stage(b)).to_string(),
    }
}

fn without_stage(item: Item) -> Item {
    Item { stage: None, ..item }
}

fn letter(action: &Action) -> char {
    match action {
        Action::One(item) => item.kind.letter(),
        Action::Pair(..) => '|',
    }
}

/// Legend of the fillers that occur.
pub(super) fn legend<'a>(glyphs: impl Iterator<Item = &'a Glyph>) -> String {
    let all = [CRITICAL, DEPENDENCY, LATENCY, MEMORY];
    let mut occurs = [false; 4];
    for (letter, _) in glyphs {
        if let Some(at) = all.iter().position(|(filler, _)| filler == letter) {
            occurs[at] = true;
        }
    }
    let told = all.iter().zip(occurs).filter(|(_, occurs)| *occurs);
    told.map(|((filler, meaning), _)| format!("{filler} {meaning}")).collect::<Vec<_>>().join("   ")
}

pub(super) fn render(line: &[Glyph], colour: bool) -> String {
    let mut out = String::new();
    for run in line.chunk_by(|a, b| a.1 == b.1) {
        let text: String = run.iter().map(|glyph| glyph.0).collect();
        match run[0].1.filter(|_| colour) {
            Some(ink) => {
                let bold = if ink.bold { "1;" } else { "" };
                let _ = write!(out, "\x1b[{bold}{}m{text}\x1b[0m", ink.code);
            }
            None => out.push_str(&text),
        }
    }
    out.truncate(out.trim_end().len());
    out
}
