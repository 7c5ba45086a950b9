//! A Python file for torchtitan: a function that changes a configuration of its registry, and the same as flags.

use crate::assumption::Assumption;
use crate::job::{Job, Stage};
use crate::notes::{Instead, Notes, Written};
use cost::{FusedKernel, Graphs, Hidden};
use ir::models::ModelConfig;
use ir::options::{CpKind, Gather, Offload, Recompute};
use std::fmt::Write;

/// Schedules by their names in `torch.distributed.pipelining`.
pub(crate) const SCHEDULES: [(&str, &str); 7] = [
    ("gpipe", "GPipe"),
    ("1f1b", "1F1B"),
    ("interleaved-1f1b", "Interleaved1F1B"),
    ("looped-bfs", "LoopedBFS"),
    ("interleaved-zb", "InterleavedZeroBubble"),
    ("zb-v", "ZBVZeroBubble"),
    ("dualpipe-v", "DualPipeV"),
];

/// Positions of torchtitan's models with latent attention.
const DEEPSEEK_POSITIONS: u64 = 16_384;

pub(crate) fn write(job: &Job) -> Written {
    let (mut fields, mut notes) = (Fields::default(), Notes::default());
    let parallel = &job.parallel;
    replicas(job, &mut fields, &mut notes);
    fields.put("parallelism.tensor_parallel_degree", parallel.tp.to_string());
    fields.put("parallelism.enable_sequence_parallel", python(parallel.sp && parallel.tp > 1));
    fields.put("parallelism.pipeline_parallel_degree", parallel.pp.to_string());
    if parallel.pp > 1 {
        pipeline(job, &mut fields, &mut notes);
    }
    fields.put("parallelism.context_parallel_degree", parallel.cp.to_string());
    if parallel.cp > 1 && parallel.cp_kind != CpKind::AllGather {
        notes.does(
            Instead::Keys("cp_kind=allgather".into()),
            "cp_kind",
            parallel.cp_kind.name(),
            "torchtitan takes what PyTorch's context parallelism does: it gathers keys and values",
        );
    }
    if job.experts > 0 {
        fields.put("parallelism.expert_parallel_degree", parallel.ep.to_string());
        if parallel.etp > 1 {
            notes.lost("etp", parallel.etp, "torchtitan shards experts over ep alone: etp=1 is nearest");
        }
    }
    if let Some(order) = job.other_order() {
        notes.lost("rank_order", order, "torchtitan has pp,dp,cp,tp");
    }
    // With a pipeline a rank's batch of one forward and backward goes through as micro-batches.
    let local = if parallel.pp > 1 { job.global_batch / parallel.dp } else { parallel.mbs };
    fields.put("training.local_batch_size", local.to_string());
    fields.put("training.global_batch_size", job.global_batch.to_string());
    fields.put("training.seq_len", job.seq.to_string());
    if job.seq > DEEPSEEK_POSITIONS
        && matches!(&job.config, Some(ModelConfig::Llama(config)) if config.latent.is_some())
    {
        let text = "the entries of DeepSeek-V3 have 16,384 positions (torchtitan/models/deepseek_v3): raise max_seq_len of their rotation";
        notes.near("model", &job.model, text);
    }
    offload(job, &mut fields, &mut notes);
    precision(job, &mut fields, &mut notes);
    let assumed = assumptions(job, &mut fields, &mut notes);
    let policy = recompute(job, &mut notes);
    Written { body: python_file(job, &fields.0, policy), notes: notes.0, assumed }
}

