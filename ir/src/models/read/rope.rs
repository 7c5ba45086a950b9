//! Rotary positions as a `config.json` states them: `rope_theta` and `rope_scaling`, or in newer files both in
//! `rope_parameters`.

use crate::models::error::{ConfigError, invalid, unsupported};
use crate::models::fields::Fields;
use crate::models::keys::ROPE;
use crate::models::rotation::Rotation;
use crate::ops::Scaling;
use serde_json::{Map, Value};

/// The rotations of a file's layers, and what it says with them of attention scores.
pub(in crate::models) struct Rotary {
    /// The rotation of all layers, or of those without a window.
    pub(in crate::models) rotation: Rotation,
    /// The rotation of layers with a window, if these have one of their own.
    pub(in crate::models) local: Option<Rotation>,
    /// The factor of all scores of latent attention.
    pub(in crate::models) score_factor: f64,
}

/// The heads that turn.
#[derive(Clone, Copy)]
pub(in crate::models) struct Head {
    /// Its elements that may turn.
    pub(in crate::models) size: u64,
    /// They are the rotary part of latent attention.
    pub(in crate::models) is_latent: bool,
}

/// The kinds of rotary positions that a class has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::models) enum Kinds {
    /// All that are supported.
    All,
    /// Unscaled ones and LongRoPE, which old files have other names for.
    LongRope,
}

/// How a family states rotary positions.
#[derive(Clone, Copy)]
pub(in crate::models) struct Rope {
    /// The key of the base of the frequencies.
    pub(in crate::models) theta: &'static str,
    /// The key of the same in layers with a window, where these turn otherwise. The object of rotations may then have one for
    /// each type of layers.
    pub(in crate::models) local_theta: Option<&'static str>,
    /// The key of the part of a head that turns; none: all of it does.
    pub(in crate::models) part: Option<&'static str>,
    /// The kinds that the class has.
    pub(in crate::models) kinds: Kinds,
    /// The object that the class has as its default, as JSON.
    pub(in crate::models) default: Option<&'static str>,
}

impl Rope {
    /// One base of the frequencies, and heads that turn as a whole.
    pub(in crate::models) const USUAL: Rope =
        Rope { theta: "rope_theta", local_theta: None, part: None, kinds: Kinds::All, default: None };

    /// Reads rotations as `transformers` does: where a file has both objects, `rope_scaling` counts.
    pub(in crate::models) fn read(&self, fields: &Fields, head: Head) -> Result<Rotary, ConfigError> {
        let theta: f64 = fields.get(self.theta)?;
        let local_theta: Option<f64> = self.local_theta.map(|key| fields.get(key)).transpose()?;
        let turned = turned(head.size, self.part(fields)?);
        let rotation = Rotation { turned, ..Rotation::of(theta) };
        let local = local_theta.map(|theta| Rotation { turned, ..Rotation::of(theta) });
        let mut rotary = Rotary { rotation, local, score_factor: 1.0 };
        let (old, new) = (fields.object("rope_scaling")?, fields.object("rope_parameters")?);
        let default = self.default();
        let (field, object) = match (old, new, &default) {
            (Some(_), Some(_), _) if self.local_theta.is_some() => {
                let why = "`rope_scaling` and `rope_parameters` are both there; only one is supported".to_string();
                return Err(ConfigError::Contradiction(why));
            }
            (Some(object), ..) => ("rope_scaling", object),
            (None, Some(object), _) | (None, None, Some(object)) => ("rope_parameters", object),
            (None, None, None) => return Ok(rotary),
        };
        let place = Place { family: self, fields, field, outer: None };
        let is_nested = ["full_attention", "sliding_attention"].iter().any(|kind| object.contains_key(*kind));
        let Some(local_theta) = local_theta.filter(|_| is_nested) else {
            let stated = place.stated(object)?;
            rotary.rotation = stated.rotation(head, theta)?;
            rotary.score_factor = stated.score_factor(head, &rotary.rotation)?;
            return Ok(rotary);
        };
        let place = Place { outer: Some(object), ..place };
        if let Some(rotation) = place.of_kind(object.get("full_attention"), head, theta)? {
            rotary.rotation = rotation;
        }
        if let Some(rotation) = place.of_kind(object.get("sliding_attention"), head, local_theta)? {
            rotary.local = Some(rotation);
        }
        Ok(rotary)
    }

    /// The part of a head that turns, where the object of the rotation does not say it.
    fn part(&self, fields: &Fields) -> Result<f64, ConfigError> {
        self.part.map_or(Ok(1.0), |key| fields.get(key))
    }

    fn default(&self) -> Option<Map<String, Value>> {
        self.default.and_then(|text| serde_json::from_str(text).ok())
    }
}

/// The elements of a head that turn, rounded down as the classes do; none if all do.
fn turned(head: u64, part: f64) -> Option<u64> {
    let turned = (head as f64 * part) as u64;
    (turned != head).then_some(turned)
}

