//! How positions turn the queries and keys of a layer (Su et al. 2021).

use super::draft::{Body, DraftError};
use super::error::{ConfigError, invalid, positive};
use crate::ops::{Rope, Scaling};
use serde::Serialize;

/// The input of the length of each token's sequence, that is one more than its largest position. A model has it if its
/// rotations depend on it.
pub(super) const LENGTHS: &str = "len";

/// The inputs of the time, the row and the column of each token, of models that turn by them: those of text are one number, its position.
pub(super) const GRID: [&str; 3] = ["at_time", "at_row", "at_col"];

/// The divisor of a frequency by which nothing turns: of no place that an integer counts the angle is more than a rounding error.
pub(super) const STILL: f64 = 1e30;

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
    /// Numbers of pairs that turn by the time, the row and the column of a token, in turn while there are any; none: all by its position.
    pub sections: Option<[u64; 3]>,
}

impl Rotation {
    /// One of whole heads, by unscaled frequencies.
    pub const fn of(theta: f64) -> Rotation {
        Rotation { theta, scaling: None, gain: 1.0, turned: None, backwards: false, sections: None }
    }

    /// The op.
    fn op(&self) -> Rope {
        let Rotation { theta, scaling, gain, turned, backwards, .. } = self.clone();
        Rope { theta, scaling, turned, gain, inverse: backwards }
    }

    /// `y` is `x`, turned by its positions.
    pub(super) fn turn(&self, b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
        if let Some(sections) = self.sections {
            return self.turn_by_grid(sections, b, y, x);
        }
        let by_length = self.scaling.as_ref().is_some_and(Scaling::reads_lengths);
        b.op(&[y], self.op(), &[x, "pos", LENGTHS][..2 + usize::from(by_length)])
    }

    /// Turns pairs by times, rows and columns, one after the other: each leaves the pairs of the others as they are.
    fn turn_by_grid(&self, sections: [u64; 3], b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
        let mut last = x.to_string();
        for (at, input) in GRID.into_iter().enumerate() {
            let next = if at + 1 == GRID.len() { y.to_string() } else { format!("{y}_{input}") };
            b.op(&[&next], self.op_of_section(sections, at), &[&last, input])?;
            last = next;
        }
        Ok(())
    }

    /// The op that turns the pairs of a section alone, by the frequencies that they have.
    fn op_of_section(&self, sections: [u64; 3], at: usize) -> Rope {
        let (op, pairs) = (self.op(), sections.iter().sum::<u64>());
        let own = op.frequencies(2 * pairs as usize);
        let divisors = own.iter().zip(0..).map(|(frequency, pair)| {
            let plain = self.theta.powf(-(pair as f64) / pairs as f64);
            if section_of(sections, pair) == at { plain / frequency } else { STILL }
        });
        // The gain is of all pairs, and counts once.
        let gain = if at == 0 { op.gain } else { 1.0 };
        Rope { scaling: Some(Scaling::Pairs { divisors: divisors.collect() }), gain, ..op }
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
        if let Some(sections) = self.sections {
            let sum = sections.iter().fold(0, |sum: u64, section| sum.saturating_add(*section));
            if sum != turned / 2 {
                let why = format!("{sections:?} are {sum} pairs, but {} of a head turn", turned / 2);
                return Err(invalid("mrope_section", why));
            }
            if self.scaling.as_ref().is_some_and(Scaling::reads_lengths) {
                let why = "longrope is not supported where the rows and columns of images turn".to_string();
                return Err(invalid("rope_scaling", why));
            }
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

/// The section of a pair: rows and columns take turns with time, as long as they have pairs (Qwen3-VL, `recomposition_frequencies` of
/// `transformers`).
fn section_of(sections: [u64; 3], pair: u64) -> usize {
    let turn = (pair % 3) as usize;
    if pair < 3 * sections[turn] { turn } else { 0 }
}

/// Checks the divisors of `pairs` pairs.
fn check_divisors(key: &str, divisors: &[f64], pairs: u64) -> Result<(), ConfigError> {
    if divisors.len() as u64 != pairs {
        let why = format!("has {} numbers, but {pairs} pairs of a head turn", divisors.len());
        return Err(invalid(key, why));
    }
    Scaling::Pairs { divisors: divisors.to_vec().into() }.check().map_err(|why| invalid(key, why))
}
