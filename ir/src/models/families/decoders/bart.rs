//! The decoder of BART: norms of sums and of embeddings.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "bart",
    class: "BartForCausalLM",
    keys: Keys { class: "BartConfig", lists: &[SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: DECODER,
    read,
};

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(bart(fields)?.into())
}
