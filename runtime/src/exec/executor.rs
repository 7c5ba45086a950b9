//! All ranks of a program as threads of this process, and the operations that a caller can request.

use super::Error;
use super::background::Background;
use super::cursor::ThreadContext;
use super::decode::decode;
use super::rank::{Answer, Command, CpuWorker, RankState, RankThread, Visit};
use super::rank_program::RankProgram;
use super::recorder::EventRecorder;
use super::row::{Loader, class_of, fed, is_integer};
use super::worker::Worker;
use crate::arena::Arena;
use crate::backend::{Backend, Span};
use crate::backends::cpu::{Cpu, Tally};
use crate::comm::RankFailure;
use crate::comm::threads::{Fabric, ThreadCommunicator};
use crate::memory;
use crate::state::{GlobalTensor, Role, State, StateShard, gather};
use ir::arena::ALIGNMENT;
use ir::graph::Model;
use ir::ids::ModelValue;
use ir::mesh::Mesh;
use ir::program::{Class, Program};
use ir::types::Type;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use trace::Trace;
use tracing::{debug_span, trace_span};

/// How a program is run.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Initial parameters and dropout go by it.
    pub seed: u64,
    /// Threads that the kernels of one device may use.
    pub threads: usize,
    /// A forward-only program of the same model, for [`Executor::eval`].
    pub evaluation: Option<&'a Program>,
    /// True if each device has a second thread for its async worker; `None`: if cores are free. Results are identical to
    /// the bit.
    pub async_threads: Option<bool>,
    /// True if the events of each step are recorded, for [`Executor::trace`].
    pub record: bool,
    /// Bytes that all ranks together may take.
    pub memory_limit: u64,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { seed: 0, threads: 1, evaluation: None, async_threads: None, record: false, memory_limit: u64::MAX }
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
    /// Factor of the loss before differentiation; 1 in f32.
    pub loss_scale: f32,
    /// The learning rate.
    pub lr: f32,
    /// The number of the step, from 1.
    pub step: u64,
    /// The number of the update, from 1: the step's, less the steps before it whose update was skipped.
    pub update: u64,
}

impl StepInput {
    /// The cotangent of the summed loss: `loss_scale / valid_tokens`, 0 where no token counts.
    pub(super) fn loss_cotangent(&self) -> f32 {
        if self.valid_tokens == 0 { 0.0 } else { self.loss_scale / self.valid_tokens as f32 }
    }
}

/// Report of a step.
#[derive(Clone, PartialEq, Debug)]
pub struct StepOutput {
    /// The mean loss of the valid tokens, before the update; none if the program reports no `loss`.
    pub loss: Option<f32>,
    /// The norm of all gradients before clipping; none if the program reports no `norm`.
    pub grad_norm: Option<f32>,
    /// The share of choices of experts that were dropped because the expert was full; none if none was chosen.
    pub dropped: Option<f64>,
    /// All that the program reports, by name; `loss` is the sum over tokens.
    pub outs: BTreeMap<String, f32>,
}

impl StepOutput {
    /// True if the gradient's norm was not finite, so that no parameter and no state changed.
    pub fn is_skipped(&self) -> bool {
        self.grad_norm.is_some_and(|norm| !norm.is_finite())
    }
}

/// Executor of a loaded program on all ranks.
pub struct Executor {
    mesh: Mesh,
    training: Feeds,
    evaluation: Option<Feeds>,
    /// Elements of each persistent tensor.
    catalogue: BTreeMap<String, u64>,
    fabric: Arc<Fabric>,
    ranks: Vec<RankThread>,
    /// Per rank.
    memories: Vec<RankMemory>,
    failed: Option<RankFailure>,
    /// When the last step began.
    began: Instant,
}

/// Feeds of a program.
struct Feeds {
    microbatches: u32,
    inputs: Vec<(ModelValue, String, Type)>,
}

