//! An entry of the table of diagnostics, and its text.

use super::Code;
use std::fmt;

/// An entry of the error index, which `meshwright error` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// The number in `MW0209`.
    pub number: u16,
    /// A summary, without a full stop.
    pub title: &'static str,
    /// The rule that the input breaks.
    pub explanation: &'static str,
    /// An input that gives the diagnostic.
    pub example: &'static str,
    /// How to fix it.
    pub help: &'static str,
}

impl Entry {
    /// The phase that reports the error.
    pub fn arises(&self) -> &'static str {
        match self.number / 100 {
            0 => "while IR text is parsed",
            1 => "while a model is verified, before the first pass",
            2 => "while a mesh is parsed, and in every pass of the planner",
            3 => "while a model config is read",
            4 => "while a parallel configuration is chosen or applied",
            5 => "while a model is partitioned into stages, or a schedule is generated or checked",
            6 => "while a program is generated, checked or loaded",
            7 => "while a training run is prepared or running",
            _ => "while a command line or a request is read",
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}\n\n{}\nIt arises {}.\n", self.code, self.title, self.explanation, self.arises())?;
        for line in self.example.lines() {
            writeln!(f, "    {line}")?;
        }
        writeln!(f, "\n{}", self.help)
    }
}
