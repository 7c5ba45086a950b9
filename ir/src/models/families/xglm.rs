//! XGLM: waves of positions behind two that are never read, and scaled embeddings.

use super::opt;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "xglm",
    class: "XGLMForCausalLM",
    keys: Keys { class: "XGLMConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        outer: &[
            HubTensor::table("model.embed_tokens.weight", &["emb"]),
            HubTensor::vector("model.layer_norm.weight", &["final_norm"]),
            HubTensor::vector("model.layer_norm.bias", &["final_norm_bias"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[opt::LAYER, QKV],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "256008", VOCABULARY),
    Key::read(
        &["max_position_embeddings"],
        "2048",
        "positions of a table that follows from a rule, however many there are",
    ),
    Key::alias(&["d_model"], "hidden_size"),
    Key::alias(&["num_layers"], "num_hidden_layers"),
    Key::alias(&["attention_heads"], "num_attention_heads"),
    Key::read(&["hidden_size"], "1024", HIDDEN),
    Key::read(&["num_hidden_layers"], "24", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["ffn_dim"], "4096", FEED_FORWARD),
    Key::read(&["activation_function"], "\"gelu\"", ACTIVATION),
    Key::read(&["dropout"], "0.1", DROPOUT),
    Key::read(&["attention_dropout"], "0.1", DROPOUT),
    Key::only(&["activation_dropout"], "0.0", "the feed-forward net drops nothing between its matrices"),
    Key::only(&["layerdrop"], "0.0", "no layer is dropped"),
    Key::read(&["init_std"], "0.02", DEVIATION),
    Key::read(&["scale_embedding"], "true", "embeddings are multiplied by the root of the stream's size"),
    Key::read(&["pad_token_id"], "1", PAD),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::only(&["add_cross_attention"], "false", "there is no other sequence to attend to"),
    Key::only(&["rope_theta"], "10000.0", "the class has no rotary positions"),
    Key::only(&["layer_norm_eps"], "1e-5", "the class has no other"),
];

/// The positions in front, which are never read.
const UNREAD_POSITIONS: u64 = 2;

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "ffn_dim", norm_eps: "layer_norm_eps", ..Base::USUAL }.read(fields)?;
    if let Some(pad) = base.pad.filter(|pad| *pad >= UNREAD_POSITIONS) {
        let why = format!("{pad} is not supported: the class has no wave at the position of that number");
        return Err(unsupported("pad_token_id", why));
    }
    if base.hidden < 4 || base.hidden % 2 == 1 {
        return Err(invalid("d_model", format!("{} elements are not pairs of waves", base.hidden)));
    }
    let is_scaled: bool = fields.get("scale_embedding")?;
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "activation_function")?,
        norm: Norm::Layer,
        embedding_scale: if is_scaled { EmbeddingScale::Root } else { EmbeddingScale::One },
        waves: Some(Waves { first: UNREAD_POSITIONS, fall: WAVES.ln() / (base.hidden / 2 - 1) as f64 }),
        nope: LayerSet::First(base.layers),
        qkv_bias: true,
        out_bias: true,
        net_bias: true,
        residual_dropout: fields.get("dropout")?,
        embedding_dropout: fields.get("dropout")?,
        deviation: fields.get("init_std")?,
        ..base
    }
    .into())
}
