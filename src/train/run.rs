//! The training loop.

use super::backend::check_ops;
use super::checkpoint::{find, fixed, is_in, refused};
use super::feed::Feed;
use super::lock::Lock;
use super::measure::Measure;
use super::prepare::{Prepared, prepare};
use super::report::{Progress, RunHeader, TrainReport};
use super::request::TrainRequest;
use super::room;
use crate::error::Error;
use cost::CPU;
use ir::catalogue::Code;
use ir::evaluation::evaluation;
use ir::goal::Layout;
use ir::graph::Model;
use ir::program::Program;
use ir::staged::{Stage, Staged};
use ir::text::File;
use ir::verify;
use runtime::checkpoint::{Checkpoint, Position, Save, clean, save};
use runtime::data::bigram::bigram_entropy;
use runtime::data::sampler::Sampler;
use runtime::data::text::TextData;
use runtime::exec::{self, Machine, Options, StepOutput};
use runtime::metrics::{EvalRecord, Header, MetricsWriter, StepRecord, losses};
use scheduler::emit::emit_forward;
use scheduler::memory::memory;
use serde_json::Value;
use std::fmt::Display;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The schema of a [`TrainReport`].
const SCHEMA: &str = "meshwright.train/1";

/// Trains a model as asked: reads the text, compiles the model, runs all steps and validations, writes `run.toml`,
/// `metrics.jsonl` and checkpoints.
///
/// # Errors
/// The request is wrong or cannot be had, a rank failed, the loss stopped being a number, or a checkpoint cannot be read or
/// written.
pub fn train(request: &TrainRequest, progress: &mut dyn Progress) -> Result<TrainReport, Error> {
    let Prepared { request, source, layout, compiled, feed, microbatches } = prepare(request)?;
    check(&compiled, &request)?;
    let data = TextData::load(&request.data, request.valid_fraction)?;
    let samplers = Samplers {
        train: Sampler::new(&data.train, feed.seq as usize, request.seed)?,
        valid: Sampler::in_order(&data.valid, feed.seq as usize)?,
    };
    let fixed = fixed(&request, &source, &data);
    let _lock = Lock::take(&request.out)?;
    let from = find(&request, &fixed)?;
    let (mut machine, measure) = load(&compiled, &request, microbatches)?;
    from.iter().try_for_each(|from| from.load(&mut machine)).map_err(refused)?;
    let mut header = header(&request, layout, &compiled, &data, &feed, microbatches);
    header.done = from.as_ref().map_or(0, |from| from.manifest.position.step);
    header.resumed = from.as_ref().map(|from| from.path.clone());
    let metrics = outputs(&request, header.parameters, from.as_ref())?;
    let samples = from.as_ref().map_or(0, |from| from.manifest.position.consumed_samples);
    let checkpoint = None;
    let mut run =
        Run { request, feed, samplers, machine, measure, metrics, microbatches, header, fixed, samples, checkpoint };
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
    /// What checkpoints say of the options.
    fixed: Value,
    /// Samples consumed.
    samples: u64,
    /// The last checkpoint saved.
    checkpoint: Option<PathBuf>,
}

