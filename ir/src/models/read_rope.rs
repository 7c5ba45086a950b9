//! Rotary positions as a `config.json` states them: `rope_theta` and `rope_scaling`, or in newer files both in
//! `rope_parameters`.

use super::config::{ConfigError, Fields, invalid, unsupported};
use super::keys::ROPE;
use super::long_rope::LongRope;
use crate::ops::Scaling;
use serde_json::{Map, Value, json};

/// The rotary embedding of queries and keys.
pub(super) struct Rotary {
    /// The base of the frequencies.
    pub(super) theta: f64,
    /// Their scaling.
    pub(super) scaling: Option<Scaling>,
    /// A scaling by the length of sequences.
    pub(super) by_length: Option<LongRope>,
    /// The factor of what turns.
    pub(super) gain: f64,
    /// The factor of all attention scores.
    pub(super) score_factor: f64,
    /// The factor of the scores of the rotary part alone.
    pub(super) turned_factor: f64,
    /// The part of a head that turns.
    pub(super) part: f64,
    /// The base of the unscaled frequencies of layers with a window, if they have another one.
    pub(super) local_theta: Option<f64>,
}

/// Reads them as `transformers` does: where a file has both objects, `rope_scaling` counts. Keys that no class has join
/// `unknown`.
pub(super) fn rotary(fields: &Fields, latent: bool, unknown: &mut Vec<String>) -> Result<Rotary, ConfigError> {
    let theta: f64 = fields.get(if fields.family == "gpt_neox" { "rotary_emb_base" } else { "rope_theta" })?;
    let part = match fields.family {
        "phi3" | "glm4_moe" => fields.get("partial_rotary_factor")?,
        "gpt_neox" => fields.get("rotary_pct")?,
        _ => 1.0,
    };
    let local_theta = if fields.family == "gemma3_text" { Some(fields.get("rope_local_base_freq")?) } else { None };
    let mut rotary = Rotary {
        theta,
        scaling: None,
        by_length: None,
        gain: 1.0,
        score_factor: 1.0,
        turned_factor: 1.0,
        part,
        local_theta,
    };
    let has_both = fields.object("rope_scaling")?.is_some() && fields.object("rope_parameters")?.is_some();
    if has_both && local_theta.is_some() {
        let why = "`rope_scaling` and `rope_parameters` are both there; only one is supported".to_string();
        return Err(ConfigError::Contradiction(why));
    }
    let own = own_default(fields)?;
    for field in ["rope_scaling", "rope_parameters"] {
        let Some(mut object) = fields.object(field)?.or(own.as_ref()) else { continue };
        if let Some(of_window) = object.get("sliding_attention").filter(|_| local_theta.is_some()) {
            rotary.local_theta = local(field, of_window)?.or(local_theta);
        }
        if let Some(of_others) = object.get("full_attention").filter(|_| local_theta.is_some()) {
            object = of_others.as_object().ok_or_else(|| invalid(field, "must be an object of objects".to_string()))?;
        }
        let (rope, more) = Fields::new(ROPE, object)?;
        unknown.extend(more.into_iter().map(|key| format!("{field}.{key}")));
        rotary.part = rope.optional("partial_rotary_factor")?.unwrap_or(part);
        if rotary.part != 1.0 && !matches!(fields.family, "phi3" | "glm4_moe" | "gpt_neox") {
            let why = format!("{} is not supported, only 1.0: all of a head turns", rotary.part);
            return Err(unsupported("partial_rotary_factor", why));
        }
        rotary.theta = rope.optional("rope_theta")?.unwrap_or(theta);
        rotary.scale(field, fields, &rope, latent)?;
        break;
    }
    if !(0.0..=1.0).contains(&rotary.part) {
        return Err(invalid("partial_rotary_factor", format!("{} is no part of a head", rotary.part)));
    }
    let yarn = matches!(rotary.scaling, Some(Scaling::Yarn { .. }));
    if !rotary.theta.is_finite() || rotary.theta <= if yarn { 1.0 } else { 0.0 } {
        return Err(invalid("rope_theta", format!("{} must be above {}", rotary.theta, u8::from(yarn))));
    }
    Ok(rotary)
}

impl Rotary {
    /// Reads the scaling of the object under `field`, and the factors that come with it.
    fn scale(&mut self, field: &'static str, fields: &Fields, rope: &Fields, latent: bool) -> Result<(), ConfigError> {
        let kind: String = rope.get(if rope.states("rope_type") { "rope_type" } else { "type" })?;
        let phi = fields.family == "phi3";
        match kind.as_str() {
            "longrope" => return self.scale_by_length(fields, rope, latent),
            // Other names of the same in old files of Phi-3.
            "su" | "yarn" if phi => return self.scale_by_length(fields, rope, latent),
            "default" => {}
            _ if phi => {
                return Err(unsupported(field, format!("{kind} is not supported, only default and longrope")));
            }
            _ => {}
        }
        self.scaling = scaling(field, &kind, fields, rope)?;
        let Some(factor) = self.scaling.as_ref().and_then(Scaling::factor) else { return Ok(()) };
        let turned = if let Some(Scaling::Yarn { .. }) = self.scaling { turned(rope, factor)? } else { 1.0 };
        if latent {
            [self.score_factor, self.turned_factor] = [all_dims(rope, factor)?, turned];
        } else if self.part < 1.0 {
            self.gain = turned.sqrt();
        } else {
            self.score_factor = turned;
        }
        Ok(())
    }

