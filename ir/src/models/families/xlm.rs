//! XLM: norms of sums, and names of tensors that have the layer in their middle.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "xlm",
    class: "XLMWithLMHeadModel",
    keys: Keys { class: "XLMConfig", lists: &[KEYS, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "transformer.",
        head: "pred_layer.proj.weight",
        embedding: "transformer.embeddings.weight",
        outer: &[
            HubTensor::table("transformer.embeddings.weight", &["emb"]),
            HubTensor::table("transformer.position_embeddings.weight", &["wpe"]),
            HubTensor::vector("transformer.layer_norm_emb.weight", &["emb_norm"]),
            HubTensor::vector("transformer.layer_norm_emb.bias", &["emb_norm_bias"]),
            HubTensor::linear("pred_layer.proj.weight", &["out"]),
            HubTensor::vector("pred_layer.proj.bias", &["out_bias"]),
        ],
        inner: &[LAYER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "30145", VOCABULARY),
    Key::alias(&["n_words"], "vocab_size"),
    Key::alias(&["emb_dim"], "hidden_size"),
    Key::alias(&["n_layers"], "num_hidden_layers"),
    Key::alias(&["n_heads"], "num_attention_heads"),
    Key::alias(&["pad_index"], "pad_token_id"),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["num_hidden_layers"], "12", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["dropout"], "0.1", DROPOUT),
    Key::read(&["attention_dropout"], "0.1", DROPOUT),
    Key::read(&["gelu_activation"], "true", "the function of the feed-forward net is GELU; false: ReLU"),
    Key::read(&["causal"], "false", "a token sees no later ones; false: it sees all, as in an encoder"),
    Key::read(&["max_position_embeddings"], "512", POSITIONS),
    Key::read(&["layer_norm_eps"], "1e-12", LAYER_NORM_EPS),
    Key::read(&["pad_token_id"], "2", "its row of the embedding learns nothing; texts have none of it"),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::only(&["n_langs"], "1", "texts have no language"),
    Key::only(&["asm"], "false", "the head is one product"),
    Key::only(&["sinusoidal_embeddings"], "false", "positions are learned"),
    Key::only(&["is_encoder"], "true", "the class has no decoder"),
    Key::only(&["rope_theta"], "10000.0", "the class has no rotary positions"),
    Key::nothing(
        &[
            "use_lang_emb",
            "lang_id",
            "lang2id",
            "id2lang",
            "unk_index",
            "mask_index",
            "mask_token_id",
            "bos_index",
            "eos_index",
        ],
        "the text determines the tokens",
    ),
    Key::nothing(&["embed_init_std", "init_std", "start_n_top", "end_n_top"], UNREAD),
    Key::nothing(
        &["summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"],
        UNREAD,
    ),
];

const LAYER: &[HubTensor] = &[
    HubTensor::linear("attentions.{layer}.q_lin.weight", &["wq"]),
    HubTensor::vector("attentions.{layer}.q_lin.bias", &["bq"]),
    HubTensor::linear("attentions.{layer}.k_lin.weight", &["wk"]),
    HubTensor::vector("attentions.{layer}.k_lin.bias", &["bk"]),
    HubTensor::linear("attentions.{layer}.v_lin.weight", &["wv"]),
    HubTensor::vector("attentions.{layer}.v_lin.bias", &["bv"]),
    HubTensor::linear("attentions.{layer}.out_lin.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("attentions.{layer}.out_lin.bias", &["bo"]),
    HubTensor::vector("layer_norm1.{layer}.weight", &["norm1"]),
    HubTensor::vector("layer_norm1.{layer}.bias", &["norm1_bias"]),
    HubTensor::linear("ffns.{layer}.lin1.weight", &["up"]),
    HubTensor::vector("ffns.{layer}.lin1.bias", &["up_bias"]),
    HubTensor::linear("ffns.{layer}.lin2.weight", &["down"]),
    HubTensor::vector("ffns.{layer}.lin2.bias", &["down_bias"]),
    HubTensor::vector("layer_norm2.{layer}.weight", &["norm2"]),
    HubTensor::vector("layer_norm2.{layer}.bias", &["norm2_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "hidden_size", norm_eps: "layer_norm_eps", ..Base::USUAL }.read(fields)?;
    let dropout = fields.get("dropout")?;
    Ok(LlamaConfig {
        feed_forward: base.hidden.saturating_mul(4),
        gated: false,
        activation: if fields.get("gelu_activation")? { Activation::GeluErf } else { Activation::Relu },
        norm: Norm::Layer,
        norms: Norms::Sums,
        embedding_norm: EmbeddingNorm::Sum,
        learned: Some(Learned { positions: fields.get("max_position_embeddings")?, unread: 0 }),
        causal: fields.get("causal")?,
        nope: LayerSet::First(base.layers),
        head_bias: true,
        qkv_bias: true,
        out_bias: true,
        net_bias: true,
        residual_dropout: dropout,
        embedding_dropout: dropout,
        ..base
    }
    .into())
}
