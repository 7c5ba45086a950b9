//! Device interface: reserve an arena, prepare a kernel once for a rank's shapes, and launch it many times on spans of the
//! arena.

use ir::entity::PrimaryMap;
use ir::fused::Fused;
use ir::graph::ValueData;
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::ops::{KernelOp, Rows};
use ir::types::{DType, Type};
use std::time::Instant;

/// A tensor's place in a rank's arena.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// Bytes from the start of the arena.
    pub offset: usize,
    /// Elements.
    pub len: usize,
    /// Their type.
    pub dtype: DType,
}

impl Span {
    /// A place of `len` elements.
    pub fn new(dtype: DType, offset: usize, len: usize) -> Span {
        Span { offset, len, dtype }
    }

    /// Its size in bytes.
    ///
    /// # Panics
    /// If it is larger than memory can be.
    pub fn bytes(self) -> usize {
        self.len.checked_mul(self.dtype.bytes() as usize).expect("a tensor is smaller than memory can be")
    }

    /// Some of its elements.
    ///
    /// # Panics
    /// If it has not as many.
    pub fn part(self, start: usize, len: usize) -> Span {
        assert!(start + len <= self.len, "a piece is within the tensor");
        Span { offset: self.offset + start * self.dtype.bytes() as usize, len, ..self }
    }

    /// True if both have an element.
    pub fn meets(self, other: Span) -> bool {
        self.len > 0 && other.len > 0 && self.offset < other.end() && other.offset < self.end()
    }

    fn end(self) -> usize {
        self.offset + self.bytes()
    }
}

/// Types of a statement and coordinates of a rank, from which local shapes and origins follow.
#[derive(Clone, Copy)]
pub struct KernelSite<'a> {
    /// The mesh.
    pub mesh: &'a Mesh,
    /// The coordinates of the rank.
    pub coordinates: &'a [u64],
    /// Types of the operands.
    pub operands: &'a [&'a Type],
    /// Types of the results.
    pub results: &'a [&'a Type],
    /// True if it is in a forward: expert choices are counted there only, so once.
    pub forward: bool,
}

/// A group of statements, with the shapes of each on one rank.
pub struct GroupSite<'a> {
    /// The statements, in order.
    pub stmts: Vec<GroupStmt<'a>>,
}

/// A rank, and the values whose types it has shares of.
#[derive(Clone, Copy)]
pub struct GroupPlace<'a> {
    /// The values of the statements.
    pub values: &'a PrimaryMap<Value, ValueData>,
    /// The mesh.
    pub mesh: &'a Mesh,
    /// The coordinates of the rank.
    pub coordinates: &'a [u64],
    /// True if they are in a forward.
    pub forward: bool,
}

impl GroupSite<'_> {
    /// Calls with a group of statements on a rank. The operands of the group are what they read, in order of first use; its results are
    /// what it leaves.
    ///
    /// # Errors
    /// A statement has no kernel, or what the call gives.
    pub fn with<R>(
        fused: &Fused,
        at: GroupPlace<'_>,
        call: impl FnOnce(&GroupSite<'_>) -> Result<R, String>,
    ) -> Result<R, String> {
        let values = GroupValues { reads: fused.reads(), interior: fused.interior().collect(), outs: &fused.outs };
        let sides = fused.stmts.iter().map(|stmt| [&stmt.operands, &stmt.results]);
        let types = sides.map(|sides| sides.map(|side| side.iter().map(|&value| &at.values[value].ty).collect()));
        let types: Vec<[Vec<&Type>; 2]> = types.collect();
        let mut stmts = Vec::new();
        for (stmt, [operands, results]) in fused.stmts.iter().zip(&types) {
            let op = stmt.op.kernel().ok_or_else(|| format!("`{}` has no kernel", stmt.op.name()))?;
            let GroupPlace { mesh, coordinates, forward, .. } = at;
            let site = KernelSite { mesh, coordinates, operands, results, forward };
            let [operands, results] =
                [&stmt.operands, &stmt.results].map(|side| side.iter().map(|&value| values.place(value)).collect());
            stmts.push(GroupStmt { op, site, operands, results, accumulate: stmt.accumulate });
        }
        call(&GroupSite { stmts })
    }
}

/// The values of a group of statements by what they are to it.
struct GroupValues<'a> {
    reads: Vec<Value>,
    interior: Vec<Value>,
    outs: &'a [Value],
}

