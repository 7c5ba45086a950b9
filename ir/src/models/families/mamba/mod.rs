//! Models with state spaces of Mamba's kind, alone or between layers of attention.

pub(super) mod bamba;
pub(super) mod falcon_h1;
pub(super) mod falcon_mamba;
pub(super) mod granitemoehybrid;
pub(super) mod jamba;
pub(super) mod mamba1;
pub(super) mod mamba2;
pub(super) mod nemotron_h;

use super::{granite, granitemoe, granitemoeshared, prelude};
use crate::models::error::{ConfigError, invalid};
use crate::models::fields::Fields;
use prelude::{HubTensor, Join, Key};

/// The keys of a state space that Bamba and its like have.
pub(super) const MAMBA: &[Key] = &[
    Key::read(&["mamba_n_heads"], "128", "heads of a state space"),
    Key::read(&["mamba_d_head"], "\"auto\"", "size of its values; auto: what the other keys leave"),
    Key::read(&["mamba_n_groups"], "1", "groups of its heads, each with its keys and queries"),
    Key::read(&["mamba_d_state"], "256", "size of its keys"),
    Key::read(&["mamba_d_conv"], "4", "taps of its convolutions"),
    Key::read(&["mamba_expand"], "2", "its values, over the size of the stream"),
    Key::read(&["mamba_chunk_size"], "256", "rows that are computed together"),
    Key::read(&["mamba_conv_bias"], "true", "its convolutions have biases"),
    Key::read(&["mamba_proj_bias"], "false", "its products have biases"),
    Key::read(&["time_step_limit"], "[0.0, null]", "bounds of its steps"),
];

/// The tensors of a state space, in a module of a name.
macro_rules! state_space {
    ($module:literal) => {
        &[
            HubTensor::linear(concat!($module, ".in_proj.weight"), &["wgate", "wmv", "wmk", "wmq", "wdecay"])
                .joined(Join::Outputs),
            HubTensor::vector(
                concat!($module, ".in_proj.bias"),
                &["mg_bias", "mv_bias", "mk_bias", "mq_bias", "decay_bias"],
            ),
            HubTensor::vector(concat!($module, ".conv1d.weight"), &["conv_mv", "conv_mk", "conv_mq"])
                .shaped(crate::models::weights::FileShape::Taps),
            HubTensor::vector(concat!($module, ".conv1d.bias"), &["conv_mv_bias", "conv_mk_bias", "conv_mq_bias"]),
            HubTensor::vector(concat!($module, ".A_log"), &["a_log"]),
            HubTensor::vector(concat!($module, ".D"), &["skip"]),
            HubTensor::vector(concat!($module, ".dt_bias"), &["dt_bias"]),
            HubTensor::vector(concat!($module, ".norm.weight"), &["scan_norm"]),
            HubTensor::linear(concat!($module, ".out_proj.weight"), &["wmo"]).of_inputs(3),
            HubTensor::vector(concat!($module, ".out_proj.bias"), &["out_bias"]),
        ]
    };
}

/// The tensors of a state space in the module `mamba`.
pub(super) const IN_MAMBA: &[HubTensor] = state_space!("mamba");

/// The tensors of a state space in the module `mixer`.
pub(super) const IN_MIXER: &[HubTensor] = state_space!("mixer");

/// The tensors of a state space whose rows decay at rates of their own, in a module of a name.
macro_rules! selective {
    ($module:literal) => {
        &[
            HubTensor::linear(concat!($module, ".in_proj.weight"), &["wmx", "wgate"]),
            HubTensor::vector(concat!($module, ".in_proj.bias"), &["mx_bias", "mg_bias"]),
            HubTensor::vector(concat!($module, ".conv1d.weight"), &["conv"])
                .shaped(crate::models::weights::FileShape::Taps),
            HubTensor::vector(concat!($module, ".conv1d.bias"), &["conv_bias"]),
            HubTensor::linear(concat!($module, ".x_proj.weight"), &["wdecay_a", "wmk", "wmq"]),
            HubTensor::linear(concat!($module, ".dt_proj.weight"), &["wdecay_b"]),
            HubTensor::vector(concat!($module, ".dt_proj.bias"), &["dt_bias"]),
            HubTensor::table(concat!($module, ".A_log"), &["a_log"]),
            HubTensor::vector(concat!($module, ".D"), &["skip"]),
            HubTensor::vector(concat!($module, ".dt_layernorm.weight"), &["dt_norm"]),
            HubTensor::vector(concat!($module, ".b_layernorm.weight"), &["mk_norm"]),
            HubTensor::vector(concat!($module, ".c_layernorm.weight"), &["mq_norm"]),
            HubTensor::linear(concat!($module, ".out_proj.weight"), &["wmo"]),
            HubTensor::vector(concat!($module, ".out_proj.bias"), &["out_bias"]),
        ]
    };
}

/// The tensors of such a state space in the module `mamba`.
pub(super) const SELECTIVE_IN_MAMBA: &[HubTensor] = selective!("mamba");

/// The tensors of a state space with rates of its rows, in the module `mixer`.
pub(super) const SELECTIVE_IN_MIXER: &[HubTensor] = selective!("mixer");

/// The size of the vector that steps come from.
fn rank(fields: &Fields, key: &'static str, hidden: u64) -> Result<u64, ConfigError> {
    let stated: serde_json::Value = fields.get(key)?;
    match (stated.as_u64(), stated.as_str()) {
        (Some(rank), _) => Ok(rank),
        (None, Some("auto")) => Ok(hidden.div_ceil(16)),
        _ => Err(invalid(key, format!("{stated} is neither a number nor auto"))),
    }
}
