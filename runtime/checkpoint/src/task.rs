//! Work on a thread of its own, which yields to the threads that compute.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Work that goes on, or has ended. A task that is dropped is waited for, so that nothing is written after its owner is gone.
pub(super) struct Task<T>(Option<JoinHandle<T>>);

impl<T: Send + 'static> Task<T> {
    /// Begins it.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn begin(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<Task<T>> {
        let thread = Builder::new().name(name.to_string()).spawn(move || {
            yield_to_others();
            work()
        });
        let thread = thread.map_err(|why| io::Error::new(why.kind(), format!("the system gives no thread: {why}")))?;
        Ok(Task(Some(thread)))
    }
}

impl<T> Task<T> {
    /// True if it has ended.
    pub(super) fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end; `None` if it panicked.
    pub(super) fn wait(mut self) -> Option<T> {
        self.0.take()?.join().ok()
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.take().map(JoinHandle::join);
    }
}

/// Lowers the priority of the calling thread: on Linux a thread has one of its own.
#[cfg(target_os = "linux")]
fn yield_to_others() {
    // A thread that keeps its priority only takes more of the processor.
    let _ = rustix::process::nice(10);
}

/// Nothing: priorities are those of processes.
#[cfg(not(target_os = "linux"))]
fn yield_to_others() {}
