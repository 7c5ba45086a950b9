//! The names that the file of a family needs.

pub(super) use super::common::*;
pub(super) use super::presets::Preset;
pub(super) use super::tensors::*;
pub(super) use super::{Composite, Family, Tied};
pub(super) use crate::models::attention::{Latent, QkNorm};
pub(super) use crate::models::config::{ConfigError, ModelConfig, invalid, positive, unsupported};
pub(super) use crate::models::experts::{Clamp, Experts};
pub(super) use crate::models::feed_forward::Activation;
pub(super) use crate::models::fields::Fields;
pub(super) use crate::models::keys::{Key, Keys};
pub(super) use crate::models::layers::{LayerSet, Window};
pub(super) use crate::models::llama::{LlamaConfig, Norms, Temperature};
pub(super) use crate::models::read::experts::{dense, softmax};
pub(super) use crate::models::read::windows::{Limit, Limited};
pub(super) use crate::models::read::{
    Base, Head, Heads, Kinds, ModelSizes, Rope, activation, biased, further, positions, windows,
};
pub(super) use crate::models::rotation::Rotation;
pub(super) use crate::models::weights::{HubTensor, Join, Pairs, Weights, When};
pub(super) use crate::ops::{GroupLimit, Scaling};