/// Data of a rank that the executor shares with the threads of the rank.
pub(super) struct RankMemory {
    arena: Arc<Arena>,
    pub(super) rank_programs: Arc<[RankProgram<ThreadCommunicator>]>,
    /// Event buffers of the main thread and of the async worker.
    pub(super) recorders: Option<[EventRecorder; 2]>,
    /// Places of model states.
    held: Vec<Span>,
    /// For each row, the names of what it reports.
    names: Vec<Vec<String>>,
    /// Outputs of the last step.
    outs: Arc<[AtomicU32]>,
    /// Counts of the experts that its forwards chose.
    tally: Arc<Tally>,
}

/// The bits of a number that is none, as no kernel makes them.
const POISON: u32 = 0x7fc0_dead;

impl RankMemory {
    /// The arena's elements; no rank works while they are borrowed.
    fn elements(&mut self) -> &mut [f32] {
        // SAFETY: ranks work only while the executor waits for them.
        unsafe { self.arena.floats_mut(Span { offset: 0, len: self.arena.bytes() / 4 }) }
    }

    /// Fills what is not held.
    fn poison(&mut self) {
        let mut held = self.held.clone();
        held.sort_by_key(|span| span.offset);
        let (elements, mut end) = (self.elements(), 0);
        for Span { offset, len } in held {
            elements[end..offset / 4].fill(f32::from_bits(POISON));
            end = offset / 4 + len;
        }
        elements[end..].fill(f32::from_bits(POISON));
    }

    /// Bytes up to the last that was written since, in whole places.
    fn used(&mut self) -> u64 {
        let last = self.elements().iter().rposition(|element| element.to_bits() != POISON);
        (4 * last.map_or(0, |last| last as u64 + 1)).next_multiple_of(ALIGNMENT)
    }
}

