//! The training loop.

use super::agreement::agree;
use super::backend::Place;
use super::checkpoint::{is_in, refused};
use super::comm::{Comm, decline, kernel_threads, sums};
use super::data::Sides;
use super::endings::{cancelled, ended, no_valid_loss, not_finite, without_data, without_data_elsewhere};
use super::expert_watch::ExpertWatch;
use super::faults::recorded;
use super::feed::{FedStep, Feed};
use super::first_weights::{FirstWeights, origin, unknown_keys};
use super::gpu;
use super::header::header;
use super::inject::Faults;
use super::loaded::Loaded;
use super::lock::{Fence, Lock};
use super::measure::Measure;
use super::outputs::{metrics_path, outputs, unwritable};
use super::prepare::{Given, Prepared, prepare};
use super::replicas::ReplicaCheck;
use super::report::{Progress, Routed, RunHeader, Signal, TrainReport, mean};
use super::request::TrainRequest;
use super::saving::{Saving, excused};
use super::stragglers::Stragglers;
use crate::error::Error;
use crate::metrics::{EvalRecord, MetricsWriter, StepRecord, losses};
use checkpoint::loss_scale::LossScale;
use checkpoint::{Before, Origin, Position, Save};
use codegen::buffers::assign_buffers;
use codegen::lower_forward;
use comm::Limits;
use compiler::precision::precision;
use cost::PROGRAM;
use data::DataError;
use data::packing::ExampleTokens;
use device::memory::run_has_begun;
use exec::{Executor, Options, Platform, StepInput, StepOutput, testing};
use ir::catalogue::Code;
use ir::graph::Model;
use ir::program::Program;
use ir::staged::Staged;
use ir::text::File;
use ir::verify;
use serde_json::Value;
use std::collections::VecDeque;
use std::io;
use std::thread;
use std::time::{Duration, Instant};
use transforms::evaluation::evaluation;

/// Name and version of the schema of a [`TrainReport`].
const SCHEMA: &str = "meshwright.train/1";

/// Trains a model. Reads the text, compiles the model, runs all steps and validations, and writes `run.toml`,
/// `metrics.jsonl` and checkpoints.
///
/// # Errors
/// The request is invalid or not supported, a rank failed, the loss is not finite, or a checkpoint cannot be read or
/// written.
pub fn train(request: &TrainRequest, progress: &mut dyn Progress) -> Result<TrainReport, Error> {
    let prepared = prepare(request, Given::default()).inspect_err(|why| decline(request, &why.message()))?;
    run(prepared, progress)
}

/// Trains on what a program has in memory: its fields in the request only name it.
///
/// # Errors
/// As [`train`].
pub fn train_given(given: Given, request: &TrainRequest, progress: &mut dyn Progress) -> Result<TrainReport, Error> {
    let prepared = prepare(request, given).inspect_err(|why| decline(request, &why.message()))?;
    run(prepared, progress)
}

/// Runs on what the request's backend names.
fn run(prepared: Prepared, progress: &mut dyn Progress) -> Result<TrainReport, Error> {
    let devices = prepared.compiled.model.mesh.devices() as usize;
    let comm = Comm::parse(&prepared.request.comm)?;
    comm.check(devices as u64, &prepared.request).inspect_err(|why| decline(&prepared.request, &why.message()))?;
    if comm == Comm::Nccl {
        return gpu::run_joined(prepared, devices, progress);
    }
    if prepared.request.backend == "cuda" {
        return gpu::run_shared(prepared, devices, progress);
    }
    let limits = Limits { silence: Duration::from_secs_f64(prepared.request.silence) };
    let (threads, place) = comm.place(devices, &prepared.request, progress)?;
    let threads = threads.limits(limits).sums(sums(prepared.request.sums.as_deref())?.unwrap_or_default());
    run_on(prepared, progress, threads, place)
}

