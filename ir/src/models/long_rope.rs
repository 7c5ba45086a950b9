//! Rotary frequencies that depend on the length of sequences (Ding et al. 2024, LongRoPE), as in `transformers`.

use super::config::{ConfigError, invalid, positive};
use crate::ops::Scaling;
use serde::Serialize;
use std::borrow::Cow;

/// Divisors of the frequencies: one list for short sequences, another for long ones.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LongRope {
    /// The divisors of each pair in sequences of up to `context` tokens.
    pub short: Cow<'static, [f64]>,
    /// The divisors of each pair in longer sequences.
    pub long: Cow<'static, [f64]>,
    /// Tokens of the context before scaling.
    pub context: u64,
}

impl LongRope {
    /// The scaling in sequences of `seq` tokens.
    pub(super) fn scaling(&self, seq: u64) -> Scaling {
        Scaling::Pairs { divisors: if seq > self.context { self.long.clone() } else { self.short.clone() } }
    }

    /// Checks the divisors of `pairs` pairs.
    pub(super) fn check(&self, pairs: u64) -> Result<(), ConfigError> {
        positive("original_max_position_embeddings", self.context)?;
        for (field, divisors) in [("short_factor", &self.short), ("long_factor", &self.long)] {
            if divisors.len() as u64 != pairs {
                return Err(invalid(
                    field,
                    format!("has {} numbers, but {pairs} pairs of a head turn", divisors.len()),
                ));
            }
            Scaling::Pairs { divisors: divisors.clone() }.check().map_err(|why| invalid(field, why))?;
        }
        Ok(())
    }
}
