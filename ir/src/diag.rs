//! Diagnostics: a code, a message, its location, the origin of the conflict, and a help. Checks collect all diagnostics and do
//! not stop at the first.
//!
//! ```text
//! error[MW0209]: `silu` needs a reduced operand, but `%5` is a partial sum over {tp}
//!   --> mlp.ir:7:3
//!    7 |   %6: bf16[b{dp}, s, h] = silu(%5)
//!      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
//!      = since %5: bf16[b{dp}, s, h]+{tp} = einsum(%4, %w2, ..), line 6
//!      = help: reduce it first: all_reduce(%5, over={tp})
//! ```

use crate::catalogue::Code;
use crate::graph::Span;
use std::fmt::{self, Write as _};

/// An error of a library call, with a code of the catalogue. Its `Display` is the message with the location.
pub trait Coded: fmt::Display {
    /// The error code; `None` for an internal error, which no input causes.
    fn code(&self) -> Option<Code>;

    /// The help.
    fn help(&self) -> Option<String>;
}

/// A note of a diagnostic: the origin of the conflict.
#[derive(Clone, PartialEq, Debug)]
pub struct Note {
    /// Its location; empty if the graph was built in memory.
    pub span: Span,
    /// The text.
    pub text: String,
}

/// One error.
#[derive(Clone, PartialEq, Debug)]
pub struct Diagnostic {
    /// Its code: see the catalogue.
    pub code: Code,
    /// The message.
    pub message: String,
    /// The location; empty if the graph was built in memory.
    pub span: Span,
    /// The marked word of the location, such as `%x`. The entire location if this is empty or not found.
    pub focus: String,
    /// The text under the caret.
    pub label: String,
    /// The statement as text, shown if there is no source.
    pub subject: String,
    /// The origins of the conflict.
    pub notes: Vec<Note>,
    /// The help; `None`: that of the catalogue.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A diagnostic without a location.
    pub fn new(code: Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            message: message.into(),
            span: Span::default(),
            focus: String::new(),
            label: String::new(),
            subject: String::new(),
            notes: Vec::new(),
            help: None,
        }
    }

    /// Sets the location.
    pub fn at(self, span: Span) -> Diagnostic {
        Diagnostic { span, ..self }
    }

    /// Marks only this word of the location.
    pub fn focus(self, focus: impl Into<String>) -> Diagnostic {
        Diagnostic { focus: focus.into(), ..self }
    }

    /// Sets the text under the caret.
    pub fn label(self, label: impl Into<String>) -> Diagnostic {
        Diagnostic { label: label.into(), ..self }
    }

    /// Sets the statement as text, for graphs built in memory.
    pub fn subject(self, subject: impl Into<String>) -> Diagnostic {
        Diagnostic { subject: subject.into(), ..self }
    }

    /// Adds a note on the origin of the conflict.
    pub fn since(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.notes.push(Note { span, text: text.into() });
        self
    }

    /// Sets the help.
    pub fn help(self, help: impl Into<String>) -> Diagnostic {
        Diagnostic { help: Some(help.into()), ..self }
    }

    /// The diagnostic with its lines of the source.
    pub fn render(&self, file: &str, source: &str) -> String {
        let mut out = format!("error[{}]: {}\n", self.code, clipped(&self.message));
        let place = place(source, narrow(source, self.span, &self.focus));
        match &place {
            Some(place) => {
                // `write!` to a string cannot fail.
                let _ = writeln!(out, "  --> {file}:{}:{}", place.line, place.column);
                let _ = writeln!(out, "{:>5} | {}", place.line, place.text);
                let carets = format!("{}{} {}", place.indent, "^".repeat(place.width), self.label);
                let _ = writeln!(out, "      | {}", carets.trim_end());
            }
            None if !self.subject.is_empty() => {
                let _ = writeln!(out, "      | {}", self.subject);
            }
            None => {}
        }
        for note in &self.notes {
            let line =
                self::place(source, note.span).map_or_else(String::new, |place| format!(", line {}", place.line));
            let _ = writeln!(out, "      = since {}{line}", note.text);
        }
        let help = self.help.clone().unwrap_or_else(|| as_help(self.code.entry().help));
        let _ = writeln!(out, "      = help: {help}");
        out
    }
}

/// A help of the catalogue, which is a sentence, as a help line without capital and full stop.
fn as_help(text: &str) -> String {
    let mut chars = text.trim_end_matches('.').chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// Prints without the source; the statement replaces the location.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render("", ""))
    }
}

