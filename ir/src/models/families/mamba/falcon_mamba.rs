//! Falcon-Mamba: a Mamba with norms of steps, keys and queries, which have no gains.

use super::mamba1;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "falcon_mamba",
    class: "FalconMambaForCausalLM",
    keys: Keys { class: "FalconMambaConfig", lists: &[KEYS, mamba1::KEYS, EVERY] },
    wholes: &[],
    weights: mamba1::WEIGHTS,
    read,
};

const KEYS: &[Key] = &[Key::read(&["mixer_rms_eps"], "1e-6", "added in norms of steps, keys and queries")];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let norms = SelectiveNorms::Plain(fields.get("mixer_rms_eps")?);
    Ok(mamba1::model(fields, norms)?.into())
}
