//! Copies between host and device through two pinned buffers: the device processes one buffer while the host processes the
//! other.

use super::device::Device;
use super::error::Error;
use super::memory::Pinned;
use super::stream::{Event, Stream};
use std::sync::Arc;

/// Bytes of a buffer: long enough that a transfer takes many times what it costs to start one, some 10 microseconds.
pub(super) const BUFFER: usize = 4 << 20;

/// The two buffers.
pub struct Staging {
    buffers: [(Pinned, Event); 2],
}

impl Staging {
    /// New buffers.
    ///
    /// # Errors
    /// The host has no memory to pin.
    pub fn new(device: &Arc<Device>) -> Result<Staging, Error> {
        let buffer = || Ok::<_, Error>((Pinned::new(device, BUFFER)?, Event::new(device)?));
        Ok(Staging { buffers: [buffer()?, buffer()?] })
    }

    /// Copies to the device on a stream. `from` has been read when this returns; the device may still be copying.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// `to` has space for all bytes in a live arena, and no other stream works on them meanwhile.
    pub unsafe fn write(&mut self, stream: &Stream, to: u64, from: &[u8]) -> Result<(), Error> {
        for (i, part) in from.chunks(BUFFER).enumerate() {
            let (buffer, event) = &mut self.buffers[i % 2];
            event.finish()?;
            buffer.bytes_mut()[..part.len()].copy_from_slice(part);
            // SAFETY: as the caller promises; the buffer is written again only after its event.
            unsafe { stream.upload(to + (i * BUFFER) as u64, &buffer.bytes()[..part.len()])? };
            stream.record(event)?;
        }
        Ok(())
    }

    /// Copies from the device on a stream and waits for it.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// `from` has all bytes in a live arena, and no other stream works on them meanwhile.
    pub unsafe fn read(&mut self, stream: &Stream, to: &mut [u8], from: u64) -> Result<(), Error> {
        let parts = to.len().div_ceil(BUFFER);
        for i in 0..=parts {
            if i < parts {
                let len = BUFFER.min(to.len() - i * BUFFER);
                let (buffer, event) = &mut self.buffers[i % 2];
                event.finish()?;
                // SAFETY: as the caller promises; the buffer is read and written again only after its event.
                unsafe { stream.download(&mut buffer.bytes_mut()[..len], from + (i * BUFFER) as u64)? };
                stream.record(event)?;
            }
            if let Some(last) = i.checked_sub(1) {
                let (buffer, event) = &self.buffers[last % 2];
                event.finish()?;
                let part = &mut to[last * BUFFER..];
                let len = part.len().min(BUFFER);
                part[..len].copy_from_slice(&buffer.bytes()[..len]);
            }
        }
        Ok(())
    }
}

impl Drop for Staging {
    /// The device may still be reading a buffer.
    fn drop(&mut self) {
        for (_, event) in &self.buffers {
            // Nobody could handle a failure.
            let _ = event.finish();
        }
    }
}
