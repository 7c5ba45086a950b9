//! Exported models next to their recorded graphs: both compute logits of the same tokens.

use crate::error::Error;
use exec::{Input, Inputs};
use ir::models::{Batch, ImportedModel};
use ir::types::DType;
use pt2::{Export, ExportInput, Template};
use serde::Serialize;
use std::path::Path;
use trainer::forward::Forward;
use weights::Weights;

/// The largest difference of logits that rounding explains, relative to the largest logit or 1.
pub const MOST_DIFFERENCE: f32 = 1e-4;

/// Parameters of models that every command compares: some tenths of a second.
const FEW_PARAMETERS: u64 = 1 << 20;

/// Sequences and tokens of the comparison where the export leaves them open.
const BATCH: [u64; 2] = [2, 11];

/// An imported model next to its recorded graph.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// Numbers of parameters.
    pub parameters: u64,
    /// Layers.
    pub layers: usize,
    /// Sequences, and tokens of each.
    pub batch: [u64; 2],
    /// The largest logit.
    pub largest: f32,
    /// The largest difference of two logits.
    pub difference: f32,
}

/// Runs the model of an archive and its recorded graph on random tokens, with the weights of the archive.
///
/// # Errors
/// The archive cannot be imported, lacks weights, needs more memory than there is, or the logits differ by more than
/// [`MOST_DIFFERENCE`].
pub fn compare(path: &Path) -> Result<Comparison, Error> {
    let export = Export::open(path)?;
    let template = export.template()?;
    compare_with(&export, &template)
}

/// Compares a model that is small and has its weights. A larger one is compared on request alone.
///
/// # Errors
/// The errors of [`compare`].
pub fn compare_small(path: &Path) -> Result<Option<Comparison>, Error> {
    let export = Export::open(path)?;
    if export.parameters() > FEW_PARAMETERS || !export.has_weights() {
        return Ok(None);
    }
    let template = export.template()?;
    compare_with(&export, &template).map(Some)
}

fn compare_with(export: &Export, template: &Template) -> Result<Comparison, Error> {
    // The checksums are compared before anything is computed.
    let weights = Weights::open_exported(export.path(), template)?;
    let tokens = template.longest().map_or(BATCH[1], |longest| longest.min(BATCH[1]));
    let batch @ [sequences, seq] = export.batch([BATCH[0], tokens]);
    let model = template.build(&Batch { batch: sequences, seq, dtype: DType::F32 })?;
    let ids = template.ids();
    let taken: Vec<Vec<f64>> = export.inputs(batch).iter().zip(0..).map(|(input, at)| drawn(input, at, ids)).collect();
    let recorded = export.logits(&taken, batch)?;
    let names: Vec<String> = export.inputs(batch).into_iter().map(|input| input.name).collect();
    let inputs = model.inputs.iter().map(|input| {
        let (name, count) = (model.values[input.value].as_str(), input.ty.elements() as usize);
        let own = names.iter().position(|own| own == name || export.is_text() && name == "tok");
        let given = match (name, own) {
            (_, Some(own)) if input.ty.dtype.is_float() => {
                Input::Floats(taken[own].iter().map(|&x| x as f32).collect())
            }
            (_, Some(own)) => Input::Ints(taken[own].iter().map(|&id| id as i32).collect()),
            ("pos", None) => Input::Ints((0..count).map(|at| (at as u64 % seq) as i32).collect()),
            ("lab", None) => Input::Ints(vec![-1; count]),
            _ => Input::Ints(vec![0; count]),
        };
        (input.value, given)
    });
    let inputs: Inputs = inputs.collect();
    let fault = |why: String| Error::fault("import", why);
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut forward = Forward::new(model, threads, u64::MAX).map_err(fault)?;
    for (name, sizes) in forward.params() {
        let shard = checkpoint::Shard { offset: vec![0; sizes.len()], shape: sizes };
        let mut numbers = vec![0.0; shard.elements() as usize];
        weights.read(&name, &shard, &mut numbers)?;
        forward.set_param(&name, &numbers).map_err(fault)?;
    }
    let own = forward.logits(&inputs, 0..recorded.len() / template.vocabulary().max(1) as usize).map_err(fault)?;
    let largest = recorded.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    // A logit that is no number differs from every number.
    let apart = |(a, b): (&f32, &f32)| if (a - b).is_finite() { (a - b).abs() } else { f32::INFINITY };
    let difference = own.iter().zip(&recorded).map(apart).fold(0.0, f32::max);
    if own.len() != recorded.len() || difference > MOST_DIFFERENCE * largest.max(1.0) {
        return Err(pt2::Error::Different { difference }.into());
    }
    Ok(Comparison { parameters: export.parameters(), layers: template.layers(), batch, largest, difference })
}

/// Elements of an input that follow from their places alone: ids below `ids`, or numbers from -1 to 1.
fn drawn(input: &ExportInput, number: u64, ids: u64) -> Vec<f64> {
    let count: u64 = input.sizes.iter().product();
    let places = (0..count).map(|at| random(number * 0x1_0000_0000 + at));
    if input.is_int {
        return places.map(|bits| f64::from(bits % ids.max(1) as u32)).collect();
    }
    places.map(|bits| f64::from((f64::from(bits) / f64::from(1_u32 << 30) - 1.0) as f32)).collect()
}

/// 31 bits that follow from a number.
fn random(at: u64) -> u32 {
    let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as u32
}
