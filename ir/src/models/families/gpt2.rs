//! GPT-2 and what is built like it.

use super::Family;
use super::common::{EVERY, HEADS, HIDDEN, LAYERS, NORM_EPS, TIED, VOCABULARY};
use crate::models::config::{ConfigError, ModelConfig, unsupported};
use crate::models::fields::Fields;
use crate::models::gpt2::Gpt2Config;
use crate::models::keys::{Key, Keys};

pub(super) const FAMILY: Family = Family {
    model_type: "gpt2",
    class: "GPT2LMHeadModel",
    keys: Keys { class: "GPT2Config", lists: &[KEYS, EVERY] },
    whole: None,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50257", VOCABULARY),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["n_positions"], "1024", "positions of the table"),
    Key::read(&["n_embd"], "768", HIDDEN),
    Key::read(&["n_layer"], "12", LAYERS),
    Key::read(&["n_head"], "12", HEADS),
    Key::read(&["n_inner"], "null", "size of the feed-forward net; null: four times `n_embd`"),
    Key::alias(&["hidden_size"], "n_embd"),
    Key::alias(&["max_position_embeddings"], "n_positions"),
    Key::alias(&["num_attention_heads"], "n_head"),
    Key::alias(&["num_hidden_layers"], "n_layer"),
    Key::read(&["activation_function"], "\"gelu_new\"", "gelu, or gelu_new, which gelu_pytorch_tanh is too"),
    Key::read(&["attn_pdrop", "resid_pdrop", "embd_pdrop"], "0.1", "dropout, drawn from our own numbers"),
    Key::read(&["layer_norm_epsilon"], "1e-5", NORM_EPS),
    Key::only(&["scale_attn_weights"], "true", "scores are scaled"),
    Key::only(&["scale_attn_by_inverse_layer_idx", "add_cross_attention"], "false", "attention has no such option"),
    Key::nothing(&["reorder_and_upcast_attn"], "in f32 it is the order of two products"),
    Key::nothing(
        &[
            "n_ctx",
            "summary_type",
            "summary_use_proj",
            "summary_activation",
            "summary_proj_to_labels",
            "summary_first_dropout",
        ],
        "not of the language model",
    ),
    Key::read(&["post_norm"], "false", "an addition: norms stand behind each sum"),
    Key::nothing(&["pad_token_id"], "the embedding has no padding"),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let hidden: u64 = fields.get("n_embd")?;
    let activation: String = fields.get("activation_function")?;
    let exact_gelu = match activation.as_str() {
        "gelu" => true,
        "gelu_new" | "gelu_pytorch_tanh" => false,
        _ => {
            let why = format!("`{activation}` is not supported, only `gelu` and `gelu_new`");
            return Err(unsupported("activation_function", why));
        }
    };
    let config = Gpt2Config {
        vocabulary: fields.get("vocab_size")?,
        positions: Some(fields.get("n_positions")?),
        hidden,
        feed_forward: fields.optional("n_inner")?.unwrap_or(hidden.saturating_mul(4)),
        layers: fields.layers("n_layer")?,
        heads: fields.get("n_head")?,
        norm_eps: fields.get("layer_norm_epsilon")?,
        exact_gelu,
        post_norm: fields.get("post_norm")?,
        attention_dropout: fields.get("attn_pdrop")?,
        residual_dropout: fields.get("resid_pdrop")?,
        embedding_dropout: fields.get("embd_pdrop")?,
        tied: fields.get("tie_word_embeddings")?,
        deviation: fields.get("initializer_range")?,
    };
    Ok(ModelConfig::Gpt2(config))
}
