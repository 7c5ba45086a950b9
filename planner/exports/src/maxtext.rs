//! A YAML file for MaxText, on top of its `base.yml`.

use crate::job::Job;
use crate::notes::{Notes, Written};
use ir::options::{CpKind, Offload, ParallelConfig, Recompute};
use std::fmt::Write;

pub(crate) fn write(job: &Job) -> Written {
    let (mut text, mut notes) = (String::new(), Notes::default());
    let parallel = &job.parallel;
    for (axis, within, across) in axes(job) {
        let _ = writeln!(text, "ici_{axis}_parallelism: {within}\ndcn_{axis}_parallelism: {across}");
    }
    if parallel.cp > 1 {
        let kind = match parallel.cp_kind {
            CpKind::Ring => "ring",
            CpKind::AllGather => "all_gather",
            CpKind::Ulysses => "ulysses",
        };
        let _ = writeln!(text, "context_parallel_strategy: \"{kind}\"\ncontext_parallel_load_balance: true");
    }
    match parallel.zero {
        1 => {
            text.push_str("shard_optimizer_over_data: true\n");
            notes.near("zero", 1, "XLA decides when sharded states are gathered");
        }
        2 => notes.lost("zero", 2, "MaxText shards gradients with parameters alone: zero=3 is nearest"),
        _ => {}
    }
    pipeline(job, &mut text, &mut notes);
    let accumulation = if parallel.pp > 1 { 1 } else { job.microbatches() };
    let per_device = job.global_batch as f64 / (accumulation * parallel.devices()) as f64;
    let _ = writeln!(
        text,
        "per_device_batch_size: {per_device}\ngradient_accumulation_steps: {accumulation}\nmax_target_length: {}",
        job.seq
    );
    memory(job, &mut text, &mut notes);
    precision(job, &mut text, &mut notes);
    notes.unsaid(&[
        (
            "etp",
            parallel.etp > 1 && parallel.etp != parallel.tp,
            parallel.etp.to_string(),
            "experts are sharded over ep, and over tp as all else",
        ),
        ("rank_order", parallel.rank_order.join(",") != "pp,dp,cp,tp", parallel.rank_order.join(","), "set mesh_axes"),
    ]);
    Written::plain(text, notes)
}

/// Per axis, its degree within a node and across nodes. The innermost axes fill a node.
fn axes(job: &Job) -> Vec<(&'static str, u64, u64)> {
    let ParallelConfig { dp, tp, pp, cp, ep, sp, zero, .. } = job.parallel;
    // Experts have ranks of data parallelism of their own.
    let (ep, dp) = if job.experts > 0 && dp.is_multiple_of(ep) { (ep, dp / ep) } else { (1, dp) };
    let (fsdp, data) = match zero {
        3 => (job.shard().min(dp).max(1), dp / job.shard().min(dp).max(1)),
        _ => (1, dp),
    };
    let tensor = if sp { "tensor_sequence" } else { "tensor" };
    let other = if sp { "tensor" } else { "tensor_sequence" };
    let inner_first =
        [(tensor, tp), (other, 1), ("context", cp), ("expert", ep), ("fsdp", fsdp), ("data", data), ("pipeline", pp)];
    let mut free = job.per_node.max(1);
    let placed = inner_first.into_iter().map(|(axis, degree)| {
        let within = (1..=degree.min(free))
            .rev()
            .find(|&part| degree.is_multiple_of(part) && free.is_multiple_of(part))
            .unwrap_or(1);
        free /= within;
        (axis, within, degree / within)
    });
    placed.collect()
}

fn pipeline(job: &Job, text: &mut String, notes: &mut Notes) {
    let parallel = &job.parallel;
    if parallel.pp == 1 {
        return;
    }
    let stages = job.stages_of_rank();
    let per_stage = job.layers() / (parallel.pp * stages).max(1);
    let _ = writeln!(
        text,
        "num_layers_per_pipeline_stage: {per_stage}\nnum_pipeline_repeats: {stages}\nnum_pipeline_microbatches: {}",
        job.microbatches()
    );
    notes.near(
        "schedule",
        &parallel.schedule,
        "MaxText runs all forwards and then all backwards of a step, in a circle of stages",
    );
    if !job.is_even() {
        notes.lost("stages", job.stages.len(), "MaxText has stages of equal numbers of layers");
    }
}

fn memory(job: &Job, text: &mut String, notes: &mut Notes) {
    match &job.parallel.recompute {
        Recompute::Full(None) => text.push_str("remat_policy: \"full\"\n"),
        Recompute::None => {
            text.push_str("remat_policy: \"minimal\"\n");
            notes.near(
                "recompute",
                "none",
                "the policy minimal saves the results of products, and recomputes the rest",
            );
        }
        recompute => {
            text.push_str("remat_policy: \"save_qkv_proj\"\n");
            notes.near("recompute", recompute, "MaxText has policies by tensor: see remat_policy custom");
        }
    }
    if job.parallel.offload != Offload::None {
        notes.lost(
            "offload",
            job.parallel.offload,
            "choose the tensors by remat_policy custom, with the value offload",
        );
    }
    if job.parallel.offload_optimizer {
        text.push_str("optimizer_memory_host_offload: true\n");
    }
}

fn precision(job: &Job, text: &mut String, notes: &mut Notes) {
    match job.precision.as_str() {
        "f32" => text.push_str("dtype: \"float32\"\n"),
        "bf16" => text.push_str("dtype: \"bfloat16\"\n"),
        other => {
            text.push_str("dtype: \"bfloat16\"\n");
            notes.lost("precision", other, "choose a recipe by the key quantization: bf16 is nearest");
        }
    }
    match job.optimizer.as_str() {
        "adamw" => text.push_str("opt_type: \"adamw\"\n"),
        "sgd" => text.push_str("opt_type: \"sgd\"\n"),
        other => notes.lost("optimizer", other, "MaxText has adamw, adam_pax, sgd and muon"),
    }
}
