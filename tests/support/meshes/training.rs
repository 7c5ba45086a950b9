//! Small models compiled for a mesh, and what they are fed.

use super::text::{SEQ, steps};
use cost::PROGRAM;
use ir::graph::Model;
use ir::models::{Batch, Gpt2Config, LlamaConfig, ModelConfig, preset};
use ir::optimizer::Optimizer;
use ir::options::PlanOptions;
use ir::text::File;
use meshwright::compiler::parallel;
use meshwright::compiler::pipeline::{PipelineOptions, compile};
use meshwright::compiler::precision::{Precision, precision};
use meshwright::runtime::data::VOCAB;
use meshwright::runtime::exec::StepInput;
use meshwright::train::Feed;

/// Seed of the initial parameters.
pub(crate) const SEED: u64 = 3;

/// Size of the residual stream.
pub(crate) const HIDDEN: u64 = 48;
/// Scale of initial matrices: the distance of 20 AdamW steps at 5e-3, so that few rows of an embedding come near zero on the
/// way: RMSNorm would make much of their rounding.
pub(crate) const DEVIATION: f64 = 0.1;

/// A model and how it is trained.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) config: ModelConfig,
    pub(crate) optimizer: Optimizer,
    pub(crate) lr: f64,
    pub(crate) steps: u64,
    pub(crate) precision: &'static str,
}

impl Recipe {
    pub(crate) fn formats(&self) -> Precision {
        precision(self.precision).expect("a precision")
    }
}

/// The two families, of less than 100 thousand parameters and without dropout. 2, 3 and 4 divide their heads, but neither 3
/// nor 4 their feed-forward net or vocabulary. GPT-2 reads its embedding in the head too.
pub(crate) fn models() -> [ModelConfig; 2] {
    let small = |name| preset(name).expect("a preset").config.clone();
    let vocabulary = VOCAB as u64;
    ["tiny-llama", "tiny-gpt2"].map(|name| match small(name) {
        ModelConfig::Llama(preset) => ModelConfig::Llama(LlamaConfig {
            vocabulary,
            hidden: HIDDEN,
            feed_forward: 50,
            layers: 4,
            heads: 12,
            kv_heads: 12,
            head: 4,
            tied: false,
            deviation: DEVIATION,
            ..preset
        }),
        ModelConfig::Gpt2(preset) => ModelConfig::Gpt2(Gpt2Config {
            vocabulary,
            positions: Some(SEQ),
            hidden: HIDDEN,
            feed_forward: 50,
            layers: 4,
            heads: 12,
            tied: true,
            deviation: DEVIATION,
            ..preset
        }),
    })
}

/// The model for micro-batches of so many sequences.
pub(crate) fn model(recipe: &Recipe, sequences: u64) -> Model {
    recipe.config.build(&Batch { batch: sequences, seq: SEQ, dtype: recipe.formats().dtype }).expect("a model")
}

/// The model compiled for a configuration, with micro-batches of so many sequences over all ranks.
pub(crate) fn compiled(recipe: &Recipe, mesh: &str, sequences: u64) -> File {
    let compiled =
        compile(model(recipe, sequences).into(), &request(recipe, mesh, sequences), &PROGRAM, &mut |_, _| {});
    compiled.unwrap_or_else(|why| panic!("{mesh}: {why}"))
}

/// Compile request of a configuration, with the number of sequences of a micro-batch over all ranks.
pub(crate) fn request(recipe: &Recipe, mesh: &str, sequences: u64) -> PipelineOptions {
    PipelineOptions {
        options: PlanOptions::of(parallel::parse(mesh).expect("a configuration")),
        quantisation: recipe.formats().quantisation,
        fusion: true,
        optimizer: recipe.optimizer.clone(),
        microbatches: steps(1, sequences)[0].len() as u32,
        stop_after: None,
    }
}

/// Inputs of a model compiled for a configuration, step by step, as `train` feeds them.
pub(crate) fn inputs(compiled: &Model, recipe: &Recipe, mesh: &str) -> Vec<StepInput> {
    let sequences = compiled.inputs[0].ty.dims[0].size;
    let parallel = parallel::parse(mesh).expect("a configuration");
    let feed = Feed::of(&model(recipe, sequences), &parallel, &recipe.formats(), VOCAB as u64).expect("a text model");
    (1..)
        .zip(steps(recipe.steps, sequences))
        .map(|(step, micros)| StepInput {
            lr: recipe.lr as f32,
            step,
            update: step,
            ..feed.of_batches(micros.into_iter())
        })
        .collect()
}
