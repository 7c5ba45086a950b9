//! Kernels that are written by hand, compiled and ready to launch.

use super::device::Device;
use super::error::Error;
use super::fused::start;
use super::stream::Stream;
use cudarc::driver::CudaFunction;
use kernels::cuda::written::{BLOCK, Written};

/// A kernel that is written by hand.
pub(super) struct Text {
    function: CudaFunction,
    blocks: usize,
    is_random: bool,
    multiprocessors: u32,
}

impl Text {
    /// Compiles a text for a device; the same text is compiled once.
    ///
    /// # Errors
    /// It does not compile.
    pub(super) fn new(device: &Device, written: &Written) -> Result<Text, Error> {
        let multiprocessors = device.properties().multiprocessors.max(1);
        let function = device.kernel(&written.source, written.name)?;
        Ok(Text { function, blocks: written.blocks, is_random: written.is_random, multiprocessors })
    }

    /// Launches it on operands, results, and the results to which it adds.
    ///
    /// # Errors
    /// The driver refuses the launch.
    ///
    /// # Safety
    /// The buffers are those of the kernel: all addresses are in live arenas, aligned for their element types and long enough, results
    /// overlap nothing, and no other stream works on them meanwhile.
    pub(super) unsafe fn launch(
        &self,
        stream: &Stream,
        [operands, results]: &[Vec<u64>; 2],
        adds: u64,
        random: [u64; 3],
    ) -> Result<(), Error> {
        let mut list: Vec<&u64> = operands.iter().chain(results).chain([&adds]).collect();
        list.extend(random.iter().filter(|_| self.is_random));
        // SAFETY: the arguments are those that all texts have; the rest is as the caller promises.
        unsafe { start(stream, (&self.function, self.multiprocessors), (self.blocks, BLOCK as u32), &list) }
    }
}