impl Executor {
    /// Makes a program ready on all devices of the model's mesh and sets parameters to their first numbers.
    ///
    /// # Errors
    /// The program is broken, or the backend cannot run it.
    pub fn load(model: &Model, program: &Program, options: &Options<'_>) -> Result<Executor, Error> {
        let devices = model.mesh.devices() as usize;
        let _span = debug_span!("load", devices).entered();
        let programs: Vec<&Program> = [program].into_iter().chain(options.evaluation).collect();
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let async_threads = options.async_threads.unwrap_or(cores > devices * options.threads);
        let fabric = Fabric::new(devices, async_threads);
        let (mut workers, mut memories) = (Vec::new(), Vec::new());
        let taken = memory::taken();
        for rank in 0..devices {
            let at = |why| match why {
                Refused::Program(why) => Error::Load(format!("rank {rank}: {why}")),
                Refused::System(why) => Error::Resources(format!("rank {rank}: {why}")),
            };
            let (worker, memory) = load_rank(model, &programs, options, (rank, &fabric, async_threads)).map_err(at)?;
            workers.push(worker);
            memories.push(memory);
            if rank + 1 == LOOKED_AT {
                check_memory(model, program, memory::taken().saturating_sub(taken), options.memory_limit)?;
            }
        }
        let catalogue = catalogue(&workers);
        let named = |(rank, worker)| RankThread::start(rank, devices, worker).map_err(Error::Resources);
        let mut executor = Executor {
            mesh: model.mesh.clone(),
            training: Feeds::of(model, program)?,
            evaluation: options.evaluation.map(|program| Feeds::of(model, program)).transpose()?,
            catalogue,
            fabric,
            ranks: workers.into_iter().enumerate().map(named).collect::<Result<_, _>>()?,
            memories,
            failed: None,
            began: Instant::now(),
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
        self.run(0, input)
    }

    /// Runs the forward-only program: the loss, and nothing changes.
    ///
    /// # Errors
    /// None was loaded, the inputs are not those of the model, or a rank failed.
    pub fn eval(&mut self, input: StepInput) -> Result<StepOutput, Error> {
        let feeds = self.evaluation.as_ref();
        let feeds = feeds.ok_or_else(|| Error::Input("no program for evaluation was loaded".to_string()))?;
        feeds.check(&input)?;
        self.run(1, input)
    }

    /// The parameters by instance name.
    ///
    /// # Errors
    /// A rank failed earlier.
    pub fn export_params(&mut self) -> Result<BTreeMap<String, GlobalTensor>, Error> {
        self.export(|role| *role == Role::Param)
    }

    /// Parameters and optimizer states: all that a checkpoint needs. States are named `<param>.<state>`.
    ///
    /// # Errors
    /// A rank failed earlier.
    pub fn export_state(&mut self) -> Result<BTreeMap<String, GlobalTensor>, Error> {
        self.export(|role| *role != Role::Gradient)
    }

    /// The gradients of the last step by the parameter's instance name, summed over micro-batches and ranks, before
    /// clipping.
    ///
    /// # Errors
    /// A rank failed earlier.
    pub fn gradients(&mut self) -> Result<BTreeMap<String, GlobalTensor>, Error> {
        let gradients = self.export(|role| *role == Role::Gradient)?.into_iter();
        Ok(gradients.map(|(name, whole)| (name.trim_end_matches(ir::graph::GRADIENT).to_string(), whole)).collect())
    }

    /// Sets parameters and states to whole tensors, given by name; the others stay.
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

    /// Lets every rank do the same with its persistent tensors, all at a time, and gives what came of it, by rank.
    ///
    /// # Errors
    /// A rank failed earlier, or panicked.
    pub fn visit<T: Send + 'static>(
        &mut self,
        what: impl Fn(usize, &mut RankState<'_>) -> T + Send + Sync + 'static,
    ) -> Result<Vec<T>, Error> {
        let visit: Visit = Arc::new(move |rank, kept| Box::new(what(rank, kept)));
        let found = |answer| if let Answer::Found(found) = answer { found.downcast::<T>().ok() } else { None };
        let answers = self.ask(&Command::Visit(visit))?.into_iter();
        Ok(answers.filter_map(found).map(|found| *found).collect())
    }

    /// Bytes of each rank's arena: all the memory that its tensors ever use.
    pub fn arena_bytes(&self) -> Vec<u64> {
        self.memories.iter().map(|memory| memory.arena.bytes() as u64).collect()
    }

    /// Trace of the last step of the loaded program and model; empty if no events are recorded
    /// ([`Options::record`]).
    pub fn trace(&self, model: &Model, program: &Program) -> Trace {
        decode(model, program, &self.memories, self.began)
    }

    /// Runs a training step with poison wherever nothing lives from step to step, so that who reads what the step has not
    /// written gets numbers that are none. Gives also, for each rank, the bytes of its arena up to the last that was written.
    ///
    /// # Errors
    /// As [`step`](Executor::step).
    pub fn step_on_poison(&mut self, input: StepInput) -> Result<(StepOutput, Vec<u64>), Error> {
        self.memories.iter_mut().for_each(RankMemory::poison);
        let output = self.step(input)?;
        Ok((output, self.memories.iter_mut().map(RankMemory::used).collect()))
    }

    fn export(&mut self, wanted: impl Fn(&Role) -> bool) -> Result<BTreeMap<String, GlobalTensor>, Error> {
        let parts = |answer| if let Answer::Parts(parts) = answer { parts } else { Vec::new() };
        let mut ranks: Vec<Vec<StateShard>> = self.ask(&Command::Export)?.into_iter().map(parts).collect();
        ranks.iter_mut().for_each(|parts| parts.retain(|part| wanted(&part.slot.role)));
        Ok(gather(&self.mesh, &ranks))
    }

    fn run(&mut self, row: usize, input: StepInput) -> Result<StepOutput, Error> {
        let valid_tokens = input.valid_tokens.max(1) as f32;
        self.fabric.enter(self.ranks.len());
        self.memories.iter().flat_map(|memory| &memory.recorders).flatten().for_each(EventRecorder::clear);
        self.began = Instant::now();
        self.ask(&Command::Run(row, Arc::new(input)))?;
        // Where several ranks choose alike, all do.
        let [chosen, dropped] = self
            .memories
            .iter()
            .map(|memory| memory.tally.take())
            .fold([0, 0], |sum, of| [0, 1].map(|at| sum[at] + of[at]));
        let dropped = (chosen > 0).then(|| dropped as f64 / chosen as f64);
        let mut outs = BTreeMap::new();
        for RankMemory { names, outs: values, .. } in &self.memories {
            for (name, value) in names[row].iter().zip(values.iter()) {
                outs.entry(name.clone()).or_insert(f32::from_bits(value.load(Ordering::Relaxed)));
            }
        }
        let loss = outs.get("loss").map(|sum| sum / valid_tokens);
        Ok(StepOutput { loss, grad_norm: outs.get("norm").copied(), dropped, outs })
    }

    /// Tells all ranks the same and waits for all answers.
    fn ask(&mut self, command: &Command) -> Result<Vec<Answer>, RankFailure> {
        if let Some(failure) = &self.failed {
            return Err(failure.clone());
        }
        self.ranks.iter().for_each(|rank| rank.tell(command.clone()));
        let gone = |rank| RankFailure { rank, why: "its thread is gone".to_string() };
        let answer = |(rank, thread): (usize, &RankThread)| thread.answer().unwrap_or_else(|| Err(gone(rank)));
        let answers: Vec<_> = self.ranks.iter().enumerate().map(answer).collect();
        let answers: Result<Vec<Answer>, RankFailure> = answers.into_iter().collect();
        self.failed = answers.as_ref().err().cloned();
        answers
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.ranks.iter_mut().for_each(RankThread::dismiss);
    }
}

impl Feeds {
    fn of(model: &Model, program: &Program) -> Result<Feeds, Error> {
        let input = |value: ModelValue| {
            let input = model.inputs.iter().find(|input| input.value == value);
            let input = input.ok_or_else(|| Error::Load("it feeds what is no input of the model".to_string()))?;
            Ok((value, model.values[value].clone(), input.ty.clone()))
        };
        let inputs = fed(program).into_iter().map(input).collect::<Result<_, Error>>()?;
        Ok(Feeds { microbatches: program.microbatches, inputs })
    }

