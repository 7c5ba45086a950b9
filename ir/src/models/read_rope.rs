//! Rotary positions as a `config.json` states them: `rope_theta` and `rope_scaling`, or in newer files both in
//! `rope_parameters`.

use super::config::{ConfigError, Fields, invalid, unsupported};
use super::keys::ROPE;
use super::rotation::Rotation;
use crate::ops::Scaling;
use serde_json::{Map, Value, json};

/// The rotations of a file's layers, and what it says with them of attention scores.
pub(super) struct Rotary {
    /// The rotation of all layers, or of those without a window.
    pub(super) rotation: Rotation,
    /// The rotation of layers with a window, if these have one of their own.
    pub(super) local: Option<Rotation>,
    /// The factor of all scores of latent attention.
    pub(super) score_factor: f64,
}

/// The heads that turn.
#[derive(Clone, Copy)]
pub(super) struct Head {
    /// Its elements that may turn.
    pub(super) size: u64,
    /// They are the rotary part of latent attention.
    pub(super) is_latent: bool,
}

/// Reads them as `transformers` does: where a file has both objects, `rope_scaling` counts. Keys that no class has join
/// `unknown`.
pub(super) fn rotary(fields: &Fields, head: Head, unknown: &mut Vec<String>) -> Result<Rotary, ConfigError> {
    let theta: f64 = fields.get(if fields.family == "gpt_neox" { "rotary_emb_base" } else { "rope_theta" })?;
    let has_local = fields.family == "gemma3_text";
    let local_theta: Option<f64> = if has_local { Some(fields.get("rope_local_base_freq")?) } else { None };
    let turned = turned(head.size, part(fields)?);
    let plain = |theta| Rotation { turned, ..Rotation::of(theta) };
    let mut rotary = Rotary { rotation: plain(theta), local: local_theta.map(plain), score_factor: 1.0 };
    let has_both = fields.object("rope_scaling")?.is_some() && fields.object("rope_parameters")?.is_some();
    if has_both && has_local {
        let why = "`rope_scaling` and `rope_parameters` are both there; only one is supported".to_string();
        return Err(ConfigError::Contradiction(why));
    }
    let own = own_default(fields)?;
    let (field, object) = match (fields.object("rope_scaling")?, fields.object("rope_parameters")?, &own) {
        (Some(object), ..) => ("rope_scaling", object),
        (None, Some(object), _) | (None, None, Some(object)) => ("rope_parameters", object),
        (None, None, None) => return Ok(rotary),
    };
    let is_nested = has_local && ["full_attention", "sliding_attention"].iter().any(|kind| object.contains_key(*kind));
    if !is_nested {
        let file = Stated::read(fields, (field, object), None, unknown)?;
        rotary.rotation = file.rotation(head, theta)?;
        rotary.score_factor = file.score_factor(head, &rotary.rotation)?;
        return Ok(rotary);
    }
    for (kind, theta, to) in [
        ("full_attention", Some(theta), Some(&mut rotary.rotation)),
        ("sliding_attention", local_theta, rotary.local.as_mut()),
    ] {
        let (Some(theta), Some(to), Some(of_kind)) = (theta, to, object.get(kind).filter(|stated| !stated.is_null()))
        else {
            continue;
        };
        let of_kind = of_kind.as_object().ok_or_else(|| invalid(field, "must be an object of objects".to_string()))?;
        *to = Stated::read(fields, (field, of_kind), Some(object), unknown)?.rotation(head, theta)?;
    }
    Ok(rotary)
}

/// The part of a head that turns, where the object of the rotation does not say it.
fn part(fields: &Fields) -> Result<f64, ConfigError> {
    match fields.family {
        "phi3" | "glm4_moe" => fields.get("partial_rotary_factor"),
        "gpt_neox" => fields.get("rotary_pct"),
        _ => Ok(1.0),
    }
}

/// The elements of a head that turn, rounded down as the classes do; none if all do.
fn turned(head: u64, part: f64) -> Option<u64> {
    let turned = (head as f64 * part) as u64;
    (turned != head).then_some(turned)
}

/// An object that states a rotation.
struct Stated<'a> {
    fields: &'a Fields,
    /// The key of the object.
    field: &'static str,
    rope: Fields,
    /// The object of the rotations of each type of layers that has this one.
    outer: Option<&'a Map<String, Value>>,
}

impl<'a> Stated<'a> {
    fn read(
        fields: &'a Fields,
        (field, object): (&'static str, &Map<String, Value>),
        outer: Option<&'a Map<String, Value>>,
        unknown: &mut Vec<String>,
    ) -> Result<Stated<'a>, ConfigError> {
        let (rope, more) = Fields::new(ROPE, object)?;
        unknown.extend(more.into_iter().map(|key| format!("{field}.{key}")));
        Ok(Stated { fields, field, rope, outer })
    }

    /// The rotation of heads; `theta` is its base unless the object has one.
    fn rotation(&self, head: Head, theta: f64) -> Result<Rotation, ConfigError> {
        let (fields, rope) = (self.fields, &self.rope);
        let part = rope.optional("partial_rotary_factor")?.map_or_else(|| part(fields), Ok)?;
        if part != 1.0 && !matches!(fields.family, "phi3" | "glm4_moe" | "gpt_neox") {
            let why = format!("{part} is not supported, only 1.0: all of a head turns");
            return Err(unsupported("partial_rotary_factor", why));
        }
        let (turned, theta) = (turned(head.size, part), rope.optional("rope_theta")?.unwrap_or(theta));
        let scaling = self.scaling()?;
        let gain = match &scaling {
            Some(Scaling::Yarn { factor, .. }) => self.yarn_gain(*factor)?,
            Some(Scaling::Lengths { context, .. }) => self.lengths_gain(*context)?,
            _ => 1.0,
        };
        Ok(Rotation { theta, scaling, gain, turned })
    }