impl std::error::Error for Diagnostic {}

impl Coded for Diagnostic {
    fn code(&self) -> Option<Code> {
        Some(self.code)
    }

    fn help(&self) -> Option<String> {
        self.help.clone()
    }
}

/// The longest line of a message, in characters; a message may quote user input of any length.
const LONGEST: usize = 1000;

/// The text with its long lines truncated.
fn clipped(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        lines.push(match line.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{} ..", &line[..end]),
            None => line.to_string(),
        });
    }
    lines.join("\n")
}

/// A location in a source, for display.
struct SourcePlace {
    line: usize,
    column: usize,
    /// The line, or for a long line the part around the location.
    text: String,
    /// Blanks as wide as the text before the location, with its tabs.
    indent: String,
    width: usize,
}

/// The number of characters of a line shown before and after the start of a location.
const BEFORE: usize = 120;
const AFTER: usize = 160;

/// The first occurrence of the word in the span as a separate token.
fn narrow(source: &str, span: Span, word: &str) -> Span {
    let text = source.get(span.start as usize..span.end as usize).unwrap_or("");
    let found = text.match_indices(word).find(|(at, _)| {
        let rest = &text[at + word.len()..];
        !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.')
    });
    match found {
        Some((at, _)) if !word.is_empty() => {
            let start = span.start + at as u32;
            Span { start, end: start + word.len() as u32 }
        }
        _ => span,
    }
}

fn place(source: &str, span: Span) -> Option<SourcePlace> {
    let (start, end) = (span.start as usize, span.end as usize);
    if start >= end || !source.is_char_boundary(start) {
        return None;
    }
    let line_start = source[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let (before, rest) = (&source[line_start..start], source[start..].lines().next().unwrap_or(""));
    let marked = source.get(start..end.min(start + rest.len())).unwrap_or("");
    let column = before.chars().count() + 1;
    let skipped = (column - 1).saturating_sub(BEFORE);
    let before: String = before.chars().skip(skipped).collect();
    let after: String = rest.chars().take(AFTER).collect();
    Some(SourcePlace {
        line: source[..start].matches('\n').count() + 1,
        column,
        text: format!("{before}{after}"),
        indent: before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect(),
        width: marked.chars().take(AFTER).count().max(1),
    })
}

/// A list of diagnostics, in the order of discovery: the first `MOST_KEPT`, and the number of others.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Diagnostics(pub Vec<Diagnostic>, usize);

impl Diagnostics {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if self.is_full() {
            self.1 += 1;
        } else {
            self.0.push(diagnostic);
        }
    }

    /// True if further diagnostics are only counted.
    pub fn is_full(&self) -> bool {
        self.0.len() == MOST_KEPT
    }

    /// True if there are no diagnostics.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `value` if there are no diagnostics, else all of them, in the order of the text.
    ///
    /// # Errors
    /// There are diagnostics.
    pub fn into_result<T>(mut self, value: T) -> Result<T, Diagnostics> {
        if self.is_empty() {
            return Ok(value);
        }
        self.0.sort_by_key(|diagnostic| diagnostic.span.start);
        Err(self)
    }

    /// The report, with the lines of the source: the first `MOST_SHOWN` diagnostics and the number of others.
    pub fn render(&self, file: &str, source: &str) -> String {
        let shown = self.0.iter().take(MOST_SHOWN).map(|diagnostic| diagnostic.render(file, source));
        let mut report = shown.collect::<Vec<_>>().join("\n");
        if let Some(more @ 1..) = (self.0.len() + self.1).checked_sub(MOST_SHOWN) {
            // `write!` to a string cannot fail.
            let _ = writeln!(report, "\nand {more} more errors");
        }
        report
    }
}

/// The number of diagnostics shown in one report.
const MOST_SHOWN: usize = 50;

/// The number of diagnostics stored: more than are shown, because the report sorts them in the order of the text.
const MOST_KEPT: usize = 1000;

impl Coded for Diagnostics {
    /// That of the first.
    fn code(&self) -> Option<Code> {
        self.0.first().map(|diagnostic| diagnostic.code)
    }

    fn help(&self) -> Option<String> {
        self.0.first().and_then(|diagnostic| diagnostic.help.clone())
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Diagnostics {
        Diagnostics(vec![diagnostic], 0)
    }
}

/// Prints without the source; statements replace locations.
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render("", ""))
    }
}

