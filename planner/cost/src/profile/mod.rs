//! Cost of one instance of a planned block on one rank, section by section.
//!
//! A section's statements become kernels: products (fused where the stack fuses them), attention, groups of pointwise
//! ops, and collectives, some of which the stack overlaps. Saved activations follow from the values of F that I and W
//! read, from the stack's own list of saved tensors, and from the configured recomputation.

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
mod row_groups;
mod scan;
mod section;
mod site;
mod sparse;
mod tensors;

pub use attention::Reach;
pub(crate) use attention::attention_shape;
pub use frontier::{Frontier, Kind, RecomputeChoice, frontier};
pub(crate) use pointwise::behind_product;
pub(crate) use products::ProductShape;
pub(crate) use scan::model_flops as scan_flops;
pub use tensors::Recomputed;

use crate::block_options::BlockOptions;
use crate::platform::Platform;
use crate::quantities::{Elements, Passes, SplitByExperts};
use ir::dim_role::DimRole;
use ir::graph::{ArgKind, Block, Model, ResultKind, SectionKind, Stmt};
use ir::ids::Value;
use ir::options::Recompute;
use keep::{Keep, saved_for_w, summed};
use section::{cost_of, spare};
use site::Site;
use transforms::recompute::is_layer;

/// Seconds by category.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Seconds {
    /// Matrix products.
    pub gemm: f64,
    /// Attention.
    pub attention: f64,
    /// Memory-bound kernels.
    pub memory_bound: f64,
    /// Exposed tensor-parallel communication.
    pub tp: f64,
    /// Exposed context-parallel communication.
    pub cp: f64,
    /// Exposed expert-parallel communication.
    pub ep: f64,
    /// Device time spent waiting for kernel launches: kernels times CPU seconds per launch, beyond the sum of the
    /// others. The backward's wait is counted with the input gradient.
    pub launch: f64,
    /// Waiting for copies to host memory and back.
    pub host: f64,
}

/// Cost of one block instance on one rank, per micro-batch.
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
    /// Recomputation before the input gradient.
    pub recomputed: Seconds,
    /// Seconds of F, I and W without recomputation or offload, used to balance stages.
    pub work: f64,
    /// Saved activations on the device, in bytes.
    pub saved: f64,
    /// Part of `saved` for logits and for the loss, in bytes.
    pub logits: f64,
    /// Bytes that the weight gradient reads of saved values and of the input gradient's values, on the device or on the
    /// host.
    pub saved_for_w: f64,
    /// Part of `saved_for_w` that the backward makes.
    pub made_for_w: f64,
    /// Saved activations in host memory, in bytes; 0 without `offload`.
    pub offloaded: f64,
    /// Device seconds minus CPU seconds; if negative, `launch` is the wait.
    pub spare: Passes,
    /// Ranks of tensor-parallel collectives, summed over collectives.
    pub peers: Passes,
    /// Peak bytes of temporary values, including recomputed ones.
    pub transient: f64,
    /// Peak bytes of temporary values while weight gradients are computed.
    pub transient_in_w: f64,
    /// Bytes of the largest input of a reduction over tp in the forward.
    pub summed: f64,
    /// Number of reductions over tp in the forward.
    pub sums: f64,
    /// Parameter elements on one rank before ZeRO. Dense ones are replicated on all data-parallel ranks, experts only on ranks outside ep.
    pub elements: Elements,
    /// Bytes passed to the next block.
    pub boundary: f64,
    /// Forward FLOPs of the model's products and attention, on unsharded tensors of one micro-batch of one
    /// data-parallel rank; causal attention counts half, and within a window or chunks the pairs of those.
    pub flops: f64,
    /// Same as `flops`, with pairs on both sides of a query: causal attention counts twice.
    pub flops_noncausal: f64,
    /// Part of both for products with parameters that have no gradient.
    pub frozen_flops: f64,
    /// FLOPs of recomputation, counted as in `flops`.
    pub recomputed_flops: f64,
    /// Same as `recomputed_flops`, with pairs on both sides of a query.
    pub recomputed_flops_noncausal: f64,
    /// FLOPs executed by kernels in forward and backward, including recomputation.
    pub executed: ExecutedFlops,
}

/// FLOPs executed by kernels.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ExecutedFlops {
    /// FLOPs of matrix products.
    pub products: f64,
    /// FLOPs of attention. Flash kernels skip masked blocks and recompute scores in the backward.
    pub attention: f64,
}

