//! Model families: from a published `config.json` to a [`Model`](crate::graph::Model).
//!
//! `config` reads and checks the configuration, one builder file a family states the blocks, `presets` holds published
//! configurations by name. All families have three blocks (`embed`, `layer`, `head`) and the inputs `%tok`, `%lab` (labels,
//! negative: ignored), `%pos` (position in its document) and `%seg` (document), each i32[b, s].

mod config;
mod draft;
mod gpt2;
mod llama;
mod presets;

pub use config::{Batch, ConfigError, ModelConfig, from_config};
pub use gpt2::Gpt2Config;
pub use llama::LlamaConfig;
pub use presets::{PRESETS, Preset, preset};
