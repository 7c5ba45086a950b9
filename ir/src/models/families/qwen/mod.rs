//! Qwen2 and Qwen3, with experts and without.

pub(super) mod qwen2;
pub(super) mod qwen2_moe;
pub(super) mod qwen3;
pub(super) mod qwen3_5;
pub(super) mod qwen3_5_moe;
pub(super) mod qwen3_moe;
pub(super) mod qwen3_next;
pub(super) mod qwen3_vl;

use super::{llama, prelude};
