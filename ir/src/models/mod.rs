//! Model families: from a published `config.json` to a [`Model`](crate::graph::Model).
//!
//! `families` has one file per family: the keys of its `config.json`, how they are read, the names of its weights, and
//! published configurations by name. `read` has parts of readers that several families share. `llama` and `gpt2` construct the
//! blocks of a configuration, from parts in separate files. All families have the blocks
//! `embed`, `layer` and `head`. Where layers are of several kinds, each kind is a block (`dense` without experts, `local` with a
//! window), and the calls of the blocks go through the layers in order. All have the inputs
//! `%tok`, `%lab` (labels, negative: ignored), `%pos` (position in its document) and `%seg` (document), each i32[b, s]. Under LongRoPE
//! they have `%len` too, one more than the largest position of the token's sequence.

mod attention;
mod composite;
mod config;
mod draft;
mod experts;
mod families;
mod feed_forward;
mod fields;
mod gpt2;
mod keys;
mod layers;
mod llama;
mod mtp;
mod read;
mod rotation;
mod weights;

#[cfg(test)]
mod tests;

pub use attention::{Latent, QkNorm};
pub use composite::{TextPart, text_part};
pub use config::{Batch, ConfigError, ModelConfig, from_config, read_config};
pub use draft::{Body, Draft, Weight};
pub use experts::{Clamp, Experts};
pub use families::{Composite, FAMILIES, Family, Preset, Tied, preset, presets};
pub use feed_forward::Activation;
pub use gpt2::Gpt2Config;
pub use keys::{Done, Key, Keys, ROPE};
pub use layers::{LayerSet, Window};
pub use llama::{LlamaConfig, Norms, Temperature};
pub use mtp::Mtp;
pub use rotation::Rotation;
pub use weights::{HubTensor, Join, MatrixOrder, Pairs, Weights, When};
