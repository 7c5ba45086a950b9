//! CPU backend. [`prepare`](Backend::prepare) is one match on the op; each arm computes the local shapes and returns a
//! closure that calls the kernel.

mod attend;
mod contract;
mod experts;
mod peak;
mod pointwise;
mod rearrange;
mod rows;
mod select;
mod tally;
#[cfg(test)]
mod tests;
mod tokens;
mod update;

use super::sizes;
use crate::arena::{Arena, as_ints};
use crate::backend::{Backend, KernelSite, RngContext, Span, updated};
use ir::ops::{KernelOp, Unary, UnaryKind};
use ir::types::DType;
use kernels::cpu::elementwise::add_assign;
use kernels::cpu::{Par, Source};
pub use peak::peak;
use std::sync::Arc;
pub use tally::Tally;

/// The processor, for one thread of one rank.
pub struct Cpu {
    arena: Arc<Arena>,
    par: Par,
    /// Scratch memory of kernels.
    scratch: Vec<f32>,
    /// A result that is to be added.
    aside: Vec<f32>,
    /// Counts of chosen experts, over all threads.
    tally: Arc<Tally>,
}

/// A kernel with its shapes.
pub struct Kernel {
    run: KernelFn,
    /// True if it adds to its result by itself.
    adds: bool,
    place: InPlace,
}

/// Handling of a result that overlaps an operand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InPlace {
    /// That is not possible.
    Never,
    /// There is nothing to do.
    IsThere,
    /// It computes in place.
    Computes,
    /// Results begin as these operands, which it does not read.
    Updates(&'static [usize]),
}

/// The call of a kernel.
type KernelFn = Box<dyn FnMut(&mut Call<'_>, Par) + Send>;

/// Arguments of a kernel call.
struct Call<'a> {
    arena: &'a Arena,
    operands: &'a [Span],
    results: Results<'a>,
    rng: RngContext,
    accumulate: bool,
    scratch: &'a mut Vec<f32>,
}

/// Destination of results.
enum Results<'a> {
    /// To places that no operand meets, and none another.
    Places(&'a [Span]),
    /// The one result, to a buffer.
    Aside(&'a mut [f32]),
}

impl<'a> Call<'a> {
    /// An operand's floats.
    fn float(&self, operand: usize) -> &'a [f32] {
        let span = self.operands[operand];
        let places = if let Results::Places(places) = self.results { places } else { &[] };
        assert!(!places.iter().any(|place| place.meets(span)), "no result overlaps an operand");
        // SAFETY: no result meets it, and the program lets nobody else write it now.
        unsafe { self.arena.floats(span) }
    }

    /// An operand whose place the result may have.
    fn source(&self, operand: usize) -> Source<'a> {
        match self.results {
            Results::Places(places) if places[0] == self.operands[operand] => Source::Own,
            _ => Source::Other(self.float(operand)),
        }
    }

    /// An operand's integers.
    fn int(&self, operand: usize) -> &'a [i32] {
        as_ints(self.float(operand))
    }

    /// A scalar operand.
    fn scalar(&self, operand: usize) -> f32 {
        self.float(operand)[0]
    }

    /// The one result.
    fn out(&mut self) -> &mut [f32] {
        match &mut self.results {
            // SAFETY: no operand that is read and no other result meets it, and nobody else touches it now.
            Results::Places(places) => unsafe { self.arena.floats_mut(places[0]) },
            Results::Aside(buffer) => buffer,
        }
    }

    /// All results.
    fn outs<const N: usize>(&mut self) -> [&'a mut [f32]; N] {
        let Results::Places(places) = self.results else { return std::array::from_fn(|_| &mut [][..]) };
        // SAFETY: as in `out`.
        std::array::from_fn(|i| places.get(i).map_or(&mut [][..], |&place| unsafe { self.arena.floats_mut(place) }))
    }
}

impl Cpu {
    /// A rank's share of the processor: `threads` threads.
    ///
    /// # Panics
    /// If there is no memory at all.
    pub fn new(threads: usize) -> Cpu {
        let arena = Arc::new(Arena::new(0).expect("some memory"));
        Cpu { arena, par: Par(threads.max(1)), scratch: Vec::new(), aside: Vec::new(), tally: Arc::default() }
    }

    /// The memory, which peers may read and write too.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Counts of the experts that forwards chose.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }
}

impl Backend for Cpu {
    type Kernel = Kernel;

    fn reserve(&mut self, bytes: usize) -> Result<(), String> {
        self.arena = Arc::new(Arena::new(bytes)?);
        Ok(())
    }

    fn fork(&self) -> Result<Cpu, String> {
        let (arena, tally) = (self.arena.clone(), self.tally.clone());
        Ok(Cpu { arena, par: self.par, scratch: Vec::new(), aside: Vec::new(), tally })
    }

