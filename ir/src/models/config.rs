//! The configuration of a model, and the model of a batch.

use super::balance::Balance;
use super::draft::Batch;
use super::error::{ConfigError, invalid};
use super::experts::Experts;
use super::gpt2::{self, Gpt2Config};
use super::llama::{self, LlamaConfig};
use super::vision::Vision;
use crate::graph::Model;
use crate::verify::verify_sizes;
use serde::Serialize;

/// The configuration of a model of a known family.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "family", rename_all = "lowercase")]
#[expect(clippy::large_enum_variant, reason = "presets are constants, which cannot hold a box; there are few of them")]
pub enum ModelConfig {
    /// LLaMA and what shares its blocks: Mistral, Qwen, DeepSeek, Gemma, OLMo, Phi, GPT-NeoX and GLM, with experts or without.
    Llama(LlamaConfig),
    /// GPT-2.
    Gpt2(Gpt2Config),
}

impl From<LlamaConfig> for ModelConfig {
    fn from(config: LlamaConfig) -> ModelConfig {
        ModelConfig::Llama(config)
    }
}

impl ModelConfig {
    /// The kind of its blocks.
    pub fn family(&self) -> &'static str {
        match self {
            ModelConfig::Llama(_) => "llama",
            ModelConfig::Gpt2(_) => "gpt2",
        }
    }

    /// Its experts, if it has any.
    pub fn experts(&self) -> Option<&Experts> {
        if let ModelConfig::Llama(config) = self { config.experts.as_ref() } else { None }
    }

    pub(super) fn experts_mut(&mut self) -> Option<&mut Experts> {
        if let ModelConfig::Llama(config) = self { config.experts.as_mut() } else { None }
    }

    /// The configuration with something else that keeps routers balanced in training.
    ///
    /// # Errors
    /// It has no experts, or not the biases that a rate moves.
    pub fn with_balance(mut self, balance: Balance) -> Result<ModelConfig, ConfigError> {
        match self.experts_mut() {
            Some(experts) => experts.balance = balance,
            None if balance.is_none() => {}
            None => return Err(invalid("router_balance", "the model has no experts".to_string())),
        }
        self.checked()
    }

    /// The configuration with an encoder of images.
    ///
    /// # Errors
    /// Its sizes do not go together, or models of this kind read no images.
    pub fn with_images(mut self, vision: Vision) -> Result<ModelConfig, ConfigError> {
        match &mut self {
            ModelConfig::Llama(config) => {
                config.rotation.sections = vision.sections;
                config.vision = Some(vision);
            }
            ModelConfig::Gpt2(_) => return Err(ConfigError::NoEncoder),
        }
        self.checked()
    }

    /// Its encoder of images, if it has one.
    pub fn vision(&self) -> Option<&Vision> {
        if let ModelConfig::Llama(config) = self { config.vision.as_ref() } else { None }
    }

    /// The configuration with the tokens of a sequence in `n` routing groups, if it has experts, does not state another group
    /// size, and `n` divides the sequence. Ranks that shard the sequence then route their own tokens.
    #[must_use]
    pub fn routed_in(&self, groups: u64, seq: u64) -> ModelConfig {
        let mut config = self.clone();
        if let ModelConfig::Llama(LlamaConfig { experts: Some(experts), .. }) = &mut config
            && seq.is_multiple_of(groups)
        {
            experts.group = experts.group.or(Some(seq / groups));
        }
        config
    }

    /// The same, if its values go together.
    pub(super) fn checked(self) -> Result<ModelConfig, ConfigError> {
        match &self {
            ModelConfig::Llama(config) => config.check(),
            ModelConfig::Gpt2(config) => config.check(),
        }?;
        Ok(self)
    }

    /// Tokens of an expert over those of even routing, above which tokens are dropped; none if none is.
    pub fn capacity(&self) -> Option<f64> {
        match self {
            ModelConfig::Llama(config) => config.experts.as_ref()?.capacity,
            ModelConfig::Gpt2(_) => None,
        }
    }

    /// True if it has experts, and no token is dropped: how tokens are grouped for routing then changes no result.
    pub fn is_dropless(&self) -> bool {
        matches!(self, ModelConfig::Llama(LlamaConfig { experts: Some(experts), .. }) if experts.capacity.is_none())
    }

    /// The model for a batch: forward blocks, no mesh.
    ///
    /// # Errors
    /// A batch without tokens, longer than the positions that the model has, or of integers; sizes beyond
    /// [`crate::limits`]; a configuration made by hand that [`super::from_config`] would refuse.
    pub fn build(&self, batch: &Batch) -> Result<Model, ConfigError> {
        for (size, count) in [("batch", batch.batch), ("seq", batch.seq)] {
            if count == 0 {
                return Err(ConfigError::NoBatch { size });
            }
        }
        if !batch.dtype.is_float() {
            return Err(invalid("dtype", format!("parameters cannot be {}", batch.dtype.name())));
        }
        let model = match self {
            ModelConfig::Llama(config) => llama::build(config, batch),
            ModelConfig::Gpt2(config) => gpt2::build(config, batch),
        }?;
        match verify_sizes(&model) {
            Ok(()) => Ok(model),
            Err(found) => Err(ConfigError::TooLarge(found.0.first().map_or_else(String::new, |d| d.message.clone()))),
        }
    }
}
