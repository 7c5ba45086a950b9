//! Device memory and pinned host memory, each allocated in one block.

use super::device::Device;
use super::error::{Error, Tried};
use super::stream::Stream;
use cudarc::driver::result;
use std::ffi::c_void;
use std::sync::Arc;

/// A piece of device memory; its first byte is aligned to 256.
pub struct Arena {
    device: Arc<Device>,
    base: u64,
    bytes: usize,
}

impl Arena {
    /// So many bytes, whatever they hold.
    ///
    /// # Errors
    /// Fewer bytes are free.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Arena, Error> {
        device.bind()?;
        let (free, total) = device.memory()?;
        if bytes > free {
            return Err(Error::Memory { asked: bytes, free, total });
        }
        // The driver gives no piece of no bytes. SAFETY: the context is bound; who reads memory has written it.
        let base = unsafe { result::malloc_sync(bytes.max(1)) }.tried("taking device memory")?;
        Ok(Arena { device: device.clone(), base, bytes })
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of a run of bytes.
    ///
    /// # Panics
    /// If they are not within the arena.
    pub fn address(&self, offset: usize, bytes: usize) -> u64 {
        assert!(offset + bytes <= self.bytes, "{bytes} bytes at {offset} do not lie in an arena of {}", self.bytes);
        self.base + offset as u64
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: taken by `malloc_sync`, given back once; the driver waits for work that uses it. A device that has failed
        // gives nothing back, and nobody could handle the error.
        let _ = self.device.bind().map(|()| unsafe { result::free_sync(self.base) });
    }
}

/// Host memory that the system never moves, so that the device can read and write it by itself.
pub struct Pinned {
    device: Arc<Device>,
    start: *mut c_void,
    bytes: usize,
}

// SAFETY: it owns its memory, and lends it as slices do.
unsafe impl Send for Pinned {}

impl Pinned {
    /// So many bytes of zero.
    ///
    /// # Errors
    /// The host cannot pin that number of bytes.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Pinned, Error> {
        device.bind()?;
        // SAFETY: the context is bound.
        let start = unsafe { result::malloc_host(bytes.max(1), 0) }.tried("pinning host memory")?;
        // SAFETY: the piece is that long.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        Ok(Pinned { device: device.clone(), start, bytes })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the piece is that long and was written; it is aligned to a page.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.bytes) }
    }

    /// Its bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: taken by `malloc_host`, given back once. As for `Arena`, nobody could handle a failure.
        let _ = self.device.bind().map(|()| unsafe { result::free_host(self.start) });
    }
}

impl Stream {
    /// Copies bytes from one place in device memory to another; they do not overlap.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// Both runs are in live arenas, and no other stream works on them meanwhile.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: as the caller promises.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream().cu_stream()) }.tried("copying on the device")
    }

    /// Sets bytes in device memory.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// As of [`Stream::copy`].
    pub unsafe fn fill(&self, to: u64, byte: u8, bytes: usize) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: as the caller promises.
        unsafe { result::memset_d8_async(to, byte, bytes, self.stream().cu_stream()) }.tried("filling device memory")
    }

    /// Copies from the host. From pinned memory the host goes on at once, otherwise when the bytes have been read.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// As of [`Stream::copy`]; pinned memory is not written before the stream is done with it.
    pub unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: as the caller promises.
        unsafe { result::memcpy_htod_async(to, from, self.stream().cu_stream()) }.tried("copying to the device")
    }

    /// Copies to the host. The bytes are there when the stream is done.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// As of [`Stream::copy`]; the host's bytes are not touched before the stream is done with them.
    pub unsafe fn download(&self, to: &mut [u8], from: u64) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: as the caller promises.
        unsafe { result::memcpy_dtoh_async(to, from, self.stream().cu_stream()) }.tried("copying to the host")
    }
}
