//! Comparison in formats below f32, where the bound is what rounding can do. The reference is run several times with results that
//! go up or down at random. The program is no farther from the reference than a few times as far as those runs are.

use super::generate::Case;
use super::run::{LARGEST_GRADIENT, LEARNING_RATE, Outcome, inputs, machine_batch, norm, reference_batch};
use crate::meshes::processes::{load, load_in};
use ir::graph::{Model, SectionKind, is_record};
use ir::optimizer::OptimizerKind;
use ir::text::File;
use ir::types::DType;
use meshwright::runtime::exec::{Options, StepInput};
use meshwright::runtime::reference::{MicroBatch, Reference, Rounding};
use std::collections::BTreeMap;

/// Runs with random rounding: of so many, the largest distance is rarely exceeded twice over by one more.
const RUNS: u32 = 6;

/// The largest distance from the reference, in distances of the farthest run. A program rounds the terms of a sum that is sharded, and
/// then the sum, where the reference rounds once.
const FARTHEST: f64 = 4.0;

/// Runs that lie as far from the reference as its own size say nothing.
const LARGEST_SPREAD: f64 = 0.5;

/// The loss scale of f16.
const LOSS_SCALE: f32 = 64.0;

/// Results of a step by name.
pub(crate) type Results = BTreeMap<String, Vec<f64>>;

/// Runs a case compiled and in the reference, and compares loss, norm, gradients and updated parameters.
pub(crate) fn compare(case: &Case, meaning: &Model, file: &File) -> Result<Outcome, String> {
    let loss_scale = if case.sizes.dtype == DType::F16 { LOSS_SCALE } else { 1.0 };
    let reference = |rounding: Rounding| reference(case, meaning, rounding, loss_scale);
    let mut want = reference(Rounding::Nearest)?;
    let others = (0..RUNS).map(|run| reference(Rounding::Random([run, 77]))).collect::<Result<Vec<_>, _>>()?;
    // Rounding moves elements from one exponent to another, and keeps their number.
    let counts = split_records(&mut want);
    let spread = |name: &String| others.iter().map(|other| distance(&other[name], &want[name])).fold(0.0, f64::max);
    let says_something = |(name, numbers): (&String, &Vec<f64>)| {
        let size = norm(numbers);
        // A NaN is no smaller.
        size < LARGEST_GRADIENT && spread(name) <= LARGEST_SPREAD * size.max(f64::MIN_POSITIVE)
    };
    if jumps(meaning) || !want.iter().all(says_something) {
        return Ok(Outcome::IllConditioned);
    }
    let mut got = program(case, file, loss_scale)?;
    let counted = split_records(&mut got);
    if counted != counts {
        return Err(format!("elements were counted {counted:?} times, and in the reference {counts:?}"));
    }
    // What no rounding moves is still computed in f32.
    let largest = want.values().map(norm).fold(0.0, f64::max);
    for (name, want) in &want {
        let got = got.get(name).ok_or_else(|| format!("{name} is missing"))?;
        let (off, spread) = (distance(got, want), spread(name));
        let is_close = off <= FARTHEST * spread + 1e-5 * largest;
        if !is_close {
            return Err(format!("{name} is off by {off:e}, the farthest of {RUNS} runs by {spread:e}"));
        }
    }
    Ok(Outcome::Equal)
}

/// Takes the records of delayed scaling out, and gives how many elements each has counted.
fn split_records(results: &mut Results) -> Vec<(String, f64)> {
    let is_counts = |name: &str| name.strip_prefix("the gradient of ").is_some_and(is_record);
    let counts = results.iter().filter(|(name, _)| is_counts(name));
    let counts = counts.map(|(name, counts)| (name.clone(), counts.iter().sum())).collect();
    results.retain(|name, _| !is_counts(name) && !is_record(name));
    counts
}

/// True if a rounding can change a choice, and with it everything.
fn jumps(model: &Model) -> bool {
    let stmts = model.blocks.values().flat_map(|block| &block[SectionKind::F].stmts);
    stmts.map(|stmt| stmt.op.name()).any(|name| ["top_k", "relu2", "max", "min", "at_most", "at_least"].contains(&name))
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    norm(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>())
}

fn reference(case: &Case, meaning: &Model, rounding: Rounding, loss_scale: f32) -> Result<Results, String> {
    let mut reference = Reference::<f64>::new(meaning, case.seed);
    reference.set_rounding(rounding);
    reference.set_loss_scale(f64::from(loss_scale));
    let batch: Vec<MicroBatch<f64>> = inputs(case).iter().map(|micro| reference_batch(case, micro)).collect();
    let step = reference.step(&batch, LEARNING_RATE)?;
    let mut results = BTreeMap::from([("the loss".to_string(), vec![step.loss])]);
    results.extend(step.grad_norm.map(|norm| ("the norm".to_string(), vec![norm])));
    for (name, gradient) in reference.gradients() {
        let gradient = gradient.data.iter().map(|x| x / f64::from(loss_scale)).collect();
        results.insert(format!("the gradient of {name}"), gradient);
    }
    // The first step of AdamW is the sign of the gradient.
    if matches!(case.optimizer.kind, OptimizerKind::Sgd { .. }) {
        results.extend(reference.params().iter().map(|(name, param)| (name.clone(), param.data.clone())));
    }
    Ok(results)
}

/// Runs a compiled case.
pub(crate) fn program(case: &Case, file: &File, loss_scale: f32) -> Result<Results, String> {
    program_in(None, case, file, loss_scale)
}

/// Runs a compiled case with its ranks in a number of processes, or in as many as the case draws.
pub(crate) fn program_in(
    processes: Option<usize>,
    case: &Case,
    file: &File,
    loss_scale: f32,
) -> Result<Results, String> {
    let data = inputs(case);
    let batch: Vec<MicroBatch<f64>> = data.iter().map(|micro| reference_batch(case, micro)).collect();
    let step = StepInput {
        microbatches: data.iter().map(|micro| machine_batch(&file.model, micro)).collect(),
        valid_tokens: batch.iter().map(|micro| micro.valid as u64).sum(),
        loss_scale,
        lr: LEARNING_RATE as f32,
        step: 1,
        update: 1,
    };
    let options = Options { seed: case.seed, async_threads: Some(case.seed.is_multiple_of(2)), ..Options::default() };
    let program = file.program.as_ref().ok_or("no program")?;
    let executor = match processes {
        Some(processes) => load_in(processes, &file.model, program, &options, case.seed),
        None => load(&file.model, program, &options, case.seed),
    };
    let mut executor = executor.map_err(|e| e.to_string())?;
    let output = executor.step(step).map_err(|e| e.to_string())?;
    let numbers = |data: Vec<f32>| data.into_iter().map(f64::from).collect();
    let mut results = BTreeMap::from([("the loss".to_string(), numbers(output.loss.into_iter().collect()))]);
    results.extend(output.grad_norm.map(|norm| ("the norm".to_string(), numbers(vec![norm]))));
    for (name, gradient) in executor.gradients().map_err(|e| e.to_string())? {
        results.insert(format!("the gradient of {name}"), numbers(gradient.data));
    }
    let params = executor.export_params().map_err(|e| e.to_string())?;
    results.extend(params.into_iter().map(|(name, param)| (name, numbers(param.data))));
    Ok(results)
}
