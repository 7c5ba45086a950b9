//! CodeGen: GPT-J, whose queries, keys and values are one matrix in four parts.

use super::gptj;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "codegen",
    class: "CodeGenForCausalLM",
    keys: Keys { class: "CodeGenConfig", lists: &[KEYS, gptj::KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[PRODUCTS, gptj::LAYER], ..gptj::FAMILY.weights },
    read,
};

const KEYS: &[Key] = &[Key::nothing(&["n_ctx"], UNREAD)];

/// The parts in which the first model was trained.
const PARTS: u64 = 4;

const PRODUCTS: &[HubTensor] =
    &[HubTensor::linear("attn.qkv_proj.weight", &["wq", "wv", "wk"]).joined(Join::Parts(PARTS))];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let heads: u64 = fields.get("num_attention_heads")?;
    if !heads.is_multiple_of(PARTS) {
        return Err(invalid("n_head", format!("{heads} heads are not {PARTS} equal parts")));
    }
    gptj::read(fields)
}
