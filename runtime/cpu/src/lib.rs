//! CPU backend. [`prepare`](Backend::prepare) is one match on the op; each arm computes the local shapes and returns a
//! closure that calls the kernel.

mod attend;
mod border;
mod call;
mod contract;
mod experts;
mod group;
mod peak;
mod pointwise;
mod product;
mod quantise;
mod rearrange;
mod rows;
mod scan;
mod select;
mod sparse;
mod tally;
#[cfg(test)]
mod tests;
mod tokens;
mod update;

use self::call::{Access, Buffers, Call};
use self::group::{Group, SPACE, next_fork};
use self::product::ProductGroup;
use self::tally::Tally;
use border::Border;
use device::arena::Arena;
use device::backend::{
    Backend, GroupSite, GroupStmt, HostCopy, HostDirection, KernelSite, LaunchSite, Mark, Memory, Span, updated,
};
use device::host::narrow;
use ir::arena::ALIGNMENT;
use ir::ops::KernelOp;
use kernels::cpu::Par;
use kernels::cpu::dropout::Noise;
pub use peak::{peak, product_rate};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The processor, for one thread of one rank.
pub struct Cpu {
    arena: Arc<Arena>,
    /// Memory of offloaded tensors.
    host: Arc<Arena>,
    par: Par,
    /// Scratch memory of kernels.
    scratch: Vec<f32>,
    /// Sums of groups over chunks of rows.
    partials: Vec<f32>,
    /// Operands and results that are not in the arena as kernels take them.
    buffers: Buffers,
    /// Shared state of the threads of the rank.
    shared: Arc<Shared>,
    border: Border,
    /// The byte of the arena from which on groups have room.
    space: usize,
    /// Its number among the threads of the rank.
    fork: usize,
}

/// The threads of a rank: of its instruction stream, and of the bodies that it starts.
const FORKS: usize = 2;

/// Shared state of the backends of a rank's threads.
#[derive(Default)]
struct Shared {
    seed: AtomicU64,
    step: AtomicU64,
    /// Counts of chosen experts.
    tally: Tally,
    /// The number of forks.
    forks: AtomicUsize,
}

/// Context of random numbers: dropout is a function of these numbers and of logical indices.
#[derive(Clone, Copy)]
struct Rng {
    seed: u64,
    step: u64,
    site: LaunchSite,
    /// Elements of the first operand before those of the call, which is on some of its rows.
    skipped: usize,
}

/// A kernel, or a group of them.
pub struct Kernel(Work);

enum Work {
    /// A kernel, and the same on a tile of rows at a time, if it treats rows alike and has narrow tensors: they are widened in the cache
    /// then, by the thread that computes.
    Op(OpKernel, Option<Group>),
    Group(Group),
    Product(Box<ProductGroup>),
}

/// A kernel with its shapes.
struct OpKernel {
    run: KernelFn,
    /// True if it adds to its result by itself.
    adds: bool,
    /// True if it only moves elements, whatever their type.
    moves: bool,
    /// True if it reads narrow operands as they are, and if it writes narrow results so.
    narrow: [bool; 2],
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

impl Cpu {
    /// A rank's share of the processor: `threads` threads.
    ///
    /// # Panics
    /// If there is no memory at all.
    pub fn new(threads: usize) -> Cpu {
        let [arena, host] = [(); 2].map(|()| Arc::new(Arena::new(0).expect("some memory")));
        Cpu {
            arena,
            host,
            par: Par(threads.max(1)),
            scratch: Vec::new(),
            partials: Vec::new(),
            buffers: Buffers::default(),
            shared: Arc::default(),
            border: Border::default(),
            space: 0,
            fork: 0,
        }
    }

    fn rng(&self, site: LaunchSite) -> Rng {
        let [seed, step] = [&self.shared.seed, &self.shared.step].map(|number| number.load(Ordering::Relaxed));
        Rng { seed, step, site, skipped: 0 }
    }

