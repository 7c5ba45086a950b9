//! All ranks of a program as threads of this process, and the operations that a caller can request.

use super::Error;
use super::clocks::{ClockedTimeline, ROUNDS, align};
use super::decode::decode;
use super::feeds::Feeds;
use super::load::{RankView, catalogue, load_ranks};
use super::mailbox::TimedOut;
use super::merge::merge;
use super::platform::{Platform, Threads};
use super::progress::{Stuck, Watch};
use super::rank::{Answer, Command, Placed, RankState, RankThread, Visit, Wanted};
use super::status::{Out, Status};
use super::stuck_text::stuck_text;
use super::testing::Faults;
use crate::state::{GlobalTensor, Role, StatePieces, gather, key};
use comm::RankFailure;
use ir::graph::{GRADIENT, LossMean, Model, is_record, layer_of_counts};
use ir::ids::ModelValue;
use ir::program::Program;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use trace::{Trace, TraceProcess};
use tracing::{debug_span, trace_span};

/// How a program is run.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Seed of the initial parameters and of dropout.
    pub seed: u64,
    /// Threads that the kernels of one device may use.
    pub threads: usize,
    /// A forward-only program of the same model, for [`Executor::eval`].
    pub evaluation: Option<&'a Program>,
    /// True if each device has a second thread for its async worker; `None`: if cores are free. Results are identical to
    /// the bit.
    pub async_threads: Option<bool>,
    /// True if the events of steps are recorded, for [`Executor::trace`]; [`Executor::set_recording`] says of which.
    pub record: bool,
    /// True if memory is filled with NaN when the program frees it, so that late reads show. Results are identical to the bit.
    pub poison: bool,
    /// Limit on the bytes of all ranks together.
    pub memory_limit: u64,
    /// Time at one instruction after which a rank is stuck. A rank gets 20 times its longest instruction so far if that is more, and at
    /// least five minutes in the first step and the first evaluation.
    pub timeout: Duration,
    /// Faults that ranks are told to have.
    #[doc(hidden)]
    pub faults: Faults,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            seed: 0,
            threads: 1,
            evaluation: None,
            async_threads: None,
            record: false,
            poison: false,
            memory_limit: u64::MAX,
            timeout: Duration::from_secs(60),
            faults: Faults::default(),
        }
    }
}

/// An input of a micro-batch: the whole tensor, row-major.
#[derive(Clone, PartialEq, Debug)]
pub enum Input {
    /// Tokens, positions, segments, labels.
    Ints(Vec<i32>),
    /// Numbers.
    Floats(Vec<f32>),
}

/// The inputs of one micro-batch.
pub type Inputs = BTreeMap<ModelValue, Input>;

/// Input of a step.
#[derive(Clone, PartialEq, Debug)]
pub struct StepInput {
    /// One for each micro-batch of the program.
    pub microbatches: Vec<Inputs>,
    /// Tokens of all micro-batches that count in the loss.
    pub valid_tokens: u64,
    /// Factor of the loss before differentiation: a power of two in f16, else 1. Updates multiply by its reciprocal.
    pub loss_scale: f32,
    /// The learning rate.
    pub lr: f32,
    /// The number of the step, from 1.
    pub step: u64,
    /// The number of the update, from 1. Steps whose update was skipped do not count.
    pub update: u64,
}

impl StepInput {
    /// The cotangent of summed losses: `loss_scale` over what their mean is of, 0 where that is nothing.
    pub(super) fn loss_cotangent(&self, mean: LossMean) -> f32 {
        let count = match mean {
            LossMean::Labels => self.valid_tokens,
            LossMean::Microbatches => self.microbatches.len() as u64,
        };
        if count == 0 { 0.0 } else { self.loss_scale / count as f32 }
    }
}

