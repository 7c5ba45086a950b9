//! MiniCPM 3: latent attention, and factors of embeddings, branches and logits.

use super::deepseek_v2;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "minicpm3",
    class: "MiniCPM3ForCausalLM",
    keys: Keys { class: "MiniCPM3Config", lists: &[KEYS, ONE_TYPE, FIXED_NET, deepseek_v2::DEEPSEEK, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, deepseek_v2::LATENT, NET], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "73448", VOCABULARY),
    Key::read(&["hidden_size"], "2560", HIDDEN),
    Key::read(&["intermediate_size"], "6400", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "62", LAYERS),
    Key::read(&["num_attention_heads"], "40", HEADS),
    Key::read(&["num_key_value_heads"], "40", "the number of query heads"),
    Key::read(&["max_position_embeddings"], "32768", CONTEXT),
    Key::read(
        &["initializer_range"],
        "0.1",
        "standard deviation of the initial matrices; those that write to the stream start smaller",
    ),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::read(&["kv_lora_rank"], "256", "size of the vector that keys and values come from"),
    Key::read(&["q_lora_rank"], "768", "size of the vector that queries come from; null: none"),
    Key::read(&["qk_nope_head_dim"], "64", "size of the part of a head without positions"),
    Key::read(&["qk_rope_head_dim"], "32", "size of the part with positions"),
    Key::read(&["v_head_dim"], "null", "size of values; null: `hidden_size` over the heads"),
    Key::read(&["scale_emb"], "12", "factor of embeddings"),
    Key::read(
        &["scale_depth"],
        "1.4",
        "factor of what branches add, over the root of the number of layers; null: no factor",
    ),
    Key::read(&["dim_model_base"], "256", "logits are multiplied by this over `hidden_size`; null: no factor"),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = deepseek_v2::latent(fields)?;
    let embedding: f64 = fields.get("scale_emb")?;
    let depth = f64::from(base.layers).sqrt();
    let size = base.hidden as f64;
    Ok(LlamaConfig {
        embedding_scale: EmbeddingScale::By(embedding),
        residual_scale: fields.optional::<f64>("scale_depth")?.unwrap_or(depth) / depth,
        logit_scale: fields.optional::<f64>("dim_model_base")?.unwrap_or(size) / size,
        ..base
    }
    .into())
}
