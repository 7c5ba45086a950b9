//! Granite 4: state spaces of Mamba-2 in most layers, and attention without positions in the others; with experts or without.

use super::granitemoeshared::SHARED;
use super::prelude::*;
use super::{IN_MAMBA, MAMBA, granite, granitemoe};

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "granitemoehybrid",
    class: "GraniteMoeHybridForCausalLM",
    keys: Keys {
        class: "GraniteMoeHybridConfig",
        lists: &[KEYS, MAMBA, granitemoe::KEYS, SHARED, ROUTED, ROUTER_LOSS, ROTARY, EVERY],
    },
    wholes: &[],
    weights: Weights { inner: &[NORMS, IN_MAMBA, QKV, ATTENTION, SHARED_NET, granitemoe::EXPERTS_OF_GRANITE], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["layer_types"], "null", "linear_attention or full_attention, by layer; null: all have a state"),
    Key::alias(&["layers_block_type"], "layer_types"),
    Key::read(&["position_embedding_type"], "null", "rope: attention has rotary positions; null: it has none"),
    Key::read(&["shared_intermediate_size"], "1024", "size of the net, or of the expert that all tokens take"),
];

/// The net of a model without experts.
const SHARED_NET: &[HubTensor] = &[
    HubTensor::linear("shared_mlp.input_linear.weight", &["gate", "up"]).when(When::Param("gate")),
    HubTensor::linear("shared_mlp.output_linear.weight", &["down"]).when(When::Param("gate")),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = granite::scaled(fields)?;
    let layers = LayerTypes::USUAL.scanned(fields, base.layers, "layer_types", |_| true)?;
    let inner = base.hidden * fields.get::<u64>("mamba_expand")?;
    let ssd = SsdKeys::BAMBA.read(fields, inner, base.norm_eps)?;
    let mixer = Mixer::Ssd(Ssd { steps: steps(fields, "time_step_limit")?, ..ssd });
    let shared = fields.get("shared_intermediate_size")?;
    let experts: u64 = fields.get("num_local_experts")?;
    let experts = if experts == 0 {
        None
    } else {
        Some(Experts { shared, ..softmax(fields, "num_local_experts", "intermediate_size")? })
    };
    Ok(LlamaConfig {
        feed_forward: if experts.is_some() { base.feed_forward } else { shared },
        nope: nope(fields, base.layers)?,
        scanned: layers.map(|layers| Scanned::of(mixer, layers)),
        experts,
        ..base
    }
    .into())
}

/// The layers whose attention has no positions.
fn nope(fields: &Fields, layers: u32) -> Result<LayerSet, ConfigError> {
    match fields.optional::<String>("position_embedding_type")?.as_deref() {
        Some("rope") => Ok(LayerSet::None),
        None | Some("nope") => Ok(LayerSet::First(layers)),
        Some(other) => {
            Err(unsupported("position_embedding_type", format!("{other} is not supported, only rope, nope and null")))
        }
    }
}
