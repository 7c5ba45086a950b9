//! The training loop.

use super::feed::Feed;
use super::measure::Measure;
use super::prepare::{Prepared, prepare};
use super::report::{Progress, RunHeader, TrainReport};
use super::request::TrainRequest;
use crate::error::Error;
use cost::CPU;
use ir::catalogue::Code;
use ir::goal::Layout;
use ir::graph::Model;
use ir::staged::Staged;
use ir::text::File;
use runtime::data::bigram::bigram_entropy;
use runtime::data::sampler::Sampler;
use runtime::data::text::TextData;
use runtime::exec::{self, Machine, Options, StepOutput};
use runtime::metrics::{EvalRecord, Header, MetricsWriter, StepRecord};
use scheduler::memory::memory;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// The schema of a [`TrainReport`].
const SCHEMA: &str = "meshwright.train/1";

/// Trains a model as asked: reads the text, compiles the model, runs all steps and validations, writes `run.toml` and
/// `metrics.jsonl`.
///
/// # Errors
/// The request is wrong or cannot be had, a rank failed, or the loss stopped being a number.
pub fn train(request: &TrainRequest, progress: &mut dyn Progress) -> Result<TrainReport, Error> {
    let Prepared { request, layout, compiled, feed, microbatches } = prepare(request)?;
    let data = TextData::load(&request.data, request.valid_fraction)?;
    let samplers = Samplers {
        train: Sampler::new(&data.train, feed.seq as usize, request.seed)?,
        valid: Sampler::in_order(&data.valid, feed.seq as usize)?,
    };
    let (machine, measure) = load(&compiled, &request, microbatches)?;
    let header = header(&request, layout, &compiled, &data, &feed, microbatches);
    let metrics = outputs(&request, header.parameters)?;
    let mut run = Run { request, feed, samplers, machine, measure, metrics, microbatches, header };
    run.go(progress)
}

/// Where samples come from.
struct Samplers<'a> {
    train: Sampler<'a>,
    valid: Sampler<'a>,
}

/// A run that is ready.
struct Run<'a> {
    request: TrainRequest,
    feed: Feed,
    samplers: Samplers<'a>,
    machine: Machine,
    measure: Option<Measure>,
    metrics: MetricsWriter,
    microbatches: u32,
    header: RunHeader,
}

impl Run<'_> {
    fn go(&mut self, progress: &mut dyn Progress) -> Result<TrainReport, Error> {
        progress.started(&self.header);
        let clock = Instant::now();
        let steps = self.request.steps;
        let (mut last_losses, mut training, mut valid_loss) = (Vec::new(), 0.0, 0.0);
        for step in 1..=steps {
            let record = self.step(step)?;
            training += record.step_time_s;
            progress.step(&record);
            if step + steps.div_ceil(10) > steps {
                last_losses.push(record.loss);
            }
            let every = self.request.eval_every;
            if step == steps || (every > 0 && step.is_multiple_of(every)) {
                valid_loss = self.evaluate(step, progress)?;
            }
        }
        let tokens = steps * self.header.tokens_per_step();
        Ok(TrainReport {
            schema: SCHEMA,
            run: self.header.clone(),
            train_loss: last_losses.iter().sum::<f64>() / last_losses.len() as f64,
            valid_loss,
            below_bigram: self.header.bigram_entropy.map(|bigram| bigram - valid_loss),
            tokens,
            tokens_per_s: tokens as f64 / training,
            seconds: clock.elapsed().as_secs_f64(),
            out: self.request.out.clone(),
            profile: self.measure.as_ref().and_then(Measure::report),
        })
    }

    /// One step and its record. A loss that is no number is recorded before the run ends.
    fn step(&mut self, step: u64) -> Result<StepRecord, Error> {
        let clock = Instant::now();
        let lr = self.request.learning_rate().at(step - 1);
        let first = (step - 1) * self.request.global_batch;
        let mut input = self.feed.step(&self.samplers.train, first, self.microbatches, u64::MAX);
        (input.lr, input.step) = (lr as f32, step);
        let data_wait_s = clock.elapsed().as_secs_f64();
        let StepOutput { loss, grad_norm, .. } = self.machine.step(input).map_err(machine_error)?;
        let step_time_s = clock.elapsed().as_secs_f64();
        self.measure.iter_mut().try_for_each(|measure| measure.step(step, &self.machine))?;
        let tokens = self.header.tokens_per_step();
        let tokens_per_s = tokens as f64 / step_time_s;
        let record = StepRecord {
            step,
            loss: f64::from(loss.ok_or_else(no_loss)?),
            grad_norm: f64::from(grad_norm.unwrap_or(f32::NAN)),
            lr,
            tokens_seen: step * tokens,
            tokens_per_s,
            tokens_per_s_per_device: tokens_per_s / self.header.devices as f64,
            step_time_s,
            data_wait_s,
            mfu: self.measure.as_ref().and_then(|measure| measure.mfu(step_time_s)),
            mem_peak_bytes: self.machine.arena_bytes().into_iter().max(),
            skipped: false,
        };
        self.metrics.step(&record).map_err(|why| Error::file("write", &metrics_path(&self.request.out), &why))?;
        if !record.loss.is_finite() || grad_norm.is_some_and(|norm| !norm.is_finite()) {
            return Err(not_finite(step, record.loss, record.grad_norm));
        }
        Ok(record)
    }

    /// The mean loss over the valid held-out labels: some batches between steps, spread over the part, all after the last.
    fn evaluate(&mut self, step: u64, progress: &mut dyn Progress) -> Result<f64, Error> {
        let batch = u64::from(self.microbatches) * self.feed.sequences;
        let windows = self.samplers.valid.windows();
        let all = windows.div_ceil(batch);
        let batches = if step == self.request.steps { all } else { all.min(self.request.eval_batches.max(1)) };
        progress.evaluating(batches);
        let (mut sum, mut tokens) = (0.0, 0);
        for number in 0..batches {
            let input =
                self.feed.step(&self.samplers.valid, number * all / batches * batch, self.microbatches, windows);
            let valid = input.valid_tokens;
            let output = self.machine.eval(input).map_err(machine_error)?;
            sum += f64::from(output.loss.ok_or_else(no_loss)?) * valid.max(1) as f64;
            tokens += valid;
        }
        let record = EvalRecord { step, valid_loss: sum / tokens.max(1) as f64 };
        self.metrics.eval(&record).map_err(|why| Error::file("write", &metrics_path(&self.request.out), &why))?;
        progress.evaluated(&record);
        if record.valid_loss.is_finite() {
            Ok(record.valid_loss)
        } else {
            Err(not_finite(step, record.valid_loss, 0.0))
        }
    }
}