/// Report of a step.
#[derive(Clone, PartialEq, Debug)]
pub struct StepOutput {
    /// The mean loss of the valid tokens, before the update; none if the program reports no `loss`.
    pub loss: Option<f32>,
    /// Mean loss of the layers that predict further tokens, times their factor; `None` for a model without such layers.
    pub further_loss: Option<f32>,
    /// Mean over micro-batches of the losses of uneven routing, all layers together; `None` of a model without them.
    pub balance_loss: Option<f32>,
    /// The same of the losses of large router logits.
    pub z_loss: Option<f32>,
    /// The norm of all gradients before clipping; none if the program reports no `norm`.
    pub grad_norm: Option<f32>,
    /// Share of the choices of experts that were dropped because the expert was full; `None` without choices.
    pub dropped: Option<f64>,
    /// All that the program reports, by name; losses are sums over tokens.
    pub outs: BTreeMap<String, f32>,
}

impl StepOutput {
    /// True if the gradient's norm was not finite, so that no parameter and no state changed.
    pub fn is_skipped(&self) -> bool {
        self.grad_norm.is_some_and(|norm| !norm.is_finite())
    }
}

/// Numbers of the rank programs.
pub(super) const TRAINING: usize = 0;
pub(super) const EVALUATION: usize = 1;

/// Executor of a loaded program, on the ranks of this process. With several processes, each calls the same methods in the same order.
/// All methods but [`visit`](Executor::visit) return results for all ranks.
pub struct Executor<P: Platform = Threads> {
    model: Model,
    /// The programs of a training step and of an evaluation.
    programs: Vec<Program>,
    training: Feeds,
    evaluation: Option<Feeds>,
    /// Elements of each persistent tensor.
    catalogue: BTreeMap<String, u64>,
    platform: P,
    ranks: Vec<RankThread>,
    /// Per rank.
    views: Vec<RankView<P::Communicator>>,
    watch: Watch,
    failed: Option<RankFailure>,
    /// The loss scale of the last step, which its gradients have.
    loss_scale: f32,
    /// True if the events of the coming steps are recorded.
    is_recording: bool,
    /// When the last step began.
    began: Instant,
    /// Rounds in which all processes met before the last step.
    rounds: Vec<[Instant; 2]>,
    /// The word that this process shares in each step, and what came of those of all in the last one.
    own_word: Word,
    common_word: Word,
    /// Seconds of the last step in which each rank did not wait for others.
    seconds: Vec<(u32, f32)>,
}

/// A word that processes share in each step: a number, the largest of all, and whether one is busy with other work.
#[derive(Clone, Copy, Default)]
struct Word {
    number: u8,
    is_busy: bool,
}

impl Executor {
    /// Loads a program on all devices of the model's mesh, as threads of this process, and sets parameters to their initial values.
    ///
    /// # Errors
    /// The program is broken, or the backend cannot run it.
    pub fn load(model: &Model, program: &Program, options: &Options<'_>) -> Result<Executor, Error> {
        let devices = model.mesh.devices() as usize;
        let platform = Threads::new(devices, options.threads, options.async_threads);
        Executor::load_on(platform, model, program, options)
    }
}

impl<P: Platform> Executor<P> {
    /// Loads a program on all ranks of a platform and sets parameters to their initial values.
    ///
    /// # Errors
    /// The program is broken, or the platform cannot run it.
    pub fn load_on(platform: P, model: &Model, program: &Program, options: &Options<'_>) -> Result<Executor<P>, Error> {
        let devices = model.mesh.devices() as usize;
        let _span = debug_span!("load", devices).entered();
        let loaded = load_ranks(&platform, model, program, options);
        let (workers, views) = loaded.inspect_err(|why| platform.note_cause(&why.to_string()))?;
        platform.join()?;
        let catalogue = agree(&platform, catalogue(&workers), program)?;
        let mut threads = Vec::with_capacity(workers.len());
        for (place, worker) in workers.into_iter().enumerate() {
            let of = Placed { rank: platform.ranks()[place], place, ranks: platform.ranks().len() };
            threads.push(RankThread::start(of, worker)?);
        }
        let mut executor = Executor {
            model: model.clone(),
            programs: [program].into_iter().chain(options.evaluation).cloned().collect(),
            training: Feeds::of(model, program)?,
            evaluation: options.evaluation.map(|program| Feeds::of(model, program)).transpose()?,
            catalogue,
            platform,
            ranks: threads,
            watch: Watch::new(options.timeout, views.iter().map(|view| view.notes.clone())),
            views,
            failed: None,
            loss_scale: 1.0,
            is_recording: options.record,
            began: Instant::now(),
            rounds: Vec::new(),
            own_word: Word::default(),
            common_word: Word::default(),
            seconds: Vec::new(),
        };
        executor.ask(&Command::Reset(options.seed))?;
        Ok(executor)
    }

