//! Execution of an exchange by NCCL: blocks are packed, the calls move them, and what has come is unpacked, all in one stream.

use super::super::error::Error;
use super::super::medium::{DeviceMemory, at};
use super::super::memory::Arena;
use super::super::stream::Stream;
use super::communicator::Communicator;
use comm::{CallPlace, EngineExchange, StagedBlock};
use device::backend::Span;

/// The tensors of an exchange and the memories that they are in.
#[derive(Clone, Copy)]
pub(super) struct Buffers<'a> {
    pub(super) arena: &'a Arena,
    pub(super) staging: &'a Arena,
    pub(super) sources: &'a [Span],
    pub(super) results: &'a [Span],
}

impl Buffers<'_> {
    pub(super) fn source(&self, tensor: usize) -> u64 {
        at(self.arena, self.sources[tensor])
    }

    pub(super) fn result(&self, tensor: usize) -> u64 {
        at(self.arena, self.results[tensor])
    }

    /// The address of a place of a call.
    pub(super) fn address(&self, place: CallPlace) -> u64 {
        let part = |start: u64, span: &Span, element: usize| start + (element * span.dtype.bytes() as usize) as u64;
        match place {
            CallPlace::Source(tensor, element) => part(self.source(tensor), &self.sources[tensor], element),
            CallPlace::Result(tensor, element) => part(self.result(tensor), &self.results[tensor], element),
            CallPlace::Staging(byte) => self.staging.address(byte, 0),
        }
    }
}

impl DeviceMemory {
    /// Gives a stream an exchange.
    ///
    /// # Errors
    /// The driver or NCCL failed, or the communicator has ended.
    ///
    /// # Safety
    /// While the stream works on it, nobody writes the sources or touches the results, and nothing else uses the staging memory.
    pub(super) unsafe fn give(
        &self,
        stream: &Stream,
        (plan, communicator): (&EngineExchange, &Communicator),
        buffers: Buffers<'_>,
    ) -> Result<(), Error> {
        let dtype = |tensor: usize| buffers.sources[tensor].dtype;
        // SAFETY: as the caller promises.
        unsafe {
            for StagedBlock { tensor, at, block } in &plan.packs {
                let to = buffers.staging.address(*at, 0);
                self.move_block(stream, block, buffers.source(*tensor), to, dtype(*tensor))?;
            }
            for (tensor, block) in &plan.own {
                self.move_block(stream, block, buffers.source(*tensor), buffers.result(*tensor), dtype(*tensor))?;
            }
            if !plan.calls.is_empty() {
                communicator
                    .give(stream, plan.calls.iter().map(|call| call.addressed(|place| buffers.address(place))))?;
            }
            for StagedBlock { tensor, at, block } in &plan.unpacks {
                let from = buffers.staging.address(*at, 0);
                self.move_block(stream, block, from, buffers.result(*tensor), dtype(*tensor))?;
            }
        }
        Ok(())
    }
}