    /// A group that is not of products, ready for the threads of this one.
    fn group(&mut self, site: &GroupSite<'_>) -> Result<Group, String> {
        let (threads, shared) = (self.par.0, &self.shared);
        let space = self.space + self.fork * threads * SPACE;
        let group = Group::new(site, threads, space, &mut |stmt| OpKernel::new(stmt.op, &stmt.site, shared))?;
        self.partials.resize(self.partials.len().max(group.partials()), 0.0);
        Ok(group)
    }

    /// An op as a group of its own, if it treats rows alike and has a narrow operand or result.
    fn in_rows(&mut self, op: &KernelOp, site: &KernelSite<'_>) -> Result<Option<Group>, String> {
        let stmt = GroupStmt::alone(op, *site);
        let has_narrow = site.operands.iter().chain(site.results).any(|ty| narrow(ty.dtype).is_some());
        let has_rows = stmt.rows().is_ok_and(|noise| !noise.sums && noise.product.is_none());
        match has_narrow && has_rows {
            true => self.group(&GroupSite { stmts: vec![stmt] }).map(Some),
            false => Ok(None),
        }
    }

    /// The memory, which peers may read and write too.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }
}

/// Runs a kernel on operands and results as it takes them.
fn run(
    kernel: &mut KernelFn,
    arena: &Arena,
    (buffers, scratch): (&mut Buffers, &mut Vec<f32>),
    par: Par,
    (rng, accumulate): (Rng, bool),
    (spans, how): ([&[Span]; 2], Access),
) {
    // SAFETY: the program lets nobody else write the operands or touch the results now.
    unsafe { buffers.fill(arena, spans, how, par) };
    let mut call = Call::new(arena, spans, buffers, (rng, accumulate), scratch);
    kernel(&mut call, par);
    // SAFETY: as above.
    unsafe { buffers.empty(arena, spans[1], how, par) };
}

impl OpKernel {
    /// The kernel of an op, on whole tensors.
    fn new(op: &KernelOp, site: &KernelSite<'_>, shared: &Arc<Shared>) -> Result<OpKernel, String> {
        use KernelOp as Op;
        let sums = op.def().rows(site.operands).is_some_and(|rows| rows.sums);
        let adds = sums || matches!(op, Op::Einsum(_) | Op::EmbeddingGrad(_));
        let place = match op.def().facts() {
            facts if facts.is_view => InPlace::IsThere,
            facts if !facts.in_place.is_empty() => InPlace::Computes,
            _ if updated(op).is_empty() => InPlace::Never,
            _ => InPlace::Updates(updated(op)),
        };
        let moves = moves(op) && !widens(site);
        let with_results = |(run, gives): (KernelFn, bool)| (run, [true, gives]);
        let (run, narrow) = match op {
            Op::Einsum(op) => with_results(contract::einsum(op, site)?),
            Op::AbsMax(_) | Op::Quantise(_) | Op::Exponents(_) => (closure(op, site, shared)?, [true; 2]),
            Op::Attention(op) => with_results(attend::attention(op, site)?),
            Op::AttentionGrad(op) => with_results(attend::attention_grad(op, site)?),
            op => (closure(op, site, shared)?, [moves; 2]),
        };
        Ok(OpKernel { run, adds, moves, narrow, place })
    }

