//! Request of an estimate.

use super::error::Error;
use ir::limits;
use serde::{Deserialize, Serialize};

/// A model under a configuration on a cluster. Missing fields have their defaults.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EstimateRequest {
    /// A preset, a `config.json`, or a `.ir` file.
    pub model: String,
    /// The hardware: a preset, or a TOML file.
    pub cluster: String,
    /// The software: a preset, or a TOML file.
    pub stack: String,
    /// Number of devices; `None`: that of the configuration.
    pub gpus: Option<u64>,
    /// Tokens per sequence.
    pub seq: u64,
    /// Sequences per step, all ranks together.
    pub global_batch: u64,
    /// Number formats: see [`recipe`](super::recipe()).
    pub precision: String,
    /// Type of accumulated and communicated gradients; `None`: as the stack has it.
    pub grad_dtype: Option<String>,
    /// Type of the master copy of parameters, or `none`; `None`: f32 unless the parameters are f32.
    pub master: Option<String>,
    /// `adamw`, `adamw-bf16`, `momentum` or `sgd`.
    pub optimizer: String,
    /// The configuration in the grammar of [`compiler::parallel`].
    #[serde(alias = "layout")]
    pub parallel: String,
    /// Lengths of the documents of a sequence, in tokens: attention stays within each. Empty: one document.
    pub lengths: Vec<u64>,
    /// Fraction of a device's memory that stays free: see [`MEMORY_MARGIN`].
    pub memory_margin: f64,
    /// `true` to allow options that the stack does not support.
    pub beyond_stack: bool,
}

/// Default fraction of a device's memory that stays free. Predictions of memory have a median error of 2 to 4 %
/// (`docs/accuracy.md`), and a process that runs out of memory ends.
pub const MEMORY_MARGIN: f64 = 0.05;

impl Default for EstimateRequest {
    fn default() -> EstimateRequest {
        EstimateRequest {
            model: String::new(),
            cluster: "h100".into(),
            stack: "megatron-core-2025".into(),
            gpus: None,
            seq: 0,
            global_batch: 0,
            precision: "bf16".into(),
            grad_dtype: None,
            master: None,
            optimizer: "adamw".into(),
            parallel: String::new(),
            lengths: Vec::new(),
            memory_margin: MEMORY_MARGIN,
            beyond_stack: false,
        }
    }
}

impl EstimateRequest {
    /// Checks that all sizes are stated and within their limits.
    ///
    /// # Errors
    /// A size is 0 or too large.
    pub(super) fn check(&self) -> Result<(), Error> {
        check_size("seq", self.seq, limits::ELEMENTS)?;
        check_size("global-batch", self.global_batch, limits::SEQUENCES)?;
        check_size("gpus", self.gpus.unwrap_or(1), limits::DEVICES)?;
        if !(0.0..1.0).contains(&self.memory_margin) {
            return Err(Error::MemoryMargin { margin: self.memory_margin });
        }
        let seq = self.seq;
        match self.lengths.iter().find(|&&length| length == 0 || length > seq) {
            Some(0) => Err(Error::EmptyDocument { seq }),
            Some(&length) => Err(Error::LongDocument { length, seq }),
            None => Ok(()),
        }
    }
}

/// Checks that the size of an option is at least 1 and at most `most`.
///
/// # Errors
/// The size is out of range.
pub fn check_size(option: &'static str, size: u64, most: u64) -> Result<(), Error> {
    match size {
        0 => Err(Error::NoSize { option, most }),
        _ if size > most => Err(Error::LargeSize { option, size, most }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_cannot_be_counted_are_refused() {
        let base = EstimateRequest { seq: 100, global_batch: 8, ..EstimateRequest::default() };
        let message = |request: EstimateRequest| request.check().unwrap_err().to_string();
        assert!(base.check().is_ok());
        assert!(message(EstimateRequest { global_batch: 1 << 63, ..base.clone() }).contains("--global-batch"));
        assert!(message(EstimateRequest { seq: u64::MAX, ..base.clone() }).contains("--seq"));
        assert!(message(EstimateRequest { gpus: Some(u64::MAX), ..base.clone() }).contains("--gpus"));
        assert!(
            message(EstimateRequest { lengths: vec![u64::MAX, 2], ..base.clone() }).contains("in sequences of 100")
        );
        assert!(message(EstimateRequest { lengths: vec![0], ..base }).contains("of 0 tokens"));
    }
}
