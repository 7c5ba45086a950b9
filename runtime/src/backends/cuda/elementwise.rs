//! Generated elementwise kernels, compiled and ready to launch.

use super::device::Device;
use super::error::{Error, Tried};
use super::stream::Stream;
use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use kernels::cuda::elementwise::{ADDS, WRITES, source};
use kernels::scalar::Program;

/// Threads of a block.
const BLOCK: u32 = 256;
/// Blocks of this size that a multiprocessor holds at a time: 2048 threads on compute capability 8.0 and 9.0 (CUDA C++
/// Programming Guide, "Technical Specifications per Compute Capability").
const BLOCKS: u32 = 8;
/// Elements that a thread takes at once.
const FOUR: usize = 4;

/// The kernels of a scalar program: one writes its results, one adds them.
pub struct Elementwise {
    writes: CudaFunction,
    adds: CudaFunction,
    inputs: usize,
    /// Blocks that fill the device.
    fill: u32,
}

impl Elementwise {
    /// Compiles a program for a device; the same program is compiled once.
    ///
    /// # Errors
    /// The program is broken, or its text does not compile.
    pub fn new(device: &Device, program: &Program) -> Result<Elementwise, Error> {
        let [writes, adds] = device.kernels(&source(program).map_err(Error::Program)?, [WRITES, ADDS])?;
        let fill = BLOCKS * device.properties().multiprocessors.max(1);
        Ok(Elementwise { writes, adds, inputs: program.inputs.len(), fill })
    }

    /// Computes `len` elements at `out` from the inputs.
    ///
    /// # Errors
    /// The driver refuses the launch.
    ///
    /// # Safety
    /// All addresses are in live arenas, aligned for their element types and long enough; no other stream works on them
    /// meanwhile; `out` overlaps an input only if it is that input and the program reads it in order.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        inputs: &[u64],
        out: u64,
        len: usize,
        accumulate: bool,
    ) -> Result<(), Error> {
        assert_eq!(inputs.len(), self.inputs, "one buffer per input of the program");
        if len == 0 {
            return Ok(());
        }
        let function = if accumulate { &self.adds } else { &self.writes };
        let n = len as u64;
        let mut launch = stream.stream().launch_builder(function);
        inputs.iter().for_each(|input| _ = launch.arg(input));
        launch.arg(&out).arg(&n);
        let needed = len.div_ceil(FOUR * BLOCK as usize);
        let blocks = u32::try_from(needed).map_or(self.fill, |needed| needed.min(self.fill));
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the arguments are those of the generated kernel; the rest is as the caller promises.
        unsafe { launch.launch(config) }.tried("launching an elementwise kernel").map(drop)
    }
}