impl GroupValues<'_> {
    fn place(&self, value: Value) -> GroupValue {
        let [interior, out, read] =
            [&self.interior, self.outs, &self.reads].map(|list| list.iter().position(|&other| other == value));
        match (interior, out) {
            (Some(at), _) => GroupValue::Interior(at),
            (None, Some(at)) => GroupValue::Result(at),
            (None, None) => GroupValue::Operand(read.unwrap_or_default()),
        }
    }
}

/// A statement of a group.
pub struct GroupStmt<'a> {
    /// Its op.
    pub op: &'a KernelOp,
    /// Its types.
    pub site: KernelSite<'a>,
    /// Its operands.
    pub operands: Vec<GroupValue>,
    /// Its results.
    pub results: Vec<GroupValue>,
    /// `+=`: its result is a gradient sum.
    pub accumulate: bool,
}

impl<'a> GroupStmt<'a> {
    /// An op as the only statement of a group.
    pub fn alone(op: &'a KernelOp, site: KernelSite<'a>) -> GroupStmt<'a> {
        let operands = (0..site.operands.len()).map(GroupValue::Operand).collect();
        let results = (0..site.results.len()).map(GroupValue::Result).collect();
        GroupStmt { op, site, operands, results, accumulate: false }
    }

    /// True for a loss, whose rows are those of its operands.
    pub fn is_loss(&self) -> bool {
        matches!(self.op, KernelOp::CrossEntropy(_))
    }

    /// How rows of its results follow from rows of its operands.
    ///
    /// # Errors
    /// The op does not treat rows alike.
    pub fn rows(&self) -> Result<Rows, String> {
        if self.is_loss() {
            return Ok(Rows::last(self.site.operands, &[true; 2]));
        }
        let law = self.op.def().rows(self.site.operands);
        law.ok_or_else(|| format!("`{}` does not treat rows alike", self.op.def().name()))
    }
}

/// A value of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupValue {
    /// An operand of the group, by its number.
    Operand(usize),
    /// A result of the group, by its number.
    Result(usize),
    /// A value that only the group has, by its number.
    Interior(usize),
}

/// The place of a launch in a step. With [`Backend::begin_step`], dropout is a function of these numbers and of logical indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaunchSite {
    /// The micro-batch within the step, from 0.
    pub microbatch: u64,
    /// The repeat's variable of the run of the block, 0 outside a repeat.
    pub index: u64,
}

/// A tensor and the place of its copy in host memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostCopy {
    /// The tensor.
    pub span: Span,
    /// Bytes from the start of host memory.
    pub host: usize,
}

/// The direction of a copy between a device and its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostDirection {
    /// To the host.
    Offload,
    /// Back to the device.
    Load,
}

/// A point in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A time of the host's clock.
    Host(Instant),
    /// A point in the work of a device, by its number among those of the step. [`Backend::take_times`] tells its time.
    Device(usize),
}

/// The memory of a rank, seen from the host: elements as they are stored, little-endian.
pub trait Memory {
    /// Copies from the host.
    ///
    /// # Panics
    /// If `data` has not the bytes of the place.
    fn write(&mut self, to: Span, data: &[u8]);

    /// Copies to the host, when all that was launched before is done.
    ///
    /// # Panics
    /// If `data` has not the bytes of the place.
    fn read(&mut self, from: Span, data: &mut [u8]);

    /// Writes a place of the rank's host memory ([`Backend::reserve_host`]).
    ///
    /// # Panics
    /// As [`write`](Memory::write), or if no host memory was reserved.
    fn write_host(&mut self, to: Span, data: &[u8]);

    /// Reads a place of the rank's host memory, when all that was launched before is done.
    ///
    /// # Panics
    /// As [`read`](Memory::read), or if no host memory was reserved.
    fn read_host(&mut self, from: Span, data: &mut [u8]);
}

/// A device, as one thread of a rank uses it. The threads of a rank have a backend each, and share the arena.
///
/// Places are trusted: the checker of programs ensures that no two live tensors overlap. What a step takes from the host
/// and gives to it passes at its borders: [`stage`](Backend::stage) and [`begin_step`](Backend::begin_step) come before the
/// first launch, [`reports`](Backend::reports) after the last. A device can thus run all that lies between by itself:
/// [`begin_recording`](Backend::begin_recording) keeps it, and [`replay`](Backend::replay) repeats it.
pub trait Backend: Memory + Sized + Send {
    /// A kernel made ready for the shapes of one statement on one rank.
    type Kernel: Send;

    /// True if a launch returns before its work is done. Work of different threads of a rank is then ordered by events alone.
    const RUNS_LATE: bool;

    /// Takes the memory of the rank; the first thing asked of it.
    ///
    /// # Errors
    /// There is not so much.
    fn reserve(&mut self, bytes: usize) -> Result<(), String>;

