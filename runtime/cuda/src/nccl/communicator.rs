//! Communicators of NCCL. Their calls never block: each is polled until it is in the stream, so that another thread can end them when a
//! process is gone.

use super::super::device::Device;
use super::super::error::Error;
use super::super::stream::Stream;
use super::library::{self, Config, Functions, Handle, IN_PROGRESS, functions};
use comm::EngineCall;
use ir::types::{DType, PartialKind};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

pub use super::library::UniqueId;

/// Polls of a call before the thread sleeps between them, and its sleep.
const POLLS: u32 = 1000;
const SLEEP: Duration = Duration::from_micros(100);

/// A member's end of a communicator.
pub struct Communicator {
    device: Arc<Device>,
    functions: &'static Functions,
    /// None once it has ended.
    handle: Mutex<Option<Handle>>,
}

// SAFETY: NCCL asks that one thread at a time calls with a communicator, as the lock ensures; it may be any thread.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

impl UniqueId {
    /// A new name.
    ///
    /// # Errors
    /// There is no NCCL, or it has no network.
    pub fn new() -> Result<UniqueId, Error> {
        let (functions, mut id) = (functions()?, UniqueId([0; 128]));
        // SAFETY: the pointer is to a live name.
        functions.tried("naming a communicator", unsafe { (functions.unique_id)(&raw mut id) })?;
        Ok(id)
    }
}

impl Communicator {
    /// Begins to join the members of a name, of which this is the one at a place; [`settle`](Communicator::settle) waits for the others.
    ///
    /// # Errors
    /// NCCL refuses.
    pub fn begin(device: &Arc<Device>, id: UniqueId, [place, members]: [usize; 2]) -> Result<Communicator, Error> {
        device.bind()?;
        let (functions, mut handle, mut config) = (functions()?, std::ptr::null_mut(), Config::not_blocking());
        let [place, members] = [place, members].map(|number| number as c_int);
        // SAFETY: the pointers are to live places; the device is bound.
        let status = unsafe { (functions.init)(&raw mut handle, members, id, place, &raw mut config) };
        functions.tried("joining a communicator", status)?;
        Ok(Communicator { device: device.clone(), functions, handle: Mutex::new(Some(handle)) })
    }

    fn locked(&self) -> MutexGuard<'_, Option<Handle>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of the calls so far.
    fn state(&self, what: &'static str) -> Result<bool, Error> {
        let handle = self.locked();
        let handle = handle.ok_or_else(|| Error::Nccl { what, why: "the communicator has ended".to_string() })?;
        let mut state = library::SUCCESS;
        // SAFETY: the communicator lives while the lock is held.
        self.functions.tried(what, unsafe { (self.functions.async_error)(handle, &raw mut state) })?;
        self.functions.tried(what, state)?;
        Ok(state != IN_PROGRESS)
    }

    /// Waits until the calls so far are in their streams.
    ///
    /// # Errors
    /// One failed, or another thread has ended the communicator.
    pub fn settle(&self, what: &'static str) -> Result<(), Error> {
        for poll in 0.. {
            if self.state(what)? {
                break;
            }
            if poll < POLLS { thread::yield_now() } else { thread::sleep(SLEEP) }
        }
        Ok(())
    }

    /// Gives calls to a stream, all in one group.
    ///
    /// # Errors
    /// As of [`settle`](Communicator::settle).
    ///
    /// # Safety
    /// The buffers are in live arenas. While the stream works on them, nobody writes what it reads or touches what it writes.
    pub(in super::super) unsafe fn give(
        &self,
        stream: &Stream,
        calls: impl Iterator<Item = EngineCall<u64>>,
    ) -> Result<(), Error> {
        const WHAT: &str = "giving a stream collectives";
        self.device.bind()?;
        {
            let handle = self.locked();
            let ended = || Error::Nccl { what: WHAT, why: "the communicator has ended".to_string() };
            let (handle, functions) = (handle.ok_or_else(ended)?, self.functions);
            let stream = stream.stream().cu_stream().cast::<c_void>();
            // SAFETY: the communicator lives while the lock is held; the rest is as the caller promises. A group that has begun is ended.
            unsafe {
                functions.tried(WHAT, (functions.group_start)())?;
                let given = calls.map(|call| self.call(handle, stream, call)).fold(Ok(()), Result::and);
                functions.tried(WHAT, (functions.group_end)()).and(given)?;
            }
        }
        self.settle(WHAT)
    }

