//! Layers with a state, as a file lists them.

use super::{Base, Heads, ModelSizes, Rotary};
use crate::models::error::{ConfigError, invalid, positive, unsupported};
use crate::models::fields::Fields;
use crate::models::layer_set::{LayerSet, Window};
use crate::models::llama::LlamaConfig;
use crate::models::mixers::{ScanHeads, Ssd, SsdNorm, SsdScales};
use crate::models::rotation::Rotation;
use serde_json::Value;

/// The types of layers, each under the names that files have for it.
pub(in crate::models) struct LayerTypes {
    /// Layers with a state.
    pub(in crate::models) state: &'static [&'static str],
    /// Layers with attention.
    pub(in crate::models) attention: &'static [&'static str],
}

impl LayerTypes {
    /// The names of today, and those of older files.
    pub(in crate::models) const USUAL: LayerTypes =
        LayerTypes { state: &["linear_attention", "mamba"], attention: &["full_attention", "attention"] };

    /// The layers with a state, as a key lists types; without a list `has_state` says which. `None` if there are none.
    pub(in crate::models) fn scanned(
        &self,
        fields: &Fields,
        layers: u32,
        key: &'static str,
        has_state: impl Fn(u32) -> bool,
    ) -> Result<Option<LayerSet>, ConfigError> {
        let Some(types): Option<Vec<String>> = fields.optional(key)? else { return set(layers, key, has_state) };
        if types.len() != layers as usize {
            let why = format!("`{key}` has {} types, but `num_hidden_layers` is {layers}", types.len());
            return Err(ConfigError::Contradiction(why));
        }
        let known: Vec<&str> = self.state.iter().chain(self.attention).copied().collect();
        if let Some(kind) = types.iter().find(|kind| !known.contains(&kind.as_str())) {
            let (state, attention) = (self.state[0], self.attention[0]);
            return Err(unsupported(key, format!("{kind} is not supported, only {state} and {attention}")));
        }
        set(layers, key, |layer| self.state.contains(&types[layer as usize].as_str()))
    }
}

/// The layers of a model that has layers with a state, with a window, and with attention to all tokens.
pub(in crate::models) struct Typed {
    /// The layers with a state.
    pub(in crate::models) state: Option<LayerSet>,
    /// The window of some of the others.
    pub(in crate::models) window: Option<Window>,
}

impl Typed {
    /// True if some layers attend to all tokens.
    pub(in crate::models) fn has_full(&self, layers: u32) -> bool {
        let has_state = self.state.unwrap_or(LayerSet::None);
        let full = self.window.map_or(LayerSet::First(layers), |window| window.full);
        (0..layers).any(|layer| full.contains(layer) && !has_state.contains(layer))
    }
}

/// The types of layers as `layer_types` lists them, where `state` is that of layers with a state; without a list `default` names the type of
/// each layer.
pub(in crate::models) fn typed(
    fields: &Fields,
    layers: u32,
    state: &str,
    default: impl Fn(u32) -> &'static str,
) -> Result<Typed, ConfigError> {
    const KEY: &str = "layer_types";
    const LOCAL: &str = "sliding_attention";
    let stated: Option<Vec<String>> = fields.optional(KEY)?;
    let types = stated.unwrap_or_else(|| (0..layers).map(|layer| default(layer).to_string()).collect());
    if types.len() != layers as usize {
        let why = format!("`{KEY}` has {} types, but `num_hidden_layers` is {layers}", types.len());
        return Err(ConfigError::Contradiction(why));
    }
    let known = [state, LOCAL, "full_attention"];
    if let Some(kind) = types.iter().find(|kind| !known.contains(&kind.as_str())) {
        return Err(unsupported(KEY, format!("{kind} is not supported, only {}", known.join(", "))));
    }
    let has_window = types.iter().any(|kind| kind == LOCAL);
    let full = set(layers, KEY, |layer| types[layer as usize] != LOCAL)?.unwrap_or(LayerSet::None);
    let window = match fields.optional("sliding_window")? {
        Some(tokens) => has_window.then_some(Window { tokens, chunked: false, full }),
        None if has_window => {
            return Err(unsupported(KEY, format!("{LOCAL} needs a `sliding_window`")));
        }
        None => None,
    };
    Ok(Typed { state: set(layers, KEY, |layer| types[layer as usize] == state)?, window })
}

/// The layers with a state; `None` if there are none. `key` lists them where they follow no rule.
pub(in crate::models) fn set(
    layers: u32,
    key: &str,
    has_state: impl Fn(u32) -> bool,
) -> Result<Option<LayerSet>, ConfigError> {
    match LayerSet::of(layers, has_state) {
        Some(set) => Ok((set.count(layers) > 0).then_some(set)),
        None => Err(unsupported(key, "of more than 128 layers they must follow a rule".to_string())),
    }
}