    /// Reads LongRoPE: two lists of divisors, and a factor of queries and keys by the growth of the context.
    fn scale_by_length(&mut self, fields: &Fields, rope: &Fields, latent: bool) -> Result<(), ConfigError> {
        if latent {
            let why =
                "longrope is not supported with latent attention, only default, linear, llama3 and yarn".to_string();
            return Err(unsupported("rope_scaling", why));
        }
        let context = context(fields, rope)?;
        let divisors = |key: &'static str| rope.get::<Vec<f64>>(key).map(Into::into);
        self.by_length = Some(LongRope { short: divisors("short_factor")?, long: divisors("long_factor")?, context });
        let growth = match rope.optional("factor")? {
            Some(factor) => factor,
            None => fields.get::<u64>("max_position_embeddings")? as f64 / context as f64,
        };
        self.gain = match rope.optional("attention_factor")? {
            Some(factor) => factor,
            None if growth <= 1.0 => 1.0,
            None => (1.0 + f64::ln(growth) / (context as f64).ln()).sqrt(),
        };
        Ok(())
    }
}

/// Tokens of the context before scaling.
fn context(fields: &Fields, rope: &Fields) -> Result<u64, ConfigError> {
    let key = "original_max_position_embeddings";
    if fields.states(key) || fields.family == "phi3" {
        return fields.get(key);
    }
    if rope.states(key) { rope.get(key) } else { fields.get("max_position_embeddings") }
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

/// The base of the frequencies of layers with a window, where it is stated.
fn local(field: &'static str, stated: &Value) -> Result<Option<f64>, ConfigError> {
    let object = stated.as_object().ok_or_else(|| invalid(field, "must be an object of objects".to_string()))?;
    let (rope, _) = Fields::new(ROPE, object)?;
    let kind: String = rope.get("rope_type")?;
    if kind != "default" {
        return Err(unsupported(field, format!("{kind} is not supported in layers with a window, only default")));
    }
    rope.optional("rope_theta")
}

fn scaling(field: &'static str, kind: &str, fields: &Fields, rope: &Fields) -> Result<Option<Scaling>, ConfigError> {
    let context = || context(fields, rope);
    match kind {
        "default" => Ok(None),
        "linear" => Ok(Some(Scaling::Linear { factor: rope.get("factor")? })),
        "llama3" => Ok(Some(Scaling::Llama3 {
            factor: rope.get("factor")?,
            low: rope.get("low_freq_factor")?,
            high: rope.get("high_freq_factor")?,
            context: context()?,
        })),
        "yarn" => {
            let context = context()?;
            let factor = match rope.optional("factor")? {
                None if rope.states("factor") => fields.get::<u64>("max_position_embeddings")? as f64 / context as f64,
                None => rope.get("factor")?,
                Some(factor) => factor,
            };
            let turns = |key, default| Ok(rope.optional(key)?.filter(|turns| *turns != 0.0).unwrap_or(default));
            let truncate: Option<bool> = rope.optional("truncate")?;
            Ok(Some(Scaling::Yarn {
                factor,
                low: turns("beta_slow", 1.0)?,
                high: turns("beta_fast", 32.0)?,
                context,
                fractional: !truncate.unwrap_or(false),
            }))
        }
        _ => {
            let why = format!("{kind} is not supported, only default, linear, llama3, yarn and longrope");
            Err(unsupported(field, why))
        }
    }
}

/// The YaRN `mscale` of a scaling factor, with the coefficient `by`.
fn grown(factor: f64, by: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 }
}

/// A number that is neither absent nor 0.
fn stated(rope: &Fields, key: &'static str) -> Result<Option<f64>, ConfigError> {
    Ok(rope.optional(key)?.filter(|number| *number != 0.0))
}

/// The YaRN factor of the scores of the rotary part, as in `_compute_yarn_parameters` of `transformers`: queries and keys
/// have one factor each.
fn turned(rope: &Fields, factor: f64) -> Result<f64, ConfigError> {
    let on_each = match (rope.optional("attention_factor")?, stated(rope, "mscale")?, stated(rope, "mscale_all_dim")?) {
        (Some(given), ..) => given,
        (None, Some(by), Some(all)) => grown(factor, by) / grown(factor, all),
        _ => grown(factor, 1.0),
    };
    Ok(on_each * on_each)
}

/// The factor of all scores in latent attention, as in `yarn_apply_mscale` of `transformers`, for any kind of scaling.
fn all_dims(rope: &Fields, factor: f64) -> Result<f64, ConfigError> {
    let by = stated(rope, "mscale_all_dim")?.map_or(1.0, |by| grown(factor, by));
    Ok(by * by)
}
