//! Gemma 4, its text model: embeddings of each layer, besides what the model has whose one class reads all.

use super::gemma4_unified_text::{self, GAINS};
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "gemma4_text",
    class: "Gemma4ForCausalLM",
    keys: Keys { class: "Gemma4TextConfig", lists: &[KEYS, gemma4_unified_text::KEYS, ROTARY, EVERY] },
    wholes: &[Composite::of("gemma4")],
    weights: Weights { outer: OUTER, inner: &[GAINS, EMBEDDINGS, QKV, ATTENTION, NET], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["sliding_window"], "512", WINDOW),
    Key::read(&["use_bidirectional_attention"], "null", "vision or null: tokens of a text see no later ones"),
    Key::read(&["vocab_size_per_layer_input"], "262144", "tokens of the embeddings of each layer"),
    Key::read(&["hidden_size_per_layer_input"], "256", "size of their rows; 0: there are none"),
    Key::only(&["enable_moe_block"], "false", "layers have a feed-forward net and no experts"),
    Key::nothing(&["num_experts", "top_k_experts", "moe_intermediate_size"], "there are no experts"),
];

const OUTER: &[HubTensor] = &[
    HubTensor::table("model.embed_tokens.weight", &["emb"]),
    HubTensor::vector("model.per_layer_projection_norm.weight", &["layer_emb_norm"]),
    HubTensor::vector("model.norm.weight", &["final_norm"]),
    HubTensor::linear("lm_head.weight", &["out"]),
];

/// Embeddings of each layer, of which two tensors have all layers.
const EMBEDDINGS: &[HubTensor] = &[
    HubTensor::table("embed_tokens_per_layer.weight", &["layer_emb"]).of_layers(),
    HubTensor::linear("per_layer_model_projection.weight", &["layer_proj"]).of_layers(),
    HubTensor::linear("per_layer_input_gate.weight", &["layer_gate"]),
    HubTensor::linear("per_layer_projection.weight", &["layer_out"]),
    HubTensor::vector("post_per_layer_input_norm.weight", &["post_norm3"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = gemma4_unified_text::fourth(fields)?;
    let size: u64 = fields.get("hidden_size_per_layer_input")?;
    let rows: u64 = fields.get("vocab_size_per_layer_input")?;
    if size > 0 && rows < base.vocabulary {
        let why = format!("{rows} is less than `vocab_size`, {}: some tokens have no row", base.vocabulary);
        return Err(invalid("vocab_size_per_layer_input", why));
    }
    let layer_embedding = (size > 0).then_some(LayerEmbedding { rows, size });
    Ok(LlamaConfig { layer_embedding, ..base }.into())
}