impl Run<'_> {
    fn go(&mut self, progress: &mut dyn Progress) -> Result<TrainReport, Error> {
        progress.started(&self.header);
        let clock = Instant::now();
        let (steps, done) = (self.request.steps, self.header.done);
        let path = metrics_path(&self.request.out);
        let before_last = steps - steps.div_ceil(10);
        let mut last_losses = losses(&path, before_last, done).map_err(|why| Error::file("read", &path, &why))?;
        let mut last_dropped: Vec<f64> = Vec::new();
        let (mut training, mut valid_loss, mut valid_share) = (0.0, 0.0, 0.0);
        let due = |step: u64, every: u64| step > 0 && every > 0 && (step == steps || step.is_multiple_of(every));
        // A checkpoint is saved before the validation of its step, so that a resumed run begins with that.
        for step in done..=steps {
            if step > done {
                let record = self.step(step)?;
                training += record.step_time_s;
                progress.step(&record);
                last_losses.extend((step > before_last).then_some(record.loss));
                last_dropped.extend(record.dropped.filter(|_| step > before_last));
                if due(step, self.request.save_every) {
                    self.save(step)?;
                }
            }
            if step == steps || due(step, self.request.eval_every) {
                (valid_loss, valid_share) = self.evaluate(step, progress)?;
            }
        }
        let tokens = (steps - done) * self.header.tokens_per_step();
        Ok(TrainReport {
            schema: SCHEMA,
            run: self.header.clone(),
            train_loss: mean(&last_losses),
            dropped: mean(&last_dropped),
            valid_loss,
            valid_share,
            below_bigram: self.header.bigram_entropy.map(|bigram| bigram - valid_loss),
            tokens,
            tokens_per_s: if tokens == 0 { 0.0 } else { tokens as f64 / training },
            seconds: clock.elapsed().as_secs_f64(),
            checkpoint: self.checkpoint.clone(),
            out: self.request.out.clone(),
            profile: self.measure.as_ref().and_then(Measure::report),
        })
    }

    /// One step and its record. A loss that is no number is recorded before the run ends.
    fn step(&mut self, step: u64) -> Result<StepRecord, Error> {
        let clock = Instant::now();
        let lr = self.request.learning_rate().at(step - 1);
        let mut input = self.feed.step(&self.samplers.train, self.samples, self.microbatches, u64::MAX);
        self.samples += self.request.global_batch;
        (input.lr, input.step) = (lr as f32, step);
        let data_wait_s = clock.elapsed().as_secs_f64();
        let StepOutput { loss, grad_norm, dropped, .. } = self.machine.step(input).map_err(machine_error)?;
        let step_time_s = clock.elapsed().as_secs_f64();
        self.measure.iter_mut().try_for_each(|measure| measure.step(step, &self.machine))?;
        let tokens = self.header.tokens_per_step();
        let tokens_per_s = tokens as f64 / step_time_s;
        let record = StepRecord {
            step,
            loss: f64::from(loss.ok_or_else(no_loss)?),
            grad_norm: f64::from(grad_norm.unwrap_or(f32::NAN)),
            dropped,
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

    /// Saves a checkpoint, behind the records of all its steps.
    fn save(&mut self, step: u64) -> Result<(), Error> {
        let out = &self.request.out;
        self.metrics.sync().map_err(|why| Error::file("write", &metrics_path(out), &why))?;
        let seed = self.request.seed;
        let position = Position {
            step,
            consumed_samples: self.samples,
            epoch: self.samples / self.samplers.train.windows(),
            shuffle_seed: seed,
            rng_key: seed,
        };
        let keep_last = usize::try_from(self.request.keep_last).unwrap_or(usize::MAX);
        let order = Save { run: out, position, fixed: &self.fixed, keep_last };
        self.checkpoint = Some(save(&mut self.machine, &order).map_err(refused)?);
        Ok(())
    }

    /// The mean loss over valid held-out labels, and the share of the held-out part that it is over: as many batches as the
    /// request has between steps and after the last, spread over the part.
    fn evaluate(&mut self, step: u64, progress: &mut dyn Progress) -> Result<(f64, f64), Error> {
        let batch = u64::from(self.microbatches) * self.feed.sequences;
        let windows = self.samplers.valid.windows();
        let all = windows.div_ceil(batch);
        let most = match step == self.request.steps {
            true if self.request.final_eval_batches == 0 => all,
            true => self.request.final_eval_batches,
            false => self.request.eval_batches.max(1),
        };
        let batches = all.min(most);
        progress.evaluating(batches);
        let (mut sum, mut tokens) = (0.0, 0);
        for number in 0..batches {
            let input =
                self.feed.step(&self.samplers.valid, number * all / batches * batch, self.microbatches, windows);
            let valid = input.valid_tokens;
            let output = self.machine.eval(input).map_err(machine_error)?;
            sum += f64::from(output.loss.ok_or_else(no_loss)?) * valid.max(1) as f64;
            tokens += valid;
            progress.batch_evaluated(number + 1);
        }
        let record = EvalRecord { step, valid_loss: sum / tokens.max(1) as f64 };
        self.metrics.eval(&record).map_err(|why| Error::file("write", &metrics_path(&self.request.out), &why))?;
        progress.evaluated(&record);
        if record.valid_loss.is_finite() {
            Ok((record.valid_loss, batches as f64 / all.max(1) as f64))
        } else {
            Err(not_finite(step, record.valid_loss, 0.0))
        }
    }
}

/// Whether the machine has room for what was compiled, and the backend its ops.
fn check(compiled: &File, request: &TrainRequest) -> Result<(), Error> {
    compiled.program.iter().try_for_each(|program| {
        room::check(&compiled.model, program)?;
        check_ops(&request.backend, program)
    })
}

/// The machine for a compiled file, with its forward-only program beside it, and what it is measured by. The cores are dealt
/// out evenly to devices.
fn load(compiled: &File, request: &TrainRequest, microbatches: u32) -> Result<(Machine, Option<Measure>), Error> {
    let (Some(staged), Some(program)) = (&compiled.staged, &compiled.program) else {
        return Err(Error::fault("compile", "there is no program"));
    };
    let forward = forward_only(&compiled.model, staged, program, microbatches)?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let devices = compiled.model.mesh.devices() as usize;
    let threads = (cores / devices).max(1);
    let measure = Measure::new(request, &compiled.model, program, cores.min(threads * devices))?;
    let record = measure.is_some();
    let options = Options { seed: request.seed, threads, evaluation: Some(&forward), lanes: None, record };
    Ok((Machine::load(&compiled.model, program, &options).map_err(machine_error)?, measure))
}

/// What evaluates: the forwards of a training program without dropout, checked as that one was.
fn forward_only(model: &Model, staged: &Staged, training: &Program, microbatches: u32) -> Result<Program, Error> {
    let fault = |why: &dyn Display| Error::fault("emit", why);
    let mut forward = emit_forward(model, staged, microbatches, &CPU).map_err(|why| fault(&why))?;
    memory(model, &mut forward, Some(training));
    let found = verify::program::check(&evaluation(model), &forward, None).err();
    found.and_then(|found| found.into_iter().next()).map_or(Ok(forward), |first| Err(fault(&first)))
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
        done: 0,
        resumed: None,
        data: request.data.clone(),
        documents: data.documents as u64,
        train_tokens: data.train.tokens().len() as u64,
        valid_tokens: data.valid.tokens().len() as u64,
        bigram_entropy: bigram_entropy(&data.train, &data.valid),
    }
}

