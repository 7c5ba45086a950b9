//! What one run of a planned block costs on one rank, section by section, on a machine.
//!
//! A section's statements become kernels: products (joined where the stack joins them), attention, groups of pointwise ops,
//! and collectives, of which the stack hides a part. What is kept follows from what I and W read of F, from the stack's own
//! list of saved tensors, and from what the layout computes again.

mod alias;
mod attention;
mod collectives;
mod frontier;
mod fusion;
mod keep;
mod local;
mod module_sets;
mod modules;
mod pointwise;
mod products;
mod section;
mod site;
mod tensors;

pub use frontier::{Again, Frontier, Kind, frontier};
pub use keep::SAVED;
pub use tensors::MadeAgain;

use crate::machine::Machine;
use ir::goal::{Layout, Recompute};
use ir::graph::{ArgKind, Block, Model, ResultKind, SectionKind, Stmt};
use ir::ids::Value;
use ir::recompute::is_layer;
use keep::{Keep, held_for_w, summed};
use section::{cost_of, spare};
use site::Site;

/// Seconds by what they go to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Seconds {
    /// Matrix products.
    pub gemm: f64,
    /// Attention.
    pub attention: f64,
    /// Kernels that move bytes.
    pub memory_bound: f64,
    /// Tensor-parallel communication that nothing hides.
    pub tp: f64,
    /// Context-parallel communication that nothing hides.
    pub cp: f64,
    /// Expert-parallel communication that nothing hides.
    pub ep: f64,
    /// What the device waits for launches: kernels times the CPU's seconds for one, beyond the sum of the others. The
    /// backward's stands with the input gradient.
    pub launch: f64,
}

/// What one run of a block costs on one rank, per micro-batch.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Profile {
    /// The block's name.
    pub name: String,
    /// The forward.
    pub f: Seconds,
    /// The input gradient.
    pub i: Seconds,
    /// The weight gradient.
    pub w: Seconds,
    /// What is computed again before the input gradient.
    pub again: Seconds,
    /// Seconds of all three, where nothing is computed again or moved to the host: what stages are balanced by.
    pub work: f64,
    /// Bytes kept from the forward to the backward on the device.
    pub kept: f64,
    /// Of these, logits and what the loss keeps.
    pub logits: f64,
    /// Bytes that the weight gradient reads of what the forward and the input gradient leave it, on the device or in the host's
    /// memory.
    pub held_for_w: f64,
    /// Bytes kept in the host's memory; 0 without `offload`.
    pub offloaded: f64,
    /// Seconds by which the device works longer than its CPU, forward and backward; below 0, `launch` is what it waits.
    pub spare: [f64; 2],
    /// Ranks that tensor-parallel collectives join, each as often as it is joined, forward and backward.
    pub peers: [f64; 2],
    /// The most bytes of inner values at once, what is made again among them.
    pub transient: f64,
    /// Bytes of the largest tensor that the forward gives to a sum over tp.
    pub summed: f64,
    /// How many such sums the forward has.
    pub sums: f64,
    /// Elements of parameters on one rank, before ZeRO: those that all data-parallel ranks hold.
    pub dense: f64,
    /// The same of experts, which only the ranks outside ep share.
    pub experts: f64,
    /// Bytes that it passes on to the next block.
    pub boundary: f64,
    /// FLOPs of the model's own products and attention forward, whole tensors of one micro-batch of one data-parallel rank;
    /// causal attention halved.
    pub flops: f64,
    /// The same with attention whole.
    pub flops_noncausal: f64,
    /// FLOPs of what is computed again, counted as `flops`.
    pub again_flops: f64,
    /// The same with attention whole.
    pub again_flops_noncausal: f64,
    /// FLOPs that kernels execute, forward and backward, with what is computed again: of products, and of attention, whose flash
    /// kernels skip what a causal mask hides and compute scores again in the backward.
    pub executed: [f64; 2],
}

impl Seconds {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.gemm + self.attention + self.memory_bound + self.tp + self.cp + self.ep + self.launch
    }
}

impl Profile {
    /// Seconds that the CPU launches kernels, forward and backward.
    pub fn launches(&self) -> [f64; 2] {
        let device = |parts: &[Seconds]| parts.iter().map(|part| part.total() - part.launch).sum::<f64>();
        [device(&[self.f]) - self.spare[0], device(&[self.i, self.w, self.again]) - self.spare[1]]
    }
}

