//! Progress display of a tokenisation on standard error: a bar on a terminal, else a line every five seconds.

use super::progress::{LINE_EVERY, bar};
use super::signals::Signals;
use crate::error::Error;
use indicatif::ProgressBar;
use ir::catalogue::Code;
use std::io::Write;
use std::time::Instant;
use support::units::{bytes, count, seconds, share};
use tokenize::Done;

/// The display, which also watches for signals.
pub(in crate::cli) struct TokenWatch {
    bar: Option<ProgressBar>,
    began: Instant,
    last_line: Instant,
    signals: Signals,
}

impl TokenWatch {
    /// Begins the display.
    pub(in crate::cli) fn new() -> TokenWatch {
        let now = Instant::now();
        let signals = Signals::watch("nothing is written; a second signal ends the process at once");
        TokenWatch { bar: bar(0, "{bar:24} {msg}"), began: now, last_line: now, signals }
    }

    /// Shows progress. Returns false after a signal.
    pub(in crate::cli) fn shows(&mut self, done: Done) -> bool {
        let took = self.began.elapsed().as_secs_f64();
        let part = done.bytes as f64 / done.all_bytes.max(1) as f64;
        let left = seconds(took / part.max(1e-9) * (1.0 - part).max(0.0));
        let state = format!(
            "{} of {} read, {} tokens, {}/s  {left} left",
            share(part),
            bytes(done.all_bytes),
            count(done.tokens as f64),
            count(done.tokens as f64 / took.max(1e-9))
        );
        if let Some(bar) = &self.bar {
            bar.set_length(done.all_bytes);
            bar.set_position(done.bytes);
            bar.set_message(state);
        } else if self.last_line.elapsed() >= LINE_EVERY {
            // A closed pipe does not stop the work.
            let _ = writeln!(std::io::stderr().lock(), "{state}");
            self.last_line = Instant::now();
        }
        self.signals.seen().is_none()
    }

    /// Ends the display.
    pub(in crate::cli) fn over(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }

    /// The error after a signal.
    pub(in crate::cli) fn ended(&self) -> Option<Error> {
        self.signals.seen().map(|signal| Error::Ended {
            code: Code::RunEnded,
            signal: signal.number(),
            message: format!("{} ended the tokenisation, which has written nothing", signal.name()),
            help: "run the command again".into(),
        })
    }
}
