//! Gemma 2, the text models of Gemma 3 and 4, and RecurrentGemma.

pub(super) mod gemma2;
pub(super) mod gemma3_text;
pub(super) mod gemma4_text;
pub(super) mod gemma4_unified_text;
pub(super) mod recurrent_gemma;

use super::{llama, prelude};