    /// # Safety
    /// As of [`give`](Communicator::give).
    unsafe fn call(&self, handle: Handle, stream: *mut c_void, call: EngineCall<u64>) -> Result<(), Error> {
        let functions = self.functions;
        // SAFETY: as the caller promises.
        unsafe {
            match call {
                EngineCall::AllReduce { from, to, len, dtype, kind } => {
                    let status =
                        (functions.all_reduce)(from, to, len, elements(dtype), combination(kind), handle, stream);
                    functions.tried("an all-reduce", status)
                }
                EngineCall::ReduceScatter { from, to, len, dtype, kind } => {
                    let status =
                        (functions.reduce_scatter)(from, to, len, elements(dtype), combination(kind), handle, stream);
                    functions.tried("a reduce-scatter", status)
                }
                EngineCall::AllGather { from, to, bytes } => functions
                    .tried("an all-gather", (functions.all_gather)(from, to, bytes, library::BYTES, handle, stream)),
                EngineCall::Broadcast { root, from, to, bytes } => {
                    let root = root as c_int;
                    let status = (functions.broadcast)(from, to, bytes, library::BYTES, root, handle, stream);
                    functions.tried("a broadcast", status)
                }
                EngineCall::Send { to, from, bytes } => {
                    let status = (functions.send)(from, bytes, library::BYTES, to as c_int, handle, stream);
                    functions.tried("a send", status)
                }
                EngineCall::Receive { from, to, bytes } => {
                    let status = (functions.receive)(to, bytes, library::BYTES, from as c_int, handle, stream);
                    functions.tried("a receive", status)
                }
            }
        }
    }

    /// Looks for an error in what was given; one that has ended has none.
    ///
    /// # Errors
    /// There is one: a peer is gone, or the network failed.
    pub fn check(&self) -> Result<(), Error> {
        if self.locked().is_none() { Ok(()) } else { self.state("collectives in a stream").map(drop) }
    }

    /// Ends it together with its other members, when all that was given is done.
    ///
    /// # Errors
    /// One of them is gone.
    pub fn finish(&self) -> Result<(), Error> {
        const WHAT: &str = "ending a communicator";
        self.device.bind()?;
        if let Some(handle) = *self.locked() {
            // SAFETY: the communicator lives while the lock is held.
            self.functions.tried(WHAT, unsafe { (self.functions.finalize)(handle) })?;
        }
        self.settle(WHAT)?;
        let ended = self.locked().take();
        // SAFETY: nobody has it any more.
        ended.map_or(Ok(()), |handle| self.functions.tried(WHAT, unsafe { (self.functions.destroy)(handle) }))
    }

    /// Ends it at once: what its streams wait for goes on, with any data.
    pub fn abort(&self) {
        let ended = self.locked().take();
        // SAFETY: nobody has it any more. Nobody could handle a failure.
        ended.into_iter().for_each(|handle| _ = self.device.bind().map(|()| unsafe { (self.functions.abort)(handle) }));
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.abort();
    }
}

/// The elements of a sum.
fn elements(dtype: DType) -> library::Elements {
    match dtype {
        DType::F32 => library::FLOATS,
        DType::BF16 => library::BRAINS,
        DType::F16 => library::HALVES,
        DType::I32 => library::INTS,
        DType::F8E4M3 | DType::F8E5M2 => library::BYTES,
    }
}

fn combination(kind: PartialKind) -> c_int {
    match kind {
        PartialKind::Sum => library::SUM,
        PartialKind::Max => library::MAX,
    }
}
