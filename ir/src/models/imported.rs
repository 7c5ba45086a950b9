//! Models that other programs recorded, as those who plan and train them see them.

use super::draft::Batch;
use super::error::ConfigError;
use crate::graph::Model;
use std::collections::BTreeMap;

/// A recorded model before its batch is known.
pub trait ImportedModel: Send + Sync {
    /// The model for a batch: forward blocks, no mesh.
    ///
    /// # Errors
    /// The model has no such batch: it has no tokens or too many, or sizes beyond [`limits`](crate::limits).
    fn build(&self, batch: &Batch) -> Result<Model, ConfigError>;

    /// The places of all parameters in the recording's file, by instance name.
    fn sources(&self) -> &BTreeMap<String, TensorSource>;
}

/// The place of a parameter's elements in a file of tensors.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorSource {
    /// The name of the tensor.
    pub tensor: String,
    /// The sizes of the tensor.
    pub shape: Vec<u64>,
    /// The first element.
    pub first: u64,
    /// Size of each dim, and the distance of its neighbours in elements.
    pub dims: Vec<(u64, u64)>,
    /// The number that is added to each element.
    pub shift: f64,
}