/// Assumptions of a stack's prediction: compiled blocks, overlapped collectives, launches one by one. Places are those of 0.3.
fn assumptions(job: &Job, fields: &mut Fields, notes: &mut Notes) -> Vec<Assumption> {
    let parallel = &job.parallel;
    // Eager PyTorch has no kernel of a gate with its product.
    let is_compiled = job.traits.kernels.fused.contains(FusedKernel::Swiglu);
    let overlaps = parallel.tp > 1 && parallel.sp && job.hides(Hidden::Tp);
    let rows = [
        (
            "compiled blocks",
            "each op is a kernel of its own (CompileConfig.enable is off)",
            "compile.enable",
            is_compiled,
        ),
        (
            "overlap of tensor parallelism",
            "products wait for the collectives next to them",
            "compile.enable_async_tensor_parallel",
            overlaps && is_compiled,
        ),
        (
            "launches one by one",
            "whole steps are captured as CUDA graphs, and pipelines and most exchanges of experts are refused (trainer.py)",
            "training.disable_cuda_graphs",
            job.traits.launch.graphs == Graphs::None,
        ),
    ];
    if parallel.dp * parallel.cp > 1 && !job.hides(Hidden::Dp) {
        notes.does(
            Instead::Keys("dp_overlap=true".into()),
            "dp_overlap",
            false,
            "torchtitan overlaps the reduction of gradients with the backward",
        );
    }
    if overlaps && !is_compiled {
        notes.does(
            Instead::Keys("tp_overlap=false".into()),
            "tp_overlap",
            true,
            "torchtitan overlaps in compiled blocks alone",
        );
    }
    if job.recipe.comm_gradient < 4.0 && job.precision != "f32" {
        notes.does(Instead::GradDtype("f32"), "grad_dtype", "bf16", "torchtitan reduces gradients in f32");
    }
    // The entry of a registry may have the opposite.
    rows.iter().filter(|(.., holds)| !holds).for_each(|(_, _, field, _)| fields.put(field, python(false)));
    let written = rows.into_iter().filter(|(.., holds)| *holds).map(|(name, without, field, _)| {
        fields.put(field, python(true));
        Assumption { name, without, flags: vec![format!("config.{field} = True")], environment: Vec::new() }
    });
    let mut written: Vec<Assumption> = written.collect();
    if let Some(compiled) = written.first_mut().filter(|_| is_compiled) {
        // Entries of registries may compile the loss alone.
        fields.put(COMPONENTS, COMPILED.to_string());
        compiled.flags.push(format!("config.{COMPONENTS} = {COMPILED}"));
    }
    written
}

/// The field with the parts of a step that are compiled, and all of them.
const COMPONENTS: &str = "compile.components";
const COMPILED: &str = "[\"model\", \"loss\"]";

/// Fields of a configuration, with their values as Python has them.
#[derive(Default)]
struct Fields(Vec<(String, String)>);

impl Fields {
    fn put(&mut self, field: &str, value: String) {
        self.0.push((field.to_string(), value));
    }
}

/// The words of Python.
fn python(value: bool) -> String {
    if value { "True" } else { "False" }.to_string()
}

fn replicas(job: &Job, fields: &mut Fields, notes: &mut Notes) {
    let parallel = &job.parallel;
    let (mut shard, mut replicate) = (1, parallel.dp);
    if parallel.zero > 0 {
        (shard, replicate) = (job.shard() / parallel.cp, job.groups());
        if !job.shard().is_multiple_of(parallel.cp) {
            notes.lost("shard", job.shard(), "torchtitan shards over all of cp: a multiple of cp is nearest");
            (shard, replicate) = (1, parallel.dp);
        }
    }
    fields.put("parallelism.data_parallel_replicate_degree", replicate.to_string());
    fields.put("parallelism.data_parallel_shard_degree", shard.to_string());
    match parallel.zero {
        0 => {}
        1 => notes.does(
            gathered(),
            "zero",
            1,
            "torchtitan shards parameters and gradients too, and keeps what it has gathered",
        ),
        2 => notes.does(
            gathered(),
            "zero",
            2,
            "torchtitan shards parameters too, and keeps what it has gathered until the backward",
        ),
        _ => {}
    }
    if parallel.zero > 0 {
        let keeps = parallel.zero < 3 || parallel.gather == Gather::Step;
        fields
            .put("parallelism.fsdp_reshard_after_forward", if keeps { "\"never\"" } else { "\"always\"" }.to_string());
    }
}

/// Sharded parameters that stay gathered.
fn gathered() -> Instead {
    Instead::Keys("zero=3,gather=step".into())
}

fn pipeline(job: &Job, fields: &mut Fields, notes: &mut Notes) {
    let parallel = &job.parallel;
    let kind = parallel.schedule.as_str();
    match SCHEDULES.iter().find(|(name, _)| *name == kind) {
        Some((_, theirs)) => fields.put("parallelism.pipeline_parallel_schedule", format!("\"{theirs}\"")),
        None => {
            fields.put("parallelism.pipeline_parallel_schedule", "\"_PipelineScheduleRuntime\"".to_string());
            fields.put("parallelism.pipeline_parallel_schedule_csv", "\"schedule.csv\"".to_string());
            notes.near(
                "schedule",
                kind,
                "torchtitan reads it from schedule.csv, which the file of `export --to torch-pipelining` writes",
            );
        }
    }
    fields.put("parallelism.pipeline_parallel_microbatch_size", parallel.mbs.to_string());
    fields.put("parallelism.module_fqns_per_model_part", parts(&job.stages));
    if let Some(slices) = parallel.slices.filter(|&slices| slices > 1) {
        notes.lost("slices", slices, "torchtitan passes whole sequences: slices=1 is nearest");
    }
    if let Some(group) = parallel.group.filter(|&group| u64::from(group) != parallel.pp) {
        notes.lost("group", group, "PyTorch's interleaved schedules have groups of pp micro-batches");
    }
}