/// The machine for a compiled file, with its forward-only program beside it, and what it is measured by. The cores are dealt
/// out evenly to devices.
fn load(compiled: &File, request: &TrainRequest, microbatches: u32) -> Result<(Machine, Option<Measure>), Error> {
    let (Some(staged), Some(program)) = (&compiled.staged, &compiled.program) else {
        return Err(Error::fault("compile", "there is no program"));
    };
    let forward = scheduler::emit::emit_forward(&compiled.model, staged, microbatches, &CPU);
    let mut forward = forward.map_err(|why| Error::fault("emit", why))?;
    memory(&compiled.model, &mut forward, Some(program));
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let devices = compiled.model.mesh.devices() as usize;
    let threads = (cores / devices).max(1);
    let measure = Measure::new(request, &compiled.model, program, cores.min(threads * devices))?;
    let record = measure.is_some();
    let options = Options { seed: request.seed, threads, evaluation: Some(&forward), lanes: None, record };
    Ok((Machine::load(&compiled.model, program, &options).map_err(machine_error)?, measure))
}

fn header(
    request: &TrainRequest,
    layout: Layout,
    compiled: &File,
    data: &TextData,
    feed: &Feed,
    microbatches: u32,
) -> RunHeader {
    let model = &compiled.model;
    let axes: Vec<String> = model.mesh.axes.values().map(|axis| format!("{}={}", axis.name, axis.size)).collect();
    let stages = compiled.staged.as_ref().map_or_else(Vec::new, |staged| stage_blocks(model, staged));
    RunHeader {
        model: request.model.clone(),
        parameters: model.parameter_count(),
        devices: model.mesh.devices(),
        mesh: axes.join(" "),
        layout,
        stages,
        microbatches,
        global_batch: request.global_batch,
        seq: feed.seq,
        steps: request.steps,
        data: request.data.clone(),
        documents: data.documents as u64,
        train_tokens: data.train.tokens().len() as u64,
        valid_tokens: data.valid.tokens().len() as u64,
        bigram_entropy: bigram_entropy(&data.train, &data.valid),
    }
}

/// The blocks of each stage: `embed, layer[0..3]`.
fn stage_blocks(model: &Model, staged: &Staged) -> Vec<String> {
    let part = |part: &ir::staged::Part| {
        let call = &model.calls[part.call];
        let name = &model.blocks[call.block].name;
        let range = &part.instances;
        if call.repeat.is_some() { format!("{name}[{}..{}]", range.start, range.end) } else { name.clone() }
    };
    let stage = |stage: &ir::staged::Stage| stage.parts.iter().map(part).collect::<Vec<_>>().join(", ");
    staged.stages.iter().map(stage).collect()
}

/// The output folder with `run.toml`, and the open `metrics.jsonl`.
fn outputs(request: &TrainRequest, params: u64) -> Result<MetricsWriter, Error> {
    let out = &request.out;
    fs::create_dir_all(out).map_err(|why| Error::file("create", out, &why))?;
    let config = toml::to_string(request).map_err(|why| Error::input(Code::BadOption, format!("run.toml: {why}")))?;
    let path = out.join("run.toml");
    fs::write(&path, &config).map_err(|why| Error::file("write", &path, &why))?;
    let config_hash = format!("{:016x}", fnv1a(config.as_bytes()));
    let header = Header { config_hash, version: env!("CARGO_PKG_VERSION").into(), params };
    let path = metrics_path(out);
    MetricsWriter::create(&path, &header).map_err(|why| Error::file("write", &path, &why))
}

fn metrics_path(out: &Path) -> std::path::PathBuf {
    out.join("metrics.jsonl")
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo), with its published offset and prime.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn no_loss() -> Error {
    Error::input(Code::NotATextModel, "the model has no loss").help("mark a result of its last block as `loss`")
}

fn machine_error(error: exec::Error) -> Error {
    match error {
        exec::Error::Stopped(stopped) => Error::Failed { code: Code::RankFailed, message: stopped.to_string() },
        exec::Error::Load(why) => Error::fault("load", why),
        exec::Error::Input(why) => Error::fault("feed", why),
    }
}

fn not_finite(step: u64, loss: f64, norm: f64) -> Error {
    Error::Hopeless {
        code: Code::NotFinite,
        message: format!("step {step}: the loss is {loss}, the gradient norm {norm}"),
        help: "lower --lr, lengthen --warmup or set --clip; the run would end the same way again".into(),
    }
}
