//! Kernels that are written by hand, compiled and ready to launch.

use super::device::Device;
use super::error::{Error, Tried};
use super::fused::{Grid, start};
use super::stream::Stream;
use cudarc::driver::CudaFunction;
use cudarc::driver::sys::CUfunction_attribute as Attribute;
use kernels::cuda::written::Written;

/// A kernel that is written by hand.
pub(super) struct Text {
    function: CudaFunction,
    blocks: usize,
    threads: u32,
    shared: u32,
    is_random: bool,
    multiprocessors: u32,
}

impl Text {
    /// Compiles a text for a device; the same text is compiled once.
    ///
    /// # Errors
    /// It does not compile, or needs more shared memory than the device has.
    pub(super) fn new(device: &Device, written: &Written) -> Result<Text, Error> {
        let &Written { blocks, threads, shared, is_random, .. } = written;
        let multiprocessors = device.properties().multiprocessors.max(1);
        let function = device.kernel(&written.source, written.name, written.contracts)?;
        if shared > 0 {
            let most = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(most, shared as i32).tried("allowing a kernel its shared memory")?;
        }
        Ok(Text { function, blocks, threads: threads as u32, shared: shared as u32, is_random, multiprocessors })
    }

    /// Blocks with shared memory take unequally long: the device deals all of them.
    fn grid(&self) -> Grid {
        match self.shared {
            0 => Grid::filling(self.multiprocessors, self.blocks, self.threads),
            shared => Grid { blocks: self.blocks, threads: self.threads, shared },
        }
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
        unsafe { start(stream, &self.function, self.grid(), &list) }
    }
}
