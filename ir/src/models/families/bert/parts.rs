//! Keys, names and fields that BERT and its likes share.

use super::prelude::*;

/// Keys of all of them, with the defaults of BERT.
pub(super) const SHARED_KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "30522", VOCABULARY),
    Key::read(&["hidden_size"], "768", HIDDEN),
    Key::read(&["num_hidden_layers"], "12", LAYERS),
    Key::read(&["num_attention_heads"], "12", HEADS),
    Key::read(&["intermediate_size"], "3072", FEED_FORWARD),
    Key::read(&["hidden_act"], "\"gelu\"", ACTIVATION),
    Key::read(&["hidden_dropout_prob"], "0.1", DROPOUT),
    Key::read(&["attention_probs_dropout_prob"], "0.1", DROPOUT),
    Key::read(&["max_position_embeddings"], "512", POSITIONS),
    Key::read(&["type_vocab_size"], "2", "kinds of tokens; all tokens are of the first one"),
    Key::read(&["layer_norm_eps"], "1e-12", LAYER_NORM_EPS),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::only(&["tie_word_embeddings"], "true", TIED_BIAS),
    Key::read(&["is_decoder"], "false", "a token sees no later ones; false: it sees all, as in an encoder"),
    Key::only(&["add_cross_attention"], "false", "there is no other sequence to attend to"),
    Key::only(&["rope_theta"], "10000.0", "the class has no rotary positions"),
    Key::nothing(&["classifier_dropout"], "not of the language model"),
];

const TIED_BIAS: &str =
    "the head's matrix is the embedding table; without it the class has a second bias that it does not read";

/// Numbers of BERT's likes that pad with another token, and count positions from the one behind its number.
pub(super) const ROBERTA_KEYS: &[Key] = &[Key::read(
    &["pad_token_id"],
    "1",
    "its row of the embedding learns nothing at its own positions; those of texts begin behind its number",
)];