    /// Runs a training step.
    ///
    /// # Errors
    /// The inputs are not those of the model, or a rank failed.
    pub fn step(&mut self, input: StepInput) -> Result<StepOutput, Error> {
        let _span = trace_span!("step").entered();
        self.training.check(&input)?;
        self.loss_scale = input.loss_scale;
        self.run(TRAINING, input)
    }

    /// Runs the forward-only program. Returns its loss and changes no parameter or state.
    ///
    /// # Errors
    /// No forward-only program was loaded, the inputs are not those of the model, or a rank failed.
    pub fn eval(&mut self, input: StepInput) -> Result<StepOutput, Error> {
        let feeds = self.evaluation.as_ref();
        let feeds = feeds.ok_or_else(|| Error::Input("no program for evaluation was loaded".to_string()))?;
        feeds.check(&input)?;
        self.run(EVALUATION, input)
    }

    /// The parameters by instance name.
    ///
    /// # Errors
    /// A rank failed earlier.
    pub fn export_params(&mut self) -> Result<BTreeMap<String, GlobalTensor>, Error> {
        self.export(|slot| slot.role == Role::Param)
    }

    /// The tokens that each expert got in the last step, by the layer's name in parameters; empty of a model that notes none.
    ///
    /// # Errors
    /// A rank failed earlier.
    pub fn expert_counts(&mut self) -> Result<BTreeMap<String, Vec<f32>>, Error> {
        if !self.catalogue.keys().any(|name| layer_of_counts(name).is_some()) {
            return Ok(BTreeMap::new());
        }
        let counts = self.export(|slot| slot.role == Role::Param && layer_of_counts(&slot.name).is_some())?;
        let named =
            counts.into_iter().filter_map(|(name, whole)| Some((layer_of_counts(&name)?.to_string(), whole.data)));
        Ok(named.collect())
    }

    /// Parameters and optimizer states: all that a checkpoint needs. States are named `<param>.<state>`.
    ///
    /// # Errors
    /// A rank failed earlier.
    pub fn export_state(&mut self) -> Result<BTreeMap<String, GlobalTensor>, Error> {
        self.export(|slot| slot.role != Role::Gradient)
    }

    /// The gradients of the last step by the parameter's instance name, summed over micro-batches and ranks, before
    /// clipping and without the loss scale.
    ///
    /// # Errors
    /// A rank failed earlier.
    pub fn gradients(&mut self) -> Result<BTreeMap<String, GlobalTensor>, Error> {
        let mut gradients = self.export(|slot| slot.role == Role::Gradient)?;
        // Records are not scaled.
        let scaled = gradients.iter_mut().filter(|(name, _)| !is_record(name.trim_end_matches(GRADIENT)));
        let numbers = scaled.flat_map(|(_, whole)| &mut whole.data);
        numbers.for_each(|number| *number /= self.loss_scale);
        let gradients = gradients.into_iter();
        Ok(gradients.map(|(name, whole)| (name.trim_end_matches(GRADIENT).to_string(), whole)).collect())
    }

    /// Sets parameters and states to entire tensors, given by name. Other tensors stay.
    ///
    /// # Errors
    /// A name or a size is not the model's, or a rank failed earlier.
    pub fn import_params(&mut self, tensors: BTreeMap<String, Vec<f32>>) -> Result<(), Error> {
        for (name, data) in &tensors {
            let elements = self.catalogue.get(name).ok_or_else(|| Error::Input(format!("there is no `{name}`")))?;
            if data.len() as u64 != *elements {
                return Err(Error::Input(format!("`{name}` has {elements} elements, not {}", data.len())));
            }
        }
        self.ask(&Command::Import(Arc::new(tensors)))?;
        Ok(())
    }

    /// The platform.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// Ends the executor after all processes have finished. Dropping a multi-process executor without calling `finish` reports a failure
    /// to the others.
    pub fn finish(mut self) {
        // The ranks end first, and with them their recordings, which use what joins them.
        self.ranks.clear();
        self.platform.finish();
    }

