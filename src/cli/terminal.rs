//! Width of the terminal.

use std::io::IsTerminal;

/// Columns that `COLUMNS` states, or those of the terminal on standard output; none if neither is known.
pub(super) fn width() -> Option<usize> {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let seen = || terminal_size::terminal_size().filter(|_| std::io::stdout().is_terminal());
    asked.or_else(|| seen().map(|(columns, _)| usize::from(columns.0)))
}
