//! The small model of a class on one device: logits of the forward, loss and gradients of a compiled step.

use super::fault;
use super::stored::{Stored, off_of_norm, trained};
use crate::error::Error;
use checkpoint::Shard;
use codegen::buffers::assign_buffers;
use compiler::pipeline::{PipelineOptions, compile};
use cost::PROGRAM;
use data::sampler;
use exec::{Executor, Input, Inputs, Options, StepInput};
use ir::graph::Model;
use ir::models::Batch;
use ir::optimizer::Optimizer;
use ir::options::{ParallelConfig, PlanOptions};
use ir::types::DType;
use serde::Serialize;
use serde_json::{Map, Value};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use trainer::forward::Forward;
use weights::{Description, Weights};

/// The most that logits may be off, relative to the largest; a loss, relative to itself; and gradients, relative to their norms: rounding
/// in f32 in another order, where changes of weights by a millionth may do as much (`reference.py`).
const MOST: Off = Off { logits: 1e-4, loss: 1e-5, gradients: 5e-5 };

/// A small model next to its class, in f32.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Example {
    /// Its parameters.
    pub parameters: u64,
    /// Its layers.
    pub layers: u32,
    /// Sequences, and tokens of each.
    pub batch: [u64; 2],
    /// The differences.
    #[serde(flatten)]
    pub off: Off,
}

/// Relative differences of a model from its class.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Off {
    /// The largest difference of two logits, relative to the largest logit.
    pub logits: f64,
    /// The difference of the losses.
    pub loss: f64,
    /// The norm of the difference of the gradients that differ most, relative to the norm of one.
    pub gradients: f64,
}

/// The small model of a folder's weights, with the tokens and results of its class.
struct Small {
    description: Description,
    weights: Arc<Weights>,
    stored: Stored,
    batch: Batch,
}

/// Compares the small model of some keys, whose class has written its weights and tensors into a folder, with the class's loss of a
/// batch.
///
/// # Errors
/// A file is missing or wrong, or they differ.
pub(super) fn compare(folder: &Path, keys: &Map<String, Value>, batch: [u64; 2], loss: f64) -> Result<Example, Error> {
    let small = Small::read(folder, keys, Batch { batch: batch[0], seq: batch[1], dtype: DType::F32 })?;
    let model = small.description.config.build(&small.batch)?;
    let (parameters, layers) = (model.parameter_count(), small.description.layers());
    let logits = small.logits(model.clone())?;
    let (own_loss, gradients, worst) = small.step(model)?;
    let off = Off { logits, loss: ((f64::from(own_loss) - loss) / loss).abs(), gradients };
    let checks = [
        ("logits", off.logits, MOST.logits),
        ("the loss", off.loss, MOST.loss),
        (&worst, off.gradients, MOST.gradients),
    ];
    match checks.into_iter().find(|(_, off, most)| off.is_nan() || off > most) {
        Some((what, off, most)) => Err(fault(format!(
            "of a small model, {what} differ by {off:.1e} from the class's, at most {most:.0e} is rounding"
        ))),
        None => Ok(Example { parameters, layers, batch, off }),
    }
}

impl Small {
    fn read(folder: &Path, keys: &Map<String, Value>, batch: Batch) -> Result<Small, Error> {
        let description = Description::of(keys.clone())?;
        let path = folder.join("tensors.safetensors");
        let bytes = fs::read(&path).map_err(|why| Error::file("read", &path, &why))?;
        let stored = Stored::read(&bytes).map_err(|why| fault(format!("{}: {why}", path.display())))?;
        let weights = Arc::new(Weights::open(&folder.join("hub"), &description.config, batch.seq)?);
        Ok(Small { description, weights, stored, batch })
    }

    fn tokens(&self) -> usize {
        (self.batch.batch * self.batch.seq) as usize
    }

    /// The inputs of a model. Each sequence is a document.
    fn inputs(&self, model: &Model) -> Inputs {
        let (seq, count) = (self.batch.seq as usize, self.tokens());
        let positions: Vec<i32> = (0..count).map(|at| (at % seq) as i32).collect();
        let inputs = model.inputs.iter().map(|input| {
            let numbers = match model.values[input.value].as_str() {
                "pos" => positions.clone(),
                "len" => sampler::Batch { positions: positions.clone(), ..Default::default() }.lengths(seq),
                name => self.stored.ints.get(name).cloned().unwrap_or_else(|| vec![0; count]),
            };
            (input.value, Input::Ints(numbers))
        });
        inputs.collect()
    }

    /// How far logits are off.
    fn logits(&self, model: Model) -> Result<f64, Error> {
        let inputs = self.inputs(&model);
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let mut forward = Forward::new(model, threads, u64::MAX).map_err(fault)?;
        for (name, sizes) in forward.params() {
            let shard = Shard { offset: vec![0; sizes.len()], shape: sizes };
            let mut numbers = vec![0.0; shard.elements() as usize];
            self.weights.read(&name, &shard, &mut numbers)?;
            forward.set_param(&name, &numbers).map_err(fault)?;
        }
        let own = forward.logits(&inputs, 0..self.tokens()).map_err(fault)?;
        let wanted = self.stored.floats.get("logits").map_or([].as_slice(), Vec::as_slice);
        if own.len() != wanted.len() {
            return Err(fault(format!("{} logits of a small model, but its class has {}", own.len(), wanted.len())));
        }
        let largest = wanted.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        // A logit that is no number differs from every number.
        let differences =
            own.iter().zip(wanted).map(|(a, b)| if (a - b).is_finite() { (a - b).abs() } else { f32::INFINITY });
        Ok(f64::from(differences.fold(0.0, f32::max) / largest))
    }

    /// The loss, how far the gradient that is off most is off, and its name.
    fn step(&self, model: Model) -> Result<(f32, f64, String), Error> {
        let request = PipelineOptions {
            options: PlanOptions::of(ParallelConfig::default()),
            quantisation: None,
            fusion: true,
            optimizer: Optimizer::default(),
            microbatches: 1,
            stop_after: None,
        };
        let file = compile(model.into(), &request, &PROGRAM, &mut |_, _| {})?;
        let mut program = file.program.ok_or_else(|| fault("there is no program".to_string()))?;
        assign_buffers(&file.model, &mut program, None);
        let mut executor = Executor::load(&file.model, &program, &Options::default())?;
        self.weights.load(&mut executor)?;
        let output = executor.step(StepInput {
            microbatches: vec![self.inputs(&file.model)],
            valid_tokens: self.stored.ints.get("lab").into_iter().flatten().filter(|&&label| label >= 0).count() as u64,
            loss_scale: 1.0,
            lr: 0.0,
            step: 1,
            update: 1,
        })?;
        let loss = output.loss.ok_or_else(|| fault("the step has no loss".to_string()))?;
        let own = executor.gradients()?;
        let wanted = self.stored.parameters("gradient", &self.description, self.batch.seq, false)?;
        let wanted = trained(&file.model, wanted);
        let (off, worst) = off_of_norm(&wanted, |name| own.get(name).map(|tensor| tensor.data.as_slice()));
        Ok((loss, off, format!("the gradient of `{worst}`")))
    }
}
