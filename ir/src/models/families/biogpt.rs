//! BioGPT: learned positions behind two that are never read, scaled embeddings.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "biogpt",
    class: "BioGptForCausalLM",
    keys: Keys { class: "BioGptConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "biogpt.",
        head: "output_projection.weight",
        embedding: "biogpt.embed_tokens.weight",
        outer: &[
            HubTensor::table("biogpt.embed_tokens.weight", &["emb"]),
            HubTensor::table("biogpt.embed_positions.weight", &["wpe"]),
            HubTensor::vector("biogpt.layer_norm.weight", &["final_norm"]),
            HubTensor::vector("biogpt.layer_norm.bias", &["final_norm_bias"]),
            HubTensor::linear("output_projection.weight", &["out"]),
        ],
        inner: &[LAYER, QKV],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "42384", VOCABULARY),
    Key::read(&["hidden_size"], "1024", HIDDEN),
    Key::read(&["num_hidden_layers"], "24", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["intermediate_size"], "4096", FEED_FORWARD),
    Key::read(&["hidden_act"], "\"gelu\"", ACTIVATION),
    Key::read(&["hidden_dropout_prob"], "0.1", DROPOUT),
    Key::alias(&["attention_probs_dropout_prob"], "attention_dropout"),
    Key::read(&["max_position_embeddings"], "1024", POSITIONS),
    Key::read(&["layer_norm_eps"], "1e-12", UNREAD),
    Key::read(&["scale_embedding"], "true", "embeddings are multiplied by the root of the stream's size"),
    Key::only(&["layerdrop"], "0.0", "no layer is dropped"),
    Key::only(&["activation_dropout"], "0.0", "the feed-forward net drops nothing between its matrices"),
    Key::read(&["pad_token_id"], "1", PAD),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["attention_dropout"], "0.1", DROPOUT),
    Key::only(&["rope_theta"], "10000.0", "the class has no rotary positions"),
];

const LAYER: &[HubTensor] = &[
    HubTensor::vector("self_attn_layer_norm.weight", &["norm1"]),
    HubTensor::vector("self_attn_layer_norm.bias", &["norm1_bias"]),
    HubTensor::vector("final_layer_norm.weight", &["norm2"]),
    HubTensor::vector("final_layer_norm.bias", &["norm2_bias"]),
    HubTensor::linear("self_attn.out_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("self_attn.out_proj.bias", &["bo"]),
    HubTensor::linear("fc1.weight", &["up"]),
    HubTensor::vector("fc1.bias", &["up_bias"]),
    HubTensor::linear("fc2.weight", &["down"]),
    HubTensor::vector("fc2.bias", &["down_bias"]),
];

/// Added in the norms of the class, whatever a file states.
const NORM_EPS_OF_CLASS: f64 = 1e-5;

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { norm_eps: "layer_norm_eps", ..Base::USUAL }.read(fields)?;
    let is_scaled: bool = fields.get("scale_embedding")?;
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "hidden_act")?,
        norm: Norm::Layer,
        norm_eps: NORM_EPS_OF_CLASS,
        learned: Some(Learned { positions: fields.get("max_position_embeddings")?, unread: 2 }),
        nope: LayerSet::First(base.layers),
        embedding_scale: if is_scaled { EmbeddingScale::Root } else { EmbeddingScale::One },
        qkv_bias: true,
        out_bias: true,
        net_bias: true,
        residual_dropout: fields.get("hidden_dropout_prob")?,
        ..base
    }
    .into())
}
