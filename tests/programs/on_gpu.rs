//! The model of programs on a GPU, whose kernels take long on the stand-in.

use crate::meshes::training::models;
use crate::sample::sampled;
use ir::models::{LlamaConfig, ModelConfig};

/// The first of the models. A sample has two of its four layers.
pub(crate) fn llama() -> ModelConfig {
    let [ModelConfig::Llama(llama), _] = models() else { panic!("the first is a Llama") };
    ModelConfig::Llama(LlamaConfig { layers: sampled(2, llama.layers), ..llama })
}
