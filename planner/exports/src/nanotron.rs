//! Sections of nanotron's YAML file.

use crate::job::Job;
use crate::notes::{Instead, Notes, Written};
use cost::Hidden;
use ir::options::{Offload, Recompute};

pub(crate) fn write(job: &Job) -> Written {
    let (parallel, mut notes) = (&job.parallel, Notes::default());
    let engine = match parallel.schedule.as_str() {
        "gpipe" => "afab",
        "1f1b" => "1f1b",
        kind => {
            if parallel.pp > 1 {
                notes.lost("schedule", kind, "nanotron runs 1f1b and gpipe (afab): schedule=1f1b is nearest");
            }
            "1f1b"
        }
    };
    let zero = match parallel.zero {
        0 | 1 => parallel.zero,
        zero => {
            notes.lost("zero", zero, "nanotron shards optimizer states alone: zero=1 is nearest");
            1
        }
    };
    if parallel.tp > job.kv_heads && job.kv_heads > 0 {
        notes.lost("tp", parallel.tp, "nanotron needs a key head for each tp rank");
    }
    notes.unsaid(&[
        ("cp", parallel.cp > 1, parallel.cp.to_string(), "nanotron 0.4 has no context parallelism"),
        ("etp", parallel.etp > 1, parallel.etp.to_string(), "nanotron shards experts over ep alone"),
        ("shard", parallel.zero > 0 && job.groups() > 1, job.shard().to_string(), "nanotron shards over all of dp"),
        (
            "recompute",
            parallel.recompute != Recompute::None,
            parallel.recompute.to_string(),
            "nanotron 0.4 has no key for it",
        ),
        ("offload", parallel.offload != Offload::None, parallel.offload.to_string(), "nanotron offloads nothing"),
        ("offload_optimizer", parallel.offload_optimizer, "true".into(), "nanotron offloads nothing"),
        (
            "stages",
            job.sets_stages && !job.is_even(),
            format!("{}", job.stages.len()),
            "nanotron divides layers by their cost itself",
        ),
    ]);
    if parallel.dp > 1 && !job.hides(Hidden::Dp) {
        notes.does(
            Instead::Keys("dp_overlap=true".into()),
            "dp_overlap",
            false,
            "nanotron overlaps the reduction of gradients with the backward",
        );
    }
    let is_cut = parallel.tp > 1;
    let hides = parallel.tp_overlap.unwrap_or(job.hides(Hidden::Tp) || job.hides(Hidden::TpBackward));
    if is_cut && parallel.sp && parallel.tp_overlap == Some(true) {
        notes.does(
            Instead::Keys("tp_overlap=default".into()),
            "tp_overlap",
            true,
            "nanotron hides collectives of the backward alone",
        );
    }
    if is_cut && !parallel.sp && parallel.tp_overlap.is_some() {
        let text = "nanotron has no asynchronous communication without sequence parallelism";
        notes.does(Instead::Keys("tp_overlap=default".into()), "tp_overlap", hides, text);
    }
    if let Some(order) = job.other_order() {
        notes.lost("rank_order", order, "nanotron has pp,dp,tp");
    }
    if !matches!(job.precision.as_str(), "bf16" | "f32") {
        notes.lost("precision", &job.precision, "nanotron has bfloat16 and float32");
    }
    let dtype = if job.precision == "f32" { "float32" } else { "bfloat16" };
    let mode = if parallel.sp { "REDUCE_SCATTER" } else { "ALL_REDUCE" };
    let text = format!(
        "parallelism:\n  dp: {}\n  pp: {}\n  tp: {}\n  expert_parallel_size: {}\n  pp_engine: {engine}\n  tp_mode: {mode}\n  \
         tp_linear_async_communication: {}\n\
         tokens:\n  sequence_length: {}\n  micro_batch_size: {}\n  batch_accumulation_per_replica: {}\n\
         optimizer:\n  zero_stage: {zero}\n  accumulate_grad_in_fp32: {}\n\
         model:\n  dtype: {dtype}\n",
        parallel.dp,
        parallel.pp,
        parallel.tp,
        parallel.ep,
        parallel.sp && is_cut && hides,
        job.seq,
        parallel.mbs,
        job.microbatches(),
        job.precision != "f32" && job.recipe.gradient >= 4.0,
    );
    Written::plain(text, notes)
}
