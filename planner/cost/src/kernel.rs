//! Kernels of attention.

use serde::{Deserialize, Serialize};

/// Implementation of attention. A stack names its best one; a device lists those that run on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    /// Two products and a softmax, with the scores in memory.
    Unfused,
    /// FlashAttention (Dao et al. 2022).
    Flash1,
    /// FlashAttention-2 (Dao 2023).
    #[default]
    Flash2,
    /// Attention of cuDNN 9.
    Cudnn,
    /// FlashAttention-3 (Shah et al. 2024).
    Flash3,
}
