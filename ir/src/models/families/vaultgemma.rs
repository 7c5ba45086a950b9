//! VaultGemma: Gemma 2 without norms of what branches give.

use super::gemma2;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "vaultgemma",
    class: "VaultGemmaForCausalLM",
    keys: Keys { class: "VaultGemmaConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: gemma2::GEMMA_WEIGHTS,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "256000", VOCABULARY),
    Key::read(&["hidden_size"], "2304", HIDDEN),
    Key::read(&["intermediate_size"], "9216", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "26", LAYERS),
    Key::read(&["num_attention_heads"], "8", HEADS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
    Key::read(&["head_dim"], "256", HEAD_SIZE),
    Key::read(&["hidden_activation"], "\"gelu_pytorch_tanh\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "8192", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["query_pre_attn_scalar"], "256", "scores are divided by its root"),
    Key::read(&["sliding_window"], "4096", WINDOW),
    LAYER_TYPES,
    Key::read(&["final_logit_softcapping"], "30.0", LOGIT_BOUND),
    Key::read(&["attn_logit_softcapping"], "50.0", "bound of attention scores; null: none"),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
    Key::nothing(&["hidden_act"], "the class reads `hidden_activation`"),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = gemma2::gemma(fields, Rope::USUAL)?;
    let window = Limited::sliding(fields, base.layers)?.read(fields, |layer| (layer + 1).is_multiple_of(2))?;
    let softcap = fields.optional("attn_logit_softcapping")?;
    Ok(LlamaConfig { norms: Norms::Before, softcap, window, ..base }.into())
}
