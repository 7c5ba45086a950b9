//! Keys of the mesh, the batch, the pipeline, recomputation and number formats.

use super::axes::{expert, placed, sharing};
use super::remat::policy;
use crate::job::Job;
use crate::launch::Nodes;
use crate::notes::{Instead, Notes};
use cost::Hidden;
use ir::models::{Experts, LayerSet, LlamaConfig, ModelConfig};
use ir::options::{CpKind, Gather, Offload};

/// The lines of a job's layout.
pub(super) fn lines(job: &Job, notes: &mut Notes) -> Vec<String> {
    let mut lines = Vec::new();
    for placed in placed(job, Nodes::of(job).processes) {
        let axis = placed.axis.name();
        lines.push(format!("ici_{axis}_parallelism: {}", placed.within));
        lines.push(format!("dcn_{axis}_parallelism: {}", placed.across));
    }
    sequence(job, &mut lines, notes);
    sharding(job, &mut lines, notes);
    batch(job, &mut lines);
    pipeline(job, &mut lines, notes);
    memory(job, &mut lines, notes);
    formats(job, &mut lines, notes);
    if job.parallel.dp > 1 && !job.hides(Hidden::Dp) {
        let text = "XLA overlaps gathers and reductions with compute";
        notes.does(Instead::Keys("dp_overlap=true".into()), "dp_overlap", false, text);
    }
    unsaid(job, notes);
    lines
}

fn sequence(job: &Job, lines: &mut Vec<String>, notes: &mut Notes) {
    if job.parallel.cp == 1 {
        return;
    }
    let strategy = match job.parallel.cp_kind {
        CpKind::Ring => "ring",
        CpKind::AllGather => "all_gather",
        CpKind::Ulysses => {
            // configs/types.py: context_parallel_strategy.
            let text = "MaxText exchanges heads on TPUs alone: cp_kind=allgather is nearest";
            notes.does(Instead::Keys("cp_kind=allgather".into()), "cp_kind", "ulysses", text);
            "all_gather"
        }
    };
    lines.push(format!("context_parallel_strategy: \"{strategy}\""));
}

fn sharding(job: &Job, lines: &mut Vec<String>, notes: &mut Notes) {
    let parallel = &job.parallel;
    match parallel.zero {
        1 if parallel.dp > 1 => {
            lines.push("shard_optimizer_over_data: true".to_string());
            notes.near("zero", 1, "XLA decides when sharded states are gathered");
        }
        2 => notes.lost("zero", 2, "MaxText shards gradients with parameters alone: zero=3 is nearest"),
        3 if sharing(job) != job.shard() => {
            let text = format!("MaxText shards over data, experts and context, here over {} ranks", sharing(job));
            notes.near("shard", job.shard(), &text);
        }
        _ => {}
    }
}

/// A pass computes `per_device_batch_size` times the devices, cut into the micro-batches of a pipeline.
fn batch(job: &Job, lines: &mut Vec<String>) {
    let accumulation = if job.parallel.pp > 1 { 1 } else { job.microbatches() };
    let share = share(job.global_batch / accumulation, job.parallel.devices());
    lines.push(format!("per_device_batch_size: {share}"));
    lines.push(format!("gradient_accumulation_steps: {accumulation}"));
    lines.push(format!("max_target_length: {}", job.seq));
}

/// Sequences of a pass for each device, such that the product with the devices is not below the sequences after rounding:
/// MaxText takes its whole part.
fn share(sequences: u64, devices: u64) -> f64 {
    let (sequences, devices) = (sequences as f64, devices as f64);
    let share = sequences / devices;
    if share * devices < sequences { share.next_up() } else { share }
}

fn pipeline(job: &Job, lines: &mut Vec<String>, notes: &mut Notes) {
    let (parallel, stages) = (&job.parallel, job.stages_of_rank());
    if parallel.pp == 1 {
        return;
    }
    let dense = first_dense(job);
    let (piped, places) = (job.layers() - dense.min(job.layers()), (parallel.pp * stages).max(1));
    let of_stage = piped / places;
    lines.push(format!("num_layers_per_pipeline_stage: {of_stage}"));
    lines.push(format!("num_pipeline_repeats: {stages}"));
    lines.push(format!("num_pipeline_microbatches: {}", job.microbatches()));
    let own = if stages > 1 { "looped-bfs" } else { "gpipe" };
    if parallel.schedule != own {
        let text = "MaxText runs all forwards and then all backwards of a step, in a circle of stages";
        notes.does(Instead::Keys(format!("schedule={own}")), "schedule", &parallel.schedule, text);
    }
    if dense > 0 {
        let text = "MaxText computes the first layers on all stages, outside of the pipeline";
        notes.near("stages", job.stages.len(), text);
    }
    if !piped.is_multiple_of(places) || dense == 0 && !job.is_even() {
        notes.lost("stages", job.stages.len(), "MaxText has stages of equal numbers of layers");
    }
    if !job.microbatches().is_multiple_of(parallel.pp) {
        notes.lost("pp", parallel.pp, "MaxText needs a multiple of the stages as number of micro-batches");
    }
}

