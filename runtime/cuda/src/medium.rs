//! Movement of data between the memories of ranks that share a GPU, by copies and kernels on streams.

use super::device::Device;
use super::error::{Error, Tried, must};
use super::fused::Grid;
use super::lower::element;
use super::marks::Marks;
use super::memory::Arena;
use super::runs::Runs;
use super::stream::{Event, Stream};
use comm::{Buffer, Exchange, FilledRows, Half, Medium, Move, PeerBuffers, TensorPlan, ThreadRole};
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig, PushKernelArg};
use device::backend::{Mark, Span};
use ir::types::{DType, PartialKind};
use kernels::cuda::exchange::{COMBINE, Combine, MOVE, MOVE_FILLED, MOVE_PIECES, PEERS, combining, moving};
use kernels::cuda::written::BLOCK;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// The memory of one GPU, of which each rank has an arena.
pub struct DeviceMemory {
    device: Arc<Device>,
    /// The streams of the rank's threads.
    streams: [Arc<Stream>; 2],
    marks: Arc<Marks>,
    /// Kernels by what they do.
    kernels: RefCell<HashMap<Kind, CudaFunction>>,
}

/// Work of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// Moves runs of a number of bytes.
    Move(usize),
    /// Moves runs of a number of bytes, of filled rows.
    MoveFilled(usize),
    /// Moves pieces in runs of a number of bytes.
    MovePieces(usize),
    /// Combines runs of a number of elements.
    Combine(DType, Combine, usize),
}

/// The addresses of the sources of a combination, as a kernel takes them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Peers([u64; PEERS]);

// SAFETY: plain numbers in the order of the kernel's struct.
unsafe impl DeviceRepr for Peers {}

impl DeviceMemory {
    /// The memory of a device, for a rank whose threads launch on these streams.
    pub(super) fn new(device: &Arc<Device>, streams: [Arc<Stream>; 2], marks: Arc<Marks>) -> DeviceMemory {
        DeviceMemory { device: device.clone(), streams, marks, kernels: RefCell::default() }
    }

    /// The kernel of a kind, compiled at first use.
    fn kernel(&self, kind: Kind) -> Result<CudaFunction, Error> {
        if let Some(known) = self.kernels.borrow().get(&kind) {
            return Ok(known.clone());
        }
        let kernel = match kind {
            Kind::Move(bytes) => self.device.kernel(&moving(bytes), MOVE, false)?,
            Kind::MoveFilled(bytes) => self.device.kernel(&moving(bytes), MOVE_FILLED, false)?,
            Kind::MovePieces(bytes) => self.device.kernel(&moving(bytes), MOVE_PIECES, false)?,
            Kind::Combine(dtype, combine, width) => {
                self.device.kernel(&combining(element(dtype), combine, width), COMBINE, false)?
            }
        };
        self.kernels.borrow_mut().insert(kind, kernel.clone());
        Ok(kernel)
    }

    fn config(&self, runs: usize) -> LaunchConfig {
        let block = BLOCK as u32;
        let multiprocessors = self.device.properties().multiprocessors.max(1);
        let blocks = Grid::filling(multiprocessors, runs.div_ceil(BLOCK), block).blocks;
        LaunchConfig { grid_dim: (blocks as u32, 1, 1), block_dim: (block, 1, 1), shared_mem_bytes: 0 }
    }

    /// Moves a block between tensors at two addresses.
    ///
    /// # Safety
    /// As of [`Stream::copy`].
    pub(super) unsafe fn move_block(
        &self,
        stream: &Stream,
        block: &Move,
        from: u64,
        to: u64,
        dtype: DType,
    ) -> Result<(), Error> {
        let size = dtype.bytes() as usize;
        let [from, to] = [from + (block.from * size) as u64, to + (block.to * size) as u64];
        let runs = Runs::of(block, size, [from, to].into_iter())?;
        if runs.count == 0 {
            return Ok(());
        }
        if runs.is_dense() {
            // SAFETY: as the caller promises.
            return unsafe { stream.copy(to, from, runs.count * runs.bytes) };
        }
        stream.bind()?;
        let (kernel, count) = (self.kernel(Kind::Move(runs.bytes))?, runs.count as u64);
        let mut launch = stream.stream().launch_builder(&kernel);
        launch.arg(&from).arg(&to).arg(&runs.block).arg(&count);
        // SAFETY: the arguments are those of the kernel; the rest is as the caller promises.
        unsafe { launch.launch(self.config(runs.count)) }.tried("launching a move").map(drop)
    }

