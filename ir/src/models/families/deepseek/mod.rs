//! DeepSeek-V2, V3 and V3.2.

pub(super) mod deepseek_v2;
pub(super) mod deepseek_v3;
pub(super) mod deepseek_v32;

use super::{glm4_moe_lite, llama, prelude};
