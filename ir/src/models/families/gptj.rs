//! GPT-J: branches that read one norm, and pairs of neighbours turn in part of a head.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "gptj",
    class: "GPTJForCausalLM",
    keys: Keys { class: "GPTJConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "transformer.",
        layers: "h.",
        embedding: "transformer.wte.weight",
        outer: &[
            HubTensor::table("transformer.wte.weight", &["emb"]),
            HubTensor::vector("transformer.ln_f.weight", &["final_norm"]),
            HubTensor::vector("transformer.ln_f.bias", &["final_norm_bias"]),
            HubTensor::linear("lm_head.weight", &["out"]),
            HubTensor::vector("lm_head.bias", &["out_bias"]),
        ],
        inner: &[LAYER],
        pairs: Pairs::Adjacent,
        turned: &["wq", "wk"],
        ..USUAL
    },
    read,
};

pub(super) const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50400", VOCABULARY),
    Key::alias(&["n_positions"], "max_position_embeddings"),
    Key::alias(&["n_embd"], "hidden_size"),
    Key::alias(&["n_layer"], "num_hidden_layers"),
    Key::alias(&["n_head"], "num_attention_heads"),
    Key::read(&["rotary_dim"], "64", "elements of a head that turn"),
    Key::read(&["n_inner"], "null", "size of the feed-forward net; null: four times `n_embd`"),
    Key::read(&["activation_function"], "\"gelu_new\"", ACTIVATION),
    Key::read(&["resid_pdrop"], "0.0", DROPOUT),
    Key::read(&["embd_pdrop"], "0.0", DROPOUT),
    Key::alias(&["attn_pdrop"], "attention_dropout"),
    Key::read(&["layer_norm_epsilon"], "1e-05", LAYER_NORM_EPS),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["num_hidden_layers"], "28", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["max_position_embeddings"], "2048", POSITIONS),
    Key::only(&["rope_theta"], "10000.0", "the class has no other base"),
    Key::nothing(
        &[
            "scale_attn_weights",
            "reorder_and_upcast_attn",
            "scale_attn_by_inverse_layer_idx",
            "gradient_checkpointing",
            "summary_type",
            "summary_use_proj",
            "summary_activation",
            "summary_proj_to_labels",
            "summary_first_dropout",
            "rotary",
        ],
        UNREAD,
    ),
];

pub(super) const LAYER: &[HubTensor] = &[
    HubTensor::vector("ln_1.weight", &["norm1"]),
    HubTensor::vector("ln_1.bias", &["norm1_bias"]),
    HubTensor::linear("attn.q_proj.weight", &["wq"]),
    HubTensor::linear("attn.k_proj.weight", &["wk"]),
    HubTensor::linear("attn.v_proj.weight", &["wv"]),
    HubTensor::linear("attn.out_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::linear("mlp.fc_in.weight", &["up"]),
    HubTensor::vector("mlp.fc_in.bias", &["up_bias"]),
    HubTensor::linear("mlp.fc_out.weight", &["down"]),
    HubTensor::vector("mlp.fc_out.bias", &["down_bias"]),
];

pub(super) fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "hidden_size", norm_eps: "layer_norm_epsilon", ..Base::USUAL }.read(fields)?;
    let turned = Some(fields.get("rotary_dim")?).filter(|turned| *turned != base.head);
    Ok(LlamaConfig {
        feed_forward: fields.optional("n_inner")?.unwrap_or(base.hidden.saturating_mul(4)),
        gated: false,
        activation: activation(fields, "activation_function")?,
        norm: Norm::Layer,
        branches: Branches::Shared,
        rotation: Rotation { turned, ..base.rotation },
        pad: None,
        head_bias: true,
        net_bias: true,
        residual_dropout: fields.get("resid_pdrop")?,
        embedding_dropout: fields.get("embd_pdrop")?,
        ..base
    }
    .into())
}
