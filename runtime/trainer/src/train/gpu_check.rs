//! Checks of training on a GPU: curves of losses and norms of the gradient against those of the processor, on virtual ranks that share the
//! GPU.

use super::comm::kernel_threads;
use super::feed::Feed;
use super::prepare::{Given, Prepared, prepare};
use super::request::TrainRequest;
use super::run::executor_error;
use crate::error::Error;
use cost::model_flops;
use cuda::SharedGpu;
use cuda::check::{Found, Rows};
use cuda::device::Device;
use data::sampler::Batch;
use exec::{Executor, Options, Platform, StepInput, Threads};
use std::time::Instant;

/// A Llama of some thousand parameters.
const LLAMA: &str = r#"{"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 257, "max_position_embeddings": 64}"#;
/// One with experts.
const MIXTRAL: &str = r#"{"model_type": "mixtral", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 257, "max_position_embeddings": 64,
    "num_local_experts": 4, "num_experts_per_tok": 2}"#;
/// A GPT-2 with dropout.
const GPT2: &str = r#"{"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 257, "n_positions": 64,
    "resid_pdrop": 0.1, "attn_pdrop": 0.1, "embd_pdrop": 0.1}"#;
/// Llama 3.2 1B, with the vocabulary of GPT-2.
const BILLION: &str = r#"{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 50304, "max_position_embeddings": 2048}"#;

/// The row that times a step of it.
const SPEED: &str = "step, Llama 1B, bf16";

/// Layouts of up to eight ranks.
const LAYOUTS: [(&str, &str, &str); 11] = [
    ("Llama", LLAMA, "dp=1"),
    ("GPT-2 with dropout", GPT2, "dp=2,tp=2"),
    ("Llama", LLAMA, "tp=2,sp=true"),
    ("Llama", LLAMA, "dp=2,zero=3"),
    ("Llama", LLAMA, "dp=2,zero=1,offload_optimizer=true"),
    ("Llama", LLAMA, "cp=2"),
    ("Llama", LLAMA, "cp=4,cp_kind=ring"),
    ("Llama", LLAMA, "pp=2,mbs=1,schedule=zb-h1"),
    ("Mixtral", MIXTRAL, "dp=2,ep=2"),
    ("Llama", LLAMA, "dp=2,tp=2,pp=2,zero=1,mbs=1"),
    ("Mixtral", MIXTRAL, "dp=2,tp=2,ep=2"),
];

/// Precisions below f32.
const NARROW: [&str; 4] = ["bf16", "fp8-delayed", "fp8-tensor", "fp8-block"];

/// Relative difference of sums of some thousand terms in other orders, a few in a row.
const CLOSE: f64 = 1e-5;

/// The loss and the norm of the gradient of each step.
type Curve = Vec<f64>;

/// Trains small models on the GPU and on the processor; `quick`: a few steps of two of them. A check that fails is a row.
pub fn check_training(device: usize, quick: bool, rows: &mut Rows<'_>) {
    for (name, model, parallel) in if quick { &LAYOUTS[..2] } else { &LAYOUTS[..] } {
        let steps = if quick { 2 } else { 10 };
        compared(rows, format!("training, {name}, f32"), parallel, || {
            let job = Job::new(model, parallel, "f32", steps)?;
            Ok((apart(&job.on_cpu()?, &job.on_gpu(device, true)?), CLOSE))
        });
    }
    let steps = if quick { 3 } else { 200 };
    compared(rows, "steps as graphs, bit for bit, and on the processor", &format!("{steps} steps"), || {
        let job = Job::new(LLAMA, "dp=1", "f32", steps)?;
        let (right, graph, eager) = (job.on_cpu()?, job.on_gpu(device, true)?, job.on_gpu(device, false)?);
        let other = Job::new(LLAMA, "tp=2", "f32", steps)?.on_cpu()?;
        // Rounding grows over steps: as much as it does on the processor when sums have another order.
        let bound = CLOSE + 8.0 * apart(&right, &other);
        Ok((if graph == eager { apart(&right, &graph) } else { f64::INFINITY }, bound))
    });
    for precision in if quick { &NARROW[..2] } else { &NARROW[..] } {
        compared(rows, format!("training, Llama, {precision}"), &format!("{steps} steps"), || {
            let [job, exact] = [precision, "f32"].map(|precision| Job::new(LLAMA, "dp=1", precision, steps));
            let (job, right) = (job?, exact?.on_cpu()?);
            let narrow = job.on_cpu()?;
            // Two orders of sums make some numbers round to neighbours, which changes no more than rounding itself: the GPU is as far from
            // the curve in f32 as the processor is, on any side of it.
            Ok((apart(&narrow, &job.on_gpu(device, true)?), 2.0 * apart(&right, &narrow)))
        });
    }
    if !quick {
        rows.check(SPEED, "4 sequences of 2048", "FLOP/s", || speed(device));
    }
}

