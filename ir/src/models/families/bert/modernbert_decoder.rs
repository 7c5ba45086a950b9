//! The decoder of ModernBERT: rotary positions, windows, gated nets, and a layer in front of the head.

use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "modernbert-decoder",
    class: "ModernBertDecoderForCausalLM",
    keys: Keys { class: "ModernBertDecoderConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        head: "decoder.weight",
        embedding: "model.embeddings.tok_embeddings.weight",
        outer: &[
            HubTensor::table("model.embeddings.tok_embeddings.weight", &["emb"]),
            HubTensor::vector("model.embeddings.norm.weight", &["emb_norm"]),
            HubTensor::vector("model.embeddings.norm.bias", &["emb_norm_bias"]),
            HubTensor::vector("model.final_norm.weight", &["final_norm"]),
            HubTensor::vector("model.final_norm.bias", &["final_norm_bias"]),
            HubTensor::linear("lm_head.dense.weight", &["head_proj"]),
            HubTensor::vector("lm_head.dense.bias", &["head_proj_bias"]),
            HubTensor::vector("lm_head.norm.weight", &["head_norm"]),
            HubTensor::vector("lm_head.norm.bias", &["head_norm_bias"]),
            HubTensor::linear("decoder.weight", &["out"]),
            HubTensor::vector("decoder.bias", &["out_bias"]),
        ],
        inner: &[LAYER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50368", VOCABULARY),
    Key::read(&["hidden_size"], "768", HIDDEN),
    Key::read(&["intermediate_size"], "1152", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "22", LAYERS),
    Key::read(&["num_attention_heads"], "12", HEADS),
    Key::read(&["hidden_activation"], "\"gelu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "8192", CONTEXT),
    Key::read(&["norm_eps"], "1e-5", LAYER_NORM_EPS),
    Key::read(&["norm_bias"], "false", "norms have biases"),
    Key::read(&["pad_token_id"], "50283", PAD),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::only(&["attention_dropout"], "0.0", "it would drop what attention gives, too"),
    Key::read(&["embedding_dropout"], "0.0", DROPOUT),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::only(&["mlp_dropout"], "0.0", "the feed-forward net drops nothing between its matrices"),
    Key::read(&["decoder_bias"], "true", "logits have a bias"),
    Key::read(&["classifier_bias"], "false", "the layer in front of the head has a bias"),
    Key::read(&["classifier_activation"], "\"gelu\"", "its function"),
    Key::read(&["local_attention"], "128", "twice the tokens that attention sees in layers with a window; null: all"),
    Key::read(&["sliding_window"], "", "what `local_attention` says"),
    Key::read(
        &["global_attn_every_n_layers"],
        "3",
        "without `layer_types`, the first of this number of layers has no window",
    ),
    LAYER_TYPES,
    Key::read(&["global_rope_theta"], "160000.0", "base of the rotary frequencies of layers without a window"),
    Key::read(&["local_rope_theta"], "10000.0", "the same of layers with a window"),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::nothing(&["classifier_dropout", "cls_token_id"], "not of training a language model"),
    Key::read(
        &["initializer_cutoff_factor"],
        "2.0",
        "where the class cuts off its initial numbers, which ours are not",
    ),
    WHOLE_HEADS,
];

const LAYER: &[HubTensor] = &[
    HubTensor::vector("attn_norm.weight", &["norm1"]),
    HubTensor::vector("attn_norm.bias", &["norm1_bias"]),
    HubTensor::vector("mlp_norm.weight", &["norm2"]),
    HubTensor::vector("mlp_norm.bias", &["norm2_bias"]),
    HubTensor::linear("attn.q_proj.weight", &["wq"]),
    HubTensor::linear("attn.k_proj.weight", &["wk"]),
    HubTensor::linear("attn.v_proj.weight", &["wv"]),
    HubTensor::linear("attn.Wo.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("attn.q_proj.bias", &["bq"]),
    HubTensor::vector("attn.k_proj.bias", &["bk"]),
    HubTensor::vector("attn.v_proj.bias", &["bv"]),
    HubTensor::vector("attn.Wo.bias", &["bo"]),
    HubTensor::linear("mlp.Wi.weight", &["gate", "up"]),
    HubTensor::vector("mlp.Wi.bias", &["gate_bias", "up_bias"]),
    HubTensor::linear("mlp.Wo.weight", &["down"]),
    HubTensor::vector("mlp.Wo.bias", &["down_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { theta: "global_rope_theta", local_theta: Some("local_rope_theta"), ..Rope::USUAL };
    let base = biased(fields, Base { norm_eps: "norm_eps", rope, ..Base::USUAL }.read(fields)?)?;
    let every: u32 = fields.get("global_attn_every_n_layers")?;
    positive("global_attn_every_n_layers", every.into())?;
    let tokens = fields.optional::<u64>("local_attention")?.filter(|tokens| *tokens > 0).map(|tokens| tokens / 2);
    let layers = Limited { layers: base.layers, limit: Limit::Sliding, tokens, is_needed: true };
    let window = layers.read(fields, |layer| layer.is_multiple_of(every))?;
    let has_bias: bool = fields.get("norm_bias")?;
    let head_layer = HeadLayer {
        size: base.hidden,
        bias: fields.get("classifier_bias")?,
        activation: activation(fields, "classifier_activation")?,
    };
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_activation")?,
        norm: if has_bias { Norm::Layer } else { Norm::LayerUnbiased },
        bare_first: true,
        embedding_norm: EmbeddingNorm::Sum,
        local_rotation: base.local_rotation.filter(|_| window.is_some()),
        window,
        head_bias: fields.get("decoder_bias")?,
        head_layer: Some(head_layer),
        net_bias: fields.get("mlp_bias")?,
        embedding_dropout: fields.get("embedding_dropout")?,
        ..base
    }
    .into())
}
