//! dots.llm1: the attention of Qwen3 and the experts of DeepSeek-V3.

use super::deepseek_v3;
use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "dots1",
    class: "Dots1ForCausalLM",
    keys: Keys { class: "Dots1Config", lists: &[KEYS, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, NET, ROUTED_WEIGHTS, SHARED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "152064", VOCABULARY),
    Key::read(&["hidden_size"], "4608", HIDDEN),
    Key::read(&["intermediate_size"], "10944", FEED_FORWARD),
    Key::read(&["moe_intermediate_size"], "1408", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "62", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "32", KV_HEADS),
    Key::read(&["n_group"], "1", GROUPS),
    Key::read(&["topk_group"], "1", OPEN_GROUPS),
    Key::read(&["first_k_dense_replace"], "0", DENSE_FIRST),
    Key::read(&["norm_topk_prob"], "false", RENORMALISE),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["routed_scaling_factor"], "1.0", SCALE),
    Key::read(&["sliding_window"], "4096", WINDOW),
    Key::read(&["max_window_layers"], "62", "which layers have the window"),
    LAYER_TYPES,
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::alias(&["num_local_experts"], "n_routed_experts"),
    Key::read(&["n_routed_experts"], "null", EXPERTS),
    Key::read(&["n_shared_experts"], "null", SHARED),
    Key::read(&["num_experts_per_tok"], "null", CHOSEN),
    Key::only(&["moe_layer_freq"], "1", UNREAD),
    Key::only(&["scoring_func"], "\"noaux_tc\"", "the class has no other"),
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
    WHOLE_HEADS,
    Key::only(&["use_qk_norm"], "true", ALWAYS_NORMED),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    let most: u64 = fields.optional("max_window_layers")?.unwrap_or(0);
    let window = Limited::sliding(fields, base.layers)?.read(fields, |layer| u64::from(layer) < most)?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        window,
        qk_norm: QkNorm::Heads,
        experts: deepseek_v3::experts(fields, base.layers)?,
        ..base
    }
    .into())
}

pub(super) const PRESETS: &[Preset] = &[Preset::llama(
    "dots.llm1",
    "dots.llm1, 143B parameters, 6 of 128 experts",
    32_768,
    // config.json of rednote-hilab/dots.llm1.base.
    LlamaConfig {
        vocabulary: 152_064,
        feed_forward: 10_944,
        layers: 62,
        kv_heads: 32,
        rotation: Rotation { theta: 10_000_000.0, ..PLAIN },
        qk_norm: QkNorm::Heads,
        experts: Some(Experts { shared: 2 * 1408, chosen: 6, ..deepseek_v3::third(128, 1, 1408, 2.5) }),
        ..LLAMA3_8B
    },
)];