    fn check(&self, given: &StepInput) -> Result<(), Error> {
        if given.microbatches.len() != self.microbatches as usize {
            let (want, got) = (self.microbatches, given.microbatches.len());
            return Err(Error::Input(format!("the program takes {want} micro-batches, not {got}")));
        }
        for (number, inputs) in given.microbatches.iter().enumerate() {
            for (value, name, ty) in &self.inputs {
                let len = match inputs.get(value) {
                    Some(Input::Ints(data)) if is_integer(ty) => data.len(),
                    Some(Input::Floats(data)) if !is_integer(ty) => data.len(),
                    Some(_) => return Err(Error::Input(format!("`{name}` has another element type"))),
                    None => return Err(Error::Input(format!("micro-batch {number} has no `{name}`"))),
                };
                if len as u64 != ty.elements() {
                    let wanted = ty.elements();
                    return Err(Error::Input(format!("`{name}` has {wanted} elements per micro-batch, not {len}")));
                }
            }
        }
        Ok(())
    }
}

fn catalogue(workers: &[CpuWorker]) -> BTreeMap<String, u64> {
    let slots = workers.iter().flat_map(|worker| worker.state.slots());
    slots.filter(|slot| slot.role != Role::Gradient).map(|slot| (slot.name.clone(), slot.ty.elements())).collect()
}

/// The number of ranks after which what all will take is looked at: what they are made ready with grows with the groups
/// that they exchange in.
const LOOKED_AT: usize = 8;

/// Refuses a program of whose ranks the first few have taken so much that all would take more than there is. Their arenas
/// are not among it: nothing has been written there.
fn check_memory(model: &Model, program: &Program, taken: u64, memory_limit: u64) -> Result<(), Error> {
    let devices = model.mesh.devices();
    let stages = model.mesh.pipeline().map_or(1, |pp| model.mesh.axes[pp].size);
    let arena = |class: &Class| class.arena.as_ref().map_or(0, |arena| arena.bytes);
    let of_class = |class: &Class| arena(class).saturating_mul(class.ranks.len() as u64 * (devices / stages));
    let arenas = program.classes.iter().map(of_class).fold(0, u64::saturating_add);
    let needed = arenas.saturating_add((taken / LOOKED_AT as u64).saturating_mul(devices));
    if needed <= memory_limit {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let (needed, memory_limit) = (gib(needed), gib(memory_limit));
    Err(Error::Resources(format!(
        "the run needs {needed:.1} GiB of memory for its devices ({devices}), {memory_limit:.1} GiB are free"
    )))
}

/// Why a rank cannot be made ready.
enum Refused {
    /// Its program is broken.
    Program(String),
    /// There is no memory or no thread for it.
    System(String),
}

impl From<String> for Refused {
    fn from(why: String) -> Refused {
        Refused::Program(why)
    }
}

fn load_rank(
    model: &Model,
    programs: &[&Program],
    options: &Options<'_>,
    (rank, fabric, async_threads): (usize, &Arc<Fabric>, bool),
) -> Result<(CpuWorker, RankMemory), Refused> {
    let coordinates = model.mesh.coordinates(rank as u64);
    let mut bytes = 0;
    for program in programs {
        let arena = class_of(program, model, &coordinates)?.arena.as_ref();
        bytes = bytes.max(arena.map_or(0, |arena| arena.bytes));
    }
    let mut backend = Cpu::new(options.threads);
    backend.reserve(bytes as usize).map_err(Refused::System)?;
    let (mut async_backend, mut state) = (backend.fork()?, State::default());
    let mut comm = fabric.endpoint(rank, backend.arena().clone());
    let backends = [&mut backend, &mut async_backend];
    let mut loader = Loader { model, rank, coordinates, backends, comm: &mut comm, state: &mut state };
    let (mut rank_programs, mut kernels) = (Vec::new(), [Vec::new(), Vec::new()]);
    for program in programs {
        let (rank_program, of_program) = loader.row(program)?;
        rank_programs.push(rank_program);
        kernels.iter_mut().zip(of_program).for_each(|(all, kernels)| all.push(kernels));
    }
    let most = |of: fn(&RankProgram<ThreadCommunicator>) -> usize| rank_programs.iter().map(of).max().unwrap_or(0);
    let (message_numbers, fed) =
        (vec![0; most(|program| program.message_slots)], vec![0.0; most(|program| program.fed)]);
    let outs: Arc<[AtomicU32]> = (0..most(|program| program.outs.len())).map(|_| AtomicU32::new(0)).collect();
    let names = rank_programs.iter().map(|program| program.outs.clone()).collect();
    let held = state.slots().iter().map(|slot| slot.span).collect();
    let rank_programs: Arc<[RankProgram<ThreadCommunicator>]> = rank_programs.into();
    let recorders = options.record.then(|| [EventRecorder::new(&rank_programs), EventRecorder::new(&rank_programs)]);
    let [recorder, async_recorder] = recorders.clone().map_or([None, None], |recorders| recorders.map(Some));
    let (arena, tally) = (backend.arena().clone(), backend.tally().clone());
    let memory =
        RankMemory { arena, rank_programs: rank_programs.clone(), recorders, held, names, outs: outs.clone(), tally };
    let [own, async_kernels] = kernels;
    if async_threads {
        fabric.enter(1);
    }
    let thread = async_threads.then(|| format!("async {rank}"));
    let background = Background::new(
        rank_programs.clone(),
        ThreadContext { backend: async_backend, kernels: async_kernels, recorder: async_recorder },
        &comm,
        thread,
    )
    .map_err(Refused::System)?;
    let (context, seed) = (ThreadContext { backend, kernels: own, recorder }, options.seed);
    Ok((Worker { state, rank_programs, context, comm, background, seed, message_numbers, fed, outs }, memory))
}
