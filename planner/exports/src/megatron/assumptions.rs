//! Assumptions of predictions of Megatron-LM, as flags and variables. Places are those of megatron-core 0.19.2.

use crate::assumption::{Assumption, AssumptionRow, Variable};
use crate::job::Job;
use cost::{Capacity, Dispatch, FusedKernel, Graphs, Hidden, Kernel};
use ir::models::{LayerSet, ModelConfig};
use ir::options::{Offload, Recompute};

/// The table.
const ROWS: [AssumptionRow; 14] = [
    AssumptionRow {
        name: "no dropout",
        without: "a tenth of all elements is dropped (transformer_config.py), and their masks are saved",
        write: |_, written| {
            written.put("hidden-dropout", "0.0");
            written.put("attention-dropout", "0.0");
        },
    },
    AssumptionRow {
        name: "gradient type",
        without: "gradients have another type: f32, but that of the parameters in fp16 and under Megatron-FSDP",
        write: gradients,
    },
    AssumptionRow {
        name: "sharded by Megatron-FSDP",
        without: "it asserts its own format of checkpoints (arguments.py, use_megatron_fsdp)",
        write: |job, written| {
            if job.is_fsdp() {
                written.set("use-distributed-optimizer");
                written.put("ckpt-format", "fsdp_dtensor");
            }
        },
    },
    AssumptionRow {
        name: "attention kernel",
        without: "Transformer Engine chooses a kernel by its own order",
        write: |job, written| match job.traits.kernels.attention {
            Kernel::Cudnn => written.put("attention-backend", "fused"),
            Kernel::Flash1 | Kernel::Flash2 | Kernel::Flash3 => written.put("attention-backend", "flash"),
            Kernel::Unfused => written.put("attention-backend", "unfused"),
        },
    },
    AssumptionRow { name: "fused kernels", without: "each op of the group is a kernel of its own", write: fused },
    AssumptionRow {
        name: "grouped products of experts",
        without: "each expert is a product of its own, and moe_act is not recomputed (transformer_config.py)",
        write: |job, written| written.set_if(job.experts > 0, "moe-grouped-gemm"),
    },
    AssumptionRow {
        name: "dispatch of tokens",
        without: "all tokens are gathered by all ranks, the default `allgather`",
        write: dispatch,
    },
    AssumptionRow {
        name: "capacity of experts",
        without: "experts compute all tokens that they receive",
        write: |job, written| {
            let Some(capacity) = job.capacity else { return };
            written.put("moe-expert-capacity-factor", capacity);
            written.set_if(job.traits.experts.capacity == Capacity::Pads, "moe-pad-expert-input-to-capacity");
        },
    },
    AssumptionRow {
        name: "overlap of data parallelism",
        without: "gradients are reduced after the last backward",
        write: |job, written| {
            if job.parallel.dp * job.parallel.cp > 1 && job.hides(Hidden::Dp) {
                written.set("overlap-grad-reduce");
                written.set_if(job.parallel.zero > 0, "overlap-param-gather");
            }
        },
    },
    AssumptionRow {
        name: "overlap of tensor parallelism",
        without: "products wait for the collectives next to them",
        write: |job, written| {
            let parallel = &job.parallel;
            written.set_if(parallel.tp > 1 && parallel.sp && job.hides(Hidden::Tp), "tp-comm-overlap");
        },
    },
    AssumptionRow {
        name: "overlap of expert parallelism",
        without: "experts wait for their tokens",
        write: |job, written| written.set_if(overlaps_experts(job), "overlap-moe-expert-parallel-comm"),
    },
    AssumptionRow {
        name: "types of the optimizer",
        without: "moments are f32",
        write: |job, written| {
            let is_alone = job.parallel.zero == 0 && job.parallel.dp * job.parallel.cp == 1;
            let is_aware = job.optimizer == "adamw-bf16" || job.parallel.offload_optimizer;
            // The optimizer that knows types is the distributed one.
            written.set_if(is_alone && is_aware, "use-distributed-optimizer");
            if job.optimizer == "adamw-bf16" {
                written.set("use-precision-aware-optimizer");
                written.put("exp-avg-dtype", "bf16");
                written.put("exp-avg-sq-dtype", "bf16");
            } else {
                written.set_if(job.parallel.offload_optimizer, "use-precision-aware-optimizer");
            }
        },
    },
    AssumptionRow {
        name: "launches by CUDA graphs",
        without: "each kernel is launched by itself",
        write: |job, written| {
            if let Some(modules) = graphs(job) {
                written.put("cuda-graph-impl", "transformer_engine");
                written.put("cuda-graph-modules", modules.join(" "));
            }
        },
    },
    AssumptionRow {
        name: "order of kernels and communication",
        without: "collectives start late, and Megatron-LM refuses the job (arguments.py, CUDA_DEVICE_MAX_CONNECTIONS)",
        write: connections,
    },
];