    /// Runs the kernel on the processor.
    fn launch(
        &mut self,
        arena: &Arena,
        (buffers, scratch): (&mut Buffers, &mut Vec<f32>),
        par: Par,
        rng: Rng,
        [operands, results]: [&[Span]; 2],
        accumulate: bool,
    ) {
        let is_there = lies_on_operand(self.place, operands, results) && self.place == InPlace::IsThere;
        if is_there && !accumulate {
            return;
        }
        let updates = matches!(self.place, InPlace::Updates(_));
        let how = Access {
            // A kernel that moves elements as they are cannot add them.
            takes_narrow: self.narrow[0] && !(accumulate && self.moves),
            gives_narrow: self.narrow[1] && !accumulate,
            reads: updates || accumulate && self.adds,
            adds_after: accumulate && !self.adds,
        };
        let spans = ([operands, results], how);
        run(&mut self.run, arena, (buffers, scratch), par, (rng, accumulate), spans);
    }
}

impl Memory for Cpu {
    fn write(&mut self, to: Span, data: &[u8]) {
        // SAFETY: nobody else touches it now.
        unsafe { self.arena.bytes_mut(to) }.copy_from_slice(data);
    }

    fn read(&mut self, from: Span, data: &mut [u8]) {
        // SAFETY: nobody writes it now.
        data.copy_from_slice(unsafe { self.arena.bytes(from) });
    }

    fn write_host(&mut self, to: Span, data: &[u8]) {
        // SAFETY: nobody else touches it now.
        unsafe { self.host.bytes_mut(to) }.copy_from_slice(data);
    }

    fn read_host(&mut self, from: Span, data: &mut [u8]) {
        // SAFETY: nobody writes it now.
        data.copy_from_slice(unsafe { self.host.bytes(from) });
    }
}

impl Backend for Cpu {
    type Kernel = Kernel;

    const RUNS_LATE: bool = false;

    fn reserve(&mut self, bytes: usize) -> Result<(), String> {
        self.space = bytes.next_multiple_of(ALIGNMENT as usize);
        // Pages that no group touches take no memory.
        self.arena = Arc::new(Arena::new(self.space + FORKS * self.par.0 * SPACE)?);
        Ok(())
    }

    fn reserve_host(&mut self, bytes: usize) -> Result<(), String> {
        self.host = Arc::new(Arena::new(bytes)?);
        Ok(())
    }

    fn copy_host(&mut self, copies: &[HostCopy], direction: HostDirection, _: [usize; 2]) -> [Mark; 2] {
        let start = self.mark();
        for &HostCopy { span, host } in copies {
            let away = Span { offset: host, ..span };
            let (to, from) = match direction {
                HostDirection::Offload => ((&self.host, away), (&self.arena, span)),
                HostDirection::Load => ((&self.arena, span), (&self.host, away)),
            };
            // SAFETY: the two are memories apart, and nobody else touches these places now.
            let (to, from) = unsafe { (to.0.bytes_mut(to.1), from.0.bytes(from.1)) };
            to.copy_from_slice(from);
        }
        [start, self.mark()]
    }

    fn fork(&self) -> Result<Cpu, String> {
        let (arena, host, shared) = (self.arena.clone(), self.host.clone(), self.shared.clone());
        Ok(Cpu { arena, host, fork: next_fork(&self.shared)?, shared, space: self.space, ..Cpu::new(self.par.0) })
    }

    fn record(&mut self, _: usize) {}

    fn wait(&mut self, _: usize) {}

    fn replay(&mut self, _: usize) -> bool {
        false
    }

    fn begin_recording(&mut self) -> bool {
        false
    }

    fn end_recording(&mut self, _: usize) {}

    fn prepare(&mut self, op: &KernelOp, site: &KernelSite<'_>) -> Result<Kernel, String> {
        let kernel = OpKernel::new(op, site, &self.shared)?;
        let in_rows = if kernel.moves { None } else { self.in_rows(op, site)? };
        Ok(Kernel(Work::Op(kernel, in_rows)))
    }

    fn prepare_group(&mut self, site: &GroupSite<'_>) -> Result<Kernel, String> {
        if matches!(site.stmts.first(), Some(GroupStmt { op: KernelOp::Einsum(_), .. })) {
            let group = ProductGroup::new(site, self.par.0)?;
            self.partials.resize(self.partials.len().max(group.partials()), 0.0);
            return Ok(Kernel(Work::Product(Box::new(group))));
        }
        Ok(Kernel(Work::Group(self.group(site)?)))
    }