/// Runs on a platform.
pub(super) fn run_on<P: Platform>(
    mut prepared: Prepared,
    progress: &mut dyn Progress,
    platform: P,
    place: Place,
) -> Result<TrainReport, Error> {
    let is_first = platform.is_first();
    platform.start().map_err(executor_error)?;
    let loaded = Loaded::read(&mut prepared, &place, platform.world());
    let Loaded { memory, data, fixed, lock, from } =
        agree(&platform, loaded, |loaded| loaded.facts(&prepared)).inspect_err(|_| platform.finish())?;
    let Prepared { request, source, parallel, compiled, feed, microbatches, weights, note, .. } = prepared;
    let samples = noted(&platform, data.samples(feed.seq as usize, feed.vocabulary, request.seed))?;
    run_has_begun();
    note.iter().filter(|_| is_first).for_each(|note| progress.noted(note));
    let memory = memory.arenas.saturating_add(memory.left.saturating_sub(data.bytes()));
    let (mut executor, measure) = load(platform, &place, &compiled, &request, microbatches, memory)?;
    if let Some(why) = executor.platform().eager().filter(|_| is_first) {
        progress.noted(&format!("steps run kernel by kernel, not as CUDA graphs: {why}"));
    }
    let loaded = from.iter().try_for_each(|from| from.load(&mut executor)).map_err(refused);
    let loaded = loaded.and_then(|()| Ok(weights.iter().try_for_each(|weights| weights.load(&mut executor))?));
    noted(executor.platform(), loaded)?;
    let header = header(&request, parallel, &compiled, &data, &feed, microbatches);
    let mut header = noted(executor.platform(), header)?;
    header.place = place.text;
    header.done = from.as_ref().map_or(0, |from| from.manifest.position.step);
    let origin = origin(&request, &source);
    header.unknown_keys = unknown_keys(&source, weights.as_deref());
    header.resumed = from.as_ref().map(|from| from.path.clone());
    header.weights = weights.as_deref().map(FirstWeights::of);
    let saved_origin = from.as_ref().and_then(|from| from.manifest.origin.clone());
    let origin = saved_origin.or(origin);
    let metrics = is_first.then(|| outputs(&request, header.parameters, from.as_ref())).transpose();
    let metrics = noted(executor.platform(), metrics)?;
    let consumed = from.as_ref().map_or(0, |from| from.manifest.position.consumed_samples);
    let skipped = from.as_ref().map_or(0, |from| from.manifest.position.skipped);
    let saved_scale = from.as_ref().and_then(|from| from.manifest.position.loss_scale);
    let loss_scale = LossScale::first(precision(&request.precision)?.dtype).map(|first| saved_scale.unwrap_or(first));
    let saved = from.filter(|from| is_in(from, &request.out)).map(|from| (from.manifest.position.step, from.path));
    let stragglers = {
        let processes = executor.platform().world().map_or(&[][..], |world| &world.processes);
        Stragglers::new(&compiled.model.mesh, processes)
    };
    let mut run = TrainingRun {
        faults: Faults::parse(request.inject.as_deref())?,
        replicas: ReplicaCheck::new(request.check_replicas),
        stragglers,
        experts: ExpertWatch::new(request.routing_every),
        fence: lock.as_ref().map(Lock::fence),
        request,
        feed,
        data: samples,
        executor,
        measure,
        metrics,
        microbatches,
        header,
        fixed,
        origin,
        samples: consumed,
        ahead: VecDeque::new(),
        skipped,
        loss_scale,
        saving: Saving::after(saved),
    };
    let report = match run.go(progress) {
        // All have saved, and end alike.
        Err(ended @ Error::Ended { .. }) => {
            run.executor.finish();
            return Err(ended);
        }
        Err(why) => {
            // Other processes have not failed alike, unless all have seen the same numbers.
            if run.is_alone() || why.code() == Some(Code::NotFinite) {
                let _ = run.saving.finish(&mut run.executor);
            }
            let why = recorded(why, run.executor.platform(), &run.request.out);
            return noted(run.executor.platform(), Err(why));
        }
        Ok(report) => report,
    };
    // All steps and checkpoints are on disk, so that a failed trace loses nothing else.
    run.measure.as_mut().map_or(Ok(()), |measure| measure.write(&run.request.out))?;
    run.executor.finish();
    Ok(report)
}