/// The products of a layer.
pub(super) const PRODUCTS: &[HubTensor] = &[
    HubTensor::linear("attention.self.query.weight", &["wq"]),
    HubTensor::vector("attention.self.query.bias", &["bq"]),
    HubTensor::linear("attention.self.key.weight", &["wk"]),
    HubTensor::vector("attention.self.key.bias", &["bk"]),
    HubTensor::linear("attention.self.value.weight", &["wv"]),
    HubTensor::vector("attention.self.value.bias", &["bv"]),
    HubTensor::linear("attention.output.dense.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("attention.output.dense.bias", &["bo"]),
    HubTensor::linear("intermediate.dense.weight", &["up"]),
    HubTensor::vector("intermediate.dense.bias", &["up_bias"]),
    HubTensor::linear("output.dense.weight", &["down"]),
    HubTensor::vector("output.dense.bias", &["down_bias"]),
];

/// The norms of the sums of a layer.
pub(super) const SUM_NORMS: &[HubTensor] = &[
    HubTensor::vector("attention.output.LayerNorm.weight", &["norm1"]),
    HubTensor::vector("attention.output.LayerNorm.bias", &["norm1_bias"]),
    HubTensor::vector("output.LayerNorm.weight", &["norm2"]),
    HubTensor::vector("output.LayerNorm.bias", &["norm2_bias"]),
];

/// The tensors outside of layers of a model whose parts have the name `$base`, and whose head has the rows `$head`.
macro_rules! outer {
    ($base:literal, $($head:expr),* $(,)?) => {
        &[
            HubTensor::table(concat!($base, "embeddings.word_embeddings.weight"), &["emb"]),
            HubTensor::table(concat!($base, "embeddings.position_embeddings.weight"), &["wpe"]),
            HubTensor::table(concat!($base, "embeddings.token_type_embeddings.weight"), &["wte"]),
            HubTensor::vector(concat!($base, "embeddings.LayerNorm.weight"), &["emb_norm"]),
            HubTensor::vector(concat!($base, "embeddings.LayerNorm.bias"), &["emb_norm_bias"]),
            $($head),*
        ]
    };
}

/// The rows of BERT's head behind those of [`outer`].
macro_rules! bert_outer {
    ($base:literal $(, $more:expr)* $(,)?) => {
        outer!(
            $base,
            HubTensor::linear("cls.predictions.transform.dense.weight", &["head_proj"]),
            HubTensor::vector("cls.predictions.transform.dense.bias", &["head_proj_bias"]),
            HubTensor::vector("cls.predictions.transform.LayerNorm.weight", &["head_norm"]),
            HubTensor::vector("cls.predictions.transform.LayerNorm.bias", &["head_norm_bias"]),
            HubTensor::vector("cls.predictions.bias", &["out_bias"]),
            $($more),*
        )
    };
}

/// The rows of RoBERTa's head behind those of [`outer`].
macro_rules! roberta_outer {
    ($base:literal $(, $more:expr)* $(,)?) => {
        outer!(
            $base,
            HubTensor::linear("lm_head.dense.weight", &["head_proj"]),
            HubTensor::vector("lm_head.dense.bias", &["head_proj_bias"]),
            HubTensor::vector("lm_head.layer_norm.weight", &["head_norm"]),
            HubTensor::vector("lm_head.layer_norm.bias", &["head_norm_bias"]),
            HubTensor::vector("lm_head.bias", &["out_bias"]),
            $($more),*
        )
    };
}

pub(super) use {bert_outer, outer, roberta_outer};

/// The names of a model of norms of sums; `base`, `embedding` and `outer` have its own.
pub(super) const BERT: Weights = Weights {
    layers: "encoder.layer.",
    head: "cls.predictions.decoder.weight",
    inner: &[SUM_NORMS, PRODUCTS],
    ..USUAL
};

/// The head of RoBERTa's likes.
pub(super) const ROBERTA: Weights = Weights { head: "lm_head.decoder.weight", ..BERT };

/// The names of RoBERTa itself, which its languages share.
pub(super) const ROBERTA_ITSELF: Weights = Weights {
    base: "roberta.",
    embedding: "roberta.embeddings.word_embeddings.weight",
    outer: roberta_outer!("roberta."),
    ..ROBERTA
};

/// Reads what they share, as BERT without kinds of tokens and without the layer in front of the head.
pub(super) fn shared(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    let base = Base { norm_eps: "layer_norm_eps", ..Base::USUAL }.read(fields)?;
    let dropout = fields.get("hidden_dropout_prob")?;
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "hidden_act")?,
        norm: Norm::Layer,
        norms: Norms::Sums,
        embedding_norm: EmbeddingNorm::Sum,
        learned: Some(Learned { positions: fields.get("max_position_embeddings")?, unread: 0 }),
        causal: fields.get("is_decoder")?,
        nope: LayerSet::First(base.layers),
        head_bias: true,
        qkv_bias: true,
        out_bias: true,
        net_bias: true,
        attention_dropout: fields.get("attention_probs_dropout_prob")?,
        residual_dropout: dropout,
        embedding_dropout: dropout,
        ..base
    })
}

/// BERT: with kinds of tokens, and the layer in front of the head.
pub(super) fn bert(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    let base = shared(fields)?;
    let head_layer = Some(HeadLayer { size: base.hidden, bias: true, activation: base.activation });
    Ok(LlamaConfig { kinds: [fields.get("type_vocab_size")?, 0], head_layer, ..base })
}

/// RoBERTa: positions begin behind the number of the padding token, and the function of the head is GELU.
pub(super) fn roberta(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    let base = bert(fields)?;
    let unread = fields.get::<u64>("pad_token_id")?.saturating_add(1);
    let table: u64 = fields.get("max_position_embeddings")?;
    let Some(positions) = table.checked_sub(unread).filter(|positions| *positions > 0) else {
        let why = format!("{table} leave no position behind that of the padding token, {}", unread - 1);
        return Err(invalid("max_position_embeddings", why));
    };
    let head_layer = Some(HeadLayer { size: base.hidden, bias: true, activation: Activation::GeluErf });
    Ok(LlamaConfig { learned: Some(Learned { positions, unread }), head_layer, ..base })
}
