//! DeepSeek-V3: experts chosen by sigmoids, and layers that predict further tokens.

use super::deepseek_v2::{self, DEEPSEEK_V2_LITE, LARGE};
use super::llama::PLAIN;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "deepseek_v3",
    class: "DeepseekV3ForCausalLM",
    keys: Keys {
        class: "DeepseekV3Config",
        lists: &[KEYS, ONE_TYPE, FIXED_NET, ROUTED, FURTHER, deepseek_v2::DEEPSEEK, ROTARY, EVERY],
    },
    wholes: &[],
    weights: Weights {
        inner: &[NORMS, deepseek_v2::LATENT, NET, ROUTED_WEIGHTS, SHARED_WEIGHTS, FURTHER_WEIGHTS],
        pairs: Pairs::Stated("rope_interleave"),
        turned: deepseek_v2::TURNING,
        further: 1,
        ..USUAL
    },
    read,
};

pub(in crate::models::families) const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "129280", VOCABULARY),
    Key::read(&["hidden_size"], "7168", HIDDEN),
    Key::read(&["intermediate_size"], "18432", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "61", LAYERS),
    Key::read(&["num_attention_heads"], "128", HEADS),
    Key::read(&["num_key_value_heads"], "128", "the number of query heads, also if absent"),
    Key::read(&["max_position_embeddings"], "4096", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-6", LATENT_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::read(&["n_routed_experts"], "256", EXPERTS),
    Key::alias(&["num_local_experts"], "n_routed_experts"),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::read(&["moe_intermediate_size"], "2048", EXPERT_SIZE),
    Key::read(&["n_shared_experts"], "1", SHARED),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::read(&["routed_scaling_factor"], "2.5", SCALE),
    Key::read(&["n_group"], "8", GROUPS),
    Key::read(&["topk_group"], "4", OPEN_GROUPS),
    Key::only(&["topk_method"], "\"noaux_tc\"", "the class has no other"),
    Key::only(&["scoring_func"], "\"sigmoid\"", "the class has no other"),
    Key::read(&["first_k_dense_replace"], "3", DENSE_FIRST),
    WHOLE_HEADS,
];

pub(in crate::models::families) fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = deepseek_v2::latent(fields)?;
    let experts = experts(fields, base.layers)?;
    Ok(LlamaConfig { experts, mtp: further(fields)?, ..base }.into())
}

/// The experts of DeepSeek-V3 and its likes: sigmoid scores, with a bias for the choice.
pub(in crate::models::families) fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let Some(experts) = deepseek_v2::experts(fields, layers)? else { return Ok(None) };
    let limit = deepseek_v2::groups(fields, 2)?;
    let experts = deepseek_v2::limited(fields, Some(limit), experts)?;
    Ok(Some(Experts { sigmoid: true, bias: true, renormalise: fields.get("norm_topk_prob")?, ..experts }))
}

/// `config.json` of deepseek-ai/DeepSeek-V3, before YaRN and without the layer that predicts a second token.
pub(super) const DEEPSEEK_V3: LlamaConfig = LlamaConfig {
    vocabulary: 129_280,
    hidden: 7168,
    feed_forward: 18_432,
    layers: 61,
    heads: 128,
    kv_heads: 128,
    latent: LARGE,
    experts: Some(Experts { limit: Some(GroupLimit { groups: 8, from: 4, by: 2 }), ..third(256, 3, 2048, 2.5) }),
    ..DEEPSEEK_V2_LITE
};

/// The experts of DeepSeek-V3 and its likes: eight of each token, one more that all take, sigmoid scores with a bias.
pub(in crate::models::families) const fn third(experts: u64, dense_layers: u32, size: u64, scale: f64) -> Experts {
    Experts {
        shared: size,
        dense: LayerSet::First(dense_layers),
        sigmoid: true,
        bias: true,
        scale,
        ..Experts::softmax(experts, 8, size)
    }
}

pub(in crate::models::families) const PRESETS: &[Preset] = &[
    Preset::llama("deepseek-v3", "DeepSeek-V3, 671B parameters, 8 of 256 experts", 131_072, DEEPSEEK_V3),
    Preset::llama(
        "moonlight-16b",
        "Moonlight, 16B parameters, 6 of 64 experts",
        8192,
        // config.json of moonshotai/Moonlight-16B-A3B.
        LlamaConfig {
            vocabulary: 163_840,
            feed_forward: 11_264,
            norm_eps: 1e-5,
            rotation: Rotation { theta: 50_000.0, ..PLAIN },
            experts: Some(Experts { shared: 2 * 1408, chosen: 6, ..third(64, 1, 1408, 2.446) }),
            ..DEEPSEEK_V2_LITE
        },
    ),
    Preset::llama(
        "kimi-k2",
        "Kimi K2, 1.0T parameters, 8 of 384 experts",
        131_072,
        // config.json of moonshotai/Kimi-K2-Base.
        LlamaConfig {
            vocabulary: 163_840,
            heads: 64,
            kv_heads: 64,
            rotation: Rotation { theta: 50_000.0, ..PLAIN },
            experts: Some(third(384, 1, 2048, 2.827)),
            ..DEEPSEEK_V3
        },
    ),
];