/// Notes an error for the other processes, which then hear why this one ends.
fn noted<T>(platform: &impl Platform, result: Result<T, Error>) -> Result<T, Error> {
    result.inspect_err(|why| platform.note_cause(&why.message()))
}

/// A loaded run.
struct TrainingRun<'a, P: Platform> {
    request: TrainRequest,
    feed: Feed,
    data: Sides<'a>,
    executor: Executor<P>,
    measure: Option<Measure>,
    /// None but in the first process.
    metrics: Option<MetricsWriter>,
    microbatches: u32,
    header: RunHeader,
    /// Options that checkpoints record, and that a resumed run must not change.
    fixed: Value,
    /// The model in the form of the hub, which checkpoints record.
    origin: Option<Origin>,
    /// Number of samples consumed.
    samples: u64,
    /// The inputs of the coming steps, which were read during the last ones.
    ahead: VecDeque<Result<FedStep, DataError>>,
    /// Steps so far whose update was skipped.
    skipped: u64,
    /// The loss scale of the next step, in f16.
    loss_scale: Option<LossScale>,
    saving: Saving,
    replicas: ReplicaCheck,
    stragglers: Stragglers,
    experts: ExpertWatch,
    /// Faults to test what finds them.
    faults: Faults,
    /// None but in the first process.
    fence: Option<Fence>,
}

