//! LFM2: short convolutions between gates, and attention with norms of heads.

use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "lfm2",
    class: "Lfm2ForCausalLM",
    keys: Keys { class: "Lfm2Config", lists: &[KEYS, SHARED_KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { outer: OUTER, inner: &[PARTS, QKV, NET_OF_LFM], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["hidden_size"], "2560", HIDDEN),
    Key::read(&["intermediate_size"], "12288", "size between the matrices of the net, before it is adjusted"),
    Key::alias(&["block_ff_dim"], "intermediate_size"),
    Key::read(&["block_auto_adjust_ff_dim"], "true", "the net has two thirds of its stated size"),
    Key::read(&["block_ffn_dim_multiplier"], "1.0", "a factor of that"),
    Key::read(&["block_multiple_of"], "256", "the size becomes a multiple of it"),
    Key::read(&["full_attn_idxs"], "null", "the layers with attention, without `layer_types`; null: all"),
];

/// The keys of models with experts and without.
pub(super) const SHARED_KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "65536", VOCABULARY),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["max_position_embeddings"], "128000", CONTEXT),
    Key::read(&["rope_theta"], "1000000.0", THETA),
    Key::read(&["layer_types"], "null", "conv or full_attention, by layer"),
    Key::read(&["conv_L_cache"], "3", "taps of a convolution"),
    Key::read(&["conv_bias"], "false", "convolutions, and the products around them, have biases"),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::alias(&["tie_embedding"], "tie_word_embeddings"),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::nothing(&["block_dim", "block_norm_eps", "block_use_swiglu", "block_use_xavier_init"], UNREAD),
    Key::nothing(&["block_mlp_init_scale", "block_out_init_scale", "conv_dim", "conv_dim_out"], UNREAD),
    Key::nothing(&["conv_use_xavier_init", "num_heads", "use_pos_enc", "theta"], UNREAD),
    WHOLE_HEADS,
];

/// The tensors outside of layers.
pub(super) const OUTER: &[HubTensor] = &[
    HubTensor::table("model.embed_tokens.weight", &["emb"]),
    HubTensor::vector("model.embedding_norm.weight", &["final_norm"]),
    HubTensor::linear("lm_head.weight", &["out"]),
];

/// Norms, convolutions, and what attention has under names of its own.
pub(super) const PARTS: &[HubTensor] = &[
    HubTensor::vector("operator_norm.weight", &["norm1"]),
    HubTensor::vector("ffn_norm.weight", &["norm2"]),
    HubTensor::linear("self_attn.out_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("self_attn.q_layernorm.weight", &["q_norm"]),
    HubTensor::vector("self_attn.k_layernorm.weight", &["k_norm"]),
    HubTensor::linear("conv.in_proj.weight", &["wcb", "wcc", "wcx"]),
    HubTensor::vector("conv.in_proj.bias", &["cb_bias", "cc_bias", "cx_bias"]),
    HubTensor::vector("conv.conv.weight", &["conv"]).shaped(FileShape::Taps),
    HubTensor::vector("conv.conv.bias", &["conv_bias"]),
    HubTensor::linear("conv.out_proj.weight", &["wmo"]),
    HubTensor::vector("conv.out_proj.bias", &["out_bias"]),
];

/// The feed-forward net.
pub(super) const NET_OF_LFM: &[HubTensor] = &[
    HubTensor::linear("feed_forward.w1.weight", &["gate"]),
    HubTensor::linear("feed_forward.w3.weight", &["up"]),
    HubTensor::linear("feed_forward.w2.weight", &["down"]),
];

/// The fields of models with experts and without; without `layer_types`, `has_state` says which layers have convolutions.
pub(super) fn base(fields: &Fields, has_state: impl Fn(u32) -> bool) -> Result<LlamaConfig, ConfigError> {
    let base = Base { norm_eps: "norm_eps", ..Base::USUAL }.read(fields)?;
    let types = LayerTypes { state: &["conv"], attention: &["full_attention"] };
    let layers = types.scanned(fields, base.layers, "layer_types", has_state)?;
    let (taps, bias) = (fields.get("conv_L_cache")?, fields.get("conv_bias")?);
    let mixer = Mixer::Conv(GatedConv { channels: base.hidden, taps, bias });
    let scanned = layers.map(|layers| Scanned::of(mixer, layers));
    Ok(LlamaConfig { scanned, qk_norm: QkNorm::Heads, ..base })
}

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let attending: Option<Vec<u32>> = fields.optional("full_attn_idxs")?;
    let base = base(fields, |layer| attending.as_ref().is_some_and(|attending| !attending.contains(&layer)))?;
    Ok(LlamaConfig { feed_forward: adjusted(fields, base.feed_forward)?, ..base }.into())
}

/// The size between the matrices of the net.
fn adjusted(fields: &Fields, stated: u64) -> Result<u64, ConfigError> {
    if !fields.get::<bool>("block_auto_adjust_ff_dim")? {
        return Ok(stated);
    }
    let size = 2 * stated / 3;
    let Some(factor) = fields.optional::<f64>("block_ffn_dim_multiplier")? else { return Ok(size) };
    let multiple: u64 = fields.get("block_multiple_of")?;
    positive("block_multiple_of", multiple)?;
    Ok(((factor * size as f64) as u64).next_multiple_of(multiple))
}