    fn prepare(&mut self, op: &KernelOp, site: &KernelSite<'_>) -> Result<Kernel, String> {
        let mut types = site.operands.iter().chain(site.results);
        if let Some(ty) = types.find(|ty| !matches!(ty.dtype, DType::F32 | DType::I32)) {
            return Err(format!("the cpu backend computes in f32, not in {}", ty.dtype.name()));
        }
        use KernelOp as Op;
        let adds = matches!(op, Op::Einsum(_) | Op::EmbeddingGrad(_) | Op::RmsNormDgamma(_) | Op::LayerNormDgamma(_));
        let place = match op {
            Op::Unary(Unary(UnaryKind::Cast(_))) | Op::Reshape(_) => InPlace::IsThere,
            Op::Unary(_) | Op::Dropout(_) => InPlace::Computes,
            Op::Binary(binary) if binary.equation.is_none() => InPlace::Computes,
            op if updated(op).is_empty() => InPlace::Never,
            op => InPlace::Updates(updated(op)),
        };
        Ok(Kernel { run: closure(op, site, &self.tally)?, adds, place })
    }

    fn launch(&mut self, kernel: &mut Kernel, rng: RngContext, operands: &[Span], results: &[Span], accumulate: bool) {
        let Cpu { arena, par, scratch, aside, .. } = self;
        let is_there = lies_on_operand(kernel.place, operands, results) && kernel.place == InPlace::IsThere;
        if is_there && !accumulate {
            return;
        }
        let mut call = Call { arena, operands, results: Results::Places(results), rng, accumulate, scratch };
        if !accumulate || kernel.adds {
            return (kernel.run)(&mut call, *par);
        }
        aside.resize(results[0].len, 0.0);
        call.results = Results::Aside(aside);
        (kernel.run)(&mut call, *par);
        // SAFETY: nobody else touches the result now.
        add_assign(unsafe { arena.floats_mut(results[0]) }, aside, *par);
    }

    fn add(&mut self, into: Span, from: Span) {
        assert!(!into.meets(from), "a sum does not lie on what is added");
        // SAFETY: the two are apart, and nobody else touches them now.
        let (into, from) = unsafe { (self.arena.floats_mut(into), self.arena.floats(from)) };
        add_assign(into, from, self.par);
    }

    fn copy(&mut self, to: Span, from: Span) {
        assert!(!to.meets(from), "a copy does not lie on its source");
        // SAFETY: the two are apart, and nobody else touches them now.
        let (to, from) = unsafe { (self.arena.floats_mut(to), self.arena.floats(from)) };
        to.copy_from_slice(from);
    }

    fn write(&mut self, to: Span, data: &[f32]) {
        // SAFETY: nobody else touches it now.
        unsafe { self.arena.floats_mut(to) }.copy_from_slice(data);
    }

    fn read(&mut self, from: Span, data: &mut [f32]) {
        // SAFETY: nobody writes it now.
        data.copy_from_slice(unsafe { self.arena.floats(from) });
    }
}

/// True if a result has the place of an operand, other than by an update.
///
/// # Panics
/// If the kernel does not allow it, or if the result overlaps part of an operand or another result.
fn lies_on_operand(place: InPlace, operands: &[Span], results: &[Span]) -> bool {
    let mut found = false;
    for (number, result) in results.iter().enumerate() {
        assert!(!results[..number].iter().any(|other| other.meets(*result)), "results lie apart");
        for (at, operand) in operands.iter().enumerate().filter(|(_, operand)| operand.meets(*result)) {
            let stands = matches!(place, InPlace::Updates(updated) if updated.get(number) == Some(&at));
            let may = matches!(place, InPlace::IsThere | InPlace::Computes) && operand == result;
            assert!(stands || may, "a result overlaps operand {at}: {operand:?}, {result:?}");
            found |= may;
        }
    }
    found
}

fn closure(op: &KernelOp, site: &KernelSite<'_>, tally: &Arc<Tally>) -> Result<KernelFn, String> {
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
        KernelOp::Reverse(op) => rearrange::reverse(op, site),
        KernelOp::Windows(op) => rearrange::windows(op, site),
        KernelOp::Fold(op) => rearrange::fold(op, site),
        KernelOp::Take(op) => select::take(op, site),
        KernelOp::ScatterAdd(op) => select::scatter_add(op, site),
        KernelOp::DynamicSlice(op) => select::dynamic_slice(op, site),
        KernelOp::DynamicPad(op) => select::dynamic_pad(op, site),
        KernelOp::Compare(op) => Ok(select::compare(op, site)),
        KernelOp::Select(op) => Ok(select::select(op, site)),
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
        KernelOp::EmbeddingGrad(op) => tokens::embedding_grad(site, op),
        KernelOp::CrossEntropy(_) => tokens::cross_entropy(site),
        KernelOp::CrossEntropyGrad(_) => tokens::cross_entropy_grad(site),
        KernelOp::SumExp(_) => tokens::sum_exp(site),
        KernelOp::Pick(_) => tokens::pick(site),
        KernelOp::TokenLoss(_) => Ok(tokens::token_loss()),
        KernelOp::TopK(op) => experts::top_k(op, site),
        KernelOp::TopKGrad(_) => experts::top_k_grad(site),
        KernelOp::Dispatch(_) => experts::dispatch(site, tally),
        KernelOp::Combine(_) => experts::combine(site),
        KernelOp::CombineDw(_) => experts::combine_dw(site),
        KernelOp::SumSquares(_) => Ok(update::sum_squares()),
        KernelOp::AdamW(op) => Ok(update::adamw(op)),
        KernelOp::Sgd(op) => Ok(update::sgd(op)),
    }
}
