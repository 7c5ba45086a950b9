//! Assumptions of predictions of MaxText, as keys. Places are those of MaxText 0.2.5.

use super::axes::expert;
use crate::assumption::{Assumption, AssumptionRow};
use crate::job::Job;
use cost::Kernel;

/// The table.
const ROWS: [AssumptionRow; 8] = [
    AssumptionRow {
        name: "GPUs",
        without: "MaxText takes the kernels and the collectives of TPUs",
        write: |_, written| written.key("hardware", "\"gpu\""),
    },
    AssumptionRow {
        name: "attention kernel",
        without: "MaxText chooses a kernel by itself (attention_op.py)",
        write: |job, written| match job.traits.kernels.attention {
            Kernel::Unfused => written.key("attention", "\"dot_product\""),
            Kernel::Cudnn | Kernel::Flash1 | Kernel::Flash2 | Kernel::Flash3 => {
                written.key("attention", "\"cudnn_flash_te\"");
            }
        },
    },
    AssumptionRow {
        name: "whole sequences",
        without: "documents are packed into sequences, and apart from each other in attention",
        write: |_, written| written.key("packing", false),
    },
    AssumptionRow {
        name: "gradient type",
        without: "gradients are f32",
        write: |job, written| narrow(job, job.recipe.gradient, "grad_dtype", written),
    },
    AssumptionRow {
        name: "parameter type",
        without: "parameters, their own master copies, are f32",
        write: |job, written| narrow(job, job.recipe.master, "weight_dtype", written),
    },
    AssumptionRow {
        name: "types of the optimizer",
        without: "moments are f32",
        write: |job, written| {
            if job.optimizer == "adamw-bf16" {
                written.key("mu_dtype", BF16);
            }
        },
    },
    AssumptionRow {
        name: "grouped products of experts",
        without: "the kernel is one for TPUs, which GPUs interpret (moe.py, megablox_interpret)",
        write: |job, written| {
            if job.experts == 0 {
                return;
            }
            written.key("megablox", false);
            if let Some(capacity) = job.capacity {
                // Tokens are dropped by the products of equal sizes alone (moe.py, sparse_matmul).
                written.key("sparse_matmul", false);
                written.key("capacity_factor", format_args!("{capacity:?}"));
            }
        },
    },
    AssumptionRow {
        name: "whole parameters",
        without: "ranks of experts and of context share the parameters of dense layers (base.yml, logical_axis_rules)",
        write: |job, written| {
            if job.parallel.zero < 3 && expert(job) * job.parallel.cp > 1 {
                let rules = SHARED.map(|name| format!("['{name}', ['fsdp']]"));
                written.key("logical_axis_rules", format_args!("[{}]", rules.join(", ")));
            }
        },
    },
];

const BF16: &str = "\"bfloat16\"";

/// Puts the key of a type of few bytes, where the element type of the model is narrow too.
fn narrow(job: &Job, bytes: f64, key: &str, written: &mut Assumption) {
    if bytes < 4.0 && job.precision != "f32" {
        written.key(key, BF16);
    }
}

/// The assumptions of a job that need to be written.
pub(super) fn assumptions(job: &Job) -> Vec<Assumption> {
    AssumptionRow::written(&ROWS, job)
}

/// Dimensions of parameters that MaxText shards over the ranks of experts and of context. Rules of a file take the place of those
/// of the same name in `base.yml`.
pub(super) const SHARED: [&str; 6] = ["embed_vocab", "q_lora", "kv_lora", "embed_attn", "embed_moe", "embed"];
