//! Request of an estimate.

use compiler::error::Error;
use ir::catalogue::Code;
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
            let message = format!("`--memory-margin` is {}, not a share from 0 up to 1", self.memory_margin);
            return Err(Error::input(Code::BadOption, message).help("give a share: 0.05 leaves 5 % of a device free"));
        }
        let wrong = |message: String| {
            Err(Error::input(Code::BadOption, message)
                .help(format!("give the tokens of each document, from 1 to --seq {}", self.seq)))
        };
        match self.lengths.iter().find(|&&length| length == 0 || length > self.seq) {
            Some(0) => wrong("`--lengths` has a document of 0 tokens".to_string()),
            Some(length) => {
                wrong(format!("`--lengths` has a document of {length} tokens in sequences of {}", self.seq))
            }
            None => Ok(()),
        }
    }
}

/// Checks that the size of an option is at least 1 and at most `most`.
///
/// # Errors
/// The size is out of range.
pub fn check_size(option: &str, size: u64, most: u64) -> Result<(), Error> {
    let size = match size {
        0 => "0 or missing".to_string(),
        _ if size > most => format!("{size}, more than {most}"),
        _ => return Ok(()),
    };
    Err(Error::input(Code::BadOption, format!("`--{option}` is {size}"))
        .help(format!("--{option} takes a whole number from 1 to {most}")))
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
