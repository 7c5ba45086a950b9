//! Streams and events. Work on one stream runs in launch order; work on different streams runs concurrently, unless an
//! event orders it.

use super::device::Device;
use super::error::{Error, Tried};
use cudarc::driver::result::stream::get_priority_range;
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaStream};
use std::sync::Arc;

/// A queue of work on a device: a CUDA stream.
pub struct Stream {
    stream: Arc<CudaStream>,
}

impl Stream {
    /// A new stream, which waits for no other, for work that may give way to that of an urgent stream.
    ///
    /// # Errors
    /// The driver failed.
    pub fn new(device: &Arc<Device>) -> Result<Stream, Error> {
        let (least, _) = priorities(device)?;
        Ok(Stream { stream: device.context().new_stream_with_priority(least).tried("making a stream")? })
    }

    /// A new stream of the highest priority, for transfers: when both could begin a block, it is this stream's that begins. Ranks wait
    /// for transfers, and few blocks of a kernel hold them up.
    ///
    /// # Errors
    /// The driver failed.
    pub fn urgent(device: &Arc<Device>) -> Result<Stream, Error> {
        let (_, greatest) = priorities(device)?;
        Ok(Stream { stream: device.context().new_stream_with_priority(greatest).tried("making a stream")? })
    }

    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Makes its device the one that the calling thread talks to.
    pub(super) fn bind(&self) -> Result<(), Error> {
        self.stream.context().bind_to_thread().tried("binding the device to a thread")
    }

    /// Marks all work given so far.
    ///
    /// # Errors
    /// The driver failed.
    pub fn record(&self, event: &Event) -> Result<(), Error> {
        event.0.record(&self.stream).tried("recording an event")
    }

    /// Holds all work given from now on until what the event marks is done. The host does not wait.
    ///
    /// # Errors
    /// The driver failed.
    pub fn wait(&self, event: &Event) -> Result<(), Error> {
        self.stream.wait(&event.0).tried("waiting for an event")
    }

    /// Waits on the host until all work is done. Failures of kernels come to light here.
    ///
    /// # Errors
    /// Something that the stream did failed.
    pub fn finish(&self) -> Result<(), Error> {
        self.stream.synchronize().tried("finishing the work of a stream")
    }
}

/// The least and the greatest priority of streams; the greatest is the least number.
fn priorities(device: &Device) -> Result<(i32, i32), Error> {
    device.bind()?;
    get_priority_range().tried("asking for the priorities of streams")
}

/// An event in a stream.
pub struct Event(CudaEvent);

impl Event {
    /// An event that marks nothing yet.
    ///
    /// # Errors
    /// The driver failed.
    pub fn new(device: &Arc<Device>) -> Result<Event, Error> {
        Ok(Event(device.context().new_event(None).tried("making an event")?))
    }

    /// One that also knows the time.
    ///
    /// # Errors
    /// The driver failed.
    pub fn timed(device: &Arc<Device>) -> Result<Event, Error> {
        let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
        Ok(Event(device.context().new_event(flags).tried("making an event")?))
    }

    /// Waits on the host until what it marks is done.
    ///
    /// # Errors
    /// The driver failed.
    pub fn finish(&self) -> Result<(), Error> {
        self.0.synchronize().tried("waiting for an event")
    }

    /// True if what it marks is done, or has failed.
    pub fn is_done(&self) -> bool {
        self.0.try_is_complete().unwrap_or(true)
    }

    /// Seconds from this event to another, both timed and recorded; waits for both.
    ///
    /// # Errors
    /// The driver failed.
    pub fn seconds_to(&self, later: &Event) -> Result<f64, Error> {
        Ok(f64::from(self.0.elapsed_ms(&later.0).tried("reading a timer")?) / 1e3)
    }
}
