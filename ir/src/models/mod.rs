//! Model families: from a published `config.json` to a [`Model`](crate::graph::Model).
//!
//! `families` has one file per family: the keys of its `config.json`, how they are read, the names of its weights, and
//! published configurations by name. `read` has parts of readers that several families share. `llama` and `gpt2` construct the
//! blocks of a configuration, from parts in separate files. All families have the blocks
//! `embed`, `layer` and `head`. Where layers are of several kinds, each kind is a block (`dense` without experts, `local` with a
//! window), and the calls of the blocks go through the layers in order. All have the inputs
//! `%tok`, `%lab` (labels, negative: ignored), `%pos` (position in its document) and `%seg` (document), each i32[b, s]. Under LongRoPE
//! they have `%len` too, one more than the largest position of the token's sequence, and with images the inputs of `vision`.

mod balance;
mod composite;
mod config;
mod draft;
mod error;
mod experts;
mod families;
mod feed_forward;
mod fields;
mod file;
mod gpt2;
mod imported;
mod keys;
mod layer_set;
mod llama;
mod mixers;
mod read;
mod rotation;
mod small;
mod vision;
mod weights;

#[cfg(test)]
mod tests;

pub use balance::{Balance, BalanceLoss, BalanceScope};
pub use composite::{TextPart, text_part};
pub use config::ModelConfig;
pub use draft::{Batch, Body, Draft, DraftError, Linear, Weight};
pub use error::ConfigError;
pub use experts::Experts;
pub use families::{Composite, ENCODERS, FAMILIES, Family, Preset, Tied, family, preset, presets};
pub use feed_forward::{Activation, Clamp};
pub use file::{family_of, from_config, read_config};
pub use gpt2::Gpt2Config;
pub use imported::{ImportedModel, TensorSource};
pub use keys::{Done, Key, Keys, ROPE};
pub use layer_set::{LayerSet, Window};
pub use llama::{
    Alibi, Branches, Cross, EmbeddingNorm, EmbeddingScale, Growth, HeadGate, HeadLayer, Indexer, Latent,
    LayerEmbedding, Learned, LlamaConfig, Mtp, Norm, Norms, QkNorm, Sinks, SumFactors, Temperature, Waves,
};
pub use mixers::{
    DeltaDecay, DeltaNet, GatedConv, Lightning, Mixer, RgLru, ScanHeads, Scanned, Selective, SelectiveNorms, Ssd,
    SsdNorm, SsdScales, WithAttention,
};
pub use rotation::Rotation;
pub use small::small;
pub use vision::{
    ENCODER_ARRAYS, Encoder, Frequencies, PATCHES, Projector, ReadEncoder, Square, Stem, Vision, Whole, encoder_of,
    read_encoder,
};
pub use weights::{FileShape, HubTensor, Join, MatrixOrder, Pairs, Weights, When};
