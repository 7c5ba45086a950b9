//! Work that several threads do at the same time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::thread::{ScopedJoinHandle, scope};

/// Results of a number of threads that each work on what they have prepared; all begin when the last one is ready.
///
/// # Errors
/// A thread has panicked, while it prepared or later: the message.
pub fn at_once<W, T: Send>(
    threads: usize,
    prepare: impl Fn() -> W + Sync,
    work: impl Fn(W) -> T + Sync,
) -> Result<Vec<T>, String> {
    let barrier = Barrier::new(threads);
    scope(|scope| {
        let threads = (0..threads).map(|_| {
            scope.spawn(|| {
                // The others do not wait for a thread that cannot begin.
                let prepared = catch_unwind(AssertUnwindSafe(&prepare));
                barrier.wait();
                work(prepared.unwrap_or_else(|panic| resume_unwind(panic)))
            })
        });
        join_all(threads.collect())
    })
}

/// The results of threads, in their order, when all have ended.
///
/// # Errors
/// A thread has panicked: the message.
pub fn join_all<T>(threads: Vec<ScopedJoinHandle<'_, T>>) -> Result<Vec<T>, String> {
    // A scope panics itself for a panic of a thread that nobody joined.
    let ended: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    ended.into_iter().map(|result| result.map_err(|panic| panic_message(panic.as_ref()))).collect()
}

/// The message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_thread_that_fails_is_an_error_and_holds_up_no_other() {
        let next = AtomicUsize::new(0);
        let number = || next.fetch_add(1, Ordering::Relaxed);
        let mut all = at_once(4, number, |number| number).unwrap();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3]);
        let unprepared = || if number() == 5 { panic!("no operands") } else { 1 };
        assert_eq!(at_once(4, unprepared, |one| one), Err("no operands".to_string()));
        assert_eq!(at_once(4, number, |number| assert!(number != 9, "no kernel")), Err("no kernel".to_string()));
    }
}
