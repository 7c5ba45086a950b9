//! OPT: learned positions behind two that are never read, layer norms, biases, ReLU.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "opt",
    class: "OPTForCausalLM",
    keys: Keys { class: "OPTConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "model.",
        layers: "decoder.layers.",
        embedding: "model.decoder.embed_tokens.weight",
        outer: &[
            HubTensor::table("model.decoder.embed_tokens.weight", &["emb"]),
            HubTensor::table("model.decoder.embed_positions.weight", &["wpe"]),
            HubTensor::vector("model.decoder.final_layer_norm.weight", &["final_norm"]),
            HubTensor::vector("model.decoder.final_layer_norm.bias", &["final_norm_bias"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[LAYER, QKV],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50272", VOCABULARY),
    Key::read(&["hidden_size"], "768", HIDDEN),
    Key::read(&["num_hidden_layers"], "12", LAYERS),
    Key::read(&["ffn_dim"], "3072", FEED_FORWARD),
    Key::read(&["max_position_embeddings"], "2048", POSITIONS),
    Key::only(&["do_layer_norm_before"], "true", "norms are those of what branches read"),
    Key::only(&["_remove_final_layer_norm"], "false", "the model has a last norm"),
    Key::read(
        &["word_embed_proj_dim"],
        "null",
        "size of the embedding; null: `hidden_size`, and no other is supported",
    ),
    Key::read(&["dropout"], "0.1", DROPOUT),
    Key::read(&["num_attention_heads"], "12", HEADS),
    Key::read(&["activation_function"], "\"relu\"", ACTIVATION),
    Key::only(&["layerdrop"], "0.0", "no layer is dropped"),
    Key::read(
        &["init_std"],
        "0.02",
        "standard deviation of the initial matrices; those that write to the stream start smaller",
    ),
    Key::read(&["pad_token_id"], "1", PAD),
    Key::read(&["enable_bias"], "true", "products have biases"),
    Key::read(&["layer_norm_elementwise_affine"], "true", "norms have gains and biases"),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::only(&["rope_theta"], "10000.0", "the class has no rotary positions"),
    Key::only(&["layer_norm_eps"], "1e-5", "the class has no other"),
    Key::only(&["activation_dropout"], "0.0", UNREAD),
];

pub(super) const LAYER: &[HubTensor] = &[
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

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "ffn_dim", norm_eps: "layer_norm_eps", ..Base::USUAL }.read(fields)?;
    if let Some(size) = fields.optional("word_embed_proj_dim")?.filter(|size: &u64| *size != base.hidden) {
        let why = format!("{size} is not supported, only `hidden_size`, {}", base.hidden);
        return Err(unsupported("word_embed_proj_dim", why));
    }
    let (has_bias, has_gains): (bool, bool) =
        (fields.get("enable_bias")?, fields.get("layer_norm_elementwise_affine")?);
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "activation_function")?,
        norm: if has_gains { Norm::Layer } else { Norm::LayerPlain },
        learned: Some(Learned { positions: fields.get("max_position_embeddings")?, unread: 2 }),
        nope: LayerSet::First(base.layers),
        qkv_bias: has_bias,
        out_bias: has_bias,
        net_bias: has_bias,
        residual_dropout: fields.get("dropout")?,
        deviation: fields.get("init_std")?,
        ..base
    }
    .into())
}
