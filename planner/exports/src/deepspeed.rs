//! DeepSpeed's JSON file.

use crate::job::Job;
use crate::notes::{Instead, Notes, Written};
use cost::Hidden;
use ir::options::{Gather, Offload, Recompute};
use serde_json::{Value, json};

pub(crate) fn write(job: &Job) -> Written {
    let (parallel, mut notes) = (&job.parallel, Notes::default());
    let mut zero = json!({"stage": parallel.zero, "overlap_comm": job.hides(Hidden::Dp)});
    if parallel.zero > 0 && job.groups() > 1 {
        notes.lost("shard", job.shard(), "DeepSpeed shards over all data-parallel ranks");
    }
    if parallel.offload_optimizer {
        zero["offload_optimizer"] = json!({"device": "cpu", "pin_memory": true});
    }
    let mut file = json!({
        "train_batch_size": job.global_batch,
        "train_micro_batch_size_per_gpu": parallel.mbs,
        "gradient_accumulation_steps": job.microbatches(),
        "zero_optimization": zero,
    });
    precision(job, &mut file, &mut notes);
    gradients(job, &mut file, &mut notes);
    if parallel.tp > 1 {
        file["tensor_parallel"] = json!({"autotp_size": parallel.tp});
        notes.near("tp", parallel.tp, "AutoTP chooses what it shards by its own rules");
    }
    notes.unsaid(&[
        ("pp", parallel.pp > 1, parallel.pp.to_string(), "stages are in the code of the model: PipelineModule"),
        ("cp", parallel.cp > 1, parallel.cp.to_string(), "the code of the model calls DistributedAttention (Ulysses)"),
        ("ep", parallel.ep > 1, parallel.ep.to_string(), "the code of the model calls MoE(ep_size)"),
        ("etp", parallel.etp > 1, parallel.etp.to_string(), "DeepSpeed shards experts over ep alone"),
        ("sp", parallel.sp && parallel.tp > 1, "true".into(), "AutoTP has no sequence parallelism"),
        (
            "gather",
            parallel.zero == 3 && parallel.gather == Gather::Step,
            "step".into(),
            "set stage3_max_live_parameters: gather=use is nearest",
        ),
        (
            "tp_overlap",
            parallel.tp > 1 && parallel.tp_overlap == Some(true),
            "true".into(),
            "set tensor_parallel.tp_overlap_comm: tp_overlap=false is nearest",
        ),
        (
            "master",
            job.recipe.master < 4.0 && job.precision != "f32",
            "".into(),
            "set bf16_master_weights_and_grads: master copies in f32 are nearest",
        ),
        (
            "recompute",
            !matches!(parallel.recompute, Recompute::None | Recompute::Full(None)),
            parallel.recompute.to_string(),
            "the code of the model calls its checkpoints",
        ),
        (
            "offload",
            parallel.offload != Offload::None,
            parallel.offload.to_string(),
            "the code of the model calls its checkpoints, `cpu_checkpointing`",
        ),
    ]);
    if parallel.recompute == Recompute::Full(None) {
        file["activation_checkpointing"] = json!({"partition_activations": false, "cpu_checkpointing": false});
        let text = "the model calls deepspeed.checkpointing.checkpoint for each layer, as model.gradient_checkpointing_enable() of \
                    transformers does by PyTorch's";
        notes.of_code("recompute", "full", text);
    }
    if let Some(order) = job.other_order() {
        notes.lost("rank_order", order, "DeepSpeed orders ranks itself");
    }
    if job.optimizer != "adamw" {
        notes.lost("optimizer", &job.optimizer, "set the section optimizer");
    }
    Written::plain(format!("{file:#}\n"), notes)
}

fn precision(job: &Job, file: &mut Value, notes: &mut Notes) {
    match job.precision.as_str() {
        "f32" => {}
        "bf16" => file["bf16"] = json!({"enabled": true}),
        "fp16" => file["fp16"] = json!({"enabled": true}),
        other => {
            file["bf16"] = json!({"enabled": true});
            notes.lost("precision", other, "DeepSpeed has bf16 and fp16: bf16 is nearest");
        }
    }
}

/// Types of gradients. ZeRO accumulates them in the type of the parameters, but for stage 1 in bf16 (engine.py,
/// _do_optimizer_sanity_check).
fn gradients(job: &Job, file: &mut Value, notes: &mut Notes) {
    if job.precision == "f32" {
        return;
    }
    let parameters = if job.precision == "fp16" { "fp16" } else { "bf16" };
    let is_open = job.parallel.zero == 0 || job.parallel.zero == 1 && parameters == "bf16";
    file["communication_data_type"] = json!(gradient_type(job.recipe.comm_gradient, parameters));
    if is_open {
        file["data_types"] = json!({"grad_accum_dtype": gradient_type(job.recipe.gradient, parameters)});
    } else if job.recipe.gradient >= 4.0 {
        notes.does(
            Instead::GradDtype("bf16"),
            "grad_dtype",
            "f32",
            "ZeRO accumulates gradients in the type of the parameters: 2 bytes less",
        );
    }
}

/// Name of the type of gradients of a size in bytes, where parameters have a 16-bit type.
fn gradient_type(bytes: f64, parameters: &'static str) -> &'static str {
    if bytes < 4.0 { parameters } else { "fp32" }
}