/// Groups of ops that are one kernel unless a flag says otherwise.
pub(super) const FUSED_BY_DEFAULT: [(FusedKernel, &str); 6] = [
    (FusedKernel::Swiglu, "no-bias-swiglu-fusion"),
    (FusedKernel::BiasGelu, "no-bias-gelu-fusion"),
    (FusedKernel::DropoutAdd, "no-bias-dropout-fusion"),
    (FusedKernel::Rope, "no-rope-fusion"),
    (FusedKernel::Softmax, "no-masked-softmax-fusion"),
    (FusedKernel::Accumulate, "no-gradient-accumulation-fusion"),
];

/// Groups of ops that are one kernel only if a flag says so, and whether they are of experts.
pub(super) const FUSED_IF_STATED: [(FusedKernel, &str, bool); 3] = [
    (FusedKernel::Loss, "cross-entropy-loss-fusion", false),
    (FusedKernel::Permute, "moe-permute-fusion", true),
    (FusedKernel::Router, "moe-router-fusion", true),
];

/// The assumptions of a job that need to be written.
pub(super) fn assumptions(job: &Job) -> Vec<Assumption> {
    AssumptionRow::written(&ROWS, job)
}

fn gradients(job: &Job, written: &mut Assumption) {
    let (kept, sent) = (job.recipe.gradient, job.recipe.comm_gradient);
    match job.precision.as_str() {
        "f32" => {}
        // Megatron-FSDP has gradients in the type of the parameters.
        _ if job.is_fsdp() => {
            if kept >= 4.0 {
                written.put("megatron-fsdp-main-grads-dtype", "fp32");
            }
            if sent >= 4.0 {
                written.put("megatron-fsdp-grad-comm-dtype", "fp32");
            }
        }
        // Gradients have the type of the parameters, unless they are accumulated in f32.
        "fp16" => written.set_if(kept >= 4.0, "accumulate-allreduce-grads-in-fp32"),
        _ => written.set_if(kept < 4.0, "grad-reduce-in-bf16"),
    }
}

/// Groups of ops that are fused by default have a flag against it; the others have one for it.
fn fused(job: &Job, written: &mut Assumption) {
    let fused = job.traits.kernels.fused;
    FUSED_BY_DEFAULT.into_iter().for_each(|(group, against)| written.set_if(!fused.contains(group), against));
    // The fused rotation of latent attention is that of YaRN (`transformer_config.py`, apply_rope_fusion).
    written.set_if(fused.contains(FusedKernel::Rope) && job.turns_latent_plainly(), "no-rope-fusion");
    for (group, flag, is_of_experts) in FUSED_IF_STATED {
        written.set_if(fused.contains(group) && (job.experts > 0 || !is_of_experts), flag);
    }
    if fused.contains(FusedKernel::Loss) {
        written.put("cross-entropy-fusion-impl", "native");
    }
}

/// DeepEP routes in f32, and moves tokens between several ranks only (`token_dispatcher.py`). HybridEP takes its place where NVLink
/// joins several nodes, with the sizes of the domain in the environment (Megatron-Bridge, recipes for GB200).
fn dispatch(job: &Job, written: &mut Assumption) {
    if job.experts == 0 {
        return;
    }
    if job.sends_once_per_node() {
        written.put("moe-token-dispatcher-type", "flex");
        let joins_nodes = job.domain > job.per_node && job.domain <= NVLINK_MOST;
        written.put("moe-flex-dispatcher-backend", if joins_nodes { "hybridep" } else { "deepep" });
        if joins_nodes {
            let ranks = job.parallel.ep * job.parallel.etp;
            let within = (1..=ranks.min(job.domain)).rev().find(|&share| ranks.is_multiple_of(share)).unwrap_or(1);
            written.export("NVLINK_DOMAIN_SIZE", job.domain);
            written.export("USE_MNNVL", 1);
            written.export("NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN", within);
        }
        written.put("moe-router-dtype", "fp32");
    } else {
        written.put("moe-token-dispatcher-type", "alltoall");
    }
}

