//! Device interface: reserve an arena, prepare a kernel once for a rank's shapes, and launch it many times on spans of the
//! arena.

use ir::mesh::Mesh;
use ir::ops::KernelOp;
use ir::types::Type;

/// A tensor's place in a rank's arena. All element types have four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Span {
    /// Bytes from the start of the arena.
    pub offset: usize,
    /// Elements.
    pub len: usize,
}

impl Span {
    /// True if both have an element.
    pub fn meets(self, other: Span) -> bool {
        let below = |a: Span, b: Span| a.offset + 4 * a.len <= b.offset;
        self.len > 0 && other.len > 0 && !below(self, other) && !below(other, self)
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

/// Context of random numbers: dropout is a function of these numbers and of logical indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RngContext {
    /// The seed of the run.
    pub seed: u64,
    /// The step, from 1.
    pub step: u64,
    /// The micro-batch within the step, from 0.
    pub microbatch: u64,
    /// The repeat's variable of the run of the block, 0 outside a repeat.
    pub index: u64,
}

/// A device, as one thread of a rank uses it. The threads of a rank have a backend each, and share the arena.
///
/// Places are trusted: the checker of programs ensures that no two live tensors overlap.
pub trait Backend: Sized + Send {
    /// A kernel made ready for the shapes of one statement on one rank.
    type Kernel: Send;

    /// Takes the memory of the rank; the first thing asked of it.
    ///
    /// # Errors
    /// There is not so much.
    fn reserve(&mut self, bytes: usize) -> Result<(), String>;

    /// A backend for another thread of the same rank, on the same arena.
    ///
    /// # Errors
    /// The device has no more.
    fn fork(&self) -> Result<Self, String>;

    /// Makes an op ready.
    ///
    /// # Errors
    /// The op cannot run on these types.
    fn prepare(&mut self, op: &KernelOp, site: &KernelSite<'_>) -> Result<Self::Kernel, String>;

    /// Runs a kernel. A result may have exactly the place of an operand. The tensor that an update changes ([`updated`]) is already in its
    /// results. With `accumulate`, which is for kernels of one result, the result is added to what is there.
    fn launch(
        &mut self,
        kernel: &mut Self::Kernel,
        rng: RngContext,
        operands: &[Span],
        results: &[Span],
        accumulate: bool,
    );

    /// `into += from`
    fn add(&mut self, into: Span, from: Span);

    /// Copies a tensor.
    fn copy(&mut self, to: Span, from: Span);

    /// Copies from the host.
    fn write(&mut self, to: Span, data: &[f32]);

    /// Copies to the host, when all that was launched before is done.
    fn read(&mut self, from: Span, data: &mut [f32]);
}

/// The operands whose elements an op changes into its results, one per result; none if its results are all new.
pub fn updated(op: &KernelOp) -> &'static [usize] {
    op.def().updates()
}
