//! Gemma 2, and the text models of Gemma 3 and 4.

pub(super) mod gemma2;
pub(super) mod gemma3_text;
pub(super) mod gemma4_unified_text;

use super::{llama, prelude};