/// The keys of a state space of Mamba-2, by what they state.
pub(in crate::models) struct SsdKeys {
    /// Heads.
    pub(in crate::models) heads: &'static str,
    /// Size of a head's values; a file may leave it to the others, by `"auto"`.
    pub(in crate::models) value: &'static str,
    /// Size of keys.
    pub(in crate::models) state: &'static str,
    pub(in crate::models) groups: &'static str,
    pub(in crate::models) taps: &'static str,
    pub(in crate::models) chunk: &'static str,
    pub(in crate::models) bias: &'static str,
    pub(in crate::models) conv_bias: &'static str,
}

impl SsdKeys {
    /// Those of Bamba and its like.
    pub(in crate::models) const BAMBA: SsdKeys = SsdKeys {
        heads: "mamba_n_heads",
        value: "mamba_d_head",
        state: "mamba_d_state",
        groups: "mamba_n_groups",
        taps: "mamba_d_conv",
        chunk: "mamba_chunk_size",
        bias: "mamba_proj_bias",
        conv_bias: "mamba_conv_bias",
    };

    /// A state space of `inner` values in all, without bounds of steps.
    pub(in crate::models) fn read(&self, fields: &Fields, inner: u64, eps: f64) -> Result<Ssd, ConfigError> {
        let (heads, groups): (u64, u64) = (fields.get(self.heads)?, fields.get(self.groups)?);
        positive(self.groups, groups)?;
        positive(self.heads, heads)?;
        let stated: Value = fields.get(self.value)?;
        let value = stated.as_u64().unwrap_or(inner / heads);
        if value * heads != inner {
            let why = format!("{heads} heads of {value} values are not {inner} values");
            return Err(invalid(self.heads, why));
        }
        if !heads.is_multiple_of(groups) {
            return Err(invalid(self.groups, format!("{heads} heads do not divide into {groups} groups")));
        }
        let heads = ScanHeads {
            groups,
            heads: heads / groups,
            key: fields.get(self.state)?,
            value,
            taps: fields.get(self.taps)?,
        };
        let bias = fields.get(self.bias)?;
        Ok(Ssd {
            heads,
            chunk: fields.get(self.chunk)?,
            bias,
            out_bias: bias,
            conv_bias: fields.get(self.conv_bias)?,
            steps: [None; 2],
            first_steps: None,
            eps,
            norm: SsdNorm::Gated,
            scales: SsdScales::NONE,
        })
    }
}

/// Bounds of steps as a key lists them. A step is above 0, and infinity is no bound.
pub(in crate::models) fn steps(fields: &Fields, key: &'static str) -> Result<[Option<f64>; 2], ConfigError> {
    let Some(bounds): Option<Vec<Value>> = fields.optional(key)? else { return Ok([None; 2]) };
    let [least, most] = bounds.as_slice() else {
        return Err(invalid(key, format!("has {} numbers, not 2", bounds.len())));
    };
    Ok([least.as_f64().filter(|least| *least > 0.0), most.as_f64()])
}

/// The bounds between which the first steps of a state space are drawn.
pub(in crate::models) fn first_steps(fields: &Fields) -> Result<[f64; 2], ConfigError> {
    let [least, most, floor]: [f64; 3] =
        [fields.get("time_step_min")?, fields.get("time_step_max")?, fields.get("time_step_floor")?];
    let least = least.max(floor);
    if least > 0.0 && least <= most {
        return Ok([least, most]);
    }
    Err(invalid("time_step_max", format!("steps from {least} to {most} cannot be drawn")))
}

/// The rotation of heads without positions.
pub(in crate::models) fn no_positions() -> Rotary {
    Rotary { rotation: Rotation::of(10_000.0), local: None, score_factor: 1.0 }
}

/// The fields of a model without attention and without a feed-forward net, whose row of padding learns as others do.
pub(in crate::models) fn without_attention(
    fields: &Fields,
    norm_eps: &'static str,
) -> Result<LlamaConfig, ConfigError> {
    let sizes =
        ModelSizes { hidden: fields.get("hidden_size")?, heads: 1, layers: fields.layers("num_hidden_layers")? };
    let heads = Heads { size: 2, kv_heads: 1, rotary: no_positions() };
    let base = Base { feed_forward: "hidden_size", norm_eps, ..Base::USUAL }.read_with(fields, sizes, heads)?;
    Ok(LlamaConfig { nope: LayerSet::First(sizes.layers), pad: None, ..base })
}
