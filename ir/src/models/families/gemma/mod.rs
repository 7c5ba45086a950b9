//! Gemma 2 and the text models of Gemma 3.

pub(super) mod gemma2;
pub(super) mod gemma3_text;

use super::{llama, prelude};