    /// Takes host memory for tensors that are offloaded, before there are forks.
    ///
    /// # Errors
    /// There is not so much.
    fn reserve_host(&mut self, bytes: usize) -> Result<(), String>;

    /// Copies tensors to host memory or back: after all that the thread has launched, and concurrently with what it launches next.
    /// The first event is recorded before the copies, the second after them; who reads the copies waits for the second. Returns
    /// when they start and end, of a step that is timed.
    fn copy_host(&mut self, copies: &[HostCopy], direction: HostDirection, events: [usize; 2]) -> [Mark; 2];

    /// A backend for another thread of the same rank, on the same arena and with the same steps.
    ///
    /// # Errors
    /// The device has no more.
    fn fork(&self) -> Result<Self, String>;

    /// Records an event behind all that the thread has launched. Events are numbered from 0, and those of all forks are the same.
    fn record(&mut self, event: usize);

    /// Holds what the thread launches from here on until the work before a recorded event is done.
    fn wait(&mut self, event: usize);

    /// Says whether the device times the coming step, on all forks and in exchanges. A backend that runs at once has the host's clock.
    fn set_timing(&mut self, _is_timed: bool) {}

    /// The point behind all that the thread has launched, of a step that is timed.
    fn mark(&mut self) -> Mark {
        Mark::Host(Instant::now())
    }

    /// The times of the device's marks since the last call, by their numbers. All that was launched before them is done.
    fn take_times(&mut self) -> Vec<Instant> {
        Vec::new()
    }

    /// Makes an op ready.
    ///
    /// # Errors
    /// The op cannot run on these types.
    fn prepare(&mut self, op: &KernelOp, site: &KernelSite<'_>) -> Result<Self::Kernel, String>;

    /// Makes a group of statements ready. Its launch has the operands and results of the group.
    ///
    /// # Errors
    /// A statement cannot run on its types.
    fn prepare_group(&mut self, site: &GroupSite<'_>) -> Result<Self::Kernel, String>;

    /// Launches again all that was recorded under a number, and tells whether anything was.
    fn replay(&mut self, recording: usize) -> bool;

    /// Records what all threads of the rank launch from here on, and does none of it. Tells whether the device can. What is launched must
    /// have been launched before, so that nothing is made ready on the way.
    fn begin_recording(&mut self) -> bool;

    /// Ends the recording, keeps it under a number, and launches it.
    fn end_recording(&mut self, recording: usize);

    /// Gives the seed of the run and the number of the step, from 1, that launches read from now on, on all forks.
    fn begin_step(&mut self, seed: u64, step: u64);

    /// Takes the data of a feed for the coming step. Feeds are numbered from 0.
    fn stage(&mut self, feed: usize, data: &[u8]);

    /// Copies what was staged for a feed to its place.
    ///
    /// # Panics
    /// If that has not the bytes of the place.
    fn feed(&mut self, feed: usize, to: Span);

    /// Runs a kernel. A result may have exactly the place of an operand. The tensor that an update changes ([`updated`]) is already in its
    /// results. With `accumulate`, which is for kernels of one result, the result is added to what is there.
    fn launch(
        &mut self,
        kernel: &mut Self::Kernel,
        site: LaunchSite,
        operands: &[Span],
        results: &[Span],
        accumulate: bool,
    );

    /// Runs a group. Each gradient sum of its statements, in order, is added to what is there, or stored, as `accumulate` says.
    fn launch_group(
        &mut self,
        kernel: &mut Self::Kernel,
        site: LaunchSite,
        operands: &[Span],
        results: &[Span],
        accumulate: &[bool],
    );

    /// `into += from`, for tensors of one type: added in f32 and rounded once.
    fn add(&mut self, into: Span, from: Span);

    /// Copies a tensor.
    fn copy(&mut self, to: Span, from: Span);

    /// Fills a place with poison: all bits 1, which is a NaN in every format, and no index.
    fn poison(&mut self, at: Span);

    /// Keeps a scalar in f32 until [`reports`](Backend::reports). Scalars are numbered from 0.
    fn report(&mut self, out: usize, from: Span);

    /// The scalars that the step has reported, when all of it is done.
    fn reports(&mut self, outs: &mut [f32]);

    /// The choices of experts that forwards made since the last call, and those of them that were dropped because the expert was full.
    fn take_choices(&mut self) -> [u64; 2];
}

/// The operands whose elements an op changes into its results, one per result; none if its results are all new.
pub fn updated(op: &KernelOp) -> &'static [usize] {
    op.def().facts().updates
}