impl ExecutedFlops {
    /// Sum of both.
    pub fn total(self) -> f64 {
        self.products + self.attention
    }
}

impl Seconds {
    /// Sum of all categories.
    pub fn total(&self) -> f64 {
        self.gemm + self.attention + self.memory_bound + self.tp + self.cp + self.ep + self.launch + self.host
    }

    /// Sum of all categories but launches.
    fn on_device(&self) -> f64 {
        self.total() - self.launch
    }
}

impl Profile {
    /// CPU seconds of kernel launches.
    pub fn launches(&self) -> Passes {
        Passes {
            forward: self.f.on_device() - self.spare.forward,
            backward: self.i.on_device() + self.w.on_device() + self.recomputed.on_device() - self.spare.backward,
        }
    }

    /// Seconds of each pass; the backward includes recomputation and both gradients.
    pub fn passes(&self) -> Passes {
        Passes { forward: self.f.total(), backward: self.recomputed.total() + self.i.total() + self.w.total() }
    }
}

/// Profile of a block of a planned model under a configuration's recomputation. The model's mesh has the axes below pp
/// without pure data parallelism: ep, cp and tp. Its batch is one micro-batch of the ranks of one ep group.
/// `Recompute::Auto` counts as none, and `Recompute::Full` as the entire block for any number of layers.
pub fn profile(model: &Model, block: &Block, options: &BlockOptions, platform: &Platform<'_>) -> Profile {
    let site = Site::new(model, block, options, platform);
    let [f, i, w] =
        [SectionKind::F, SectionKind::I, SectionKind::W].map(|kind| cost_of(&site, kind, &site.stmts(kind)));
    let keep = Keep::under(&site, &options.recompute);
    let recomputed = keep.recomputed(&site);
    let mut recomputed_cost = cost_of(&site, SectionKind::F, &recomputed);
    let calls = modules::parts(&site, &options.recompute) * platform.stack.traits.launch.checkpoint;
    recomputed_cost.host += calls * site.launch();
    let (summed, transient, for_w) = (summed(&site), keep.transient(&site), saved_for_w(&site, &keep));
    let flops = flops(&site, &site.stmts(SectionKind::F));
    let recomputed_flops = self::flops(&site, &recomputed);
    let boundary = passed_on(block).map(|value| site.local.bytes(value)).sum();
    let (saved, offloaded) = if options.offload { (0.0, keep.bytes) } else { (keep.bytes, 0.0) };
    let spare = Passes { forward: spare(&[f]), backward: spare(&[recomputed_cost, i, w]) };
    let mut forward = Seconds { launch: (-spare.forward).max(0.0), ..f.device };
    let mut backward = Seconds { launch: (-spare.backward).max(0.0), ..i.device };
    let compute = Passes {
        forward: forward.total(),
        backward: recomputed_cost.device.total() + w.device.total() + backward.total(),
    };
    let copies = compute.map(|seconds| waits_for_copies(offloaded, seconds, platform));
    forward.host += copies.forward;
    backward.host += copies.backward;
    Profile {
        name: block.name.clone(),
        f: forward,
        i: backward,
        w: w.device,
        recomputed: recomputed_cost.device,
        work: f.host.max(f.device.total()) + (i.host + w.host).max(i.device.total() + w.device.total()),
        saved,
        logits: keep.logits,
        saved_for_w: for_w.bytes,
        made_for_w: for_w.made,
        offloaded,
        spare: spare + copies,
        peers: Passes { forward: f.peers, backward: recomputed_cost.peers + i.peers + w.peers },
        transient: transient.most,
        transient_in_w: transient.in_w,
        summed: summed.iter().copied().fold(0.0, f64::max),
        sums: summed.len() as f64,
        elements: parameters(&site),
        boundary,
        flops: flops.causal,
        flops_noncausal: flops.whole,
        frozen_flops: flops.frozen,
        recomputed_flops: recomputed_flops.causal,
        recomputed_flops_noncausal: recomputed_flops.whole,
        executed: executed(&flops, &recomputed_flops),
    }
}