/// True if the exchanges of experts are hidden: the stack does in this configuration, and Megatron-LM can for this model and these
/// numbers (`transformer_config.py`, overlap_moe_expert_parallel_comm).
pub(super) fn overlaps_experts(job: &Job) -> bool {
    job.experts > 0 && job.parallel.ep > 1 && job.hides(Hidden::Ep) && job.further() <= 1 && job.precision != "f32"
}

/// True if the prediction is of graphs that few recipes have, and launches take time without them.
pub(super) fn needs_graphs(job: &Job) -> bool {
    job.launches > LEAST_LAUNCHES
}

/// Share of a step from which on launches are written about: the median error of predictions is 3 % (docs/accuracy.md), and graphs take
/// memory that is not predicted.
const LEAST_LAUNCHES: f64 = 0.01;

/// True if Megatron-LM replays layers of this job: none are recomputed whole or offloaded.
pub(super) fn takes_graphs(job: &Job) -> bool {
    job.parallel.offload == Offload::None && !matches!(job.parallel.recompute, Recompute::Full(_))
}

/// Modules that CUDA graphs capture (`transformer_config.py`, cuda_graph_impl), if there are any. Experts are captured only if their
/// inputs are padded.
fn graphs(job: &Job) -> Option<Vec<&'static str>> {
    match job.traits.launch.graphs {
        Graphs::All => {}
        Graphs::Dense if needs_graphs(job) && takes_graphs(job) => {}
        Graphs::None | Graphs::Dense => return None,
    }
    let has_nets = match &job.config {
        Some(ModelConfig::Llama(config)) => {
            config.experts.as_ref().is_none_or(|experts| experts.dense != LayerSet::None)
        }
        _ => true,
    };
    let mut modules = vec!["attn"];
    // Nets beside hidden exchanges are launched one by one.
    modules.extend((has_nets && !overlaps_experts(job)).then_some("mlp"));
    match job.traits.experts.capacity {
        _ if job.experts == 0 => {}
        Capacity::Pads if job.capacity.is_some() && !overlaps_experts(job) => modules.push("moe"),
        // The dispatcher waits for the host there.
        _ if job.capacity.is_some() => modules.push("moe_router"),
        _ => modules.extend(["moe_router", "moe_preprocess"]),
    }
    Some(modules)
}

/// Kernels start in the order in which they are launched only with one connection, before Blackwell. Megatron-FSDP refuses that.
fn connections(job: &Job, written: &mut Assumption) {
    const CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
    let parallel = &job.parallel;
    let is_blackwell = job.capability.is_some_and(|major| major >= BLACKWELL);
    if job.is_fsdp() {
        written.environment.push(Variable { name: CONNECTIONS, value: None });
    } else if is_blackwell || overlaps_experts(job) {
        written.export(CONNECTIONS, 32);
    } else if parallel.tp * parallel.cp > 1 {
        written.export(CONNECTIONS, 1);
    }
}

/// The most devices that NVLink joins, those of an NVL72.
const NVLINK_MOST: u64 = 72;

/// Compute capability of Blackwell.
const BLACKWELL: u64 = 10;

impl Job {
    /// True if a token goes to each node once: the dispatcher of the stack, between several ranks.
    pub(super) fn sends_once_per_node(&self) -> bool {
        let parallel = &self.parallel;
        self.traits.experts.dispatch == Dispatch::OncePerNode
            && parallel.ep * parallel.etp > 1
            && self.capacity.is_none()
    }

    /// True if the parts of latent attention with positions turn by unscaled frequencies.
    fn turns_latent_plainly(&self) -> bool {
        let Some(ModelConfig::Llama(config)) = &self.config else { return false };
        config.latent.is_some() && config.rotation.scaling.is_none()
    }

    /// True if Megatron-FSDP shards gradients or parameters.
    pub(super) fn is_fsdp(&self) -> bool {
        self.parallel.zero >= 2
    }
}