impl<P: Platform> TrainingRun<'_, P> {
    fn go(&mut self, progress: &mut dyn Progress) -> Result<TrainReport, Error> {
        progress.started(&self.header);
        self.metrics.iter().flat_map(MetricsWriter::notes).for_each(|note| progress.noted(note));
        let clock = Instant::now();
        let (steps, done) = (self.request.steps, self.header.done);
        let path = metrics_path(&self.request.out);
        let before_last = steps - steps.div_ceil(10);
        let read = if self.metrics.is_some() { losses(&path, before_last, done) } else { Ok(Vec::new()) };
        let mut last_losses = read.map_err(|why| Error::file("read", &path, &why))?;
        let mut last_dropped: Vec<f64> = Vec::new();
        let (mut training, mut last_eval, mut valid_share, mut dropped_steps) = (0.0, None, 0.0, 0.0);
        // A checkpoint is saved before the validation of its step, so that a resumed run begins with that.
        for step in done..=steps {
            if step > done {
                self.executor.give_word(self.reason_to_end(progress), self.saving.is_busy());
                self.faults.before(step, &mut self.executor)?;
                let record = self.step(step, progress)?;
                self.faults.after(step, &mut self.executor)?;
                training += record.step_time_s;
                progress.step(&record);
                let slow = record.slowest.as_ref().and_then(|slowest| self.stragglers.note(slowest));
                slow.into_iter().chain(self.experts.notes()).for_each(|note| progress.noted(&note));
                self.replicas.after(step, &mut self.executor, &self.request.out)?;
                last_losses.extend((step > before_last && record.loss.is_finite()).then_some(record.loss));
                dropped_steps += record.dropped.unwrap_or(0.0);
                last_dropped.extend(record.dropped.filter(|_| step > before_last));
                self.saving.look(&mut self.executor, self.request.steps, progress)?;
                if is_due(step, self.request.save_every, steps) {
                    self.begin_save(step, progress)?;
                }
                self.write_trace(progress);
                self.heed(step, progress)?;
            }
            if step == steps || is_due(step, self.request.eval_every, steps) {
                let (record, share) = self.evaluate(step, progress)?;
                (last_eval, valid_share) = (Some(record), share);
            }
        }
        self.saving.finish(&mut self.executor).map_err(refused)?;
        let tokens = (steps - done) * self.header.tokens_per_step();
        let EvalRecord { valid_loss, perplexity, byte_perplexity, .. } =
            last_eval.ok_or_else(|| Error::fault("train", "the run ended without a validation"))?;
        Ok(TrainReport {
            schema: SCHEMA,
            run: self.header.clone(),
            train_loss: mean(&last_losses),
            dropped: mean(&last_dropped),
            dropped_choices: self.header.routing.map(|Routed { choices, .. }| {
                [(dropped_steps * choices as f64).round() as u64, (steps - done) * choices]
            }),
            skipped: self.skipped,
            valid_loss,
            perplexity,
            byte_perplexity,
            valid_share,
            below_bigram: self.header.bigram_entropy.map(|bigram| bigram - valid_loss),
            tokens,
            tokens_per_s: if tokens == 0 { 0.0 } else { tokens as f64 / training },
            seconds: clock.elapsed().as_secs_f64(),
            save_s: self.saving.seconds(),
            checkpoint: self.saving.last().filter(|(step, _)| *step > done).map(|(_, path)| path.clone()),
            out: self.request.out.clone(),
            profile: self.measure.as_ref().and_then(Measure::report),
        })
    }

    /// Runs one step and records it. A non-finite norm skips the update: of scaled losses, until the scale is 1, else within the
    /// request's budget. Without budget, and for a non-finite loss of an update that was done, the step is recorded before the run ends.
    fn step(&mut self, step: u64, progress: &mut dyn Progress) -> Result<StepRecord, Error> {
        let clock = Instant::now();
        let lr = self.header.learning_rate.at(step - 1);
        let read = self.ahead.pop_front();
        let input = read.unwrap_or_else(|| self.feed.step(&self.data.train, self.samples, self.microbatches, u64::MAX));
        let FedStep { mut input, repeated, has_examples } =
            input.map_err(|why| self.without_data(why, step - 1, progress))?;
        self.samples += self.request.global_batch;
        (input.lr, input.step, input.update) = (lr as f32, step, step - self.skipped);
        input.loss_scale = self.loss_scale.map_or(1.0, LossScale::factor);
        let data_wait_s = clock.elapsed().as_secs_f64();
        self.measure.iter().for_each(|measure| measure.before(step, &mut self.executor));
        let counted = input.valid_tokens;
        let output = self.compute(step, input)?;
        let skipped = output.is_skipped();
        let StepOutput { loss, further_loss, balance_loss, z_loss, grad_norm, dropped, .. } = output;
        let step_time_s = clock.elapsed().as_secs_f64();
        self.measure.iter_mut().try_for_each(|measure| measure.after(step, &mut self.executor))?;
        let routing = self.experts.routing(step, &self.executor.expert_counts().map_err(executor_error)?);
        let tokens = self.header.tokens_per_step();
        let tokens_per_s = tokens as f64 / step_time_s;
        let record = StepRecord {
            step,
            loss: f64::from(loss.ok_or_else(no_loss)?),
            further_loss: further_loss.map(f64::from),
            balance_loss: balance_loss.map(f64::from),
            z_loss: z_loss.map(f64::from),
            routing,
            grad_norm: f64::from(grad_norm.unwrap_or(f32::NAN)),
            dropped,
            lr,
            tokens_seen: step * tokens,
            examples: has_examples.then_some(ExampleTokens { real: tokens - repeated, counted }),
            tokens_per_s,
            tokens_per_s_per_device: tokens_per_s / self.header.devices as f64,
            step_time_s,
            data_wait_s,
            mfu: self.measure.as_ref().and_then(|measure| measure.mfu(step_time_s)),
            mem_peak_bytes: self.executor.arena_bytes().into_iter().max(),
            skipped,
            loss_scale: self.loss_scale.map(|scale| f64::from(scale.factor())),
            slowest: self.stragglers.slowest(&self.executor.own_seconds().collect::<Vec<_>>()),
        };
        self.fence.iter().try_for_each(Fence::check).map_err(|why| self.no_metrics(&why))?;
        let written = self.metrics.as_mut().map_or(Ok(()), |metrics| metrics.step(&record));
        written.map_err(|why| self.no_metrics(&why))?;
        let is_scaling = self.loss_scale.as_mut().is_some_and(|scale| scale.note(skipped));
        let others = self.skipped - self.loss_scale.map_or(0, |scale| scale.overflows - u64::from(is_scaling));
        if skipped && (is_scaling || others < self.request.skip_nonfinite) {
            self.skipped += 1;
        } else if skipped || !record.loss.is_finite() {
            return Err(not_finite(&record, self.skipped));
        }
        Ok(record)
    }

    /// Runs a step on the devices, and reads the inputs of the next ones meanwhile.
    fn compute(&mut self, step: u64, input: StepInput) -> Result<StepOutput, Error> {
        let TrainingRun { feed, data, executor, samples, microbatches, ahead, .. } = self;
        let wanted = AHEAD.min((self.request.steps - step) as usize);
        let (batch, first) = (self.request.global_batch, *samples);
        let missing = ahead.len() as u64..wanted as u64;
        let places = missing.map(|place| first + place * batch);
        let (output, next) = thread::scope(|scope| {
            // Where the system has no more threads, the next step reads its input itself.
            let reader = thread::Builder::new().spawn_scoped(scope, move || {
                places.map(|first| feed.step(&data.train, first, *microbatches, u64::MAX)).collect::<Vec<_>>()
            });
            (executor.step(input), reader.ok().and_then(|reader| reader.join().ok()))
        });
        ahead.extend(next.unwrap_or_default());
        output.map_err(executor_error)
    }

    /// The reason of this process to end the run after the coming step, of which the input is there: 0 for none.
    fn reason_to_end(&self, progress: &dyn Progress) -> u8 {
        match (reason_to_end(progress), self.ahead.get(1)) {
            (0, Some(Err(_))) => NO_DATA,
            (reason, _) => reason,
        }
    }

    /// Begins to save the checkpoint of a step. If that fails before the last step, the next step that saves tries again.
    fn begin_save(&mut self, step: u64, progress: &mut dyn Progress) -> Result<(), Error> {
        let late = self.saving.finish(&mut self.executor);
        excused(late, progress)?;
        match self.start_save(step) {
            Err(why) if step == self.request.steps => Err(refused(why)),
            begun => excused(begun, progress),
        }
    }

    /// Saves the checkpoint of a step, and waits for it.
    fn save(&mut self, step: u64, progress: &mut dyn Progress) -> Result<(), Error> {
        if self.saving.step() != Some(step) {
            let late = self.saving.finish(&mut self.executor);
            excused(late, progress)?;
            self.start_save(step).map_err(refused)?;
        }
        self.saving.finish(&mut self.executor).map_err(refused)
    }

    /// Begins to save the checkpoint of a step. Its records are on the disk before it is.
    fn start_save(&mut self, step: u64) -> Result<(), checkpoint::Error> {
        let seed = self.request.seed;
        let position = Position {
            step,
            skipped: self.skipped,
            loss_scale: self.loss_scale,
            consumed_samples: self.samples,
            epoch: self.data.train.windows().map_or(0, |windows| self.samples / windows),
            shuffle_seed: seed,
            rng_key: seed,
        };
        let (run, origin) = (self.request.out.as_path(), self.origin.as_ref());
        let keep_last = usize::try_from(self.request.keep_last).unwrap_or(usize::MAX);
        let order = Save { run, position, fixed: &self.fixed, origin, keep_last };
        let files = self.metrics.as_ref().map(MetricsWriter::file).zip(self.fence.clone());
        let before = files
            .map(|(records, fence)| -> Before { Box::new(move || records.sync_all().and_then(|()| fence.check())) });
        self.saving.begin(&mut self.executor, &order, before)
    }

    /// True if no other process takes part.
    fn is_alone(&self) -> bool {
        self.executor.platform().world().is_none()
    }

    /// Ends the run after a step with a checkpoint, if a signal or the caller asked for it, or of several processes those of any one
    /// before its last step.
    fn heed(&mut self, step: u64, progress: &mut dyn Progress) -> Result<(), Error> {
        let reason = if self.is_alone() { reason_to_end(progress) } else { self.executor.word() };
        if reason == 0 {
            return Ok(());
        }
        let signal = Signal::ALL.into_iter().find(|signal| signal.number() == reason);
        if self.saving.last().is_none_or(|(saved, _)| *saved != step) {
            self.save(step, progress)?;
        }
        Err(match (signal, reason) {
            (Some(signal), _) => ended(signal, step, &self.request),
            (None, NO_DATA) => self.lacking_data(step),
            (None, _) => cancelled(step, &self.request),
        })
    }

    /// The error of a run that ends since the data of the next step cannot be read, here or in another process.
    fn lacking_data(&mut self, step: u64) -> Error {
        match self.ahead.pop_front() {
            Some(Err(why)) => without_data(why, step, &self.request),
            _ => without_data_elsewhere(step, &self.request),
        }
    }

    /// Ends the run after a step because its data cannot be read. A run in one process saves that step first.
    fn without_data(&mut self, why: DataError, step: u64, progress: &mut dyn Progress) -> Error {
        let is_saved = self.saving.last().is_some_and(|(saved, _)| *saved == step);
        if self.is_alone() && step > self.header.done && !is_saved {
            let saved = self.save(step, progress);
            saved.unwrap_or_else(|why| progress.noted(&why.message()));
        }
        without_data(why, step, &self.request)
    }

    /// Writes the trace, if one is recorded. A failed write does not end the run; the end of the run retries.
    fn write_trace(&mut self, progress: &mut dyn Progress) {
        let Some(measure) = &mut self.measure else { return };
        if let Err(why) = measure.write(&self.request.out) {
            progress.noted(&format!("{}; the run continues and retries at its end", why.message()));
        }
    }

    fn no_metrics(&self, why: &io::Error) -> Error {
        unwritable("write", &metrics_path(&self.request.out), &self.request.out, why)
    }

    /// Validates. Returns the mean loss over valid held-out labels as recorded, and the share of the held-out part that was read.
    /// The request sets the number of batches, between steps and after the last one; they are spread over the part.
    fn evaluate(&mut self, step: u64, progress: &mut dyn Progress) -> Result<(EvalRecord, f64), Error> {
        let batch = u64::from(self.microbatches) * self.feed.sequences;
        let windows = self.data.valid.windows().unwrap_or(0);
        let all = windows.div_ceil(batch);
        let most = match step == self.request.steps {
            true => match self.request.final_eval_batches {
                Some(0) => all,
                Some(most) => most,
                None => self.request.steps.clamp(4, 256),
            },
            false => self.request.eval_batches.max(1),
        };
        let batches = all.min(most);
        progress.evaluating(batches);
        let (mut sum, mut tokens) = (0.0, 0);
        for number in 0..batches {
            self.heed(step, progress)?;
            let input = self.feed.step(&self.data.valid, number * all / batches * batch, self.microbatches, windows);
            let FedStep { input, .. } = input.map_err(|why| self.without_data(why, step, progress))?;
            let valid = input.valid_tokens;
            self.executor.give_word(reason_to_end(progress), self.saving.is_busy());
            let output = self.executor.eval(input).map_err(executor_error)?;
            self.saving.look(&mut self.executor, self.request.steps, progress)?;
            sum += f64::from(output.loss.ok_or_else(no_loss)?) * valid.max(1) as f64;
            tokens += valid;
            progress.batch_evaluated(number + 1);
        }
        let record = EvalRecord::new(step, sum / tokens.max(1) as f64, self.header.bytes_per_token);
        self.fence.iter().try_for_each(Fence::check).map_err(|why| self.no_metrics(&why))?;
        let written = self.metrics.as_mut().map_or(Ok(()), |metrics| metrics.eval(&record));
        written.map_err(|why| self.no_metrics(&why))?;
        progress.evaluated(&record);
        if record.valid_loss.is_finite() {
            Ok((record, batches as f64 / all.max(1) as f64))
        } else {
            Err(no_valid_loss(step, record.valid_loss))
        }
    }
}

