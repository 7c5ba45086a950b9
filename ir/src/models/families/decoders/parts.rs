//! Keys, names and fields that decoders share.

use super::prelude::*;

/// Keys of all of them, with the defaults of BART.
pub(super) const SHARED_KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50265", VOCABULARY),
    Key::read(&["d_model"], "1024", HIDDEN),
    Key::alias(&["hidden_size"], "d_model"),
    Key::read(&["decoder_layers"], "12", LAYERS),
    Key::read(&["decoder_attention_heads"], "16", HEADS),
    Key::read(&["decoder_ffn_dim"], "4096", FEED_FORWARD),
    Key::read(&["activation_function"], "\"gelu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "1024", POSITIONS),
    Key::read(&["dropout"], "0.1", DROPOUT),
    Key::read(&["attention_dropout"], "0.0", DROPOUT),
    Key::only(&["activation_dropout"], "0.0", "the feed-forward net drops nothing between its matrices"),
    Key::only(&["decoder_layerdrop"], "0.0", "no layer is dropped"),
    Key::read(
        &["init_std"],
        "0.02",
        "standard deviation of the initial matrices; those that write to the stream start smaller where it is not normed",
    ),
    Key::read(&["scale_embedding"], "false", "embeddings are multiplied by the root of the stream's size"),
    Key::read(&["pad_token_id"], "1", PAD),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["architectures"], "null", "the class that has the decoder alone; one with an encoder, too, is refused"),
    Key::only(&["layer_norm_eps"], "1e-5", "the class has no other"),
    Key::only(&["rope_theta"], "10000.0", "the class has no rotary positions"),
    Key::nothing(&["initializer_range", "classifier_dropout"], UNREAD),
    Key::read(
        &["num_hidden_layers", "num_attention_heads"],
        "",
        "those of the encoder, which is no part of the decoder",
    ),
    Key::nothing(
        &["encoder_layers", "encoder_ffn_dim", "encoder_attention_heads", "encoder_layerdrop"],
        "of the encoder, which is no part of the decoder",
    ),
];

/// The parameters of a layer, with those of attention to the encoder's vectors, which nothing reads.
pub(super) const LAYER: &[HubTensor] = &[
    HubTensor::vector("self_attn_layer_norm.weight", &["norm1"]),
    HubTensor::vector("self_attn_layer_norm.bias", &["norm1_bias"]),
    HubTensor::linear("self_attn.out_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("self_attn.out_proj.bias", &["bo"]),
    HubTensor::vector("final_layer_norm.weight", &["norm2"]),
    HubTensor::vector("final_layer_norm.bias", &["norm2_bias"]),
    HubTensor::linear("fc1.weight", &["up"]),
    HubTensor::vector("fc1.bias", &["up_bias"]),
    HubTensor::linear("fc2.weight", &["down"]),
    HubTensor::vector("fc2.bias", &["down_bias"]),
    HubTensor::linear("encoder_attn.q_proj.weight", &["cross_wq"]),
    HubTensor::linear("encoder_attn.k_proj.weight", &["cross_wk"]),
    HubTensor::linear("encoder_attn.v_proj.weight", &["cross_wv"]),
    HubTensor::linear("encoder_attn.out_proj.weight", &["cross_wo"]).of_inputs(3),
    HubTensor::vector("encoder_attn.q_proj.bias", &["cross_bq"]),
    HubTensor::vector("encoder_attn.k_proj.bias", &["cross_bk"]),
    HubTensor::vector("encoder_attn.v_proj.bias", &["cross_bv"]),
    HubTensor::vector("encoder_attn.out_proj.bias", &["cross_bo"]),
    HubTensor::vector("encoder_attn_layer_norm.weight", &["cross_norm"]),
    HubTensor::vector("encoder_attn_layer_norm.bias", &["cross_norm_bias"]),
];

/// The names of BART's decoder.
pub(super) const DECODER: Weights = Weights {
    layers: "decoder.layers.",
    embedding: "model.decoder.embed_tokens.weight",
    outer: &[
        HubTensor::table("model.decoder.embed_tokens.weight", &["emb"]),
        HubTensor::table("model.decoder.embed_positions.weight", &["wpe"]),
        HubTensor::vector("model.decoder.layernorm_embedding.weight", &["emb_norm"]),
        HubTensor::vector("model.decoder.layernorm_embedding.bias", &["emb_norm_bias"]),
        HubTensor::vector("model.decoder.layer_norm.weight", &["final_norm"]),
        HubTensor::vector("model.decoder.layer_norm.bias", &["final_norm_bias"]),
        HubTensor::linear("lm_head.weight", &["out"]),
    ],
    inner: &[LAYER, QKV],
    ..USUAL
};

/// Reads a decoder of BART's kind.
pub(super) fn bart(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    decoder(fields, Learned { positions: fields.get("max_position_embeddings")?, unread: 2 })
}

/// Reads a decoder of BART's kind with another table of positions.
pub(super) fn decoder(fields: &Fields, learned: Learned) -> Result<LlamaConfig, ConfigError> {
    is_alone(fields)?;
    let sizes = ModelSizes {
        hidden: fields.get("d_model")?,
        heads: fields.get("decoder_attention_heads")?,
        layers: fields.layers("decoder_layers")?,
    };
    let names = Base { feed_forward: "decoder_ffn_dim", norm_eps: "layer_norm_eps", ..Base::USUAL };
    let size = sizes.head()?;
    let rotary = Rope::USUAL.read(fields, Head { size, is_latent: false })?;
    let base = names.read_with(fields, sizes, Heads { size, kv_heads: sizes.heads, rotary })?;
    let is_scaled: bool = fields.get("scale_embedding")?;
    let dropout = fields.get("dropout")?;
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "activation_function")?,
        norm: Norm::Layer,
        norms: Norms::Sums,
        embedding_norm: EmbeddingNorm::Sum,
        embedding_scale: if is_scaled { EmbeddingScale::Root } else { EmbeddingScale::One },
        learned: Some(learned),
        nope: LayerSet::First(base.layers),
        qkv_bias: true,
        out_bias: true,
        net_bias: true,
        residual_dropout: dropout,
        embedding_dropout: dropout,
        deviation: fields.get("init_std")?,
        cross: Some(Cross { hidden: base.hidden }),
        ..base
    })
}

/// The configuration with norms of what branches read, and none of embeddings.
pub(super) fn normed_before(base: LlamaConfig) -> LlamaConfig {
    LlamaConfig { norms: Norms::Before, embedding_norm: EmbeddingNorm::None, ..base }
}

/// A decoder with a table of waves of positions, and without a norm of embeddings.
pub(super) fn waved(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    let base = decoder(fields, Learned { positions: fields.get("max_position_embeddings")?, unread: 0 })?;
    let fixed_positions = Some(2.0 * WAVES.ln() / base.hidden as f64);
    Ok(LlamaConfig { fixed_positions, embedding_norm: EmbeddingNorm::None, ..base })
}

/// Checks that a file states no class with an encoder.
fn is_alone(fields: &Fields) -> Result<(), ConfigError> {
    const KEY: &str = "architectures";
    let classes: Vec<String> = fields.optional(KEY)?.unwrap_or_default();
    match classes.iter().find(|class| !class.ends_with("ForCausalLM")) {
        Some(class) => {
            Err(unsupported(KEY, format!("{class} has an encoder, too; only the decoder alone is supported")))
        }
        None => Ok(()),
    }
}
