//! DeepSeek-V2 and V3.

pub(super) mod deepseek_v2;
pub(super) mod deepseek_v3;

use super::{llama, prelude};
