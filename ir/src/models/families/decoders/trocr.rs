//! TrOCR: a decoder whose encoder reads images.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "trocr",
    class: "TrOCRForCausalLM",
    keys: Keys { class: "TrOCRConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights { head: "output_projection.weight", outer: OUTER, ..DECODER },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["max_position_embeddings"], "512", POSITIONS),
    Key::alias(&["num_hidden_layers"], "decoder_layers"),
    Key::alias(&["num_attention_heads"], "decoder_attention_heads"),
    Key::only(&["use_learned_position_embeddings"], "true", "positions have a learned table"),
    Key::read(&["layernorm_embedding"], "true", "embeddings are normed"),
    Key::read(&["cross_attention_hidden_size"], "null", "size of the encoder's vectors; null: that of the stream"),
];

const OUTER: &[HubTensor] = &[
    HubTensor::table("model.decoder.embed_tokens.weight", &["emb"]),
    HubTensor::table("model.decoder.embed_positions.weight", &["wpe"]),
    HubTensor::vector("model.decoder.layernorm_embedding.weight", &["emb_norm"]),
    HubTensor::vector("model.decoder.layernorm_embedding.bias", &["emb_norm_bias"]),
    HubTensor::linear("output_projection.weight", &["out"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = bart(fields)?;
    let is_normed: bool = fields.get("layernorm_embedding")?;
    let hidden = fields.optional("cross_attention_hidden_size")?.unwrap_or(base.hidden);
    let embedding_norm = if is_normed { EmbeddingNorm::Sum } else { EmbeddingNorm::None };
    Ok(LlamaConfig { embedding_norm, cross: Some(Cross { hidden }), ..base }.into())
}
