//! Runs a case: compiled on virtual devices against the reference evaluator in f64.

use super::generate::Case;
use crate::meshes::processes::load;
use crate::random::Random;
use cost::{PROGRAM, Platform};
use ir::graph::Model;
use ir::optimizer::OptimizerKind;
use ir::options::{ParallelConfig, PlanOptions};
use ir::text::File;
use meshwright::compiler::pipeline::{PipelineOptions, compile};
use meshwright::runtime::exec::{Input, Inputs, Options, StepInput};
use meshwright::runtime::reference::{MicroBatch, Real, Reference, Tensor};
use scheduler::model_costs;
use scheduler::partition::partition;
use std::collections::BTreeMap;

/// Tolerance of the compiled program, relative to max(the tensor's norm, 1e-3 of the largest norm of all).
const TOLERANCE: f64 = 1e-3;
pub(crate) const LEARNING_RATE: f64 = 1e-2;

/// Compiles a case along the rules: gives the differentiated model (the meaning) and the compiled file.
pub(crate) fn compiled(case: &Case) -> Result<(Model, File), String> {
    compiled_to(case, along_rules(case), &PROGRAM, true)
}

/// Options that plan a case along the rules.
pub(crate) fn along_rules(case: &Case) -> PlanOptions {
    let recompute = case.recompute.clone();
    PlanOptions::of(ParallelConfig { zero: case.zero, recompute, ..ParallelConfig::default() })
}

/// The same for options on a cluster, with or without groups.
pub(crate) fn compiled_to(
    case: &Case,
    options: PlanOptions,
    platform: &Platform<'_>,
    fusion: bool,
) -> Result<(Model, File), String> {
    let mut meaning = case.whole.as_ref().unwrap_or(&case.model).clone();
    // Products must be those of the program before their operands become narrow.
    if case.quantisation.is_some() {
        transforms::recognise::recognise(&mut meaning);
    }
    let mut meaning = transforms::differentiate::differentiate(meaning, &case.optimizer).map_err(|e| e.to_string())?;
    if let Some(recipe) = &case.quantisation {
        transforms::simplify::simplify(&mut meaning);
        transforms::quantise::quantise(&mut meaning, recipe).map_err(|why| why.to_string())?;
    }
    let mut request = PipelineOptions {
        options,
        quantisation: case.quantisation,
        fusion,
        optimizer: case.optimizer.clone(),
        microbatches: case.pipeline.microbatches,
        stop_after: Some("collectives".to_string()),
    };
    let planned = compile(case.model.clone().into(), &request, platform, &mut |_, _| {}).map_err(|e| e.to_string())?;
    let staged = partition(&planned.model, &case.pipeline, &model_costs(&planned.model, &PROGRAM, 1, false))
        .map_err(|e| e.to_string())?;
    request.stop_after = None;
    let given = File { staged: Some(staged), schedule: Some(case.schedule.clone()), ..planned };
    let file = compile(given, &request, &PROGRAM, &mut |_, _| {}).map_err(|e| e.to_string())?;
    Ok((meaning, file))
}

/// Outcome of a comparison.
#[derive(PartialEq, Eq)]
pub(crate) enum Outcome {
    Equal,
    /// The reference itself differs between f32 and f64: rounding decides.
    IllConditioned,
}

/// Runs both and compares loss, norm, gradients and updated parameters.
pub(crate) fn compare(case: &Case, meaning: &Model, file: &File) -> Result<Outcome, String> {
    let program = file.program.as_ref().ok_or("no program")?;
    let data = inputs(case);
    // Every second case with a thread for async work.
    let options = Options { seed: case.seed, async_threads: Some(case.seed.is_multiple_of(2)), ..Options::default() };
    let mut executor = load(&file.model, program, &options, case.seed).map_err(|e| e.to_string())?;
    let mut reference = Reference::<f64>::new(meaning, case.seed);
    let batch: Vec<MicroBatch<f64>> = data.iter().map(|micro| reference_batch(case, micro)).collect();
    let valid: usize = batch.iter().map(|micro| micro.valid).sum();
    let step = StepInput {
        microbatches: data.iter().map(|micro| machine_batch(&file.model, micro)).collect(),
        valid_tokens: valid as u64,
        loss_scale: 1.0,
        lr: LEARNING_RATE as f32,
        step: 1,
        update: 1,
    };
    let want = reference.step(&batch, LEARNING_RATE)?;
    if !is_well_conditioned(case, meaning, &data, &reference)? {
        return Ok(Outcome::IllConditioned);
    }
    let got = executor.step(step).map_err(|e| e.to_string())?;
    close("loss", f64::from(got.loss.unwrap_or(f32::NAN)), want.loss)?;
    let gradients = executor.gradients().map_err(|e| e.to_string())?;
    let gradients = gradients.into_iter().map(|(name, whole)| (name, whole.data)).collect();
    tensors("gradient", &gradients, reference.gradients(), TOLERANCE)?;
    if let (Some(got), Some(want)) = (got.grad_norm, want.grad_norm) {
        close("norm", f64::from(got), want)?;
    }
    let params = executor.export_params().map_err(|e| e.to_string())?;
    let params = params.into_iter().map(|(name, whole)| (name, whole.data)).collect();
    // AdamW's first step is the sign of the gradient: where that is rounding, the parameter says nothing.
    if matches!(case.optimizer.kind, OptimizerKind::Sgd { .. }) || gradients_are_clear(&reference) {
        tensors("parameter", &params, reference.params(), TOLERANCE)?;
    }
    Ok(Outcome::Equal)
}

