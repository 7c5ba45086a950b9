//! Kernels of programs, compiled and ready to launch.

use super::device::Device;
use super::error::{Error, Tried};
use super::stream::Stream;
use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use kernels::cuda::kernel::{CHUNKS, GROUP, Kernel, SLICES, WARP};
use kernels::group::Program;

/// Columns of a block that adds up chunks, and its threads.
const COLUMNS: usize = WARP;
const BLOCK: u32 = (WARP * SLICES) as u32;
/// Threads that a multiprocessor holds at a time on compute capability 8.0 and 9.0 (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability").
const RESIDENT: u32 = 2048;
/// The most blocks of a grid (the same table).
const MOST_BLOCKS: u32 = (1 << 31) - 1;

/// The kernels of a program.
pub struct Fused {
    kernel: Kernel,
    group: CudaFunction,
    chunks: Option<CudaFunction>,
    /// By out, true if it is a sum over rows.
    sums: Vec<bool>,
    /// The elements of all sums.
    columns: usize,
    inputs: usize,
    /// True if launches may add to outs that are no sums.
    adds: bool,
    is_random: bool,
    multiprocessors: u32,
}

/// The buffers of a launch, by their addresses.
#[derive(Clone, Copy, Debug)]
pub struct Buffers<'a> {
    /// The inputs'.
    pub inputs: &'a [u64],
    /// The outs'.
    pub outs: &'a [u64],
    /// The address of the sums of chunks.
    pub partials: u64,
}

/// Arguments of a launch besides its buffers.
#[derive(Clone, Copy, Default, Debug)]
pub struct LaunchArgs {
    /// The number of elements, if the kernel goes by elements.
    pub elements: usize,
    /// Bit `i` is 1 if out `i` is added to what is there.
    pub adds: u64,
    /// The address of the seed and the step, the micro-batch, and the index.
    pub random: [u64; 3],
}

impl Fused {
    /// Compiles a program for a device; the same text is compiled once.
    ///
    /// # Errors
    /// The program is broken, needs several kernels, or its text does not compile.
    pub fn new(device: &Device, program: &Program) -> Result<Fused, Error> {
        let kernel = Kernel::new(program).map_err(Error::Program)?;
        let sums: Vec<bool> = program.outs.iter().map(|out| out.columns.is_some()).collect();
        let group = device.kernel(&kernel.source, GROUP, false)?;
        let chunks = sums.contains(&true).then(|| device.kernel(&kernel.source, CHUNKS, false)).transpose()?;
        Ok(Fused {
            group,
            chunks,
            sums,
            columns: program.outs.iter().filter_map(|out| out.columns).sum(),
            inputs: program.inputs().count(),
            adds: program.outs.iter().any(|out| out.adds && out.columns.is_none()),
            is_random: program.is_random(),
            multiprocessors: device.properties().multiprocessors.max(1),
            kernel,
        })
    }

    /// Computes the outs from the inputs.
    ///
    /// # Errors
    /// The driver refuses the launch.
    ///
    /// # Safety
    /// All addresses are in live arenas, aligned for their element types and long enough; no other stream works on them
    /// meanwhile. An out overlaps an input only if it is that input, and [`Kernel::apart`] does not name the input; no out
    /// overlaps another one.
    pub unsafe fn launch(&self, stream: &Stream, buffers: Buffers<'_>, args: LaunchArgs) -> Result<(), Error> {
        let Buffers { inputs, outs, partials } = buffers;
        assert_eq!([inputs.len(), outs.len()], [self.inputs, self.sums.len()], "a buffer for each input and out");
        let elements = args.elements as u64;
        let (each, summed): (Vec<_>, Vec<_>) = outs.iter().zip(&self.sums).partition(|(_, is_sum)| !**is_sum);
        let mut list: Vec<&u64> = inputs.iter().chain(each.iter().map(|(out, _)| *out)).collect();
        list.extend(self.chunks.as_ref().map(|_| &partials));
        list.extend(self.kernel.shape.elements.map(|_| &elements));
        list.extend(self.adds.then_some(&args.adds));
        list.extend(args.random.iter().filter(|_| self.is_random));
        let block = self.kernel.shape.block;
        // SAFETY: the arguments are those of the generated kernel; the rest is as the caller promises.
        unsafe {
            start(
                stream,
                &self.group,
                Grid::filling(self.multiprocessors, self.kernel.blocks(args.elements), block),
                &list,
            )?;
        };
        let Some(chunks) = &self.chunks else { return Ok(()) };
        let list: Vec<&u64> =
            std::iter::once(&partials).chain(summed.iter().map(|(out, _)| *out)).chain([&args.adds]).collect();
        let grid = Grid::filling(self.multiprocessors, self.columns.div_ceil(COLUMNS), BLOCK);
        // SAFETY: as above.
        unsafe { start(stream, chunks, grid, &list) }
    }
}

/// The blocks of a launch.
pub(super) struct Grid {
    pub(super) blocks: usize,
    pub(super) threads: u32,
    /// Bytes of dynamic shared memory of each.
    pub(super) shared: u32,
}

impl Grid {
    /// As many of the blocks that have work as the device holds at a time.
    pub(super) fn filling(multiprocessors: u32, blocks: usize, threads: u32) -> Grid {
        let most = multiprocessors * (RESIDENT / threads).max(1);
        Grid { blocks: blocks.min(most as usize), threads, shared: 0 }
    }
}

/// Launches a kernel.
///
/// # Errors
/// The driver refuses the launch.
///
/// # Safety
/// The arguments are those of the kernel.
pub(super) unsafe fn start(stream: &Stream, function: &CudaFunction, grid: Grid, list: &[&u64]) -> Result<(), Error> {
    if grid.blocks == 0 {
        return Ok(());
    }
    let mut launch = stream.stream().launch_builder(function);
    list.iter().for_each(|arg| _ = launch.arg(*arg));
    let blocks = u32::try_from(grid.blocks).unwrap_or(MOST_BLOCKS).min(MOST_BLOCKS);
    let config =
        LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (grid.threads, 1, 1), shared_mem_bytes: grid.shared };
    // SAFETY: as the caller promises.
    unsafe { launch.launch(config) }.tried("launching a kernel").map(drop)
}