    /// Exchanges bytes between processes: sends `own` to all, and returns those of each process. All call it in the same order.
    ///
    /// # Errors
    /// A rank failed.
    pub fn share(&mut self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, Error> {
        match &self.failed {
            Some(failure) => Err(failure.clone().into()),
            None => self.platform.share(own).map_err(|failure| self.failed.insert(failure).clone().into()),
        }
    }

    /// Sets the number that this process shares with all in the next step or evaluation, and whether it is busy with other work.
    pub fn give_word(&mut self, word: u8, is_busy: bool) {
        self.own_word = Word { number: word, is_busy };
    }

    /// The largest number that a process has shared in the last step or evaluation.
    pub fn word(&self) -> u8 {
        self.common_word.number
    }

    /// True if a process was busy before the last step or evaluation.
    pub fn is_busy(&self) -> bool {
        self.common_word.is_busy
    }

    /// Seconds of the last step or evaluation in which each rank did not wait for others, by rank and over all processes.
    pub fn own_seconds(&self) -> impl Iterator<Item = (usize, f64)> {
        self.seconds.iter().map(|&(rank, seconds)| (rank as usize, f64::from(seconds)))
    }

    /// Runs a function on the persistent tensors of each rank of this process, on all ranks at a time. Returns the results by rank.
    ///
    /// # Errors
    /// A rank failed earlier, or panicked.
    pub fn visit<T: Send + 'static>(
        &mut self,
        what: impl Fn(usize, &mut RankState<'_>) -> T + Send + Sync + 'static,
    ) -> Result<Vec<T>, Error> {
        let visit: Visit = Arc::new(move |rank, kept| Box::new(what(rank, kept)));
        let answers = self.ask(&Command::Visit(visit))?.into_iter();
        let found = answers.filter_map(|answer| match answer {
            Answer::Found(found) => found.downcast::<T>().ok(),
            _ => None,
        });
        Ok(found.map(|found| *found).collect())
    }

    /// Bytes of the arena of each rank of this process: all the memory that its tensors ever use.
    pub fn arena_bytes(&self) -> Vec<u64> {
        self.views.iter().map(|view| view.arena_bytes as u64).collect()
    }

    /// Sets whether the events of the next steps are recorded, if [`Options::record`] is set. Results are identical to the bit.
    pub fn set_recording(&mut self, is_recording: bool) {
        self.is_recording = is_recording;
    }

    /// Trace of the last training step of the loaded program and model on the ranks of this process; empty if no events were recorded.
    pub fn trace(&self, model: &Model, program: &Program) -> Trace {
        let trace = merge(vec![decode(model, program, &self.views, self.began)]);
        Trace { note: self.platform.trace_note().to_string(), ..trace }
    }

    /// Trace of the last training step on the ranks of all processes, by the clock of the first process, which alone gets it. All
    /// processes call it.
    ///
    /// # Errors
    /// A rank failed.
    pub fn trace_of_all(&mut self, model: &Model, program: &Program) -> Result<Option<Trace>, Error> {
        let Some(world) = self.platform.world().cloned() else { return Ok(Some(self.trace(model, program))) };
        let mut rounds = std::mem::take(&mut self.rounds);
        rounds.extend(self.meet()?);
        let rounds = rounds.into_iter().map(|round| round.map(|at| seconds_between(self.began, at))).collect();
        let own = ClockedTimeline { rounds, timeline: decode(model, program, &self.views, self.began) };
        let all = self.share(serde_json::to_vec(&own).map_err(|_| other_version())?)?;
        if world.me > 0 {
            return Ok(None);
        }
        let all = all.iter().map(|bytes| serde_json::from_slice(bytes)).collect::<Result<_, _>>();
        let all = all.map_err(|_| other_version())?;
        let processes = world.processes.into_iter().map(|process| TraceProcess {
            host: process.host,
            ranks: process.ranks.into_iter().map(|rank| rank as u64).collect(),
        });
        let processes = processes.collect();
        Ok(Some(Trace { processes, note: self.platform.trace_note().to_string(), ..merge(align(all)) }))
    }

    /// Meets all processes in several rounds. Returns, for each, the time at which this process entered and that at which all had.
    fn meet(&mut self) -> Result<Vec<[Instant; 2]>, Error> {
        let mut rounds = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let entered = Instant::now();
            self.share(Vec::new())?;
            rounds.push([entered, Instant::now()]);
        }
        Ok(rounds)
    }

