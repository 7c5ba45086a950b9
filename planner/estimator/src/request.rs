//! Request of an estimate.

use super::error::Error;
use super::job_numbers::JobNumbers;
use super::model_plans::ModelTraits;
use super::recipe::{DELAYED, NARROW};
use cost::{RuleName, RuleNumbers};
use ir::heads::common_divisor;
use ir::limits;
use serde::{Deserialize, Serialize};
use support::quantities::grouped;

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
    /// Largest chance that a device runs out of memory, in percent: see [`HEADROOM`].
    pub headroom: f64,
    /// Fraction of a device's memory that stays free, in place of the headroom.
    pub memory_margin: Option<f64>,
    /// `true` to allow options that the stack does not support.
    pub beyond_stack: bool,
}

/// Default of [`EstimateRequest::headroom`]: of 20 plans one may run out of memory.
pub const HEADROOM: f64 = 5.0;

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
            headroom: HEADROOM,
            memory_margin: None,
            beyond_stack: false,
        }
    }
}

impl EstimateRequest {
    /// The batch of a step as text: `128 sequences of 8,192 tokens, 1,048,576 tokens a step`.
    pub fn batch(&self) -> String {
        let [sequences, seq] = [self.global_batch, self.seq].map(grouped);
        let tokens = grouped(self.global_batch.saturating_mul(self.seq));
        let noun = if self.global_batch == 1 { "sequence" } else { "sequences" };
        format!("{sequences} {noun} of {seq} tokens, {tokens} tokens a step")
    }

    /// Numbers of the job that rules name, with those of its model.
    pub(super) fn job_numbers(&self, traits: ModelTraits) -> JobNumbers {
        let fixed = RuleNumbers::of(|name| match name {
            RuleName::DelayedScaling => Some(u64::from(self.precision == DELAYED)),
            RuleName::Adam => Some(u64::from(self.optimizer.starts_with("adam"))),
            RuleName::NarrowStates => Some(u64::from(self.optimizer == NARROW)),
            RuleName::Documents => {
                Some(self.lengths.iter().fold(0, |divisor, &length| common_divisor(divisor, length)))
            }
            _ => traits.numbers.get(name),
        });
        JobNumbers { seq: Some(self.seq), global_batch: Some(self.global_batch), fixed }
    }

    /// Checks that all sizes are stated and within their limits.
    ///
    /// # Errors
    /// A size is 0 or too large.
    pub(super) fn check(&self) -> Result<(), Error> {
        check_sizes(&[
            ("gpus", self.gpus.unwrap_or(1), limits::DEVICES),
            ("seq", self.seq, limits::ELEMENTS),
            ("global-batch", self.global_batch, limits::SEQUENCES),
        ])?;
        if !(self.headroom > 0.0 && self.headroom < 100.0) {
            return Err(Error::Headroom { headroom: self.headroom });
        }
        if let Some(margin) = self.memory_margin.filter(|margin| !(0.0..1.0).contains(margin)) {
            return Err(Error::MemoryMargin { margin });
        }
        let seq = self.seq;
        match self.lengths.iter().find(|&&length| length == 0 || length > seq) {
            Some(0) => Err(Error::EmptyDocument { seq }),
            Some(&length) => Err(Error::LongDocument { length, seq }),
            None => Ok(()),
        }
    }
}

/// Checks that the sizes of options, each with its largest value, are at least 1 and at most that.
///
/// # Errors
/// Sizes are 0, all of which the error names, or one is too large.
pub fn check_sizes(sizes: &[(&'static str, u64, u64)]) -> Result<(), Error> {
    let missing = sizes.iter().filter(|(_, size, _)| *size == 0);
    let options: Vec<(&'static str, u64)> = missing.map(|(option, _, most)| (*option, *most)).collect();
    if !options.is_empty() {
        return Err(Error::NoSizes { options });
    }
    match sizes.iter().find(|(_, size, most)| size > most) {
        Some(&(option, size, most)) => Err(Error::LargeSize { option, size, most }),
        None => Ok(()),
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