/// Names of the block's values that a configuration recomputes, in forward order; empty for a block that is not a
/// layer.
pub fn recomputed(model: &Model, block: &Block, options: &BlockOptions, platform: &Platform<'_>) -> Vec<Recomputed> {
    match &options.recompute {
        Recompute::Selective(names) if is_layer(block) => {
            tensors::recomputed(&Site::new(model, block, options, platform), names)
        }
        _ => Vec::new(),
    }
}

/// Seconds of host copies beyond `compute` seconds that run at once (Rajbhandari et al. 2020, section 6.1: P_a+cpu).
fn waits_for_copies(bytes: f64, compute: f64, platform: &Platform<'_>) -> f64 {
    let bandwidth = platform.cluster.host_bandwidth();
    if bytes > 0.0 && bandwidth > 0.0 { (bytes / bandwidth - compute).max(0.0) } else { 0.0 }
}

/// Values that a block passes to the next block.
fn passed_on(block: &Block) -> impl Iterator<Item = Value> + '_ {
    let results = block.results.iter().zip(&block[SectionKind::F].ret);
    results.filter(|(kind, _)| **kind == ResultKind::Value).map(|(_, &value)| value)
}

/// Parameter elements on one rank; those of experts have an expert dim, and trained ones a gradient.
fn parameters(site: &Site<'_>) -> Elements {
    let block = site.block();
    let of_params = block.args_of(ArgKind::Param).map(|param| {
        let elements = site.local.elements(param);
        let all = match site.local.has_role(param, DimRole::Experts) {
            true => SplitByExperts { dense: 0.0, experts: elements },
            false => SplitByExperts { dense: elements, experts: 0.0 },
        };
        Elements { all, trained: if block.gradient_of(param).is_some() { all } else { SplitByExperts::default() } }
    });
    of_params.sum()
}

#[derive(Default)]
struct Flops {
    causal: f64,
    whole: f64,
    /// FLOPs of products.
    products: f64,
    /// Part of `products` with parameters that have no gradient.
    frozen: f64,
    /// FLOPs executed by attention kernels.
    attention: Passes,
}

/// FLOPs of products and attention on unsharded tensors, for one of the mesh's data-parallel ranks.
fn flops(site: &Site<'_>, stmts: &[&Stmt]) -> Flops {
    let mut flops = Flops::default();
    for stmt in stmts {
        if let Some(shape) = products::logical(&site.local, stmt) {
            let product = 2.0 * shape.batch * shape.m * shape.n * shape.k;
            flops.causal += product;
            flops.whole += product;
            flops.products += product;
            flops.frozen += if has_frozen(site.block(), stmt) { product } else { 0.0 };
        } else if let Some(scan) = scan::logical(&site.local, stmt) {
            let counted = scan.counted();
            flops.causal += counted;
            flops.whole += counted;
            flops.attention = flops.attention + Passes { forward: counted, backward: 2.0 * counted };
        } else if let Some(attention) = attention::logical(&site.local, stmt) {
            let shape = attention.shape;
            let whole = 2.0 * shape.batch * shape.heads * shape.queries * shape.keys * (shape.d + shape.c);
            let counted = whole * attention.counted;
            flops.causal += counted;
            flops.whole += if attention.causal { 2.0 * counted } else { counted };
            flops.attention = flops.attention + attention::executed(&attention, site.platform.has_flash());
        }
    }
    let ranks = site.local.data_ranks();
    let Flops { causal, whole, products, frozen, attention } = flops;
    Flops {
        causal: causal / ranks,
        whole: whole / ranks,
        products: products / ranks,
        frozen: frozen / ranks,
        attention: attention.map(|flops| flops / ranks),
    }
}

/// Returns whether a statement reads a parameter without a gradient, in a block that has been differentiated.
fn has_frozen(block: &Block, stmt: &Stmt) -> bool {
    let is_differentiated = [SectionKind::I, SectionKind::W].iter().any(|&kind| !block[kind].stmts.is_empty());
    let mut params = stmt.operands.iter().filter(|&&value| block.arg_kind(value) == Some(ArgKind::Param));
    is_differentiated && params.any(|&param| block.gradient_of(param).is_none())
}

/// FLOPs executed by kernels for a forward, its backward (two products per forward product, or one with a frozen parameter), and
/// recomputation.
fn executed(own: &Flops, recomputed: &Flops) -> ExecutedFlops {
    ExecutedFlops {
        products: 3.0 * own.products - own.frozen + recomputed.products,
        attention: own.attention.total() + recomputed.attention.forward,
    }
}