/// First layers without experts, of a model that has layers with them (configs/types.py, pipeline_parallel_layers).
fn first_dense(job: &Job) -> u64 {
    match &job.config {
        Some(ModelConfig::Llama(LlamaConfig {
            experts: Some(Experts { dense: LayerSet::First(count), .. }), ..
        })) => u64::from(*count),
        _ => 0,
    }
}

fn memory(job: &Job, lines: &mut Vec<String>, notes: &mut Notes) {
    let parallel = &job.parallel;
    let chosen = policy(&parallel.recompute);
    lines.push(format!("remat_policy: \"{}\"", chosen.name));
    if !chosen.is_exact {
        let text = format!("the policy {} is nearest, which recomputes what goes from element to element", chosen.name);
        let instead = Instead::Keys(format!("recompute={}", super::remat::recompute(chosen.name).unwrap_or_default()));
        notes.does(instead, "recompute", &parallel.recompute, &text);
    }
    if parallel.offload != Offload::None {
        notes.lost("offload", parallel.offload, "choose the tensors by remat_policy custom, with the value offload");
    }
    if parallel.offload_optimizer {
        lines.push("optimizer_memory_host_offload: true".to_string());
    }
}

/// Recipes of precision with MaxText's name for them, of Transformer Engine.
pub(super) const QUANTIZATIONS: [(&str, &str); 4] = [
    ("fp8-tensor", "te_fp8_currentscaling"),
    ("fp8-delayed", "te_fp8_delayedscaling"),
    ("mxfp8", "te_mxfp8"),
    ("nvfp4", "te_nvfp4"),
];

fn formats(job: &Job, lines: &mut Vec<String>, notes: &mut Notes) {
    let precision = job.precision.as_str();
    let dtype = match precision {
        "f32" => "float32",
        "fp16" => "float16",
        _ => "bfloat16",
    };
    lines.push(format!("dtype: \"{dtype}\""));
    let quantization = QUANTIZATIONS.iter().find(|(recipe, _)| *recipe == precision);
    match quantization {
        // configs/types.py: delayed scaling needs the maxima of each pass.
        Some(("fp8-delayed", _)) if job.parallel.pp == 1 && job.microbatches() > 1 => {
            notes.lost("precision", precision, "MaxText does not accumulate gradients with it: fp8-tensor is nearest");
        }
        Some((_, name)) => lines.push(format!("quantization: \"{name}\"")),
        None if matches!(precision, "f32" | "fp16" | "bf16") => {}
        None => notes.lost("precision", precision, "choose a recipe by the key quantization: bf16 is nearest"),
    }
    match job.optimizer.as_str() {
        "adamw" | "adamw-bf16" => lines.push("opt_type: \"adamw\"".to_string()),
        "sgd" => lines.push("opt_type: \"sgd\"".to_string()),
        other => notes.lost("optimizer", other, "MaxText has adamw, adam_pax, sgd and muon"),
    }
}

fn unsaid(job: &Job, notes: &mut Notes) {
    let parallel = &job.parallel;
    if let Some(order) = job.other_order() {
        notes.lost("rank_order", order, "set mesh_axes");
    }
    notes.unsaid(&[
        (
            "etp",
            job.experts > 0 && parallel.etp != parallel.tp,
            parallel.etp.to_string(),
            "experts are sharded over ep, and over tp as all else: etp=tp is nearest",
        ),
        ("ep", parallel.ep > expert(job), parallel.ep.to_string(), "MaxText needs a dp that ep divides"),
        (
            "shard",
            parallel.zero < 3 && parallel.zero > 0 && job.groups() > 1,
            job.shard().to_string(),
            "MaxText shards over all of data",
        ),
        (
            "gather",
            parallel.zero == 3 && parallel.gather == Gather::Step,
            "step".into(),
            "XLA gathers parameters where they are used: gather=use is nearest",
        ),
        (
            "tp_overlap",
            parallel.tp > 1 && parallel.tp_overlap == Some(true),
            "true".into(),
            "set te_comm_gemm_overlap: tp_overlap=false is nearest",
        ),
    ]);
}
