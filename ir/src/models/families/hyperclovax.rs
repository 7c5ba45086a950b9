//! HyperCLOVA X: a Granite with norms of what branches give.

use super::granite;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "hyperclovax",
    class: "HyperCLOVAXForCausalLM",
    keys: Keys { class: "HyperCLOVAXConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, POST_NORMS, QKV, ATTENTION, NET], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "11008", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::read(&["embedding_multiplier"], "1.0", "factor of embeddings"),
    Key::read(&["logits_scaling"], "1.0", "factor of logits"),
    Key::read(&["residual_multiplier"], "1.0", "factor of what branches add"),
    Key::read(&["attention_multiplier"], "null", "factor of scores; null: that of the size of a head"),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["use_post_norm"], "true", "what branches give is normed, too"),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];

const POST_NORMS: &[HubTensor] =
    &[HubTensor::vector("post_norm1.weight", &["post_norm1"]), HubTensor::vector("post_norm2.weight", &["post_norm2"])];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    windows::one_type(fields)?;
    let base = granite::scaled(fields)?;
    let has_post_norms: bool = fields.get("use_post_norm")?;
    Ok(LlamaConfig {
        net_bias: fields.get("mlp_bias")?,
        // The class multiplies where Granite's divides.
        logit_scale: fields.get("logits_scaling")?,
        norms: if has_post_norms { Norms::Both } else { Norms::Before },
        ..base
    }
    .into())
}
