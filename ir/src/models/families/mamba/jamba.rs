//! Jamba: state spaces of Mamba, attention without positions in few layers, and experts in every other one.

use super::bamba::{NET_OF_BAMBA, NORMS_OF_NETS, OUTER};
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "jamba",
    class: "JambaForCausalLM",
    keys: Keys { class: "JambaConfig", lists: &[KEYS, ROUTED, ROUTER_LOSS, EVERY] },
    wholes: &[],
    weights: Weights {
        outer: OUTER,
        inner: &[NORMS_OF_NETS, super::SELECTIVE_IN_MAMBA, QKV, ATTENTION, NET_OF_BAMBA, EXPERTS_OF_JAMBA],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "65536", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "14336", "size between the matrices of a net, and of an expert"),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["rms_norm_eps"], "1e-6", NORM_EPS),
    Key::nothing(&["max_position_embeddings", "rope_theta", "sliding_window"], "attention has no positions"),
    Key::read(&["attention_dropout"], "0.0", DROPOUT),
    Key::read(&["tie_word_embeddings"], "false", TIED),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::read(&["attn_layer_period"], "8", "one layer in this number has attention"),
    Key::read(&["attn_layer_offset"], "4", "the first of them"),
    Key::read(&["expert_layer_period"], "2", "one layer in this number has experts"),
    Key::read(&["expert_layer_offset"], "1", "the first of them"),
    Key::read(&["num_experts"], "16", EXPERTS),
    Key::alias(&["num_local_experts"], "num_experts"),
    Key::read(&["num_experts_per_tok"], "2", CHOSEN),
    Key::read(&["mamba_d_state"], "16", "size of a state space's keys"),
    Key::read(&["mamba_d_conv"], "4", "taps of its convolution"),
    Key::read(&["mamba_expand"], "2", "its channels, over the size of the stream"),
    Key::read(
        &["mamba_dt_rank"],
        "\"auto\"",
        "size of the vector that steps come from; auto: a sixteenth of the stream's",
    ),
    Key::read(&["mamba_conv_bias"], "true", "its convolution has a bias"),
    Key::read(&["mamba_proj_bias"], "false", "its products have biases"),
    Key::nothing(&["use_mamba_kernels", "use_mambapy", "use_associative_scan"], "how `transformers` runs it"),
    Key::nothing(&["num_logits_to_keep", "layer_types", "layers_block_type", "layers_num_experts"], UNREAD),
];

/// In files of whose experts a tensor has all matrices of one kind.
const IN_ONE: When = When::File("feed_forward.experts.down_proj");

const EXPERTS_OF_JAMBA: &[HubTensor] = &[
    HubTensor::linear("feed_forward.router.weight", &["router"]),
    HubTensor::linear("feed_forward.experts.gate_up_proj", &["expert_gate", "expert_up"]).of_experts().when(IN_ONE),
    HubTensor::linear("feed_forward.experts.down_proj", &["expert_down"]).of_experts().when(IN_ONE),
    HubTensor::linear("feed_forward.experts.{}.gate_proj.weight", &["expert_gate"]),
    HubTensor::linear("feed_forward.experts.{}.up_proj.weight", &["expert_up"]),
    HubTensor::linear("feed_forward.experts.{}.down_proj.weight", &["expert_down"]),
];

/// Layers that come at a period.
fn every(fields: &Fields, period: &'static str, offset: &'static str) -> Result<impl Fn(u32) -> bool, ConfigError> {
    let (every, first): (u32, u32) = (fields.get(period)?, fields.get(offset)?);
    positive(period, u64::from(every))?;
    Ok(move |layer: u32| layer % every == first)
}

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let sizes = ModelSizes::read(fields)?;
    let kv_heads = fields.optional("num_key_value_heads")?.unwrap_or(sizes.heads);
    let heads = Heads { size: sizes.head()?, kv_heads, rotary: mixers::no_positions() };
    let base = Base::USUAL.read_with(fields, sizes, heads)?;
    let attends = every(fields, "attn_layer_period", "attn_layer_offset")?;
    let routes = every(fields, "expert_layer_period", "expert_layer_offset")?;
    let layers = mixers::set(base.layers, "attn_layer_period", |layer| !attends(layer))?;
    let number: u64 = fields.get("num_experts")?;
    let dense = dense(base.layers, "expert_layer_period", |layer| number <= 1 || !routes(layer))?;
    let experts = match dense {
        Some(dense) => {
            let experts = softmax(fields, "num_experts", "intermediate_size")?;
            Some(Experts { dense, renormalise: false, ..experts })
        }
        None => None,
    };
    let selective = Selective {
        channels: base.hidden * fields.get::<u64>("mamba_expand")?,
        state: fields.get("mamba_d_state")?,
        rank: super::rank(fields, "mamba_dt_rank", base.hidden)?,
        taps: fields.get("mamba_d_conv")?,
        bias: fields.get("mamba_proj_bias")?,
        conv_bias: fields.get("mamba_conv_bias")?,
        norms: SelectiveNorms::Gains(base.norm_eps),
        // The first steps are drawn as those of Mamba: the class draws the biases of a usual product.
        first_steps: [0.001, 0.1],
    };
    let mixer = Mixer::Selective(selective);
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        nope: LayerSet::First(base.layers),
        scanned: layers.map(|layers| Scanned::of(mixer, layers)),
        experts,
        ..base
    }
    .into())
}
