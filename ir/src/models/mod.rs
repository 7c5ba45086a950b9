//! Model families: from a published `config.json` to a [`Model`](crate::graph::Model).
//!
//! `config` reads and checks the configuration by the table of keys in `keys`. One builder file per family constructs the
//! blocks, from parts in separate files. `presets` holds published configurations by name. All families have the blocks
//! `embed`, `layer` and `head`. Where layers are of several kinds, each kind is a block (`dense` without experts, `local` with a
//! window), and the calls of the blocks go through the layers in order. All have the inputs
//! `%tok`, `%lab` (labels, negative: ignored), `%pos` (position in its document) and `%seg` (document), each i32[b, s]. Under LongRoPE
//! they have `%len` too, one more than the largest position of the token's sequence.

mod attention;
mod composite;
mod config;
mod draft;
mod experts;
mod feed_forward;
mod gpt2;
mod keys;
mod layers;
mod llama;
mod mtp;
mod presets;
mod read_llama;
mod read_rope;
mod rotation;

#[cfg(test)]
mod tests;

pub use attention::{Latent, QkNorm};
pub use composite::{COMPOSITES, TextPart, text_part};
pub use config::{Batch, ConfigError, ModelConfig, from_config, read_config};
pub use draft::{Body, Draft, Weight};
pub use experts::{Clamp, Experts};
pub use feed_forward::Activation;
pub use gpt2::Gpt2Config;
pub use keys::{Done, FAMILIES, Family, KEYS, Key, ROPE};
pub use layers::{LayerSet, Window};
pub use llama::{LlamaConfig, Norms, Temperature};
pub use mtp::Mtp;
pub use presets::{Preset, preset, presets};
pub use rotation::Rotation;