    fn begin_step(&mut self, seed: u64, step: u64) {
        self.shared.seed.store(seed, Ordering::Relaxed);
        self.shared.step.store(step, Ordering::Relaxed);
    }

    fn stage(&mut self, feed: usize, data: &[u8]) {
        self.border.stage(feed, data);
    }

    fn feed(&mut self, feed: usize, to: Span) {
        // SAFETY: nobody else touches it now.
        unsafe { self.arena.bytes_mut(to) }.copy_from_slice(self.border.staged(feed));
    }

    fn launch(&mut self, kernel: &mut Kernel, site: LaunchSite, operands: &[Span], results: &[Span], accumulate: bool) {
        let rng = self.rng(site);
        let Cpu { arena, par, scratch, partials, buffers, .. } = self;
        let Work::Op(kernel, in_rows) = &mut kernel.0 else { panic!("a group is launched as a group") };
        match in_rows.as_ref().filter(|_| !accumulate) {
            Some(group) => group.run(arena, partials, rng, [operands, results], &[]),
            None => kernel.launch(arena, (buffers, scratch), *par, rng, [operands, results], accumulate),
        }
    }

    fn launch_group(
        &mut self,
        kernel: &mut Kernel,
        site: LaunchSite,
        operands: &[Span],
        results: &[Span],
        accumulate: &[bool],
    ) {
        let rng = self.rng(site);
        match &mut kernel.0 {
            Work::Op(..) => panic!("a kernel is launched as one"),
            Work::Group(group) => group.run(&self.arena, &mut self.partials, rng, [operands, results], accumulate),
            Work::Product(group) => group.run(&self.arena, &mut self.partials, [operands, results], accumulate),
        }
    }

    fn add(&mut self, into: Span, from: Span) {
        assert!(!into.meets(from), "a sum does not lie on what is added");
        let Cpu { arena, par, buffers, .. } = self;
        // SAFETY: the two are apart, and nobody else touches them now.
        unsafe { buffers.add(arena, into, from, *par) };
    }

    fn copy(&mut self, to: Span, from: Span) {
        assert!(!to.meets(from), "a copy does not lie on its source");
        assert_eq!(to.dtype, from.dtype, "a copy has the type of its source");
        // SAFETY: the two are apart, and nobody else touches them now.
        let (to, from) = unsafe { (self.arena.bytes_mut(to), self.arena.bytes(from)) };
        to.copy_from_slice(from);
    }

    fn poison(&mut self, at: Span) {
        // SAFETY: nobody else touches it now.
        unsafe { self.arena.bytes_mut(at) }.fill(0xff);
    }

    fn report(&mut self, out: usize, from: Span) {
        // SAFETY: nobody writes it now.
        self.border.report(out, unsafe { self.arena.elements::<f32>(from) }[0]);
    }

    fn reports(&mut self, outs: &mut [f32]) {
        self.border.reports(outs);
    }

