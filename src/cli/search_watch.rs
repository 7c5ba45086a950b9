//! Progress display of a search.

use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Display;
use std::io::IsTerminal;

/// Progress display of a search or of a list of predictions: the last message and the elapsed time. The log has all
/// messages.
pub(super) struct SearchWatch {
    spinner: Option<ProgressBar>,
}

impl SearchWatch {
    /// Creates the display, which is visible only if standard error is a terminal.
    pub(super) fn new() -> SearchWatch {
        let style = ProgressStyle::with_template("{elapsed:>4}  {msg}").ok();
        let terminal = std::io::stderr().is_terminal();
        let spinner = style.filter(|_| terminal).map(|style| ProgressBar::new_spinner().with_style(style));
        SearchWatch { spinner }
    }

    /// Shows a message of the search. The message is formatted only if it is shown.
    pub(super) fn line(&self, told: impl Display) {
        tracing::debug!("{told}");
        if let Some(spinner) = &self.spinner {
            spinner.set_message(told.to_string());
            spinner.tick();
        }
    }

    /// Ends the display.
    pub(super) fn over(&self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}
