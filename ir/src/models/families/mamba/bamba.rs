//! Bamba: state spaces of Mamba-2, and attention in few layers.

use super::prelude::*;
use super::{IN_MAMBA, MAMBA};

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "bamba",
    class: "BambaForCausalLM",
    keys: Keys { class: "BambaConfig", lists: &[KEYS, MAMBA, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { outer: OUTER, inner: &[NORMS_OF_NETS, IN_MAMBA, QKV, ATTENTION, NET_OF_BAMBA], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "128000", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "14336", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["rms_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["max_position_embeddings"], "262144", CONTEXT),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["partial_rotary_factor"], "0.5", TURNED),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::read(&["attn_layer_indices"], "null", "the layers with attention"),
    Key::nothing(&["layer_types", "layers_block_type"], "`attn_layer_indices` says which layers have attention"),
    Key::only(&["z_loss_coefficient"], "0.0", "the loss has no term of the logits' size"),
    Key::nothing(&["num_logits_to_keep"], "how text is generated"),
    Key::read(&["pad_token_id"], "0", PAD),
];

pub(super) const OUTER: &[HubTensor] = &[
    HubTensor::table("model.embed_tokens.weight", &["emb"]),
    HubTensor::vector("model.final_layernorm.weight", &["final_norm"]),
    HubTensor::linear("lm_head.weight", &["out"]),
];

pub(super) const NORMS_OF_NETS: &[HubTensor] = &[
    HubTensor::vector("input_layernorm.weight", &["norm1"]),
    HubTensor::vector("pre_ff_layernorm.weight", &["norm2"]),
];

pub(super) const NET_OF_BAMBA: &[HubTensor] = &[
    HubTensor::linear("feed_forward.gate_proj.weight", &["gate"]),
    HubTensor::linear("feed_forward.up_proj.weight", &["up"]),
    HubTensor::linear("feed_forward.down_proj.weight", &["down"]),
    HubTensor::vector("feed_forward.gate_proj.bias", &["gate_bias"]),
    HubTensor::vector("feed_forward.up_proj.bias", &["up_bias"]),
    HubTensor::vector("feed_forward.down_proj.bias", &["down_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { part: Some("partial_rotary_factor"), ..Rope::USUAL };
    let base = biased(fields, Base { rope, ..Base::USUAL }.read(fields)?)?;
    let attending: Vec<u32> = fields.optional("attn_layer_indices")?.unwrap_or_default();
    let layers = mixers::set(base.layers, "attn_layer_indices", |layer| !attending.contains(&layer))?;
    let inner = base.hidden * fields.get::<u64>("mamba_expand")?;
    let ssd = SsdKeys::BAMBA.read(fields, inner, base.norm_eps)?;
    let mixer = Mixer::Ssd(Ssd { steps: steps(fields, "time_step_limit")?, ..ssd });
    let (activation, net_bias) = (activation(fields, "hidden_act")?, fields.get("mlp_bias")?);
    Ok(LlamaConfig { activation, net_bias, scanned: layers.map(|layers| Scanned::of(mixer, layers)), ..base }.into())
}