    /// Moves the filled rows of a block's chunks, and makes the others zeros. The kernel reads their numbers when it runs, so the host waits
    /// for nothing.
    ///
    /// # Safety
    /// As of [`Stream::copy`].
    pub(super) unsafe fn move_filled(
        &self,
        stream: &Stream,
        (block, filled): (&Move, &FilledRows),
        [from, to, counts]: [u64; 3],
        dtype: DType,
    ) -> Result<(), Error> {
        let size = dtype.bytes() as usize;
        let [source, target] = [from + (block.from * size) as u64, to + (block.to * size) as u64];
        // A run is a part of a row.
        let runs = Runs::of(block, size, [source, target, (filled.width * size) as u64].into_iter())?;
        if runs.count == 0 {
            return Ok(());
        }
        stream.bind()?;
        let kernel = self.kernel(Kind::MoveFilled(runs.bytes))?;
        let [first, chunk, row] =
            [block.to, filled.chunk(), filled.width].map(|elements| (elements * size / runs.bytes) as u64);
        let count = runs.count as u64;
        let mut launch = stream.stream().launch_builder(&kernel);
        launch.arg(&source).arg(&target).arg(&runs.block).arg(&count).arg(&counts).arg(&first).arg(&chunk).arg(&row);
        // SAFETY: the arguments are those of the kernel; the rest is as the caller promises.
        unsafe { launch.launch(self.config(runs.count)) }.tried("launching a move of rows").map(drop)
    }

    /// Moves pieces of memory in runs of `width` bytes, by a table in the device's memory at an address.
    ///
    /// # Safety
    /// As of [`Stream::copy`], for each piece.
    pub(super) unsafe fn move_pieces(
        &self,
        stream: &Stream,
        (table, pieces): (u64, usize),
        width: usize,
    ) -> Result<(), Error> {
        if pieces == 0 {
            return Ok(());
        }
        stream.bind()?;
        let (kernel, count) = (self.kernel(Kind::MovePieces(width))?, pieces as u64);
        let mut launch = stream.stream().launch_builder(&kernel);
        launch.arg(&table).arg(&count);
        // SAFETY: the arguments are those of the kernel; the rest is as the caller promises. A block moves a piece at a time.
        unsafe { launch.launch(self.config(pieces * BLOCK)) }.tried("launching a move of pieces").map(drop)
    }

    /// Combines the blocks of all peers into a tensor.
    ///
    /// # Safety
    /// As of [`Stream::copy`].
    unsafe fn combine(
        &self,
        stream: &Stream,
        (plan, kind): (&TensorPlan, PartialKind),
        source: impl Fn(usize) -> u64,
        (to, dtype): (u64, DType),
    ) -> Result<(), Error> {
        let Some(first) = plan.moves.first() else { return Ok(()) };
        let size = dtype.bytes() as usize;
        let mut peers = Peers([0; PEERS]);
        for (place, block) in peers.0.iter_mut().zip(&plan.moves) {
            *place = source(block.peer) + (block.from * size) as u64;
        }
        let (sources, to) = (&peers.0[..plan.moves.len()], to + (first.to * size) as u64);
        let runs = Runs::of(first, size, sources.iter().copied().chain([to]))?;
        if runs.count == 0 {
            return Ok(());
        }
        let kind = match kind {
            PartialKind::Sum => Combine::Sum,
            PartialKind::Max => Combine::Max,
        };
        stream.bind()?;
        let kernel = self.kernel(Kind::Combine(dtype, kind, runs.bytes / size))?;
        let (count, ranks) = (runs.count as u64, sources.len() as u64);
        let mut launch = stream.stream().launch_builder(&kernel);
        launch.arg(&peers).arg(&to).arg(&runs.block).arg(&count).arg(&ranks);
        // SAFETY: the arguments are those of the kernel; the rest is as the caller promises.
        unsafe { launch.launch(self.config(runs.count)) }.tried("launching a sum of ranks").map(drop)
    }

