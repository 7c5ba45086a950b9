//! Signals that end a process: during training the first signal asks the run to stop, and the second kills it.

use crate::train::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// State of the signal watch.
pub(in crate::cli) struct Signals {
    /// Number of the first signal, or 0 if there was none.
    seen: Arc<AtomicUsize>,
}

impl Signals {
    /// Starts the watch, which reports a signal on standard error, with what happens `then`. A signal that the process was started
    /// to ignore, as `nohup` does, stays ignored. A signal that cannot be watched ends the process at once.
    pub(in crate::cli) fn watch(then: &'static str) -> Signals {
        let seen = Arc::new(AtomicUsize::new(0));
        #[cfg(unix)]
        unix::watch(&seen, then);
        Signals { seen }
    }

    /// Returns the first signal since the watch began.
    pub(in crate::cli) fn seen(&self) -> Option<Signal> {
        let number = self.seen.load(Ordering::Relaxed);
        Signal::ALL.into_iter().find(|signal| usize::from(signal.number()) == number)
    }
}

/// The signals that end a run as they come, for a process that passes them on.
pub(in crate::cli) struct PassedOn {
    #[cfg(unix)]
    signals: Option<signal_hook::iterator::Signals>,
}

impl PassedOn {
    /// Starts the watch. A signal that the process was started to ignore stays ignored.
    pub(in crate::cli) fn watch() -> PassedOn {
        PassedOn {
            #[cfg(unix)]
            signals: signal_hook::iterator::Signals::new(unix::heeded()).ok(),
        }
    }

    /// Returns the next signal that has come.
    pub(in crate::cli) fn next(&mut self) -> Option<Signal> {
        #[cfg(unix)]
        if let Some(number) = self.signals.as_mut().and_then(|signals| signals.pending().next()) {
            return Signal::ALL.into_iter().find(|signal| i32::from(signal.number()) == number);
        }
        None
    }
}

#[cfg(unix)]
mod unix {
    use super::{Arc, AtomicBool, AtomicUsize, Signal};
    use signal_hook::flag;
    use signal_hook::iterator::Signals;
    use std::io::{self, Write};

    pub(in crate::cli) fn watch(seen: &Arc<AtomicUsize>, then: &'static str) {
        let numbers = heeded();
        let armed = Arc::new(AtomicBool::new(false));
        // Handlers of a signal run in this order. The first signal only arms the handler that the second signal
        // triggers.
        let arm = |number: i32| -> io::Result<()> {
            flag::register_conditional_shutdown(number, 128 + number, armed.clone())?;
            flag::register_usize(number, seen.clone(), number as usize)?;
            flag::register(number, armed.clone()).map(drop)
        };
        let _ = numbers.iter().try_for_each(|&number| arm(number));
        let Ok(mut signals) = Signals::new(&numbers) else { return };
        let tell = move || {
            if let Some(number) = signals.forever().next() {
                let name = Signal::ALL.into_iter().find(|signal| i32::from(signal.number()) == number);
                let name = name.map_or("a signal", Signal::name);
                let _ = writeln!(io::stderr().lock(), "{name}: {then}");
            }
        };
        // If the thread cannot start, the signal is reported after the step.
        let _ = std::thread::Builder::new().name("signals".into()).spawn(tell);
    }

    /// The numbers of the signals that end a run, but for those that the process was started to ignore.
    pub(in crate::cli) fn heeded() -> Vec<i32> {
        let ignored = ignored();
        let numbers = Signal::ALL.map(Signal::number).into_iter().filter(|number| ignored >> (number - 1) & 1 == 0);
        numbers.map(i32::from).collect()
    }

    /// Signals that the process was started to ignore, one bit each, if the system reports them
    /// (`man 5 proc_pid_status`).
    fn ignored() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    }
}