    /// Tokens of the context before scaling.
    fn context(&self) -> Result<u64, ConfigError> {
        let (fields, key) = (self.fields, "original_max_position_embeddings");
        // The class of layers with rotations of their own does not look there.
        if self.outer.is_none() && (fields.states(key) || fields.family == "phi3") {
            return fields.get(key);
        }
        if self.rope.states(key) { self.rope.get(key) } else { fields.get("max_position_embeddings") }
    }

    /// How much longer the context of the file is than the one before scaling.
    fn growth(&self, context: u64) -> Result<f64, ConfigError> {
        Ok(self.fields.get::<u64>("max_position_embeddings")? as f64 / context as f64)
    }

    fn scaling(&self) -> Result<Option<Scaling>, ConfigError> {
        let rope = &self.rope;
        let kind: String = rope.get(if rope.states("rope_type") { "rope_type" } else { "type" })?;
        match (kind.as_str(), self.fields.family) {
            ("default", _) => Ok(None),
            // Other names of the same in old files of Phi-3.
            ("longrope", _) | ("su" | "yarn", "phi3") => Ok(Some(Scaling::Lengths {
                short: rope.get::<Vec<f64>>("short_factor")?.into(),
                long: rope.get::<Vec<f64>>("long_factor")?.into(),
                context: self.context()?,
            })),
            (_, "phi3") => Err(unsupported(self.field, format!("{kind} is not supported, only default and longrope"))),
            ("linear", _) => Ok(Some(Scaling::Linear { factor: rope.get("factor")? })),
            ("llama3", _) => Ok(Some(Scaling::Llama3 {
                factor: rope.get("factor")?,
                low: rope.get("low_freq_factor")?,
                high: rope.get("high_freq_factor")?,
                context: self.context()?,
            })),
            ("yarn", _) => self.yarn().map(Some),
            _ => {
                let why = format!("{kind} is not supported, only default, linear, llama3, yarn and longrope");
                Err(unsupported(self.field, why))
            }
        }
    }

    fn yarn(&self) -> Result<Scaling, ConfigError> {
        let (rope, context) = (&self.rope, self.context()?);
        let factor = match rope.optional("factor")? {
            None if rope.states("factor") => self.growth(context)?,
            None => rope.get("factor")?,
            Some(factor) => factor,
        };
        let truncates: bool = match self.outer {
            // `transformers` looks for it next to the objects of all types of layers.
            Some(outer) => outer.get("truncate").is_none_or(|stated| stated.as_bool().unwrap_or(false)),
            None => rope.optional("truncate")?.unwrap_or(false),
        };
        Ok(Scaling::Yarn {
            factor,
            low: stated(rope, "beta_slow")?.unwrap_or(1.0),
            high: stated(rope, "beta_fast")?.unwrap_or(32.0),
            context,
            fractional: !truncates,
        })
    }

    /// The factor of turned queries and keys, as in `_compute_yarn_parameters` of `transformers`.
    fn yarn_gain(&self, factor: f64) -> Result<f64, ConfigError> {
        let rope = &self.rope;
        Ok(match (rope.optional("attention_factor")?, stated(rope, "mscale")?, stated(rope, "mscale_all_dim")?) {
            (Some(given), ..) => given,
            (None, Some(by), Some(all)) => grown(factor, by) / grown(factor, all),
            _ => grown(factor, 1.0),
        })
    }

    /// The same by the growth of the context, as in `_compute_longrope_parameters`.
    fn lengths_gain(&self, context: u64) -> Result<f64, ConfigError> {
        let growth = self.rope.optional("factor")?.map_or_else(|| self.growth(context), Ok)?;
        Ok(match self.rope.optional("attention_factor")? {
            Some(factor) => factor,
            None if growth <= 1.0 => 1.0,
            None => (1.0 + f64::ln(growth) / (context as f64).ln()).sqrt(),
        })
    }

    /// The factor of all scores in latent attention, as in `yarn_apply_mscale` of `transformers`, for any kind of scaling.
    fn score_factor(&self, head: Head, rotation: &Rotation) -> Result<f64, ConfigError> {
        let Some(scaling) = rotation.scaling.as_ref().filter(|_| head.is_latent) else { return Ok(1.0) };
        let factor = scaling.factor().map_or_else(|| self.rope.optional("factor"), |factor| Ok(Some(factor)))?;
        let by = stated(&self.rope, "mscale_all_dim")?.zip(factor).map_or(1.0, |(by, factor)| grown(factor, by));
        Ok(by * by)
    }
}

/// Frequencies of a class whose default has a scaling, where the file states nothing: gpt-oss.
fn own_default(fields: &Fields) -> Result<Option<Map<String, Value>>, ConfigError> {
    let states_any = fields.object("rope_scaling")?.is_some() || fields.object("rope_parameters")?.is_some();
    if fields.family != "gpt_oss" || states_any {
        return Ok(None);
    }
    let yarn = json!({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
                      "original_max_position_embeddings": 4096});
    Ok(yarn.as_object().cloned())
}

/// The YaRN `mscale` of a scaling factor, with the coefficient `by`.
fn grown(factor: f64, by: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 }
}

/// A number that is neither absent nor 0.
fn stated(rope: &Fields, key: &'static str) -> Result<Option<f64>, ConfigError> {
    Ok(rope.optional(key)?.filter(|number| *number != 0.0))
}
