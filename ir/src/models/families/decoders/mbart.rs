//! The decoder of mBART: norms of what branches read, and of embeddings.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "mbart",
    class: "MBartForCausalLM",
    keys: Keys { class: "MBartConfig", lists: &[SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: DECODER,
    read,
};

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(LlamaConfig { norms: Norms::Before, ..bart(fields)? }.into())
}
