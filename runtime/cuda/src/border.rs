//! The border of a step in pinned memory: what is staged for feeds, and the scalars that were reported. The device reads and writes it
//! by itself.

use super::device::Device;
use super::error::Error;
use super::memory::Pinned;
use super::stream::Stream;
use device::backend::Span;
use device::host::numbers;
use ir::types::DType;
use std::sync::Arc;

/// Bytes of a reported scalar, of any type.
const SCALAR: usize = 8;

/// Data of feeds and reported scalars, by their numbers.
pub(super) struct Border {
    device: Arc<Device>,
    /// Data of each feed, and its bytes.
    staged: Vec<(Pinned, usize)>,
    reported: Pinned,
    /// The types of the reported scalars.
    dtypes: Vec<DType>,
}

impl Border {
    /// A border that nothing has passed.
    ///
    /// # Errors
    /// The host has no memory to pin.
    pub(super) fn new(device: &Arc<Device>) -> Result<Border, Error> {
        let reported = Pinned::new(device, 0)?;
        Ok(Border { device: device.clone(), staged: Vec::new(), reported, dtypes: Vec::new() })
    }

    /// Takes the data of a feed. The device has read what was staged before.
    ///
    /// # Errors
    /// The host has no memory to pin.
    pub(super) fn stage(&mut self, feed: usize, data: &[u8]) -> Result<(), Error> {
        while self.staged.len() <= feed {
            self.staged.push((Pinned::new(&self.device, 0)?, 0));
        }
        let (pinned, bytes) = &mut self.staged[feed];
        if pinned.bytes().len() < data.len() {
            *pinned = Pinned::new(&self.device, data.len())?;
        }
        pinned.bytes_mut()[..data.len()].copy_from_slice(data);
        *bytes = data.len();
        Ok(())
    }

    /// The data of a feed.
    ///
    /// # Panics
    /// If nothing was staged for it.
    pub(super) fn staged(&self, feed: usize) -> &[u8] {
        let (pinned, bytes) = &self.staged[feed];
        &pinned.bytes()[..*bytes]
    }

    /// Lets a stream keep a scalar at an address.
    ///
    /// # Errors
    /// The driver failed, or the host has no memory to pin.
    ///
    /// # Safety
    /// The address is that of the scalar in a live arena.
    pub(super) unsafe fn report(&mut self, stream: &Stream, out: usize, from: Span, at: u64) -> Result<(), Error> {
        let bytes = (out + 1) * SCALAR;
        if self.reported.bytes().len() < bytes {
            // Scalars that are on their way have a place until they are there.
            stream.finish()?;
            let mut longer = Pinned::new(&self.device, bytes)?;
            longer.bytes_mut()[..self.reported.bytes().len()].copy_from_slice(self.reported.bytes());
            self.reported = longer;
            self.dtypes.resize(out + 1, DType::F32);
        }
        self.dtypes[out] = from.dtype;
        let to = &mut self.reported.bytes_mut()[out * SCALAR..][..from.bytes()];
        // SAFETY: as the caller promises; `reports` reads the scalars when the stream is done.
        unsafe { stream.download(to, at) }
    }

    /// The scalars that were reported, when the stream is done.
    ///
    /// # Errors
    /// Something that the stream did failed.
    ///
    /// # Panics
    /// If there are fewer.
    pub(super) fn reports(&self, stream: &Stream, outs: &mut [f32]) -> Result<(), Error> {
        stream.finish()?;
        for ((out, dtype), scalar) in outs.iter_mut().zip(&self.dtypes).zip(self.reported.bytes().chunks(SCALAR)) {
            *out = numbers(*dtype, &scalar[..dtype.bytes() as usize])[0];
        }
        assert!(self.dtypes.len() >= outs.len(), "a scalar for each out");
        Ok(())
    }
}
