//! MPT: biases of scores by distance, layer norms without biases, bounds of queries, keys and values.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "mpt",
    class: "MptForCausalLM",
    keys: Keys { class: "MptConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "transformer.",
        layers: "blocks.",
        embedding: "transformer.wte.weight",
        outer: &[
            HubTensor::table("transformer.wte.weight", &["emb"]),
            HubTensor::vector("transformer.norm_f.weight", &["final_norm"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[LAYER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50368", VOCABULARY),
    Key::alias(&["d_model"], "hidden_size"),
    Key::alias(&["n_layers"], "num_hidden_layers"),
    Key::alias(&["n_heads"], "num_attention_heads"),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["num_hidden_layers"], "24", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::only(&["expansion_ratio"], "4", "the class has no other"),
    Key::read(&["layer_norm_epsilon"], "1e-5", LAYER_NORM_EPS),
    Key::read(
        &["attn_config"],
        "null",
        "dropout, bounds and the factor of scores: attn_pdrop, clip_qkv and softmax_scale",
    ),
    Key::only(&["no_bias"], "true", "products have no bias"),
    Key::only(&["logit_scale"], "null", UNREAD),
    Key::only(&["resid_pdrop", "emb_pdrop"], "0.0", UNREAD),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::only(&["rope_theta"], "10000.0", "the class has no rotary positions"),
    Key::nothing(&["max_seq_len", "learned_pos_emb"], "there is no table of positions"),
    Key::nothing(&["embedding_fraction", "init_device", "norm_type", "init_config", "verbose"], UNREAD),
];

/// The keys of the object of attention.
const ATTENTION: Keys = Keys { class: "MptAttentionConfig", lists: &[ATTENTION_KEYS, EVERY] };

const ATTENTION_KEYS: &[Key] = &[
    Key::read(&["attn_pdrop"], "0.0", "dropout of attention and of what branches give, drawn from our own numbers"),
    Key::read(&["clip_qkv"], "null", CLIP),
    Key::read(&["softmax_scale"], "null", "factor of scores; null: one over the root of the head size"),
    Key::only(&["attn_type"], "\"multihead_attention\"", "each query head has its own keys"),
    Key::only(&["prefix_lm", "qk_ln", "attn_uses_sequence_id"], "false", UNREAD),
    Key::only(&["alibi"], "true", "scores are always biased by distance"),
    Key::only(&["alibi_bias_max"], "8", UNREAD),
    Key::nothing(&["attn_impl"], "how `transformers` runs it"),
];

const LAYER: &[HubTensor] = &[
    HubTensor::vector("norm_1.weight", &["norm1"]),
    HubTensor::vector("norm_2.weight", &["norm2"]),
    HubTensor::linear("attn.Wqkv.weight", &["wq", "wk", "wv"]),
    HubTensor::linear("attn.out_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::linear("ffn.up_proj.weight", &["up"]),
    HubTensor::linear("ffn.down_proj.weight", &["down"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "hidden_size", norm_eps: "layer_norm_epsilon", ..Base::USUAL }.read(fields)?;
    let object = fields.object("attn_config")?.cloned().unwrap_or_default();
    let attention = fields.within("attn_config", ATTENTION, &object)?;
    let (scores, dropout): (Option<f64>, f64) = (attention.optional("softmax_scale")?, attention.get("attn_pdrop")?);
    Ok(LlamaConfig {
        feed_forward: base.hidden.saturating_mul(4),
        gated: false,
        activation: Activation::GeluErf,
        norm: Norm::LayerUnbiased,
        alibi: true,
        nope: LayerSet::First(base.layers),
        score_size: scores.map(|scores| (scores * scores).recip()),
        clip: attention.optional("clip_qkv")?.filter(|bound| *bound != 0.0),
        pad: None,
        attention_dropout: dropout,
        residual_dropout: dropout,
        ..base
    }
    .into())
}