/// The blocks of each stage: `embed, layer[0..3]`. Those of all slices of a sequence are one.
fn stage_blocks(model: &Model, staged: &Staged) -> Vec<String> {
    staged.stages.iter().map(|stage| blocks(model, stage)).collect()
}

fn blocks(model: &Model, stage: &Stage) -> String {
    let mut blocks: Vec<(&str, Option<Range<u32>>)> = Vec::new();
    for part in &stage.parts {
        let call = &model.calls[part.call];
        let name = model.blocks[call.block].name.as_str();
        let name = match call.slice {
            Some(0) => name.strip_suffix(".0").unwrap_or(name),
            Some(_) => continue,
            None => name,
        };
        let range = call.repeat.as_ref().map(|_| call.index(part.instances.start)..call.index(part.instances.end));
        match (blocks.last_mut(), &range) {
            (Some((last, Some(before))), Some(range)) if *last == name && before.end == range.start => {
                before.end = range.end;
            }
            _ => blocks.push((name, range)),
        }
    }
    let text = |(name, range): &(&str, Option<Range<u32>>)| match range {
        Some(range) => format!("{name}[{}..{}]", range.start, range.end),
        None => (*name).to_string(),
    };
    blocks.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The output folder with `run.toml`, and the open `metrics.jsonl`, which goes on where the run does.
fn outputs(request: &TrainRequest, params: u64, from: Option<&Checkpoint>) -> Result<MetricsWriter, Error> {
    let out = &request.out;
    clean(out).map_err(|why| Error::file("clear", out, &why))?;
    let config = toml::to_string(request).map_err(|why| Error::input(Code::BadOption, format!("run.toml: {why}")))?;
    let config_hash = format!("{:016x}", fnv1a(config.as_bytes()));
    let header = Header { config_hash, version: env!("CARGO_PKG_VERSION").into(), params };
    let path = metrics_path(out);
    let metrics = match from.filter(|from| is_in(from, out)) {
        Some(from) => MetricsWriter::resume(&path, &header, from.manifest.position.step),
        None => MetricsWriter::create(&path, &header),
    };
    let metrics = metrics.map_err(|why| Error::file("write", &path, &why))?;
    // At once in its place: a resumed run takes its options from it.
    let (path, new) = (out.join("run.toml"), out.join("run.toml.new"));
    let written = fs::write(&new, &config).and_then(|()| fs::rename(&new, &path));
    written.map_err(|why| Error::file("write", &path, &why))?;
    Ok(metrics)
}

/// The mean, if there is one.
fn mean(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

fn metrics_path(out: &Path) -> PathBuf {
    out.join("metrics.jsonl")
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo), with its published offset and prime.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn no_loss() -> Error {
    Error::input(Code::NotATextModel, "the model has no loss").help("mark a result of its last block as `loss`")
}

/// The error of a machine as a user meets it.
pub(super) fn machine_error(error: exec::Error) -> Error {
    match error {
        exec::Error::Stopped(stopped) => Error::Failed {
            code: Code::RankFailed,
            message: stopped.to_string(),
            help: "the run may be started again as it was, or with --resume".into(),
        },
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