    fn take_choices(&mut self) -> [u64; 2] {
        self.shared.tally.take()
    }
}

/// True if an op only moves elements, whatever their type.
fn moves(op: &KernelOp) -> bool {
    use KernelOp as Op;
    matches!(
        op,
        Op::Broadcast(_)
            | Op::Permute(_)
            | Op::Reshape(_)
            | Op::Slice(_)
            | Op::Concat(_)
            | Op::Pad(_)
            | Op::Reverse(_)
            | Op::Windows(_)
            | Op::DynamicSlice(_)
            | Op::DynamicPad(_)
            | Op::Embedding(_)
            | Op::Take(_)
    )
}

/// True if numbers change their format: a gradient that a move gives is summed in f32.
fn widens(site: &KernelSite<'_>) -> bool {
    site.operands.iter().any(|ty| ty.dtype.is_float() && ty.dtype != site.results[0].dtype)
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

fn closure(op: &KernelOp, site: &KernelSite<'_>, shared: &Arc<Shared>) -> Result<KernelFn, String> {
    match op {
        KernelOp::Einsum(op) => contract::einsum(op, site).map(|(run, _)| run),
        KernelOp::Reduce(op) => contract::reduce(op, site),
        KernelOp::Unary(op) => Ok(pointwise::unary(op, site)),
        KernelOp::Binary(op) => pointwise::binary(op, site),
        KernelOp::Dropout(op) => pointwise::drawn(Noise::Zeros(op.p as f32), &op.path, op.piece, site),
        KernelOp::Jitter(op) => pointwise::drawn(Noise::Factors(op.width as f32), &op.path, op.piece, site),
        KernelOp::Broadcast(op) => rearrange::broadcast(op, site),
        KernelOp::Permute(op) => rearrange::permute(op, site),
        KernelOp::Reshape(_) => Ok(rearrange::reshape(site)),
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
        KernelOp::Iota(op) => select::iota(op, site),
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
        KernelOp::Attention(op) => attend::attention(op, site).map(|(run, _)| run),
        KernelOp::AttentionGrad(op) => attend::attention_grad(op, site).map(|(run, _)| run),
        KernelOp::Embedding(_) => tokens::embedding(site),
        KernelOp::EmbeddingGrad(op) => tokens::embedding_grad(site, op),
        KernelOp::CrossEntropy(_) => tokens::cross_entropy(site),
        KernelOp::CrossEntropyGrad(_) => tokens::cross_entropy_grad(site),
        KernelOp::SumExp(_) => tokens::sum_exp(site),
        KernelOp::Pick(_) => tokens::pick(site),
        KernelOp::TokenLoss(_) => Ok(tokens::token_loss()),
        KernelOp::TopK(op) => experts::top_k(op, site),
        KernelOp::TopKGrad(_) => experts::top_k_grad(site),
        KernelOp::Dispatch(_) => experts::dispatch(site, shared),
        KernelOp::Combine(_) => experts::combine(site),
        KernelOp::CombineDw(_) => experts::combine_dw(site),
        KernelOp::Scan(_)
        | KernelOp::ScanGrad(_)
        | KernelOp::ScanState(_)
        | KernelOp::ScanDstart(_)
        | KernelOp::Carry(_)
        | KernelOp::ShortConv(_)
        | KernelOp::ShortConvDx(_)
        | KernelOp::ShortConvDw(_)
        | KernelOp::ShortConvDstart(_)
        | KernelOp::SelectKeys(_)
        | KernelOp::IndexScores(_)
        | KernelOp::IndexScoresGrad(_)
        | KernelOp::SparseAttention(_)
        | KernelOp::SparseAttentionGrad(_)
        | KernelOp::KeyMass(_)
        | KernelOp::IndexLoss(_)
        | KernelOp::IndexLossGrad(_) => {
            let kernel = scan::kernel(op, site).or_else(|| sparse::kernel(op, site));
            kernel.ok_or_else(|| format!("operands of `{}` have other dims", op.def().name()))
        }
        KernelOp::AbsMax(_) => quantise::absmax(site),
        KernelOp::ScaleFor(op) => quantise::scale_for(op),
        KernelOp::Quantise(_) => quantise::quantise(site),
        KernelOp::Exponents(_) => Ok(quantise::exponents()),
        KernelOp::Ages(_) => Ok(quantise::ages()),
        KernelOp::DelayedScale(op) => quantise::delayed_scale(op),
        KernelOp::SumSquares(_) => Ok(update::sum_squares()),
        KernelOp::AdamW(op) => Ok(update::adamw(op)),
        KernelOp::Sgd(op) => Ok(update::sgd(op)),
        KernelOp::Composite(_) => Err(format!("`{}` has no kernel", op.def().name())),
    }
}