impl std::error::Error for Diagnostics {}

/// The longest known name, in characters.
const LONGEST_NAME: usize = 60;

/// The nearest of some names, if it is near enough to be a typing error.
pub fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if name.chars().count() > LONGEST_NAME {
        return None;
    }
    let name = name.to_lowercase();
    let near = names.into_iter().filter_map(|other| Some((likeness(&name, &other.to_lowercase())?, other)));
    near.min_by_key(|(likeness, _)| *likeness).map(|(_, other)| other)
}

/// How a name resembles another one; the first kinds are the closer ones, and numbers order names of one kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    /// They differ in capitals alone.
    Same,
    /// The other one goes on, by a number of characters.
    Beginning(usize),
    /// The other one has all words, and a number of further characters.
    Words(usize),
    /// A number of characters must be changed.
    Letters(usize),
}

/// A name of fewer characters begins many others.
const SHORTEST_BEGINNING: usize = 3;

fn is_separator(c: char) -> bool {
    !c.is_alphanumeric()
}

/// The likeness of names without capitals; none of names that are too different.
fn likeness(name: &str, other: &str) -> Option<Likeness> {
    let (length, further) = (name.chars().count(), other.chars().count().saturating_sub(name.chars().count()));
    if name == other {
        return Some(Likeness::Same);
    }
    if length >= SHORTEST_BEGINNING && other.starts_with(name) {
        return Some(Likeness::Beginning(further));
    }
    let words: Vec<&str> = other.split(is_separator).collect();
    if name.contains(is_separator) && name.split(is_separator).all(|word| words.contains(&word)) {
        return Some(Likeness::Words(further));
    }
    let changed = edit_distance(name, other);
    (changed <= length / 3).then_some(Likeness::Letters(changed))
}

/// Levenshtein's distance, one row at a time.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_found_and_a_stranger_is_not() {
        assert_eq!(nearest("einsun", ["softmax", "einsum"]), Some("einsum"));
        assert_eq!(nearest("xyz", ["softmax", "einsum"]), None);
    }

    #[test]
    fn beginnings_and_words_come_before_letters() {
        assert_eq!(nearest("h10", ["h20", "h100"]), Some("h100"));
        assert_eq!(nearest("llama3-405b", ["llama3-70b", "llama3.1-405b"]), Some("llama3.1-405b"));
        assert_eq!(nearest("megatron-core", ["megatron-2022", "megatron-core-2025"]), Some("megatron-core-2025"));
        assert_eq!(nearest("1F1B", ["eager-1f1b", "1f1b"]), Some("1f1b"));
        assert_eq!(nearest("ab", ["abcdef"]), None);
    }

    #[test]
    fn a_long_line_is_shown_around_the_place() {
        let source = format!("{}here{}", "a".repeat(1000), "b".repeat(1000));
        let span = Span { start: 1000, end: 1004 };
        let report = Diagnostic::new(Code::UnknownOp, "x".repeat(5000)).at(span).render("f.ir", &source);
        assert!(report.contains("--> f.ir:1:1001"), "{report}");
        let lines: Vec<&str> = report.lines().collect();
        assert!(lines.iter().all(|line| line.len() < LONGEST + 30), "{report}");
        assert_eq!(lines[2].find("here"), lines[3].find("^^^^"), "{report}");
    }

    #[test]
    fn of_very_many_errors_the_first_are_shown() {
        let mut all = Diagnostics::default();
        (0..5000).for_each(|_| all.push(Diagnostic::new(Code::UnknownOp, "what")));
        let report = all.render("", "");
        assert_eq!((all.0.len(), report.matches("error[MW0101]").count()), (MOST_KEPT, MOST_SHOWN));
        assert!(report.ends_with("\nand 4950 more errors\n"), "{report}");
    }

    #[test]
    fn a_report_shows_line_caret_cause_and_cure() {
        let source = "one\n  %x = two()\n";
        let span = Span { start: 11, end: 16 };
        let report = Diagnostic::new(Code::UnknownOp, "there is no op `two`")
            .at(span)
            .label("here")
            .since(Span { start: 0, end: 3 }, "one")
            .help("say one")
            .render("f.ir", source);
        let want = "error[MW0101]: there is no op `two`\n  --> f.ir:2:8\n    2 |   %x = two()\n      |        ^^^^^ here\n      \
                    = since one, line 1\n      = help: say one\n";
        assert_eq!(report, want);
    }
}
