//! LFM2: short convolutions in place of attention in most layers.

pub(super) mod lfm2;
pub(super) mod lfm2_moe;
pub(super) mod lfm3;

use super::prelude;
