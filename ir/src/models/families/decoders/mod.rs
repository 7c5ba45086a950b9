//! Decoders of models with an encoder, alone: without the encoder's vectors a layer has attention to its own sequence only.

pub(super) mod bart;
pub(super) mod bigbird_pegasus;
pub(super) mod blenderbot;
pub(super) mod blenderbot_small;
pub(super) mod marian;
pub(super) mod mbart;
pub(super) mod mvp;
mod parts;
pub(super) mod pegasus;
pub(super) mod plbart;
pub(super) mod trocr;
pub(super) mod whisper;

use super::prelude;
