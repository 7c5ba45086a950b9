//! The decoder of Pegasus: norms of what branches read, and a table of waves of positions.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "pegasus",
    class: "PegasusForCausalLM",
    keys: Keys { class: "PegasusConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: DECODER,
    read,
};

const KEYS: &[Key] = &[Key::read(&["pad_token_id"], "0", PAD)];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = waved(fields)?;
    Ok(LlamaConfig { norms: Norms::Before, ..base }.into())
}