/// The reason of a caller that cancels a run, which is the number of no signal.
const CANCELLED: u8 = u8::MAX;

/// The reason of a process that cannot read its data.
const NO_DATA: u8 = u8::MAX - 1;

/// Steps whose input is read ahead: processes that cannot read that of a step agree during the one before to save it and to end.
const AHEAD: usize = 2;

/// Returns whether something that is done at an interval of steps, and after the last, is due after this one.
fn is_due(step: u64, every: u64, last: u64) -> bool {
    step > 0 && every > 0 && (step == last || step.is_multiple_of(every))
}

/// The reason to end a run early: the number of a signal, or `CANCELLED`; 0 for nothing.
fn reason_to_end(progress: &dyn Progress) -> u8 {
    let cancelled = if progress.is_cancelled() { CANCELLED } else { 0 };
    progress.asked_to_end().map_or(cancelled, Signal::number)
}

/// Loads the executor of a compiled file, with the program of an evaluation, and the measurements.
fn load<P: Platform>(
    platform: P,
    place: &Place,
    compiled: &File,
    request: &TrainRequest,
    microbatches: u32,
    memory_limit: u64,
) -> Result<(Executor<P>, Option<Measure>), Error> {
    let (Some(staged), Some(program)) = (&compiled.staged, &compiled.program) else {
        return Err(Error::fault("compile", "there is no program"));
    };
    let forward = forward_only(&compiled.model, staged, program, microbatches, !request.no_fusion);
    let forward = noted(&platform, forward)?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let devices = compiled.model.mesh.devices() as usize;
    let threads = kernel_threads(devices);
    let (cores, is_first) = (cores.min(threads * devices), platform.is_first());
    let measure = noted(&platform, Measure::new(request, &compiled.model, program, place, cores, is_first))?;
    let record = measure.is_some();
    let TrainRequest { seed, poison, .. } = *request;
    let evaluation = Some(&forward);
    let Faults { slow, stuck, .. } = Faults::parse(request.inject.as_deref())?;
    let faults = testing::Faults { slow, stuck: stuck.map(|(step, rank)| (rank, step)) };
    let timeout = Duration::from_secs_f64(request.timeout);
    let async_threads = None;
    let options = Options { seed, threads, evaluation, async_threads, record, poison, memory_limit, timeout, faults };
    Ok((Executor::load_on(platform, &compiled.model, program, &options).map_err(executor_error)?, measure))
}

