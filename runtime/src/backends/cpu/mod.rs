//! The processor that this program runs on. [`prepare`](Backend::prepare) is one match on the op; each arm works out the
//! local shapes and gives a closure that calls the kernel.

mod attend;
mod contract;
mod pointwise;
mod rearrange;
mod rows;
use super::sizes;
#[cfg(test)]
mod tests;
mod tokens;
mod update;

use crate::backend::{Backend, Moment, Site};
use crate::tensor::{Pool, Tensor};
use ir::ops::KernelOp;
use ir::types::DType;
use kernels::cpu::Par;
use kernels::cpu::elementwise::{self, add_assign};

/// The processor, for one rank.
pub struct Cpu {
    pool: Pool,
    par: Par,
    scratch: Vec<f32>,
}

/// A kernel with its shapes.
pub struct Kernel {
    run: Run,
    /// Whether it adds to its result by itself.
    adds: bool,
}

/// The call of a kernel.
type Run = Box<dyn FnMut(&mut Call<'_>, Par) + Send>;

/// What a kernel is called with.
struct Call<'a> {
    operands: &'a [Tensor],
    results: &'a mut [Tensor],
    moment: Moment,
    accumulate: bool,
    scratch: &'a mut Vec<f32>,
}

impl<'a> Call<'a> {
    /// An operand's floats.
    fn float(&self, operand: usize) -> &'a [f32] {
        self.operands[operand].floats()
    }

    /// An operand's integers.
    fn int(&self, operand: usize) -> &'a [i32] {
        self.operands[operand].ints()
    }

    /// A scalar operand.
    fn scalar(&self, operand: usize) -> f32 {
        self.float(operand)[0]
    }

    /// The one result.
    fn out(&mut self) -> &mut [f32] {
        self.results[0].write()
    }

    /// All results.
    fn outs<const N: usize>(&mut self) -> [&mut [f32]; N] {
        let mut results = self.results.iter_mut();
        std::array::from_fn(|_| results.next().map_or(&mut [][..], Tensor::write))
    }
}

impl Cpu {
    /// A rank's share of the processor: so many threads.
    pub fn new(threads: usize) -> Cpu {
        Cpu { pool: Pool::new(), par: Par(threads.max(1)), scratch: Vec::new() }
    }

    /// Bytes that wait to be used again.
    pub fn free_bytes(&self) -> usize {
        self.pool.free_bytes()
    }
}

impl Backend for Cpu {
    type Kernel = Kernel;

    fn prepare(&self, op: &KernelOp, site: &Site<'_>) -> Result<Kernel, String> {
        let mut types = site.operands.iter().chain(site.results);
        if let Some(ty) = types.find(|ty| !matches!(ty.dtype, DType::F32 | DType::I32)) {
            return Err(format!("the cpu backend computes in f32, not in {}", ty.dtype.name()));
        }
        use KernelOp as Op;
        let adds = matches!(op, Op::Einsum(_) | Op::EmbeddingGrad(_) | Op::RmsNormDgamma(_) | Op::LayerNormDgamma(_));
        Ok(Kernel { run: closure(op, site)?, adds })
    }

    fn alloc(&self, len: usize) -> Tensor {
        self.pool.alloc(len)
    }

    fn launch(&mut self, kernel: &mut Kernel, moment: Moment, operands: &[Tensor], results: &mut [Tensor]) {
        let scratch = &mut self.scratch;
        (kernel.run)(&mut Call { operands, results, moment, accumulate: false, scratch }, self.par);
    }

    fn accumulate(&mut self, kernel: &mut Kernel, moment: Moment, operands: &[Tensor], into: &mut Tensor) {
        if !kernel.adds {
            let mut fresh = self.pool.alloc(into.len());
            self.launch(kernel, moment, operands, std::slice::from_mut(&mut fresh));
            return self.add(into, &fresh);
        }
        let (results, scratch) = (std::slice::from_mut(into), &mut self.scratch);
        (kernel.run)(&mut Call { operands, results, moment, accumulate: true, scratch }, self.par);
    }

    fn add(&mut self, into: &mut Tensor, from: &Tensor) {
        if into.is_unique() {
            return add_assign(into.write(), from.floats(), self.par);
        }
        let mut sum = self.pool.alloc(into.len());
        elementwise::binary(elementwise::Binary::Add, into.floats(), from.floats(), sum.write(), self.par);
        *into = sum;
    }

    fn copy(&self, tensor: &Tensor) -> Tensor {
        self.pool.floats(tensor.floats())
    }
}

fn closure(op: &KernelOp, site: &Site<'_>) -> Result<Run, String> {
    match op {
        KernelOp::Einsum(op) => contract::einsum(op, site),
        KernelOp::Reduce(op) => contract::reduce(op, site),
        KernelOp::Unary(op) => Ok(pointwise::unary(op)),
        KernelOp::Binary(op) => pointwise::binary(op, site),
        KernelOp::Dropout(op) => pointwise::dropout(op, site),
        KernelOp::Broadcast(op) => rearrange::broadcast(op, site),
        KernelOp::Permute(op) => rearrange::permute(op, site),
        KernelOp::Reshape(_) => Ok(rearrange::reshape()),
        KernelOp::Slice(op) => rearrange::slice(op, site),
        KernelOp::Concat(op) => rearrange::concat(op, site),
        KernelOp::Pad(op) => rearrange::pad(op, site),
        KernelOp::RmsNorm(op) => Ok(rows::rms_norm(op)),
        KernelOp::RmsNormDx(_) => Ok(rows::rms_norm_dx()),
        KernelOp::RmsNormDgamma(_) => Ok(rows::rms_norm_dgamma()),
        KernelOp::LayerNorm(op) => Ok(rows::layer_norm(op)),
        KernelOp::LayerNormDx(_) => Ok(rows::layer_norm_dx()),
        KernelOp::LayerNormDgamma(_) => Ok(rows::layer_norm_dgamma()),
        KernelOp::Softmax(_) => rows::softmax(site),
        KernelOp::SoftmaxGrad(_) => rows::softmax_grad(site),
        KernelOp::Rope(op) => attend::rope(op, site),
        KernelOp::Attention(op) => attend::attention(op, site),
        KernelOp::AttentionGrad(op) => attend::attention_grad(op, site),
        KernelOp::Embedding(_) => tokens::embedding(site),
        KernelOp::EmbeddingGrad(_) => tokens::embedding_grad(site),
        KernelOp::CrossEntropy(_) => tokens::cross_entropy(site),
        KernelOp::CrossEntropyGrad(_) => tokens::cross_entropy_grad(site),
        KernelOp::SumExp(_) => tokens::sum_exp(site),
        KernelOp::Pick(_) => tokens::pick(site),
        KernelOp::TokenLoss(_) => Ok(tokens::token_loss()),
        KernelOp::SumSquares(_) => Ok(update::sum_squares()),
        KernelOp::AdamW(op) => Ok(update::adamw(op)),
        KernelOp::Sgd(op) => Ok(update::sgd(op)),
    }
}
