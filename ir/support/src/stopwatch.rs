//! Time that passes, on systems that have a clock.

use std::time::{Duration, Instant};

/// A measurement of time. It stands at zero where the system has no clock, as WebAssembly by itself.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    began: Option<Instant>,
}

impl Stopwatch {
    /// Begins to measure.
    pub fn start() -> Stopwatch {
        Stopwatch { began: (!cfg!(target_family = "wasm")).then(Instant::now) }
    }

    /// The time since the start.
    pub fn elapsed(self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }
}
