//! Small models compiled for a mesh and trained for some steps, and what is written down of it.

use super::text::{Micro, SEQ, steps, valid};
use cost::CPU;
use ir::goal::Goal;
use ir::graph::Model;
use ir::models::{Batch, Gpt2Config, LlamaConfig, ModelConfig, preset};
use ir::optimizer::{Optimizer, OptimizerKind};
use ir::program::Program;
use ir::text::File;
use ir::types::DType;
use meshwright::layout;
use meshwright::pipeline::{CompileRequest, compile};
use runtime::data::VOCAB;
use runtime::exec::{Input, Machine, Options, StepInput};
use scheduler::memory::memory;
use std::collections::BTreeMap;

/// What initial parameters are drawn from.
pub(crate) const SEED: u64 = 3;

/// Size of the residual stream.
pub(crate) const HIDDEN: u64 = 48;
/// Of initial matrices. As far as 20 steps of AdamW at 5e-3 go, so that few rows of an embedding come near to zero on the
/// way: RMSNorm would make much of their rounding.
pub(crate) const DEVIATION: f64 = 0.1;

/// A model and how it is trained.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) config: ModelConfig,
    pub(crate) optimizer: Optimizer,
    pub(crate) lr: f64,
    pub(crate) steps: u64,
}

/// Tensors by the instance name of their parameter.
pub(crate) type Tensors = BTreeMap<String, Vec<f64>>;

/// What a run of some steps gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// Of every step.
    pub(crate) losses: Vec<f64>,
    /// Of every step, before clipping.
    pub(crate) norms: Vec<f64>,
    /// Of the last step.
    pub(crate) gradients: Tensors,
    /// After the last step.
    pub(crate) params: Tensors,
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
            positions: SEQ,
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

/// Plain gradient descent, neither decayed nor clipped.
pub(crate) fn sgd() -> Optimizer {
    Optimizer { kind: OptimizerKind::Sgd { momentum: 0.0, weight_decay: 0.0 }, clip: None }
}

/// The model for micro-batches of so many sequences.
pub(crate) fn model(recipe: &Recipe, sequences: u64) -> Model {
    recipe.config.build(&Batch { batch: sequences, seq: SEQ, dtype: DType::F32 }).expect("a model")
}

/// The model compiled for a layout, with micro-batches of so many sequences over all ranks.
pub(crate) fn compiled(recipe: &Recipe, mesh: &str, sequences: u64) -> File {
    let request = CompileRequest {
        goal: Goal::of(layout::parse(mesh).expect("a layout")),
        optimizer: recipe.optimizer.clone(),
        microbatches: steps(1, sequences)[0].len() as u32,
        stop_after: None,
    };
    let compiled = compile(model(recipe, sequences).into(), &request, &CPU, &mut |_, _| {});
    compiled.unwrap_or_else(|why| panic!("{mesh}: {why}"))
}

/// What a model compiled for the recipe is fed, step by step.
pub(crate) fn inputs(model: &Model, recipe: &Recipe) -> Vec<StepInput> {
    let sequences = model.inputs[0].ty.dims[0].size;
    let named = |micro: &Micro| {
        let input = |value| (value, Input::Ints(micro[model.values[value].as_str()].clone()));
        model.inputs.iter().map(|given| input(given.value)).collect()
    };
    let step = |(number, micros): (u64, Vec<Micro>)| StepInput {
        microbatches: micros.iter().map(named).collect(),
        valid_tokens: micros.iter().map(valid).sum(),
        loss_scale: 1.0,
        lr: recipe.lr as f32,
        step: number,
    };
    (1..).zip(steps(recipe.steps, sequences)).map(step).collect()
}

/// Runs a program, whose tensors get their places here, on the virtual devices of the model's mesh.
///
/// # Errors
/// The machine refuses the program, or a rank failed.
pub(crate) fn train(model: &Model, program: &Program, inputs: Vec<StepInput>) -> Result<Record, String> {
    let options = Options { seed: SEED, ..Options::default() };
    let mut program = program.clone();
    memory(model, &mut program, None);
    let mut machine = Machine::load(model, &program, &options).map_err(|why| why.to_string())?;
    let mut record = Record::default();
    for input in inputs {
        let output = machine.step(input).map_err(|why| why.to_string())?;
        record.losses.push(f64::from(output.loss.ok_or("no loss")?));
        record.norms.push(f64::from(output.grad_norm.ok_or("no norm")?));
    }
    let wide = |tensors: BTreeMap<String, runtime::state::Whole>| {
        let wide = |data: Vec<f32>| data.into_iter().map(f64::from).collect();
        tensors.into_iter().map(|(name, whole)| (name, wide(whole.data))).collect()
    };
    record.gradients = wide(machine.gradients().map_err(|why| why.to_string())?);
    record.params = wide(machine.export_params().map_err(|why| why.to_string())?);
    Ok(record)
}
