//! Granite with experts, and one that all tokens take.

use super::prelude::*;
use super::{granite, granitemoe};

pub(super) const FAMILY: Family = Family {
    model_type: "granitemoeshared",
    class: "GraniteMoeSharedForCausalLM",
    keys: Keys {
        class: "GraniteMoeSharedConfig",
        lists: &[SHARED, granitemoe::KEYS, ONE_TYPE, ROUTED, ROUTER_LOSS, ROTARY, EVERY],
    },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, granitemoe::EXPERTS_OF_GRANITE], ..USUAL },
    read,
};

pub(super) const SHARED: &[Key] =
    &[Key::read(&["shared_intermediate_size"], "0", "size of the expert that all tokens take; 0: none")];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    windows::one_type(fields)?;
    let experts = softmax(fields, "num_local_experts", "intermediate_size")?;
    let shared = fields.get("shared_intermediate_size")?;
    Ok(LlamaConfig { experts: Some(Experts { shared, ..experts }), ..granite::scaled(fields)? }.into())
}
