//! GLM-4.5: grouped queries with the experts of DeepSeek-V3.

use super::deepseek_v3::{self, third};
use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "glm4_moe",
    class: "Glm4MoeForCausalLM",
    keys: Keys { class: "Glm4MoeConfig", lists: &[KEYS, ROUTED, FURTHER, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        inner: &[NORMS, QKV, ATTENTION, NET, ROUTED_WEIGHTS, SHARED_WEIGHTS, FURTHER_WEIGHTS],
        further: 1,
        ..USUAL
    },
    read,
};

pub(super) const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "151552", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "10944", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "46", LAYERS),
    Key::read(&["num_attention_heads"], "96", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "", HEAD),
    Key::only(&["hidden_act"], "\"silu\"", "the feed-forward net is built with it"),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["use_qk_norm"], "false", "queries and keys are normed head by head"),
    Key::read(&["n_routed_experts"], "128", EXPERTS),
    Key::alias(&["num_local_experts", "num_experts"], "n_routed_experts"),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::read(&["moe_intermediate_size"], "1408", EXPERT_SIZE),
    Key::read(&["n_shared_experts"], "1", SHARED),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::read(&["routed_scaling_factor"], "1.0", SCALE),
    Key::read(&["n_group"], "1", GROUPS),
    Key::read(&["topk_group"], "1", OPEN_GROUPS),
    Key::read(&["first_k_dense_replace"], "1", DENSE_FIRST),
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
    Key::read(&["partial_rotary_factor"], "0.5", TURNED),
    Key::read(&["attention_bias"], "false", QKV_BIAS),
];

pub(super) fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { part: Some("partial_rotary_factor"), ..Rope::USUAL };
    let sizes = ModelSizes::read(fields)?;
    positive("num_attention_heads", sizes.heads)?;
    // The class rounds down.
    let size = fields.optional("head_dim")?.unwrap_or(fields.get::<u64>("hidden_size")? / sizes.heads);
    let rotary = rope.read(fields, Head { size, is_latent: false })?;
    let kv_heads = fields.optional("num_key_value_heads")?.unwrap_or(sizes.heads);
    let base = Base::USUAL.read_with(fields, sizes, Heads { size, kv_heads, rotary })?;
    let has_norms: bool = fields.get("use_qk_norm")?;
    Ok(LlamaConfig {
        rotation: even(base.rotation),
        qkv_bias: fields.get("attention_bias")?,
        qk_norm: if has_norms { QkNorm::Heads } else { QkNorm::None },
        experts: deepseek_v3::experts(fields, base.layers)?,
        mtp: further(fields)?,
        ..base
    }
    .into())
}

/// A rotation of an even number of elements: where a file gives an odd one, the class turns one more by the frequencies of the odd number.
fn even(rotation: Rotation) -> Rotation {
    match rotation {
        Rotation { turned: Some(odd), scaling: None, theta, .. } if odd % 2 == 1 => {
            let (odd, next) = (odd as f64, odd + 1);
            let by = 2.0 / odd - 2.0 / next as f64;
            let divisors: Vec<f64> = (0..next / 2).map(|pair| theta.powf(pair as f64 * by)).collect();
            Rotation { turned: Some(next), scaling: Some(Scaling::Pairs { divisors: divisors.into() }), ..rotation }
        }
        _ => rotation,
    }
}

/// `config.json` of zai-org/GLM-4.5, without the layer that predicts a second token. Half of a head turns.
const GLM_45: LlamaConfig = LlamaConfig {
    vocabulary: 151_552,
    hidden: 5120,
    feed_forward: 12_288,
    layers: 92,
    heads: 96,
    rotation: Rotation { theta: 1_000_000.0, turned: Some(64), ..PLAIN },
    pad: Some(151_329),
    qkv_bias: true,
    qk_norm: QkNorm::Heads,
    experts: Some(third(160, 3, 1536, 2.5)),
    ..LLAMA3_8B
};

pub(super) const PRESETS: &[Preset] = &[
    Preset::llama("glm-4.5", "GLM-4.5, 353B parameters, 8 of 160 experts", 131_072, GLM_45),
    Preset::llama(
        "glm-4.5-air",
        "GLM-4.5 Air, 107B parameters, 8 of 128 experts",
        131_072,
        // config.json of zai-org/GLM-4.5-Air.
        LlamaConfig {
            hidden: 4096,
            feed_forward: 10_944,
            layers: 46,
            qk_norm: QkNorm::None,
            experts: Some(third(128, 1, 1408, 1.0)),
            ..GLM_45
        },
    ),
];
