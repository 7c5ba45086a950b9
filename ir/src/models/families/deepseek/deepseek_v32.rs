//! DeepSeek-V3.2: DeepSeek-V3 whose queries attend to the keys that an indexer chooses.

use super::deepseek_v2::{self, LARGE};
use super::deepseek_v3::{self, DEEPSEEK_V3};
use super::glm4_moe_lite;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "deepseek_v32",
    class: "DeepseekV32ForCausalLM",
    keys: Keys {
        class: "DeepseekV32Config",
        lists: &[KEYS, INDEXED, deepseek_v3::KEYS, FIXED_NET, ROUTED, FURTHER, deepseek_v2::DEEPSEEK, ROTARY, EVERY],
    },
    wholes: &[],
    weights: Weights {
        inner: &[NORMS, deepseek_v2::LATENT, INDEXER, NET, ROUTED_WEIGHTS, SHARED_WEIGHTS, FURTHER_WEIGHTS],
        pairs: Pairs::Adjacent,
        ..deepseek_v3::FAMILY.weights
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["max_position_embeddings"], "163840", CONTEXT),
    Key::read(&["index_n_heads"], "64", INDEX_HEADS),
    Key::read(&["mlp_layer_types"], "null", SPARSE_LAYERS),
    Key::nothing(&["num_key_value_heads"], "heads share one key"),
    Key::alias(&["num_experts"], "n_routed_experts"),
];

const INDEX_HEADS: &str = "heads of an indexer";

/// The keys of indexers.
pub(in crate::models::families) const INDEXED: &[Key] = &[
    Key::read(&["index_topk"], "2048", "the most keys that a query attends to"),
    Key::read(&["index_head_dim"], "128", "size of a head of an indexer"),
    Key::read(&["index_n_heads"], "32", INDEX_HEADS),
    Key::read(
        &["index_loss_coef"],
        "null",
        "an addition: the factor of the loss that trains indexers, the mean of a layer over tokens; null: they are not trained",
    ),
    Key::read(&["layer_types"], "null", "indexed_attention for all layers"),
];

/// An indexer.
pub(in crate::models::families) const INDEXER: &[HubTensor] = &[
    HubTensor::linear("self_attn.indexer.wq_b.weight", &["wiq"]),
    HubTensor::linear("self_attn.indexer.wk.weight", &["wik"]),
    HubTensor::vector("self_attn.indexer.k_norm.weight", &["ik_norm"]),
    HubTensor::vector("self_attn.indexer.k_norm.bias", &["ik_norm_bias"]),
    HubTensor::linear("self_attn.indexer.weights_proj.weight", &["wiw"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(indexed(fields, LayerSet::None)?.into())
}

/// Reads what DeepSeek-V3.2 and GLM share. The layers of a set have no indexer of their own.
pub(in crate::models::families) fn indexed(fields: &Fields, shared: LayerSet) -> Result<LlamaConfig, ConfigError> {
    let base = attending(fields, shared)?;
    let experts = glm4_moe_lite::experts(fields, base.layers)?;
    Ok(LlamaConfig { experts, mtp: further(fields)?, ..base })
}

/// The fields of a model without experts.
pub(in crate::models::families) fn attending(fields: &Fields, shared: LayerSet) -> Result<LlamaConfig, ConfigError> {
    let base = deepseek_v2::latent_with(fields, 1)?;
    one_type(fields)?;
    let indexer = Indexer {
        heads: fields.get("index_n_heads")?,
        head: fields.get("index_head_dim")?,
        keys: fields.get("index_topk")?,
        shared,
        loss: fields.optional("index_loss_coef")?.filter(|factor| *factor != 0.0),
    };
    if base.attention_dropout != 0.0 {
        let why = "attention to chosen keys drops no weights; set it to 0".to_string();
        return Err(unsupported("attention_dropout", why));
    }
    Ok(LlamaConfig { indexer: Some(indexer), ..base })
}

/// Checks that all layers have an indexer's choice.
fn one_type(fields: &Fields) -> Result<(), ConfigError> {
    let types: Vec<String> = fields.optional("layer_types")?.unwrap_or_default();
    match types.iter().find(|kind| *kind != "indexed_attention") {
        None => Ok(()),
        Some(kind) => Err(unsupported("layer_types", format!("{kind} is not supported, only indexed_attention"))),
    }
}

pub(in crate::models::families) const PRESETS: &[Preset] = &[Preset::llama(
    "deepseek-v3.2",
    "DeepSeek-V3.2, 671B parameters, 8 of 256 experts, 2048 keys of each query",
    163_840,
    // config.json of deepseek-ai/DeepSeek-V3.2-Exp.
    LlamaConfig {
        kv_heads: 1,
        latent: LARGE,
        indexer: Some(Indexer { heads: 64, head: 128, keys: 2048, shared: LayerSet::None, loss: None }),
        ..DEEPSEEK_V3
    },
)];
