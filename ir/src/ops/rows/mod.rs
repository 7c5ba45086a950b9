//! Ops whose results depend on whole rows of the last dim.

pub(super) mod cross_entropy;
pub(super) mod layer_norm;
pub(super) mod rms_norm;
pub(super) mod rowwise;
pub(super) mod softmax;
pub(super) mod vocabulary;