/// The modules of each stage, as a list of lists.
fn parts(stages: &[Stage]) -> String {
    let mut layer = 0;
    let parts = stages.iter().map(|stage| {
        let mut names = Vec::new();
        names.extend(stage.embedding.then(|| "\"tok_embeddings\"".to_string()));
        names.extend((layer..layer + stage.layers).map(|layer| format!("\"layers.{layer}\"")));
        layer += stage.layers;
        if stage.head {
            names.extend(["\"norm\"".to_string(), "\"lm_head\"".to_string()]);
        }
        format!("[{}]", names.join(", "))
    });
    format!("[{}]", parts.collect::<Vec<_>>().join(", "))
}

fn offload(job: &Job, fields: &mut Fields, notes: &mut Notes) {
    let parallel = &job.parallel;
    if parallel.offload_optimizer {
        fields.put("training.enable_cpu_offload", python(true));
        notes.near(
            "offload_optimizer",
            true,
            "torchtitan offloads parameters and gradients too, and updates on the host",
        );
    }
    if parallel.offload != Offload::None {
        notes.lost("offload", parallel.offload, "torchtitan offloads no activations: offload=none is nearest");
    }
}

fn precision(job: &Job, fields: &mut Fields, notes: &mut Notes) {
    match job.precision.as_str() {
        "f32" => fields.put("training.mixed_precision_param", "\"float32\"".to_string()),
        "bf16" => fields.put("training.mixed_precision_param", "\"bfloat16\"".to_string()),
        other => {
            notes.lost("precision", other, "torchtitan converts products by converters of the model: bf16 is nearest")
        }
    }
    if job.optimizer != "adamw" {
        notes.lost("optimizer", &job.optimizer, "set the optimizer in the configuration of torchtitan");
    }
}

/// The class of the policy of activation checkpoints, if there is one.
fn recompute(job: &Job, notes: &mut Notes) -> Option<&'static str> {
    match &job.parallel.recompute {
        Recompute::None => None,
        Recompute::Full(layers) => {
            if let Some(layers) = layers {
                notes.does(
                    Instead::Keys("recompute=full".into()),
                    "recompute",
                    format!("full:{layers}"),
                    "torchtitan recomputes all layers",
                );
            }
            Some("FullAC")
        }
        Recompute::Selective(_) => {
            if job.modules() != ["op"] {
                notes.does(
                    Instead::Keys("recompute=selective:op".into()),
                    "recompute",
                    &job.parallel.recompute,
                    "torchtitan recomputes by op, and every second product",
                );
            }
            Some("SelectiveAC")
        }
        Recompute::Auto => {
            notes.lost("recompute", "auto", "pin full or selective:op");
            None
        }
    }
}

fn python_file(job: &Job, fields: &[(String, String)], policy: Option<&str>) -> String {
    let mut text = String::from("# As flags:\n");
    let mut flags = Vec::new();
    for (field, value) in fields.iter().filter(|(field, _)| !field.ends_with("module_fqns_per_model_part")) {
        flags.push(match value.as_str() {
            "True" => format!("--{field}"),
            "False" => field.rsplit_once('.').map_or(String::new(), |(group, name)| format!("--{group}.no-{name}")),
            value => format!("--{field} {}", value.replace(['[', ']', '"', ','], "")),
        });
    }
    for line in flags.chunks(2) {
        let _ = writeln!(text, "#   {}", line.join(" "));
    }
    let _ = writeln!(text, "\nimport dataclasses");
    if let Some(policy) = policy {
        let _ = writeln!(text, "\nfrom torchtitan.distributed.activation_checkpoint import {policy}");
    }
    let _ = writeln!(text, "\nSTACK = {:?}  # whose prediction this is", job.stack);
    text.push_str("\n\ndef planned(config):\n    \"\"\"Changes a Trainer.Config, such as llama3_8b(), to the planned layout.\"\"\"\n");
    for (field, value) in fields {
        let _ = writeln!(text, "    config.{field} = {value}");
    }
    let policy = policy.map_or("None".to_string(), |policy| format!("{policy}.Config()"));
    let _ = writeln!(text, "    config.activation_checkpoint = {policy}");
    // torchtitan checks values when a configuration is made.
    text.push_str("    for part in (\"parallelism\", \"compile\"):\n        setattr(config, part, dataclasses.replace(getattr(config, part)))\n");
    text.push_str("    return dataclasses.replace(config)\n");
    text
}
