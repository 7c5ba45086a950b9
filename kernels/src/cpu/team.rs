//! Helper threads.
//!
//! Each thread that requests help has its own helpers. They start at first use, wait for the thread's next request, and end
//! with the thread. A thread therefore meets the same helpers in the same order every time, and a request allocates nothing
//! once its helpers exist.

use std::any::Any;
use std::cell::{RefCell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, Thread};

/// Looks at a state before the thread that waits for it goes to sleep: some 10 microseconds, which is what waking it
/// costs.
const LOOKS: usize = 400;

thread_local! {
    /// This thread's helpers that have nothing to do.
    static IDLE: RefCell<Vec<Helper>> = const { RefCell::new(Vec::new()) };
}

/// Runs `a` on this thread and `b` on a helper, and waits for both. A panic of either propagates. If the process may start
/// no more threads, `b` runs on this one too.
pub(super) fn join<A: FnOnce(), B: FnOnce() + Send>(a: A, b: B) {
    let Some(helper) = IDLE.with_borrow_mut(Vec::pop).or_else(Helper::start) else {
        a();
        return b();
    };
    let mut b = Some(b);
    // SAFETY: `request` waits for the end of the work, and `b` outlives it.
    let request = unsafe { helper.ask(Work { run: run::<B>, data: (&raw mut b).cast() }) };
    a();
    drop(request);
}

/// Runs the closure at `data`.
///
/// # Safety
/// It is an `Option<B>` that holds one, and no one else uses it.
unsafe fn run<B: FnOnce()>(data: *mut ()) {
    // SAFETY: as the caller promises.
    if let Some(work) = unsafe { (*data.cast::<Option<B>>()).take() } {
        work();
    }
}

/// A closure without its type.
#[derive(Clone, Copy)]
struct Work {
    run: unsafe fn(*mut ()),
    data: *mut (),
}

/// The helper may use the desk's slots.
const ASKED: u8 = 0;
/// The owner may use them.
const DONE: u8 = 1;
/// As before, and the helper is to end.
const CLOSED: u8 = 2;

/// State that a helper and its owner share. `state` decides which of them may use the slots.
struct Handoff {
    state: AtomicU8,
    slots: UnsafeCell<Slots>,
}

struct Slots {
    work: Option<Work>,
    owner: Option<Thread>,
    panic: Option<Box<dyn Any + Send>>,
}

// SAFETY: by `state`, one thread at a time uses the slots; the work was `Send`.
unsafe impl Send for Handoff {}
// SAFETY: as above.
unsafe impl Sync for Handoff {}

impl Handoff {
    /// Waits until the state is one that is wanted.
    fn wait(&self, wanted: impl Fn(u8) -> bool) {
        let mut looks = 0;
        while !wanted(self.state.load(Ordering::Acquire)) {
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
            } else {
                thread::park();
            }
        }
    }

    /// The life of a helper.
    fn serve(&self) {
        loop {
            self.wait(|state| state != DONE);
            if self.state.load(Ordering::Acquire) == CLOSED {
                return;
            }
            // SAFETY: by `state`, the slots are the helper's.
            let slots = unsafe { &mut *self.slots.get() };
            if let Some(Work { run, data }) = slots.work.take() {
                // SAFETY: the owner keeps the closure until `state` is done.
                slots.panic = catch_unwind(AssertUnwindSafe(|| unsafe { run(data) })).err();
            }
            let owner = slots.owner.take();
            self.state.store(DONE, Ordering::Release);
            if let Some(owner) = owner {
                owner.unpark();
            }
        }
    }
}

/// A thread that waits for work.
struct Helper {
    handoff: Arc<Handoff>,
    thread: Thread,
}

impl Helper {
    fn start() -> Option<Helper> {
        let slots = UnsafeCell::new(Slots { work: None, owner: None, panic: None });
        let handoff = Arc::new(Handoff { state: AtomicU8::new(DONE), slots });
        let served = handoff.clone();
        let thread = thread::Builder::new().spawn(move || served.serve()).ok()?.thread().clone();
        Some(Helper { handoff, thread })
    }

    /// Hands over work, which lasts until the request has been dropped.
    ///
    /// # Safety
    /// The request must be dropped, and `work` be good until then.
    unsafe fn ask(self, work: Work) -> Request {
        // SAFETY: the helper is idle, so the slots are the owner's.
        let slots = unsafe { &mut *self.handoff.slots.get() };
        (slots.work, slots.owner) = (Some(work), Some(thread::current()));
        self.handoff.state.store(ASKED, Ordering::Release);
        self.thread.unpark();
        Request(Some(self))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.handoff.state.store(CLOSED, Ordering::Release);
        self.thread.unpark();
    }
}

/// A helper at work. Dropping it waits for the end.
struct Request(Option<Helper>);

impl Drop for Request {
    fn drop(&mut self) {
        let Some(helper) = self.0.take() else { return };
        helper.handoff.wait(|state| state == DONE);
        // SAFETY: the helper is done, so the slots are the owner's.
        let panic = unsafe { &mut *helper.handoff.slots.get() }.panic.take();
        // On a thread that ends there is no list any more, and the helper ends too.
        let mut helper = Some(helper);
        let _ = IDLE.try_with(|idle| idle.borrow_mut().extend(helper.take()));
        if let Some(panic) = panic.filter(|_| !thread::panicking()) {
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Adds up `0..n` on a tree of threads.
    fn sum(n: usize, depth: usize, total: &AtomicUsize) {
        if depth == 0 {
            total.fetch_add((0..n).sum(), Ordering::Relaxed);
            return;
        }
        join(|| sum(n, depth - 1, total), || sum(n, depth - 1, total));
    }

    #[test]
    fn both_halves_run_at_every_depth() {
        for depth in 0..5 {
            let total = AtomicUsize::new(0);
            sum(10, depth, &total);
            assert_eq!(total.into_inner(), 45 << depth);
        }
    }

    #[test]
    fn the_same_helper_serves_again() {
        let serving = || {
            let mut id = None;
            join(|| (), || id = Some(thread::current().id()));
            id
        };
        let first = serving();
        assert!(first.is_some() && first != Some(thread::current().id()));
        assert!((0..1000).all(|_| serving() == first));
    }

    #[test]
    fn panics_go_on_and_the_helper_stays() {
        let panics = |a: bool, b: bool| {
            let run = || join(|| assert!(!a, "from a"), || assert!(!b, "from b"));
            let payload = catch_unwind(run).err()?;
            payload.downcast_ref::<&str>().map(ToString::to_string)
        };
        assert_eq!(panics(false, false), None);
        assert_eq!(panics(true, false).as_deref(), Some("from a"));
        assert_eq!(panics(false, true).as_deref(), Some("from b"));
        assert_eq!(panics(true, true).as_deref(), Some("from a"));
        assert_eq!(panics(false, false), None);
    }

    #[test]
    fn helpers_end_with_their_owner() {
        let handoff = thread::spawn(|| {
            join(|| (), || ());
            IDLE.with_borrow(|idle| idle[0].handoff.clone())
        });
        let handoff = handoff.join().unwrap();
        handoff.wait(|state| state == CLOSED);
        // The helper drops its share of the desk when it ends.
        while Arc::strong_count(&handoff) > 1 {
            thread::yield_now();
        }
    }
}
