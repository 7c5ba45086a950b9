//! Assumptions of predictions of MaxText, as keys. Places are those of MaxText 0.2.5.

use super::axes::expert;
use crate::assumption::Assumption;
use crate::job::Job;
use cost::Kernel;

/// A row of the table.
struct Row {
    name: &'static str,
    without: &'static str,
    /// The lines of a job; none if the assumption does not concern it.
    lines: fn(&Job) -> Vec<String>,
}

/// The table.
const ROWS: [Row; 8] = [
    Row {
        name: "GPUs",
        without: "MaxText takes the kernels and the collectives of TPUs",
        lines: |_| vec!["hardware: \"gpu\"".to_string()],
    },
    Row {
        name: "attention kernel",
        without: "MaxText chooses a kernel by itself (attention_op.py)",
        lines: |job| {
            let kernel = match job.traits.kernels.attention {
                Kernel::Unfused => "dot_product",
                Kernel::Cudnn | Kernel::Flash1 | Kernel::Flash2 | Kernel::Flash3 => "cudnn_flash_te",
            };
            vec![format!("attention: \"{kernel}\"")]
        },
    },
    Row {
        name: "whole sequences",
        without: "documents are packed into sequences, and apart from each other in attention",
        lines: |_| vec!["packing: false".to_string()],
    },
    Row {
        name: "gradient type",
        without: "gradients are f32",
        lines: |job| match job.recipe.gradient {
            bytes if bytes < 4.0 && job.precision != "f32" => vec!["grad_dtype: \"bfloat16\"".to_string()],
            _ => Vec::new(),
        },
    },
    Row {
        name: "parameter type",
        without: "parameters, their own master copies, are f32",
        lines: |job| match job.recipe.master {
            bytes if bytes < 4.0 && job.precision != "f32" => vec!["weight_dtype: \"bfloat16\"".to_string()],
            _ => Vec::new(),
        },
    },
    Row {
        name: "types of the optimizer",
        without: "moments are f32",
        lines: |job| match job.optimizer.as_str() {
            "adamw-bf16" => vec!["mu_dtype: \"bfloat16\"".to_string()],
            _ => Vec::new(),
        },
    },
    Row {
        name: "grouped products of experts",
        without: "the kernel is one for TPUs, which GPUs interpret (moe.py, megablox_interpret)",
        lines: |job| {
            if job.experts == 0 {
                return Vec::new();
            }
            let capacity = job.capacity.map(|capacity| format!("capacity_factor: {capacity:?}"));
            // Tokens are dropped by the products of equal sizes alone (moe.py, sparse_matmul).
            let products = capacity.is_some().then(|| "sparse_matmul: false".to_string());
            ["megablox: false".to_string()].into_iter().chain(products).chain(capacity).collect()
        },
    },
    Row {
        name: "whole parameters",
        without: "ranks of experts and of context share the parameters of dense layers (base.yml, logical_axis_rules)",
        lines: whole,
    },
];

/// The assumptions of a job that need to be written.
pub(super) fn assumptions(job: &Job) -> Vec<Assumption> {
    let rows = ROWS.iter().map(|row| Assumption {
        name: row.name,
        without: row.without,
        flags: (row.lines)(job),
        ..Assumption::default()
    });
    rows.filter(|assumption| !assumption.is_void()).collect()
}

/// Dimensions of parameters that MaxText shards over the ranks of experts and of context. Rules of a file take the place of those
/// of the same name in `base.yml`.
pub(super) const SHARED: [&str; 6] = ["embed_vocab", "q_lora", "kv_lora", "embed_attn", "embed_moe", "embed"];

fn whole(job: &Job) -> Vec<String> {
    if job.parallel.zero >= 3 || expert(job) * job.parallel.cp == 1 {
        return Vec::new();
    }
    let rules = SHARED.map(|name| format!("['{name}', ['fsdp']]"));
    vec![format!("logical_axis_rules: [{}]", rules.join(", "))]
}
