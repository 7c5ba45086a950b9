//! Model families: from a published `config.json` to a [`Model`](crate::graph::Model).
//!
//! `config` reads and checks the configuration by the table of keys in `keys`. One builder file per family constructs the
//! blocks, from parts in separate files. `presets` holds published configurations by name. All families have the blocks
//! `embed`, `layer` and `head`, and where only later layers have experts a block `dense` before `layer`; and the inputs
//! `%tok`, `%lab` (labels, negative: ignored), `%pos` (position in its document) and `%seg` (document), each i32[b, s].

mod attention;
mod config;
mod draft;
mod experts;
mod feed_forward;
mod gpt2;
mod keys;
mod llama;
mod presets;
mod read_llama;
mod read_rope;

pub use attention::Latent;
pub use config::{Batch, ConfigError, ModelConfig, from_config, read_config};
pub use experts::Experts;
pub use gpt2::Gpt2Config;
pub use keys::{Done, FAMILIES, Family, KEYS, Key, ROPE};
pub use llama::LlamaConfig;
pub use presets::{Preset, preset, presets};