    /// Makes a tensor of an exchange.
    ///
    /// # Safety
    /// As of [`Stream::copy`].
    unsafe fn pull(
        &self,
        stream: &Stream,
        plan: &TensorPlan,
        (source, own): (impl Fn(usize) -> u64, impl Fn(usize) -> u64),
        (to, span): (u64, Span),
    ) -> Result<(), Error> {
        // SAFETY: as the caller promises.
        unsafe {
            if let Some(filled) = &plan.filled {
                let counts = own(filled.counts[1]);
                return plan.moves.iter().try_for_each(|block| {
                    self.move_filled(stream, (block, filled), [source(block.peer), to, counts], span.dtype)
                });
            }
            if let Some(kind) = plan.combine {
                return self.combine(stream, (plan, kind), source, (to, span.dtype));
            }
            if plan.zero && span.len > 0 {
                stream.fill(to, 0, span.bytes())?;
            }
            let mut moves = plan.moves.iter();
            moves.try_for_each(|block| self.move_block(stream, block, source(block.peer), to, span.dtype))
        }
    }
}

/// The address of a tensor.
pub(super) fn at(memory: &Arena, span: Span) -> u64 {
    memory.address(span.offset, span.bytes())
}

impl Medium for DeviceMemory {
    type Memory = Arena;
    type Event = Event;
    type Stream = Arc<Stream>;

    fn fork(&self) -> DeviceMemory {
        DeviceMemory::new(&self.device, self.streams.clone(), self.marks.clone())
    }

    fn event(&self) -> Result<Event, String> {
        Event::new(&self.device).map_err(|why| why.to_string())
    }

    fn stream(&self) -> Result<Arc<Stream>, String> {
        Stream::urgent(&self.device).map(Arc::new).map_err(|why| why.to_string())
    }

    fn stream_of(&self, role: ThreadRole) -> Arc<Stream> {
        self.streams[role as usize].clone()
    }

    fn record(&self, stream: &Arc<Stream>, event: &Event) {
        must(stream.record(event));
    }

    fn wait(&self, stream: &Arc<Stream>, event: &Event) {
        must(stream.wait(event));
    }

    fn mark(&self, stream: &Arc<Stream>) -> Option<Mark> {
        must(self.marks.mark(stream))
    }

    unsafe fn exchange<'a>(
        &self,
        stream: &Arc<Stream>,
        plan: &Exchange,
        half: Half,
        me: usize,
        peer: impl Fn(usize) -> PeerBuffers<'a, Arena>,
    ) -> Option<u64> {
        let own = |source: usize| at(peer(me).memory, peer(me).sources[source]);
        for (index, plan) in plan.tensors.iter().enumerate() {
            let source = |place: usize| at(peer(place).memory, peer(place).sources[index]);
            let result = |place: usize| at(peer(place).memory, peer(place).results[index]);
            let (to, span) = (result(me), peer(me).results[index]);
            let mut pieces = plan.gather.iter();
            // SAFETY: by the caller's contract; gathered pieces are of different arenas.
            must(unsafe {
                match half {
                    Half::Pull => self.pull(stream, plan, (source, own), (to, span)),
                    Half::Gather => {
                        pieces.try_for_each(|piece| self.move_block(stream, piece, result(piece.peer), to, span.dtype))
                    }
                }
            });
        }
        None
    }

    unsafe fn copy(&self, stream: &Arc<Stream>, to: Buffer<'_, Arena>, from: Buffer<'_, Arena>) {
        if from.span.len > 0 {
            // SAFETY: by the caller's contract.
            must(unsafe { stream.copy(at(to.memory, to.span), at(from.memory, from.span), from.span.bytes()) });
        }
    }
}