    /// Runs a training step whose arena is filled with NaN except for resident tensors, so that reads before a write show. Returns
    /// for each rank the bytes of its arena up to the last byte that was written.
    ///
    /// # Errors
    /// As [`step`](Executor::step).
    pub fn step_on_poison(&mut self, input: StepInput) -> Result<(StepOutput, Vec<u64>), Error> {
        self.visit(|_, kept| kept.poison())?;
        let output = self.step(input)?;
        Ok((output, self.visit(|_, kept| kept.used())?))
    }

    fn export(&mut self, wanted: Wanted) -> Result<BTreeMap<String, GlobalTensor>, Error> {
        let answers = self.ask(&Command::Export(wanted))?;
        let mut own = Vec::new();
        for (&rank, answer) in self.platform.ranks().iter().zip(answers) {
            let Answer::Parts(parts) = answer else { continue };
            own.extend(parts.into_iter().map(|part| StatePieces::of(&self.model.mesh, rank, part)));
        }
        let mut all = match self.platform.world() {
            None => own,
            Some(_) => {
                let bytes = own.iter().flat_map(StatePieces::write).collect();
                self.share(bytes)?.iter().flat_map(|bytes| StatePieces::read_all(bytes)).collect()
            }
        };
        all.sort_by_key(|pieces: &StatePieces| pieces.rank);
        Ok(gather(all))
    }

    fn run(&mut self, row: usize, input: StepInput) -> Result<StepOutput, Error> {
        let (valid_tokens, microbatches) = (input.valid_tokens.max(1) as f32, input.microbatches.len().max(1) as f32);
        self.platform.ranks().iter().for_each(|&rank| self.platform.enter(rank, input.step));
        let is_recorded = row == TRAINING && self.is_recording;
        for recorder in self.views.iter().flat_map(|view| &view.recorders).flatten() {
            recorder.set_on(is_recorded);
            if row == TRAINING {
                recorder.clear();
            }
        }
        if is_recorded {
            if self.platform.world().is_some() {
                self.rounds = self.meet()?;
            }
            self.began = self.platform.start_clock()?;
        }
        self.ask(&Command::Run(row, Arc::new(input)))?;
        let mut status = self.report(row);
        if self.platform.world().is_some() {
            let all = self.share(status.write())?;
            let all = all.iter().map(|one| Status::read(one)).collect::<Option<Vec<_>>>();
            status = Status::merge(all.ok_or_else(other_version)?);
        }
        self.common_word = Word { number: status.word, is_busy: status.is_busy };
        self.seconds = status.seconds;
        let [chosen, dropped] = status.choices;
        let dropped = (chosen > 0).then(|| dropped as f64 / chosen as f64);
        let mut outs = BTreeMap::new();
        for Out { name, value, .. } in status.outs {
            outs.entry(name).or_insert(value);
        }
        let [loss, further_loss] = ["loss", "further_loss"].map(|name| outs.get(name).map(|sum| sum / valid_tokens));
        let means = ["balance_loss", "z_loss"].map(|name| outs.get(name).map(|sum| sum / microbatches));
        let ([balance_loss, z_loss], grad_norm) = (means, outs.get("norm").copied());
        Ok(StepOutput { loss, further_loss, balance_loss, z_loss, grad_norm, dropped, outs })
    }

    /// The reports of the ranks of this process.
    fn report(&self, row: usize) -> Status {
        let Word { number: word, is_busy } = self.own_word;
        let mut status = Status { choices: [0; 2], word, is_busy, outs: Vec::new(), seconds: Vec::new() };
        for RankView { rank, names, report, .. } in &self.views {
            let rank = *rank as u32;
            // Where several ranks choose alike, all do.
            for (sum, choices) in status.choices.iter_mut().zip(&report.choices) {
                *sum += choices.load(Ordering::Relaxed);
            }
            let outs = names[row].iter().zip(&report.outs);
            status.outs.extend(outs.map(|(name, value)| Out {
                rank,
                name: name.clone(),
                value: f32::from_bits(value.load(Ordering::Relaxed)),
            }));
            status.seconds.push((rank, report.own.load(Ordering::Relaxed) as f32 / 1e9));
        }
        status
    }

