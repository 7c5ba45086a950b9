//! CUDA graphs: the work that streams were given once, which the device repeats by itself.

use super::error::{Error, Tried};
use super::stream::Stream;
use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

/// Work to be repeated.
pub struct StepGraph(CudaGraph);

// SAFETY: CUDA asks that one thread at a time uses a graph, as the exclusive borrow ensures; it may be any thread.
unsafe impl Send for StepGraph {}

impl StepGraph {
    /// Does the work again, after all that its stream has been given. Whatever the host gave to the work lies in memory that it has at the
    /// time.
    ///
    /// # Errors
    /// The driver failed.
    pub fn launch(&mut self) -> Result<(), Error> {
        self.0.launch().tried("launching a graph")
    }
}

impl Stream {
    /// Keeps work from here on to [`end_capture`](Stream::end_capture), that of other streams included that wait for it, and does none.
    ///
    /// # Errors
    /// The driver failed.
    pub fn begin_capture(&self) -> Result<(), Error> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream().begin_capture(mode).tried("capturing a stream")
    }

    /// The work that was kept. This stream waits for the last work of each other one.
    ///
    /// # Errors
    /// The driver failed, or something was asked of it that cannot be kept.
    pub fn end_capture(&self) -> Result<StepGraph, Error> {
        let graph = self.stream().end_capture(CUgraphInstantiate_flags(0)).tried("making a graph")?;
        graph.map(StepGraph).ok_or(Error::Driver { what: "making a graph", why: "no work was captured".to_string() })
    }
}
