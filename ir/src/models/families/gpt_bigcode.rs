//! GPT BigCode (StarCoder): GPT-2 with one head of keys and values.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "gpt_bigcode",
    class: "GPTBigCodeForCausalLM",
    keys: Keys { class: "GPTBigCodeConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "transformer.",
        layers: "h.",
        embedding: "transformer.wte.weight",
        outer: &[
            HubTensor::table("transformer.wte.weight", &["emb"]),
            HubTensor::table("transformer.wpe.weight", &["wpe"]),
            HubTensor::vector("transformer.ln_f.weight", &["final_norm"]),
            HubTensor::vector("transformer.ln_f.bias", &["final_norm_bias"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[LAYER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50257", VOCABULARY),
    Key::alias(&["n_positions"], "max_position_embeddings"),
    Key::alias(&["n_embd"], "hidden_size"),
    Key::alias(&["n_layer"], "num_hidden_layers"),
    Key::alias(&["n_head"], "num_attention_heads"),
    Key::read(&["n_inner"], "null", "size of the feed-forward net; null: four times `n_embd`"),
    Key::read(&["activation_function"], "\"gelu_pytorch_tanh\"", ACTIVATION),
    Key::read(&["resid_pdrop"], "0.1", DROPOUT),
    Key::read(&["embd_pdrop"], "0.1", DROPOUT),
    Key::alias(&["attn_pdrop"], "attention_dropout"),
    Key::read(&["layer_norm_epsilon"], "1e-05", LAYER_NORM_EPS),
    Key::only(&["scale_attn_weights"], "true", "scores are scaled"),
    Key::nothing(&["attention_softmax_in_fp32"], "in f32 it is the same"),
    Key::nothing(&["scale_attention_softmax_in_fp32"], "in f32 it is the same"),
    Key::only(&["multi_query"], "true", "all query heads have one of keys and values"),
    Key::only(&["add_cross_attention"], "false", "there is no encoder"),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["hidden_size"], "768", HIDDEN),
    Key::read(&["num_hidden_layers"], "12", LAYERS),
    Key::read(&["num_attention_heads"], "12", HEADS),
    Key::read(&["max_position_embeddings"], "1024", POSITIONS),
    Key::only(&["rope_theta"], "10000.0", "the class has no rotary positions"),
    Key::only(&["num_key_value_heads"], "1", "it follows from `multi_query`"),
    Key::nothing(
        &[
            "summary_type",
            "summary_use_proj",
            "summary_activation",
            "summary_proj_to_labels",
            "summary_first_dropout",
            "inference_runner",
            "pre_allocate_kv_cache",
            "validate_runner_input",
            "max_batch_size",
            "max_sequence_length",
            "pad_key_length",
        ],
        UNREAD,
    ),
];

const LAYER: &[HubTensor] = &[
    HubTensor::vector("ln_1.weight", &["norm1"]),
    HubTensor::vector("ln_1.bias", &["norm1_bias"]),
    HubTensor::vector("ln_2.weight", &["norm2"]),
    HubTensor::vector("ln_2.bias", &["norm2_bias"]),
    HubTensor::linear("attn.c_attn.weight", &["wq", "wk", "wv"]),
    HubTensor::vector("attn.c_attn.bias", &["bq", "bk", "bv"]),
    HubTensor::linear("attn.c_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("attn.c_proj.bias", &["bo"]),
    HubTensor::linear("mlp.c_fc.weight", &["up"]),
    HubTensor::vector("mlp.c_fc.bias", &["up_bias"]),
    HubTensor::linear("mlp.c_proj.weight", &["down"]),
    HubTensor::vector("mlp.c_proj.bias", &["down_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "hidden_size", norm_eps: "layer_norm_epsilon", ..Base::USUAL }.read(fields)?;
    Ok(LlamaConfig {
        feed_forward: fields.optional("n_inner")?.unwrap_or(base.hidden.saturating_mul(4)),
        gated: false,
        activation: activation(fields, "activation_function")?,
        kv_heads: 1,
        norm: Norm::Layer,
        learned: Some(Learned { positions: fields.get("max_position_embeddings")?, unread: 0 }),
        nope: LayerSet::First(base.layers),
        pad: None,
        qkv_bias: true,
        out_bias: true,
        net_bias: true,
        residual_dropout: fields.get("resid_pdrop")?,
        embedding_dropout: fields.get("embd_pdrop")?,
        ..base
    }
    .into())
}
