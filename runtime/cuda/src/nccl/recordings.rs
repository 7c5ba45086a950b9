//! Recordings of steps, which the device repeats by itself: the operations of each, and how far the device is in the one that it repeats.
//!
//! No event of a recording can be asked for. So the device itself raises two flags in the host's memory, before each operation and after it.

use super::super::device::Device;
use super::super::error::Error;
use super::super::memory::{Arena, Pinned};
use super::super::stream::Stream;
use comm::{DeviceRecording, WaitReason};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The recordings of a rank, by their numbers.
#[derive(Default)]
pub(super) struct Recordings {
    /// Operations that were given to streams one by one, over all steps.
    given: AtomicUsize,
    is_made: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    all: Vec<Option<Recording>>,
    /// The number of the recording that is made or repeated.
    current: Option<usize>,
    /// Recordings that were repeated so far.
    repeats: u64,
}

struct Recording {
    /// Two bytes for each operation: whether the device has come to it, and whether it has left it.
    flags: Pinned,
    /// A raised flag in the device's memory.
    raised: Arena,
    /// The wait of each operation.
    reasons: Vec<WaitReason>,
}

impl Recordings {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True while the device records what it is given.
    pub(super) fn is_made(&self) -> bool {
        self.is_made.load(Ordering::Acquire)
    }

    /// Notes what the device does with a recording. Before one is made, all of its operations have been given once.
    ///
    /// # Errors
    /// The device or the host has no memory.
    pub(super) fn note(&self, device: &Arc<Device>, what: DeviceRecording) -> Result<(), Error> {
        let mut known = self.known();
        self.is_made.store(matches!(what, DeviceRecording::Made(_)), Ordering::Release);
        match what {
            DeviceRecording::Made(number) => {
                let made = Recording::new(device, self.given.load(Ordering::Relaxed))?;
                let len = known.all.len().max(number + 1);
                known.all.resize_with(len, || None);
                known.all[number] = Some(made);
                known.current = Some(number);
            }
            DeviceRecording::Repeated(number) => {
                if let Some(Some(recording)) = known.all.get_mut(number) {
                    recording.flags.bytes_mut().fill(0);
                    known.current = Some(number);
                    known.repeats += 1;
                }
            }
            DeviceRecording::None => known.current = None,
        }
        Ok(())
    }

    /// Counts an operation that is given to a stream now.
    pub(super) fn count(&self) {
        self.given.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets a stream raise the flag of an operation that begins, with its reason, or of the one that ends.
    ///
    /// # Errors
    /// The driver failed, or more is recorded than was given before.
    pub(super) fn mark(&self, stream: &Stream, begins: Option<WaitReason>, at: usize) -> Result<usize, Error> {
        let mut known = self.known();
        let current = known.current;
        let recording = current.and_then(|number| known.all[number].as_mut());
        let Some(Recording { flags, raised, reasons }) = recording else { return Ok(0) };
        let (at, flag) = if begins.is_some() { (reasons.len(), 0) } else { (at, 1) };
        reasons.extend(begins);
        let more = || Error::Program("a recorded step has more exchanges than the step before".to_string());
        let flag = flags.bytes_mut().get_mut(2 * at + flag..=2 * at + flag).ok_or_else(more)?;
        // SAFETY: both live as long as the recording, which nobody drops before its graph.
        unsafe { stream.download(flag, raised.address(0, 1))? };
        Ok(at)
    }

    /// A number that changes whenever an operation of a repeated recording begins or ends, and what the device waits for inside of one.
    pub(super) fn look(&self) -> (u64, Option<WaitReason>) {
        let known = self.known();
        let recording = known.current.and_then(|number| known.all[number].as_ref());
        let Some(recording) = recording.filter(|_| !self.is_made()) else { return (0, None) };
        let [begun, ended] =
            [0, 1].map(|flag| (0..recording.reasons.len()).filter(move |at| recording.is_up(*at, flag)));
        let moved = begun.clone().count() + ended.count();
        let inside = begun.clone().find(|at| !recording.is_up(*at, 1));
        let moved = known.repeats * (recording.flags.bytes().len() as u64 + 1) + moved as u64;
        (moved, inside.map(|at| recording.reasons[at]))
    }
}

impl Recording {
    fn new(device: &Arc<Device>, operations: usize) -> Result<Recording, Error> {
        let (flags, raised) = (Pinned::new(device, 2 * operations)?, Arena::new(device, 1)?);
        let stream = Stream::new(device)?;
        // SAFETY: no other stream has the byte yet.
        unsafe { stream.fill(raised.address(0, 1), 1, 1)? };
        stream.finish()?;
        Ok(Recording { flags, raised, reasons: Vec::new() })
    }

    /// True if the device has raised a flag of an operation.
    fn is_up(&self, at: usize, flag: usize) -> bool {
        let byte = &raw const self.flags.bytes()[2 * at + flag];
        // SAFETY: the byte lives; the device may write it at the same time.
        unsafe { byte.read_volatile() != 0 }
    }
}