/// Generates the program of an evaluation: the forwards of the training program without dropout. The same checker runs
/// on it.
fn forward_only(
    model: &Model,
    staged: &Staged,
    training: &Program,
    microbatches: u32,
    fusion: bool,
) -> Result<Program, Error> {
    let forward = lower_forward(model, staged, microbatches, &PROGRAM);
    let mut forward = forward.map_err(|why| Error::fault("codegen", why))?;
    if fusion {
        codegen::fuse(model, &mut forward, &PROGRAM);
    }
    assign_buffers(model, &mut forward, Some(training));
    let found = verify::program::check(&evaluation(model), &forward, None).err();
    match found.and_then(|found| found.into_iter().next()) {
        Some(first) => Err(Error::fault("codegen", first)),
        None => Ok(forward),
    }
}

fn no_loss() -> Error {
    Error::input(Code::NotATextModel, "the model has no loss").help("mark a result of its last block as `loss`")
}

/// Converts an executor error to an error with code and fix.
pub(super) fn executor_error(error: exec::Error) -> Error {
    match error {
        exec::Error::RankFailure(failure) => Error::Failed {
            code: Code::RankFailed,
            message: failure.to_string(),
            help: match failure.is_stuck {
                true => {
                    "restart the run unchanged, or with --resume; if the rank was only slow, raise --timeout".into()
                }
                false => "restart the run unchanged, or with --resume".into(),
            },
        },
        exec::Error::Load(why) => Error::fault("load", why),
        exec::Error::Resources(_) => error.into(),
        exec::Error::Input(why) => Error::fault("feed", why),
    }
}
