//! Signals that end a process: during training the first signal asks the run to stop, and the second kills it.

use crate::train::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What has been asked for since the watch began.
pub(super) struct Signals {
    /// The number of the first signal; 0 where there was none.
    seen: Arc<AtomicUsize>,
}

impl Signals {
    /// Begins to watch, and to say on standard error that a signal was heard. A signal that the process was started to
    /// ignore, as `nohup` does, stays ignored. One that cannot be watched ends the process at once, as it would anyway.
    pub(super) fn watch() -> Signals {
        let seen = Arc::new(AtomicUsize::new(0));
        #[cfg(unix)]
        unix::watch(&seen);
        Signals { seen }
    }

    /// The first signal since.
    pub(super) fn seen(&self) -> Option<Signal> {
        let number = self.seen.load(Ordering::Relaxed);
        Signal::ALL.into_iter().find(|signal| usize::from(signal.number()) == number)
    }
}

/// A write beyond the limit on the size of files becomes an error that is told, where the signal would end the process.
pub(super) fn hear_file_limit() {
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

#[cfg(unix)]
mod unix {
    use super::{Arc, AtomicBool, AtomicUsize, Signal};
    use signal_hook::flag;
    use signal_hook::iterator::Signals;
    use std::io::{self, Write};

    pub(super) fn watch(seen: &Arc<AtomicUsize>) {
        let ignored = ignored();
        let numbers = Signal::ALL.map(Signal::number).into_iter().filter(|number| ignored >> (number - 1) & 1 == 0);
        let numbers: Vec<i32> = numbers.map(i32::from).collect();
        let armed = Arc::new(AtomicBool::new(false));
        // Handlers of a signal run in this order: the first signal only arms what the second one then meets.
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
                let _ = writeln!(
                    io::stderr().lock(),
                    "{name}: the step is finished and a checkpoint saved; a second signal ends the run at once"
                );
            }
        };
        // Without a thread nothing is said until the step has ended.
        let _ = std::thread::Builder::new().name("signals".into()).spawn(tell);
    }

    /// The signals that the process was started to ignore, a bit each, where the system tells (`man 5 proc_pid_status`).
    fn ignored() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    }
}