/// A model to be trained.
struct Job {
    prepared: Prepared,
    steps: u64,
}

impl Job {
    fn new(model: &str, parallel: &str, precision: &str, steps: u64) -> Result<Job, Error> {
        Job::of(TrainRequest {
            model: model.to_string(),
            parallel: parallel.to_string(),
            precision: precision.to_string(),
            seq: 32,
            global_batch: 4,
            steps,
            ..TrainRequest::default()
        })
    }

    fn of(request: TrainRequest) -> Result<Job, Error> {
        let steps = request.steps;
        Ok(Job { prepared: prepare(&request, Given::default())?, steps })
    }

    fn devices(&self) -> usize {
        self.prepared.compiled.model.mesh.devices() as usize
    }

    fn on_cpu(&self) -> Result<Curve, Error> {
        let devices = self.devices();
        self.curve(&mut self.load(Threads::new(devices, kernel_threads(devices), None))?)
    }

    fn on_gpu(&self, device: usize, graphs: bool) -> Result<Curve, Error> {
        self.curve(&mut self.load(self.gpu(device)?.graphs(graphs))?)
    }

    fn gpu(&self, device: usize) -> Result<SharedGpu, Error> {
        SharedGpu::open(device, self.devices()).map_err(|why| super::no_gpu(&why))
    }

    fn load<P: Platform>(&self, platform: P) -> Result<Executor<P>, Error> {
        let compiled = &self.prepared.compiled;
        let program = compiled.program.as_ref().ok_or_else(|| Error::fault("compile", "there is no program"))?;
        Executor::load_on(platform, &compiled.model, program, &Options::default()).map_err(executor_error)
    }

    fn curve<P: Platform>(&self, executor: &mut Executor<P>) -> Result<Curve, Error> {
        let mut curve = Curve::new();
        for step in 1..=self.steps {
            let output = executor.step(self.input(step)).map_err(executor_error)?;
            curve.extend([output.loss, output.grad_norm].map(|number| f64::from(number.unwrap_or(f32::NAN))));
        }
        Ok(curve)
    }

    /// Sequences that a model can learn: most numbers follow from the one before.
    fn input(&self, step: u64) -> StepInput {
        let Prepared { feed, microbatches, .. } = &self.prepared;
        let Feed { sequences, seq, .. } = *feed;
        let batches = (0..*microbatches).map(|number| {
            let mut batch = Batch::default();
            for sequence in 0..sequences {
                let first = step * 7919 + u64::from(number) * 613 + sequence * 31;
                batch.tokens.extend((0..seq).map(|at| token(first, at)));
                batch.labels.extend((1..=seq).map(|at| token(first, at)));
                batch.positions.extend((0..seq).map(|at| at as i32));
                batch.segments.extend((0..seq).map(|_| 0));
            }
            batch
        });
        let mut input = feed.of_batches(batches);
        (input.step, input.update, input.lr) = (step, step, 1e-3);
        input
    }
}

/// The token at a place of the sequence that a number begins.
fn token(first: u64, at: u64) -> i32 {
    ((first + at / 7 * 37).wrapping_mul(2_654_435_761) % 11 * 20 + at % 7) as i32
}

/// Seconds of a step of a model of 1.1 billion parameters in bf16. Nothing is compared.
fn speed(device: usize) -> Result<Found, Error> {
    let job = Job::of(TrainRequest {
        model: BILLION.to_string(),
        precision: "bf16".to_string(),
        seq: 2048,
        global_batch: 4,
        mbs: Some(4),
        steps: 6,
        ..TrainRequest::default()
    })?;
    let mut executor = job.load(job.gpu(device)?)?;
    let mut best = f64::INFINITY;
    for step in 1..=job.steps {
        let (input, clock) = (job.input(step), Instant::now());
        executor.step(input).map_err(executor_error)?;
        best = best.min(clock.elapsed().as_secs_f64());
    }
    let flops = model_flops(&job.prepared.compiled.model) * f64::from(job.prepared.microbatches);
    let peak = Device::open(device).map_err(|why| super::no_gpu(&why))?.properties().peaks.bf16;
    Ok(Found::results(0.0, 0.0).at(flops / best, peak).noted(format!("{:.1} ms a step", 1e3 * best)))
}

/// The largest relative difference of two curves; no number where one has none.
fn apart(a: &Curve, b: &Curve) -> f64 {
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs() / a.abs().max(f64::MIN_POSITIVE));
    differences.fold(0.0, |most, one| if one > most || one.is_nan() { one } else { most })
}

/// A comparison as a row, from its error and bound.
fn compared(
    rows: &mut Rows<'_>,
    what: impl Into<String>,
    shape: &str,
    compare: impl FnOnce() -> Result<(f64, f64), Error>,
) {
    rows.check(what, shape, "FLOP/s", || compare().map(|(error, bound)| Found::results(error, bound)));
}
