//! A published configuration.

use crate::models::config::ModelConfig;
use crate::models::llama::LlamaConfig;

/// A configuration under a name.
#[derive(Clone, Debug)]
pub struct Preset {
    /// The name on the command line.
    pub name: &'static str,
    /// One line on it.
    pub about: &'static str,
    /// The longest sequence it was trained on, in tokens.
    pub context: u64,
    /// The configuration.
    pub config: ModelConfig,
}

impl Preset {
    /// One of Llama's kind.
    pub(in crate::models::families) const fn llama(
        name: &'static str,
        about: &'static str,
        context: u64,
        config: LlamaConfig,
    ) -> Preset {
        Preset { name, about, context, config: ModelConfig::Llama(config) }
    }
}
