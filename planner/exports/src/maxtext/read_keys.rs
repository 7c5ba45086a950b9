//! Keys of MaxText that are read, with the values that they take.

use super::keys::FileKeys;
use crate::flag_error::FlagError;
use Kind::{List, Number, Text, Truth, Whole};

/// A key that is read.
pub(super) struct Key {
    pub(super) name: &'static str,
    kind: Kind,
}

/// Values of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A whole number; -1 where MaxText finds it itself.
    Whole,
    Number,
    Truth,
    Text,
    List,
}

/// Keys that are read, besides the degrees of the axes.
pub(super) const READ: [Key; 66] = [
    Key { name: "attention", kind: Text },
    Key { name: "attention_bias", kind: Truth },
    Key { name: "attention_sink", kind: Truth },
    Key { name: "attention_type", kind: Text },
    Key { name: "base_config", kind: Text },
    Key { name: "base_emb_dim", kind: Whole },
    Key { name: "base_mlp_dim", kind: Whole },
    Key { name: "base_moe_mlp_dim", kind: Whole },
    Key { name: "base_num_decoder_layers", kind: Whole },
    Key { name: "base_num_kv_heads", kind: Whole },
    Key { name: "base_num_query_heads", kind: Whole },
    Key { name: "beta_fast", kind: Number },
    Key { name: "beta_slow", kind: Number },
    Key { name: "capacity_factor", kind: Number },
    Key { name: "context_parallel_strategy", kind: Text },
    Key { name: "decoder_block", kind: Text },
    Key { name: "dtype", kind: Text },
    Key { name: "first_num_dense_layers", kind: Whole },
    Key { name: "grad_dtype", kind: Text },
    Key { name: "gradient_accumulation_steps", kind: Whole },
    Key { name: "head_dim", kind: Whole },
    Key { name: "kv_lora_rank", kind: Whole },
    Key { name: "logical_axis_rules", kind: List },
    Key { name: "logits_via_embedding", kind: Truth },
    Key { name: "max_target_length", kind: Whole },
    Key { name: "mlp_activations", kind: List },
    Key { name: "mlp_activations_limit", kind: Number },
    Key { name: "model_name", kind: Text },
    Key { name: "mscale", kind: Number },
    Key { name: "mtp_num_layers", kind: Whole },
    Key { name: "mu_dtype", kind: Text },
    Key { name: "n_routing_groups", kind: Whole },
    Key { name: "norm_topk_prob", kind: Truth },
    Key { name: "normalization_layer_epsilon", kind: Number },
    Key { name: "num_experts", kind: Whole },
    Key { name: "num_experts_per_tok", kind: Whole },
    Key { name: "num_layers_per_pipeline_stage", kind: Whole },
    Key { name: "num_pipeline_microbatches", kind: Whole },
    Key { name: "num_pipeline_repeats", kind: Whole },
    Key { name: "opt_type", kind: Text },
    Key { name: "optimizer_memory_host_offload", kind: Truth },
    Key { name: "original_max_position_embeddings", kind: Whole },
    Key { name: "override_model_config", kind: Truth },
    Key { name: "per_device_batch_size", kind: Number },
    Key { name: "q_lora_rank", kind: Whole },
    Key { name: "qk_nope_head_dim", kind: Whole },
    Key { name: "qk_rope_head_dim", kind: Whole },
    Key { name: "quantization", kind: Text },
    Key { name: "remat_policy", kind: Text },
    Key { name: "rope_factor", kind: Number },
    Key { name: "rope_linear_scaling_factor", kind: Number },
    Key { name: "rope_max_timescale", kind: Number },
    Key { name: "rope_truncate", kind: Truth },
    Key { name: "rope_type", kind: Text },
    Key { name: "routed_bias", kind: Truth },
    Key { name: "routed_scaling_factor", kind: Number },
    Key { name: "routed_score_func", kind: Text },
    Key { name: "shard_optimizer_over_data", kind: Truth },
    Key { name: "shared_experts", kind: Whole },
    Key { name: "sliding_window_size", kind: Whole },
    Key { name: "topk_routing_group", kind: Whole },
    Key { name: "trainable_position_size", kind: Whole },
    Key { name: "use_qk_norm", kind: Truth },
    Key { name: "v_head_dim", kind: Whole },
    Key { name: "vocab_size", kind: Whole },
    Key { name: "weight_dtype", kind: Text },
];

impl Key {
    /// Checks the value that a file states.
    ///
    /// # Errors
    /// It is none of the kind, or it depends on a variable.
    pub(super) fn check(&self, file: &FileKeys) -> Result<(), FlagError> {
        let Key { name, kind } = *self;
        if !file.has(name) {
            return Ok(());
        }
        let Some(text) = file.text(name) else {
            return match kind {
                List => Ok(()),
                _ => Err(format!("{name} is a list or a section: it takes one value").into()),
            };
        };
        if text.contains("${") || text.contains("$(") {
            return Err(format!("{name} is `{text}`, which only a shell knows: write its value out").into());
        }
        match kind {
            Whole => file.whole(name).map(drop),
            Number if file.number(name).is_none_or(|number| !number.is_finite()) => {
                Err(format!("{name} is `{text}`: it takes a number").into())
            }
            Truth if file.truth(name).is_none() => Err(format!("{name} is `{text}`: it is true or false").into()),
            _ => Ok(()),
        }
    }
}
