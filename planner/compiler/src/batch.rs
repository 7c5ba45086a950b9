//! Micro-batches of a step, and the options that supplement a configuration's text.

use crate::parallel;
use crate::request_error::RequestError;
use ir::config_key::ConfigKey;
use ir::options::ParallelConfig;

/// Micro-batches of a step, each of `sequences` over all data-parallel ranks.
///
/// # Errors
/// The global batch does not split.
pub fn microbatches(global_batch: u64, sequences: u64) -> Result<u32, RequestError> {
    if global_batch > 0 && sequences > 0 && global_batch.is_multiple_of(sequences) {
        let count = global_batch / sequences;
        return u32::try_from(count).map_err(|_| RequestError::TooManyMicrobatches { global_batch, sequences });
    }
    Err(RequestError::UnevenBatch { global_batch, sequences })
}

/// A configuration's text and the options that override single keys of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConfigOptions<'a> {
    /// The configuration in the grammar of [`parallel`].
    pub text: &'a str,
    /// Sequences per micro-batch and data-parallel rank.
    pub mbs: Option<u64>,
    /// Sequence parallelism.
    pub sp: Option<bool>,
    /// ZeRO stage.
    pub zero: Option<u8>,
    /// Pipeline schedule.
    pub schedule: Option<&'a str>,
}

impl ConfigOptions<'_> {
    /// The configuration that the options give. `default_mbs` decides the micro-batch size that neither the text nor the
    /// options state.
    ///
    /// # Errors
    /// The text is malformed, or its values conflict.
    pub fn resolve(&self, default_mbs: impl FnOnce(&ParallelConfig) -> u64) -> Result<ParallelConfig, RequestError> {
        let mut config = parallel::parse(self.text)?;
        if let Some(mbs) = self.mbs {
            config.mbs = mbs;
        } else if !parallel::has_key(self.text, ConfigKey::Mbs) {
            config.mbs = default_mbs(&config);
        }
        config.sp = self.sp.unwrap_or(config.sp);
        config.zero = self.zero.unwrap_or(config.zero);
        if let Some(schedule) = self.schedule {
            config.schedule = schedule.to_string();
        }
        parallel::check(&config)?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::diag::Coded;

    #[test]
    fn the_batch_splits_or_says_what_would() {
        assert_eq!(microbatches(12, 6).unwrap(), 2);
        assert!(microbatches(8, 6).unwrap_err().help().unwrap().contains("--global-batch 12"));
        for wrong in [(0, 6), (6, 0), (u64::MAX, 1), (u64::MAX, 2)] {
            assert!(microbatches(wrong.0, wrong.1).is_err(), "{wrong:?}");
        }
    }
}
