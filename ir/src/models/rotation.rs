//! How positions turn the queries and keys of a layer (Su et al. 2021).

use super::draft::{Body, DraftError};
use super::error::{ConfigError, invalid, positive};
use crate::ops::{Rope, Scaling};
use serde::Serialize;

/// The input of the length of each token's sequence, that is one more than its largest position. A model has it if its
/// rotations depend on it.
pub(super) const LENGTHS: &str = "len";

/// The rotation of the queries and keys of a layer. Layers without positions have none.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Rotation {
    /// Base of the frequencies.
    pub theta: f64,
    /// Their scaling for a longer context.
    pub scaling: Option<Scaling>,
    /// The factor of what turns of queries and keys (YaRN, LongRoPE).
    pub gain: f64,
    /// The elements of a head that turn, the first ones, an even number; none: all.
    pub turned: Option<u64>,
    /// They turn the other way (nanochat).
    pub backwards: bool,
}

impl Rotation {
    /// One of whole heads, by unscaled frequencies.
    pub const fn of(theta: f64) -> Rotation {
        Rotation { theta, scaling: None, gain: 1.0, turned: None, backwards: false }
    }

    /// The op.
    fn op(&self) -> Rope {
        let Rotation { theta, scaling, gain, turned, backwards } = self.clone();
        Rope { theta, scaling, turned, gain, inverse: backwards }
    }

    /// `y` is `x`, turned by its positions.
    pub(super) fn turn(&self, b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
        let by_length = self.scaling.as_ref().is_some_and(Scaling::reads_lengths);
        b.op(&[y], self.op(), &[x, "pos", LENGTHS][..2 + usize::from(by_length)])
    }

    /// Checks it for heads of `head` elements; `base` is the key of its base.
    pub(super) fn check(&self, base: &str, head: u64) -> Result<(), ConfigError> {
        let least = if matches!(self.scaling, Some(Scaling::Yarn { .. })) { 1.0 } else { 0.0 };
        if !self.theta.is_finite() || self.theta <= least {
            return Err(invalid(base, format!("{} must be above {least}", self.theta)));
        }
        if !self.gain.is_finite() || self.gain <= 0.0 {
            return Err(invalid("attention_factor", format!("{} must be above 0", self.gain)));
        }
        let turned = self.turned.unwrap_or(head);
        if self.turned.is_some() && !(turned.is_multiple_of(2) && (2..=head).contains(&turned)) {
            let why = format!("{turned} of {head} elements of a head cannot turn in pairs");
            return Err(invalid("partial_rotary_factor", why));
        }
        match &self.scaling {
            Some(Scaling::Lengths { short, long, context }) => {
                positive("original_max_position_embeddings", *context)?;
                [("short_factor", short), ("long_factor", long)]
                    .into_iter()
                    .try_for_each(|(key, divisors)| check_divisors(key, divisors, turned / 2))
            }
            Some(scaling) => scaling.check().map_err(|why| invalid("rope_scaling", why)),
            None => Ok(()),
        }
    }
}

/// Checks the divisors of `pairs` pairs.
fn check_divisors(key: &str, divisors: &[f64], pairs: u64) -> Result<(), ConfigError> {
    if divisors.len() as u64 != pairs {
        let why = format!("has {} numbers, but {pairs} pairs of a head turn", divisors.len());
        return Err(invalid(key, why));
    }
    Scaling::Pairs { divisors: divisors.to_vec().into() }.check().map_err(|why| invalid(key, why))
}