    /// Sends a command to all ranks and waits for all answers.
    fn ask(&mut self, command: &Command) -> Result<Vec<Answer>, RankFailure> {
        if let Some(failure) = &self.failed {
            return Err(failure.clone());
        }
        self.ranks.iter().for_each(|rank| rank.tell(command.clone()));
        let row = if let Command::Run(row, _) = command { Some(*row) } else { None };
        let answers = self.answers(row);
        let answers = self.platform.ranks().iter().zip(answers).map(|(&rank, answer)| match answer {
            Some(answer) => answer,
            None => Err(RankFailure::new(rank, "its thread is gone")),
        });
        let answers: Result<Vec<Answer>, _> = answers.collect();
        self.failed = answers.as_ref().err().cloned();
        answers
    }

    /// Waits for the answers of all ranks, to a run of a rank program or to another command, or until one is stuck.
    fn answers(&mut self, row: Option<usize>) -> Vec<Option<Result<Answer, RankFailure>>> {
        self.watch.begin(row, Instant::now());
        let mut answers = Vec::with_capacity(self.ranks.len());
        while let Some(rank) = self.ranks.get(answers.len()) {
            match rank.answer_within(self.watch.pause()) {
                Ok(answer) => answers.push(answer),
                Err(TimedOut) => {
                    if let Some(stuck) = self.watch.look(Instant::now(), self.platform.device_waits()) {
                        return vec![Some(Err(self.give_up(&stuck)))];
                    }
                }
            }
        }
        self.watch.end(row);
        answers
    }

    /// Ends the run, since a rank is stuck, and abandons the threads of ranks. Returns the first failure.
    fn give_up(&mut self, stuck: &Stuck) -> RankFailure {
        self.ranks.iter_mut().for_each(RankThread::abandon);
        let view = &self.views[stuck.place];
        let why = stuck_text(&self.model, &self.programs[stuck.row], view, stuck);
        self.platform.give_up(view.rank, &why)
    }
}

/// The elements of the persistent tensors of all processes, once all of them run the same program.
fn agree<P: Platform>(
    platform: &P,
    own: BTreeMap<String, u64>,
    program: &Program,
) -> Result<BTreeMap<String, u64>, Error> {
    let Some(world) = platform.world() else { return Ok(own) };
    let [low, high] = key(&[format!("{program:?}").as_bytes()]);
    let digest = format!("{} {low:08x}{high:08x}", env!("CARGO_PKG_VERSION"));
    let lines = own.iter().map(|(name, elements)| format!("{elements} {name}\n"));
    let all = platform.share(format!("{digest}\n{}", lines.collect::<String>()).into_bytes())?;
    let mut catalogue = BTreeMap::new();
    for (number, bytes) in all.iter().enumerate() {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines();
        let theirs = lines.next().unwrap_or_default();
        if theirs != digest {
            let host = &world.processes[number].host;
            let why = format!("process {number} on {host} has program {theirs}, process {} has {digest}", world.me);
            return Err(Error::Load(why));
        }
        for (elements, name) in lines.filter_map(|line| line.split_once(' ')) {
            catalogue.extend(elements.parse().ok().map(|elements| (name.to_string(), elements)));
        }
    }
    Ok(catalogue)
}

fn other_version() -> Error {
    Error::Load("a process of another version takes part".to_string())
}

/// Seconds from one time to another, which may be before it.
fn seconds_between(from: Instant, to: Instant) -> f64 {
    match to.checked_duration_since(from) {
        Some(after) => after.as_secs_f64(),
        None => -(from - to).as_secs_f64(),
    }
}

impl<P: Platform> Drop for Executor<P> {
    fn drop(&mut self) {
        self.ranks.iter_mut().for_each(RankThread::dismiss);
    }
}
