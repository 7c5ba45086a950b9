//! The names that the file of a family needs.

mod common;
mod family;
mod preset;
mod tensors;

pub use self::family::{Composite, Family, Tied};
pub use self::preset::Preset;

pub(super) use self::common::*;
pub(super) use self::tensors::*;
pub(super) use crate::models::config::ModelConfig;
pub(super) use crate::models::error::{ConfigError, invalid, positive, unsupported};
pub(super) use crate::models::experts::Experts;
pub(super) use crate::models::feed_forward::{Activation, Clamp};
pub(super) use crate::models::fields::Fields;
pub(super) use crate::models::keys::{Key, Keys};
pub(super) use crate::models::layer_set::{LayerSet, Window};
pub(super) use crate::models::llama::{
    Branches, Cross, EmbeddingNorm, EmbeddingScale, Growth, HeadGate, HeadLayer, Indexer, Latent, LayerEmbedding,
    Learned, LlamaConfig, Norm, Norms, QkNorm, Sinks, SumFactors, Temperature, Waves,
};
pub(super) use crate::models::mixers::{
    DeltaDecay, DeltaNet, GatedConv, Lightning, Mixer, RgLru, Scanned, Selective, SelectiveNorms, Ssd, SsdNorm,
    SsdScales, WithAttention,
};
pub(super) use crate::models::read::experts::{dense, dense_types, jittered, sigmoid, softmax};
pub(super) use crate::models::read::mixers::{self, LayerTypes, SsdKeys, steps};
pub(super) use crate::models::read::windows::{Limit, Limited};
pub(super) use crate::models::read::{
    Base, Head, Heads, Kinds, ModelSizes, Rope, activation, biased, further, positions, windows,
};
pub(super) use crate::models::rotation::Rotation;
pub(super) use crate::models::weights::{FileShape, HubTensor, Join, MatrixOrder, Pairs, Weights, When};
pub(super) use crate::ops::{GroupLimit, Scaling};