/// The profile of a block of a planned model under a layout's recomputation. The model's mesh has the axes below pp without
/// data parallelism proper: ep, cp and tp; its batch is that of one micro-batch of the ranks of one ep group.
/// `Recompute::Auto` counts as none, and `Recompute::Full` as all of the block, however many blocks it says.
pub fn profile(model: &Model, block: &Block, layout: &Layout, machine: &Machine<'_>) -> Profile {
    let site = Site::new(model, block, layout, machine);
    let [f, i, w] =
        [SectionKind::F, SectionKind::I, SectionKind::W].map(|kind| cost_of(&site, kind, &site.stmts(kind)));
    let keep = Keep::under(&site, &layout.recompute);
    let again = keep.again(&site);
    let mut again_cost = cost_of(&site, SectionKind::F, &again);
    let calls = modules::parts(&site, &layout.recompute) * machine.stack.facts.checkpoint;
    again_cost.host += calls * machine.launch(site.has_experts);
    let summed = summed(&site);
    let flops = flops(&site, &site.stmts(SectionKind::F));
    let again_flops = self::flops(&site, &again);
    let [dense, experts] = parameters(&site);
    let boundary = passed_on(block).map(|value| site.local.bytes(value)).sum();
    let (kept, offloaded) = if layout.offload { (0.0, keep.bytes) } else { (keep.bytes, 0.0) };
    let spare = [spare(&[f]), spare(&[again_cost, i, w])];
    let mut forward = Seconds { launch: (-spare[0]).max(0.0), ..f.device };
    let mut backward = Seconds { launch: (-spare[1]).max(0.0), ..i.device };
    let beside = again_cost.device.total() + w.device.total() + backward.total();
    let copies = [waits_for_copies(offloaded, forward.total(), machine), waits_for_copies(offloaded, beside, machine)];
    forward.memory_bound += copies[0];
    backward.memory_bound += copies[1];
    Profile {
        name: block.name.clone(),
        f: forward,
        i: backward,
        w: w.device,
        again: again_cost.device,
        work: f.host.max(f.device.total()) + (i.host + w.host).max(i.device.total() + w.device.total()),
        kept,
        logits: keep.logits,
        held_for_w: held_for_w(&site),
        offloaded,
        spare: [spare[0] + copies[0], spare[1] + copies[1]],
        peers: [f.peers, again_cost.peers + i.peers + w.peers],
        transient: keep.transient(&site),
        summed: summed.iter().copied().fold(0.0, f64::max),
        sums: summed.len() as f64,
        dense,
        experts,
        boundary,
        flops: flops.causal,
        flops_noncausal: flops.whole,
        again_flops: again_flops.causal,
        again_flops_noncausal: again_flops.whole,
        executed: executed(&flops, &again_flops),
    }
}

/// The single values of a block that a layout makes again by their names, in the order of the forward; none of a block that is
/// no layer.
pub fn made_again(model: &Model, block: &Block, layout: &Layout, machine: &Machine<'_>) -> Vec<MadeAgain> {
    match &layout.recompute {
        Recompute::Selective(names) if is_layer(block) => {
            tensors::made_again(&Site::new(model, block, layout, machine), names)
        }
        _ => Vec::new(),
    }
}

/// Seconds that bytes to or from the host's memory take beyond the compute beside which they are copied (Rajbhandari et al.
/// 2020, section 6.1: P_a+cpu).
fn waits_for_copies(bytes: f64, beside: f64, machine: &Machine<'_>) -> f64 {
    let bandwidth = machine.cluster.device.host_bandwidth;
    if bytes > 0.0 && bandwidth > 0.0 { (bytes / bandwidth - beside).max(0.0) } else { 0.0 }
}

/// The values that a block passes to the next one.
fn passed_on(block: &Block) -> impl Iterator<Item = Value> + '_ {
    let results = block.results.iter().zip(&block[SectionKind::F].ret);
    results.filter(|(kind, _)| **kind == ResultKind::Value).map(|(_, &value)| value)
}

/// Elements of parameters on one rank, without and with a dim of experts.
fn parameters(site: &Site<'_>) -> [f64; 2] {
    let mut elements = [0.0; 2];
    for param in site.block().args_of(ArgKind::Param) {
        elements[usize::from(site.local.has_dim(param, "e"))] += site.local.elements(param);
    }
    elements
}

#[derive(Default)]
struct Flops {
    causal: f64,
    whole: f64,
    /// Of products alone.
    products: f64,
    /// That kernels of attention execute: forward, and backward for such a forward.
    attention: [f64; 2],
}

/// FLOPs of products and attention on whole tensors, for one of the data-parallel ranks that the mesh has.
fn flops(site: &Site<'_>, stmts: &[&Stmt]) -> Flops {
    let mut flops = Flops::default();
    for stmt in stmts {
        if let Some(shape) = products::logical(&site.local, stmt) {
            let of = 2.0 * shape.batch * shape.m * shape.n * shape.k;
            flops.causal += of;
            flops.whole += of;
            flops.products += of;
        } else if let Some(attention) = attention::logical(&site.local, stmt) {
            let shape = attention.shape;
            let whole = 2.0 * shape.batch * shape.heads * shape.queries * shape.keys * (shape.d + shape.c);
            flops.causal += if attention.causal { whole / 2.0 } else { whole };
            flops.whole += whole;
            let [forward, backward] = attention::executed(&attention, site.machine.has_flash());
            flops.attention[0] += forward;
            flops.attention[1] += backward;
        }
    }
    let ranks = site.local.data_ranks();
    let Flops { causal, whole, products, attention } = flops;
    Flops {
        causal: causal / ranks,
        whole: whole / ranks,
        products: products / ranks,
        attention: attention.map(|of| of / ranks),
    }
}

/// FLOPs that kernels execute for a forward, its backward, which has two products for each, and for what is computed again.
fn executed(own: &Flops, again: &Flops) -> [f64; 2] {
    let [forward, backward] = own.attention;
    [3.0 * own.products + again.products, forward + backward + again.attention[0]]
}
