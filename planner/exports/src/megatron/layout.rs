//! Flags of a layout, of what it keeps and recomputes, and of number formats.

use crate::job::{Job, Stage};
use crate::notes::{Instead, Notes};
use ir::options::{CpKind, Gather, Offload, Recompute};

/// Modules that `--recompute-modules` takes.
pub(crate) const MODULES: [&str; 7] =
    ["core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts", "mla_up_proj"];

/// The flags of a job's configuration.
pub(super) fn flags(job: &Job) -> Flags {
    let mut flags = Flags::default();
    degrees(job, &mut flags);
    batch(job, &mut flags);
    pipeline(job, &mut flags);
    replicas(job, &mut flags);
    memory(job, &mut flags);
    precision(job, &mut flags);
    flags
}

/// Flags, and what they do not state.
#[derive(Default)]
pub(super) struct Flags {
    pub(super) lines: Vec<String>,
    pub(super) notes: Notes,
}

impl Flags {
    fn set(&mut self, flag: &str) {
        self.lines.push(format!("--{flag}"));
    }

    fn put(&mut self, flag: &str, value: impl std::fmt::Display) {
        self.lines.push(format!("--{flag} {value}"));
    }

    fn set_if(&mut self, wanted: bool, flag: &str) {
        if wanted {
            self.set(flag);
        }
    }
}

fn degrees(job: &Job, flags: &mut Flags) {
    let parallel = &job.parallel;
    flags.put("tensor-model-parallel-size", parallel.tp);
    flags.set_if(parallel.sp && parallel.tp > 1, "sequence-parallel");
    flags.put("pipeline-model-parallel-size", parallel.pp);
    flags.put("context-parallel-size", parallel.cp);
    if parallel.cp > 1 {
        let kind = match parallel.cp_kind {
            CpKind::Ring => "p2p",
            CpKind::AllGather => "all_gather",
            CpKind::Ulysses => "a2a",
        };
        flags.put("cp-comm-type", kind);
    }
    if job.experts > 0 {
        flags.put("expert-model-parallel-size", parallel.ep);
        flags.put("expert-tensor-parallel-size", parallel.etp);
    }
    match parallel.rank_order.join(",").as_str() {
        "pp,dp,cp,tp" => {}
        "dp,pp,cp,tp" => flags.set("use-tp-pp-dp-mapping"),
        order => {
            flags.notes.lost("rank_order", order, "Megatron-LM has pp,dp,cp,tp and dp,pp,cp,tp: pp,dp,cp,tp is nearest")
        }
    }
}

fn batch(job: &Job, flags: &mut Flags) {
    flags.put("seq-length", job.seq);
    flags.put("micro-batch-size", job.parallel.mbs);
    flags.put("global-batch-size", job.global_batch);
    if job.further() > 0 {
        flags.put("mtp-num-layers", job.further());
    }
}

fn pipeline(job: &Job, flags: &mut Flags) {
    let parallel = &job.parallel;
    if parallel.pp == 1 {
        return;
    }
    let kind = parallel.schedule.as_str();
    let stages = job.stages_of_rank();
    match kind {
        "1f1b" => {}
        "interleaved-1f1b" => {
            if job.is_even() && job.further() == 0 {
                flags.put("num-virtual-stages-per-pipeline-rank", stages);
            }
            if let Some(group) = parallel.group {
                flags.put("microbatch-group-size-per-virtual-pipeline-stage", group);
            }
        }
        _ => flags.notes.lost("schedule", kind, "Megatron-LM runs 1f1b and interleaved-1f1b: schedule=1f1b is nearest"),
    }
    let runs = matches!(kind, "1f1b" | "interleaved-1f1b");
    let is_uneven = !job.is_even() || job.further() > 0;
    if is_uneven && (runs || stages == 1) {
        flags.put("pipeline-model-parallel-layout", format!("'{}'", layout(&job.stages)));
    }
    if let Some(slices) = parallel.slices.filter(|&slices| slices > 1) {
        flags.notes.lost("slices", slices, "Megatron-LM passes whole sequences: slices=1 is nearest");
    }
}

