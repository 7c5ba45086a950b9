//! Out-of-memory handling: the process ends with a message and an error code instead of an abort.

use ir::catalogue::Code;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};

thread_local! {
    /// True if the thread asks for memory that it can do without.
    static ASKS: Cell<bool> = const { Cell::new(false) };
}

/// The exit status of a process that gets no memory.
static STATUS: AtomicU8 = AtomicU8::new(1);

/// Resident bytes of the process (`man 5 proc_pid_statm`, in pages); 0 if the system does not report them.
pub fn taken() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    #[cfg(unix)]
    let page = rustix::param::page_size() as u64;
    #[cfg(not(unix))]
    let page = 0;
    pages.map_or(0, |pages| pages * page)
}

/// Runs what asks for memory and gives back an error where there is none. Anything else that gets none ends the process.
pub fn granted<T>(ask: impl FnOnce() -> T) -> T {
    let before = ASKS.replace(true);
    let answer = ask();
    ASKS.set(before);
    answer
}

/// From here on a lack of memory is not an input error: a run that ends by it may be restarted.
pub fn run_has_begun() {
    STATUS.store(5, Ordering::Relaxed);
}

/// An allocator that ends the process with a message where another one fails, unless the memory was [`granted`].
#[derive(Debug)]
pub struct Guarded<A> {
    inner: A,
    exit: fn(i32) -> !,
}

impl<A> Guarded<A> {
    /// `exit` ends the process with a status. It must not allocate, nor wait for another thread.
    pub const fn new(inner: A, exit: fn(i32) -> !) -> Guarded<A> {
        Guarded { inner, exit }
    }

    fn given(&self, block: *mut u8, bytes: usize) -> *mut u8 {
        if block.is_null() && !ASKS.try_with(Cell::get).unwrap_or(false) {
            self.end(bytes);
        }
        block
    }

    #[cold]
    fn end(&self, bytes: usize) -> ! {
        tell(message(bytes).text());
        (self.exit)(i32::from(STATUS.load(Ordering::Relaxed)))
    }
}

// SAFETY: every call goes to the inner allocator as it is.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Guarded<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        self.given(unsafe { self.inner.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.given(unsafe { self.inner.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        self.given(unsafe { self.inner.realloc(block, layout, size) }, size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.inner.dealloc(block, layout) }
    }
}

/// A text that takes no memory of the allocator.
struct Message {
    bytes: [u8; 512],
    length: usize,
}

impl Message {
    fn text(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let place = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

fn message(bytes: usize) -> Message {
    let mut message = Message { bytes: [0; 512], length: 0 };
    // What is too long for its place is left out.
    let _ = write!(
        message,
        "error[{}]: the system gives no more memory: {bytes} bytes were asked for\n      = help: ask for less, end what else \
         takes memory, or raise the limit of the process (ulimit -v, ulimit -d, a cgroup)\n",
        Code::TooLittleMemory
    );
    message
}

/// Writes to standard error without a lock, which another thread may hold.
fn tell(text: &[u8]) {
    #[cfg(unix)]
    let _ = rustix::io::write(std::io::stderr(), text);
    #[cfg(not(unix))]
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    #[test]
    fn memory_that_may_be_refused_is_and_what_is_said_takes_none() {
        let guarded = Guarded::new(System, |_| unreachable!("nothing ends"));
        let layout = Layout::from_size_align(1 << 62, 16).unwrap();
        // An unused block is not asked for in optimised code, which takes it to be there.
        // SAFETY: the size is not zero.
        assert!(granted(|| std::hint::black_box(unsafe { guarded.alloc(layout) })).is_null());
        assert!(!ASKS.get());
        let text = String::from_utf8(message(usize::MAX).text().to_vec()).unwrap();
        assert!(text.starts_with("error[MW0710]: ") && text.contains("18446744073709551615") && text.ends_with(")\n"));
    }

    #[test]
    #[should_panic(expected = "ended with 1")]
    fn all_other_memory_ends_the_process() {
        let guarded = Guarded::new(System, |status| panic!("ended with {status}"));
        guarded.given(std::ptr::null_mut(), 8);
    }
}