/// True if no element of a gradient is so small next to the largest that its sign may be rounding.
pub(crate) fn gradients_are_clear(reference: &Reference<'_, f64>) -> bool {
    let tensors: Vec<&Tensor<f64>> = reference.gradients().values().collect();
    let largest = tensors.iter().map(|tensor| norm(&tensor.data)).fold(0.0, f64::max);
    tensors.iter().all(|tensor| tensor.data.iter().all(|x| *x == 0.0 || x.abs() > 1e-5 * largest))
}

/// Gradients above this come from scores so large that a softmax is a step: differences of equal numbers decide.
pub(crate) const LARGEST_GRADIENT: f64 = 1e4;

/// True if the reference in f32 is well within the tolerance of the one in f64, and no gradient explodes.
fn is_well_conditioned(
    case: &Case,
    meaning: &Model,
    data: &[Micro],
    exact: &Reference<'_, f64>,
) -> Result<bool, String> {
    let mut rounded = Reference::<f32>::new(meaning, case.seed);
    let batch: Vec<MicroBatch<f32>> = data.iter().map(|micro| reference_batch(case, micro)).collect();
    rounded.step(&batch, LEARNING_RATE)?;
    let data = |tensors: &BTreeMap<String, Tensor<f32>>| {
        tensors.iter().map(|(name, tensor)| (name.clone(), tensor.data.clone())).collect()
    };
    let within = TOLERANCE / 8.0;
    let largest = exact.gradients().values().map(|tensor| norm(&tensor.data)).fold(0.0, f64::max);
    Ok(largest < LARGEST_GRADIENT
        && tensors("", &data(rounded.gradients()), exact.gradients(), within).is_ok()
        && tensors("", &data(rounded.params()), exact.params(), within).is_ok())
}

pub(crate) type Micro = BTreeMap<&'static str, Vec<i32>>;

/// Random tokens, labels (some ignored), positions and segments, per micro-batch.
pub(crate) fn inputs(case: &Case) -> Vec<Micro> {
    let mut random = Random::new(case.seed ^ 0xda7a);
    let (count, seq, vocab) = (case.sizes.batch * case.sizes.seq, case.sizes.seq, case.sizes.vocab);
    (0..case.pipeline.microbatches)
        .map(|_| {
            let mut draw = |low: i64, high: i64| -> Vec<i32> {
                (0..count).map(|_| (low + random.below((high - low) as usize) as i64) as i32).collect()
            };
            let pos = (0..count).map(|i| (i % seq) as i32).collect();
            let (tok, lab) = (draw(0, vocab as i64), draw(-1, vocab as i64));
            let mut seg = draw(0, 2);
            seg.chunks_mut(seq as usize).for_each(<[i32]>::sort_unstable);
            BTreeMap::from([("tok", tok), ("lab", lab), ("pos", pos), ("seg", seg)])
        })
        .collect()
}

pub(crate) fn reference_batch<R: Real>(case: &Case, micro: &Micro) -> MicroBatch<R> {
    let dims = vec![case.sizes.batch as usize, case.sizes.seq as usize];
    let tensors: Vec<(&str, Tensor<i32>)> =
        micro.iter().map(|(name, data)| (*name, Tensor { dims: dims.clone(), data: data.clone() })).collect();
    let borrowed: Vec<(&str, &Tensor<i32>)> = tensors.iter().map(|(name, tensor)| (*name, tensor)).collect();
    MicroBatch::of_tokens(&borrowed, "lab")
}

pub(crate) fn machine_batch(model: &Model, micro: &Micro) -> Inputs {
    let inputs = model.inputs.iter().map(|input| input.value);
    inputs.map(|value| (value, Input::Ints(micro[model.values[value].as_str()].clone()))).collect()
}

fn close(what: &str, got: f64, want: f64) -> Result<(), String> {
    let allowed = TOLERANCE * want.abs().max(1e-3);
    if (got - want).abs() <= allowed { Ok(()) } else { Err(format!("{what}: {got} instead of {want}")) }
}

pub(crate) fn norm<'a>(data: impl IntoIterator<Item = &'a f64>) -> f64 {
    data.into_iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn tensors(
    what: &str,
    got: &BTreeMap<String, Vec<f32>>,
    want: &BTreeMap<String, Tensor<f64>>,
    tolerance: f64,
) -> Result<(), String> {
    let largest = want.values().map(|tensor| norm(&tensor.data)).fold(0.0, f64::max);
    for (name, tensor) in want {
        let found = got.get(name).ok_or_else(|| format!("{what} `{name}` is missing"))?;
        if found.len() != tensor.data.len() {
            return Err(format!("{what} `{name}` has {} elements, not {}", found.len(), tensor.data.len()));
        }
        let differences: Vec<f64> = found.iter().zip(&tensor.data).map(|(a, b)| f64::from(*a) - b).collect();
        let (off, scale) = (norm(&differences), norm(&tensor.data).max(1e-3 * largest));
        if off.is_nan() || off > tolerance * scale {
            return Err(format!("{what} `{name}` is off by {off:e} of {scale:e}"));
        }
    }
    Ok(())
}
