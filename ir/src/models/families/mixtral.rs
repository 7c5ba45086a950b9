//! Mixtral: a Mistral with experts.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "mixtral",
    class: "MixtralForCausalLM",
    keys: Keys { class: "MixtralConfig", lists: &[KEYS, ONE_TYPE, FIXED_NET, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, ROUTED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "14336", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["rope_theta"], "1000000.0", THETA),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::read(&["sliding_window"], "null", WINDOW),
    Key::read(&["num_local_experts"], "8", EXPERTS),
    Key::alias(&["num_experts"], "num_local_experts"),
    Key::read(&["num_experts_per_tok"], "2", CHOSEN),
    Key::read(
        &["router_jitter_noise"],
        "0.0",
        "random factors of what experts read in training, at most this far from 1",
    ),
    WHOLE_HEADS,
];

/// Routers and experts, in files of three versions.
pub(super) const ROUTED_WEIGHTS: &[HubTensor] = &[
    HubTensor::linear("mlp.gate.weight", &["router"]).when(When::File("mlp.gate.weight")),
    HubTensor::linear("block_sparse_moe.gate.weight", &["router"]),
    HubTensor::linear("mlp.experts.gate_up_proj", &["expert_gate", "expert_up"]).of_experts().when(IN_ONE),
    HubTensor::linear("mlp.experts.down_proj", &["expert_down"]).of_experts().when(IN_ONE),
    HubTensor::linear("block_sparse_moe.experts.gate_up_proj", &["expert_gate", "expert_up"])
        .of_experts()
        .when(OLD_IN_ONE),
    HubTensor::linear("block_sparse_moe.experts.down_proj", &["expert_down"]).of_experts().when(OLD_IN_ONE),
    HubTensor::linear("block_sparse_moe.experts.{}.w1.weight", &["expert_gate"]),
    HubTensor::linear("block_sparse_moe.experts.{}.w3.weight", &["expert_up"]),
    HubTensor::linear("block_sparse_moe.experts.{}.w2.weight", &["expert_down"]),
];

/// The tensors of [`IN_ONE`] under the old name of the module.
const OLD_IN_ONE: When = When::File("block_sparse_moe.experts.down_proj");

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    let experts = jittered(fields, softmax(fields, "num_local_experts", "intermediate_size")?)?;
    Ok(LlamaConfig { window: windows::of_all(fields)?, experts: Some(experts), ..base }.into())
}

/// `config.json` of mistralai/Mixtral-8x7B-v0.1.
const MIXTRAL_8X7B: LlamaConfig = LlamaConfig {
    vocabulary: 32_000,
    rotation: Rotation { theta: 1_000_000.0, ..PLAIN },
    experts: Some(Experts::softmax(8, 2, 14_336)),
    ..LLAMA3_8B
};

pub(super) const PRESETS: &[Preset] = &[
    Preset::llama("mixtral-8x7b", "Mixtral, 47B parameters, 2 of 8 experts", 32_768, MIXTRAL_8X7B),
    Preset::llama(
        "mixtral-8x22b",
        "Mixtral, 141B parameters, 2 of 8 experts",
        65_536,
        // config.json of mistralai/Mixtral-8x22B-v0.1.
        LlamaConfig {
            hidden: 6144,
            feed_forward: 16_384,
            layers: 56,
            heads: 48,
            experts: Some(Experts::softmax(8, 2, 16_384)),
            ..MIXTRAL_8X7B
        },
    ),
];
