//! What a device must be able to do: prepare a kernel for the shapes of a rank once, and launch it many times.

use crate::tensor::Tensor;
use ir::mesh::Mesh;
use ir::ops::KernelOp;
use ir::types::Type;

/// Where a statement runs: its types and the rank's place on the mesh. From them follow local shapes and origins.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The mesh.
    pub mesh: &'a Mesh,
    /// The coordinates of the rank.
    pub coordinates: &'a [u64],
    /// Types of the operands.
    pub operands: &'a [&'a Type],
    /// Types of the results.
    pub results: &'a [&'a Type],
}

/// When a statement runs. Random numbers depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moment {
    /// The seed of the run.
    pub seed: u64,
    /// The step, from 1.
    pub step: u64,
    /// The micro-batch within the step, from 0.
    pub microbatch: u64,
    /// The repeat's variable of the run of the block, 0 outside a repeat.
    pub index: u64,
}

/// A tensor's place in a rank's arena. All elements have 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Bytes from the start of the arena.
    pub offset: usize,
    /// Elements.
    pub len: usize,
}

/// A device.
pub trait Backend {
    /// A kernel made ready for the shapes of one statement on one rank.
    type Kernel: Send;

    /// Makes an op ready.
    ///
    /// # Errors
    /// The op cannot run on these types.
    fn prepare(&self, op: &KernelOp, site: &Site<'_>) -> Result<Self::Kernel, String>;

    /// A tensor of so many elements, whatever they are.
    fn alloc(&self, len: usize) -> Tensor;

    /// Runs a kernel. Each result has its size and is held alone. The results that an update changes in place
    /// ([`updated`]) hold the operand's elements, and those operands are empty.
    fn launch(&mut self, kernel: &mut Self::Kernel, moment: Moment, operands: &[Tensor], results: &mut [Tensor]);

    /// Runs a kernel of one result, which is added to what `into` holds.
    fn accumulate(&mut self, kernel: &mut Self::Kernel, moment: Moment, operands: &[Tensor], into: &mut Tensor);

    /// `into += from`; takes fresh memory if somebody else holds `into`.
    fn add(&mut self, into: &mut Tensor, from: &Tensor);

    /// The same elements in fresh memory.
    fn copy(&self, tensor: &Tensor) -> Tensor;
}

/// The operands whose elements an op changes into its results, one per result; none if its results are all new.
pub fn updated(op: &KernelOp) -> &'static [usize] {
    match op {
        KernelOp::AdamW(_) => &[0, 2, 3],
        KernelOp::Sgd(op) if op.has_momentum() => &[0, 2],
        KernelOp::Sgd(_) => &[0],
        _ => &[],
    }
}