/// Stages as `--pipeline-model-parallel-layout` takes them: `Ettt|tttt|tttmL`.
pub(crate) fn layout(stages: &[Stage]) -> String {
    let stages = stages.iter().map(|stage| {
        let layers = match stage.layers {
            0 => String::new(),
            1 => "t".to_string(),
            layers => format!("t*{layers}"),
        };
        let further = "m".repeat(stage.further as usize);
        format!("{}{layers}{further}{}", if stage.embedding { "E" } else { "" }, if stage.head { "L" } else { "" })
    });
    stages.collect::<Vec<_>>().join("|")
}

fn replicas(job: &Job, flags: &mut Flags) {
    let parallel = &job.parallel;
    match parallel.zero {
        0 => {}
        1 => flags.set("use-distributed-optimizer"),
        zero => {
            flags.set("use-megatron-fsdp");
            flags.put("data-parallel-sharding-strategy", if zero == 2 { "optim_grads" } else { "optim_grads_params" });
        }
    }
    if parallel.zero > 0 && job.groups() > 1 {
        flags.put("num-distributed-optimizer-instances", job.groups());
    }
    if parallel.zero == 3 && parallel.gather == Gather::Step {
        flags.notes.does(
            Instead::Keys("gather=use".into()),
            "gather",
            "step",
            "Megatron-LM gathers parameters at each use",
        );
    }
}

fn memory(job: &Job, flags: &mut Flags) {
    match &job.parallel.recompute {
        Recompute::None => {}
        Recompute::Full(layers) => {
            flags.put("recompute-granularity", "full");
            flags.put("recompute-method", if layers.is_some() { "block" } else { "uniform" });
            flags.put("recompute-num-layers", layers.unwrap_or(1));
        }
        Recompute::Selective(_) => {
            let (known, others): (Vec<&str>, Vec<&str>) =
                job.modules().into_iter().partition(|name| MODULES.contains(name));
            if !known.is_empty() {
                flags.put("recompute-granularity", "selective");
                flags.put("recompute-modules", known.join(" "));
            }
            if !others.is_empty() {
                let text = "Megatron-LM recomputes whole modules: core_attn, layernorm, mlp, moe, moe_act, shared_experts, mla_up_proj";
                flags.notes.lost("recompute", others.join("+"), text);
            }
        }
        Recompute::Auto => {
            flags.notes.lost("recompute", "auto", "Megatron-LM takes full, full:N or modules: pin one");
        }
    }
    match job.parallel.offload {
        Offload::None => {}
        Offload::All(layers) if job.parallel.pp == 1 && job.parallel.recompute == Recompute::None => {
            flags.put("cpu-offloading-num-layers", layers.map_or(job.layers().saturating_sub(1), u64::from));
            let text = "Megatron-LM offloads what Transformer Engine saves, at most all layers but the last";
            flags.notes.near("offload", job.parallel.offload, text);
        }
        offload => {
            let text =
                "Megatron-LM offloads whole layers without pipeline and recomputation only: offload=none is nearest";
            flags.notes.lost("offload", offload, text);
        }
    }
    if job.parallel.offload_optimizer {
        flags.set("optimizer-cpu-offload");
        flags.notes.near("offload_optimizer", true, "Megatron-LM updates the parameters on the host");
    }
}

fn precision(job: &Job, flags: &mut Flags) {
    match job.precision.as_str() {
        "f32" => {}
        "fp16" => flags.set("fp16"),
        _ => flags.set("bf16"),
    }
    let recipe = match job.precision.as_str() {
        "f32" | "fp16" | "bf16" => None,
        "fp8-tensor" => Some("tensorwise"),
        "fp8-delayed" => Some("delayed"),
        "fp8-block" => Some("blockwise"),
        "mxfp8" => Some("mxfp8"),
        precision => {
            let text = "Megatron-LM has tensorwise, delayed, blockwise and mxfp8 recipes of 8 bits: bf16 is nearest";
            flags.notes.lost("precision", precision, text);
            None
        }
    };
    if let Some(recipe) = recipe {
        flags.put("fp8-format", if recipe == "delayed" { "hybrid" } else { "e4m3" });
        flags.put("fp8-recipe", recipe);
    }
    match job.optimizer.as_str() {
        "adamw" | "adamw-bf16" => flags.put("optimizer", "adam"),
        "sgd" | "momentum" => {
            flags.put("optimizer", "sgd");
            flags.put("sgd-momentum", if job.optimizer == "sgd" { "0.0" } else { "0.9" });
        }
        other => flags.notes.lost("optimizer", other, "Megatron-LM has adam, sgd and muon"),
    }
}