/// The place of an object that states a rotation.
#[derive(Clone, Copy)]
struct Place<'a> {
    family: &'a Rope,
    fields: &'a Fields,
    /// The key of the object.
    field: &'static str,
    /// The object of the rotations of each type of layers that has this one.
    outer: Option<&'a Map<String, Value>>,
}

impl<'a> Place<'a> {
    fn stated(self, object: &Map<String, Value>) -> Result<Stated<'a>, ConfigError> {
        Ok(Stated { place: self, rope: self.fields.within(self.field, ROPE, object)? })
    }

    /// The rotation of a type of layers, if it is stated.
    fn of_kind(self, stated: Option<&Value>, head: Head, theta: f64) -> Result<Option<Rotation>, ConfigError> {
        let Some(stated) = stated.filter(|stated| !stated.is_null()) else { return Ok(None) };
        let object =
            stated.as_object().ok_or_else(|| invalid(self.field, "must be an object of objects".to_string()))?;
        self.stated(object)?.rotation(head, theta).map(Some)
    }
}

/// An object that states a rotation.
struct Stated<'a> {
    place: Place<'a>,
    rope: Fields,
}

impl Stated<'_> {
    /// The rotation of heads; `theta` is its base unless the object has one.
    fn rotation(&self, head: Head, theta: f64) -> Result<Rotation, ConfigError> {
        let (family, rope) = (self.place.family, &self.rope);
        if self.kind()? == "proportional" {
            return self.proportional(head, theta);
        }
        let part = rope.optional("partial_rotary_factor")?.map_or_else(|| family.part(self.place.fields), Ok)?;
        if part != 1.0 && family.part.is_none() {
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
        Ok(Rotation { scaling, gain, turned, ..Rotation::of(theta) })
    }

    fn kind(&self) -> Result<String, ConfigError> {
        self.rope.get(if self.rope.states("rope_type") { "rope_type" } else { "type" })
    }

    /// A rotation by the frequencies of all pairs of a head, of which a part turns and the others stay:
    /// `_compute_proportional_rope_parameters` of `transformers`.
    fn proportional(&self, head: Head, theta: f64) -> Result<Rotation, ConfigError> {
        let (rope, theta) = (&self.rope, self.rope.optional("rope_theta")?.unwrap_or(theta));
        let (part, factor) =
            (rope.optional("partial_rotary_factor")?.unwrap_or(1.0), rope.optional("factor")?.unwrap_or(1.0));
        let turning = (part * head.size as f64 / 2.0) as u64;
        let divisors: Vec<f64> = (0..head.size / 2).map(|pair| if pair < turning { factor } else { STILL }).collect();
        Ok(Rotation { scaling: Some(Scaling::Pairs { divisors: divisors.into() }), ..Rotation::of(theta) })
    }

    /// Tokens of the context before scaling.
    fn context(&self) -> Result<u64, ConfigError> {
        let (fields, key) = (self.place.fields, "original_max_position_embeddings");
        // The class of layers with rotations of their own does not look there.
        if self.place.outer.is_none() && fields.has(key) {
            return fields.get(key);
        }
        if self.rope.states(key) { self.rope.get(key) } else { fields.get("max_position_embeddings") }
    }

    /// How much longer the context of the file is than the one before scaling.
    fn growth(&self, context: u64) -> Result<f64, ConfigError> {
        Ok(self.place.fields.get::<u64>("max_position_embeddings")? as f64 / context as f64)
    }

    fn scaling(&self) -> Result<Option<Scaling>, ConfigError> {
        let rope = &self.rope;
        let kind = self.kind()?;
        match (kind.as_str(), self.place.family.kinds) {
            ("default" | "mrope", _) => Ok(None),
            // Old files of Phi-3 have the other names.
            ("longrope", _) | ("su" | "yarn", Kinds::LongRope) => Ok(Some(Scaling::Lengths {
                short: rope.get::<Vec<f64>>("short_factor")?.into(),
                long: rope.get::<Vec<f64>>("long_factor")?.into(),
                context: self.context()?,
            })),
            (_, Kinds::LongRope) => {
                Err(unsupported(self.place.field, format!("{kind} is not supported, only default and longrope")))
            }
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
                Err(unsupported(self.place.field, why))
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
        let truncates: bool = match self.place.outer {
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

/// The divisor of the frequency of a pair that does not turn: the angle of the last position is 0 in any format.
const STILL: f64 = 1e300;

/// The YaRN `mscale` of a scaling factor, with the coefficient `by`.
fn grown(factor: f64, by: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 }
}

/// A number that is neither absent nor 0.
fn stated(rope: &Fields, key: &'static str) -> Result<Option<f64>, ConfigError> {
    Ok(rope.optional(key)?.filter(|number| *number != 0.0))
}
