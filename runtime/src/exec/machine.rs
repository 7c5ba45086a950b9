//! All ranks of a program as threads of this process, and what a caller can ask of them.

use super::Error;
use super::row::{Loader, fed, is_integer};
use super::worker::{Device, Memory, Worker};
use crate::backends::cpu::Cpu;
use crate::comm::threads::{Fabric, Threads};
use crate::comm::{Communicator, Stopped};
use crate::state::{Role, Slot, State, Whole, gather};
use ir::graph::Model;
use ir::ids::ModelValue;
use ir::mesh::Mesh;
use ir::program::Program;
use ir::types::Type;
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// How a program is run.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Initial parameters and dropout go by it.
    pub seed: u64,
    /// Threads that the kernels of one device may use.
    pub threads: usize,
    /// A forward-only program of the same model, for [`Machine::eval`].
    pub evaluation: Option<&'a Program>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { seed: 0, threads: 1, evaluation: None }
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

/// What a step is given.
#[derive(Clone, PartialEq, Debug)]
pub struct StepInput {
    /// One for each micro-batch of the program.
    pub microbatches: Vec<Inputs>,
    /// Tokens of all micro-batches that count in the loss.
    pub valid_tokens: u64,
    /// What the loss is multiplied by before it is differentiated; 1 in f32.
    pub loss_scale: f32,
    /// The learning rate.
    pub lr: f32,
    /// The number of the step, from 1.
    pub step: u64,
}

impl StepInput {
    /// The cotangent of the summed loss: `loss_scale / valid_tokens`, 0 where no token counts.
    pub(super) fn loss_cotangent(&self) -> f32 {
        if self.valid_tokens == 0 { 0.0 } else { self.loss_scale / self.valid_tokens as f32 }
    }
}

/// What a step reports.
#[derive(Clone, PartialEq, Debug)]
pub struct StepOutput {
    /// The mean loss of the valid tokens, before the update; none if the program reports no `loss`.
    pub loss: Option<f32>,
    /// The norm of all gradients before clipping; none if the program reports no `norm`.
    pub grad_norm: Option<f32>,
    /// All that the program reports, by name; `loss` is the sum over tokens.
    pub outs: BTreeMap<String, f32>,
}

/// All ranks, ready to run.
pub struct Machine {
    mesh: Mesh,
    training: Feeds,
    evaluation: Option<Feeds>,
    /// Elements of each kept tensor.
    catalogue: BTreeMap<String, u64>,
    ranks: Vec<Rank>,
    failed: Option<Stopped>,
}

/// What a program wants to be fed.
struct Feeds {
    microbatches: u32,
    inputs: Vec<(ModelValue, String, Type)>,
}

/// A rank's thread.
struct Rank {
    commands: Option<Sender<Command>>,
    answers: Receiver<Result<Answer, Stopped>>,
    thread: Option<JoinHandle<()>>,
}

/// What a rank is told.
#[derive(Clone)]
enum Command {
    /// Set all kept tensors to their first numbers.
    Reset(u64),
    /// Run a row.
    Run(usize, Arc<StepInput>),
    /// Give the kept tensors.
    Export,
    /// Tell how much memory is free.
    FreeBytes,
    /// Take over kept tensors.
    Import(Arc<BTreeMap<String, Vec<f32>>>),
    /// Do something with the kept tensors.
    Visit(Visit),
}

/// What a rank of this number does with its kept tensors, and what comes of it.
type Visit = Arc<dyn Fn(usize, &mut State) -> Box<dyn Any + Send> + Send + Sync>;

/// What a rank answers.
enum Answer {
    Done,
    Outs(BTreeMap<String, f32>),
    Slots(Vec<Slot>),
    Bytes(usize),
    Found(Box<dyn Any + Send>),
}

type CpuWorker = Worker<Cpu, Threads>;

impl Machine {
    /// Makes a program ready on all devices of the model's mesh and sets parameters to their first numbers.
    ///
    /// # Errors
    /// The program is broken, or the backend cannot run it.
    pub fn load(model: &Model, program: &Program, options: &Options<'_>) -> Result<Machine, Error> {
        let devices = model.mesh.devices() as usize;
        let programs: Vec<&Program> = [program].into_iter().chain(options.evaluation).collect();
        let ends = Fabric::join(devices).into_iter().enumerate();
        let load = |(rank, comm): (usize, Threads)| {
            let at = |why| Error::Load(format!("rank {rank}: {why}"));
            load_rank(model, &programs, options, rank, comm).map_err(at)
        };
        let workers = ends.map(load).collect::<Result<Vec<_>, _>>()?;
        let mut machine = Machine {
            mesh: model.mesh.clone(),
            training: Feeds::of(model, program)?,
            evaluation: options.evaluation.map(|program| Feeds::of(model, program)).transpose()?,
            catalogue: catalogue(&workers),
            ranks: workers.into_iter().enumerate().map(|(rank, worker)| Rank::start(rank, worker)).collect(),
            failed: None,
        };
        machine.ask(&Command::Reset(options.seed))?;
        Ok(machine)
    }

    /// Runs a training step.
    ///
    /// # Errors
    /// The inputs are not those of the model, or a rank failed.
    pub fn step(&mut self, input: StepInput) -> Result<StepOutput, Error> {
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
    pub fn export_params(&mut self) -> Result<BTreeMap<String, Whole>, Error> {
        self.export(|role| *role == Role::Param)
    }

    /// Parameters and optimizer states: all that a checkpoint needs. States are named `<param>.<state>`.
    ///
    /// # Errors
    /// A rank failed earlier.
    pub fn export_state(&mut self) -> Result<BTreeMap<String, Whole>, Error> {
        self.export(|role| *role != Role::Gradient)
    }

    /// The gradients of the last step by the parameter's instance name, summed over micro-batches and ranks, before
    /// clipping.
    ///
    /// # Errors
    /// A rank failed earlier.
    pub fn gradients(&mut self) -> Result<BTreeMap<String, Whole>, Error> {
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

    /// Lets every rank do the same with its kept tensors, all at a time, and gives what came of it, by rank.
    ///
    /// # Errors
    /// A rank failed earlier, or panicked.
    pub fn visit<T: Send + 'static>(
        &mut self,
        what: impl Fn(usize, &mut State) -> T + Send + Sync + 'static,
    ) -> Result<Vec<T>, Error> {
        let visit: Visit = Arc::new(move |rank, state| Box::new(what(rank, state)));
        let found = |answer| if let Answer::Found(found) = answer { found.downcast::<T>().ok() } else { None };
        let answers = self.ask(&Command::Visit(visit))?.into_iter();
        Ok(answers.filter_map(found).map(|found| *found).collect())
    }

    /// Bytes in the free lists of all ranks: they stop growing after the first steps.
    ///
    /// # Errors
    /// A rank failed earlier.
    pub fn free_bytes(&mut self) -> Result<usize, Error> {
        let bytes = |answer| if let Answer::Bytes(bytes) = answer { bytes } else { 0 };
        Ok(self.ask(&Command::FreeBytes)?.into_iter().map(bytes).sum())
    }

    fn export(&mut self, wanted: impl Fn(&Role) -> bool) -> Result<BTreeMap<String, Whole>, Error> {
        let slots = |answer| if let Answer::Slots(slots) = answer { slots } else { Vec::new() };
        let mut ranks: Vec<Vec<Slot>> = self.ask(&Command::Export)?.into_iter().map(slots).collect();
        ranks.iter_mut().for_each(|slots| slots.retain(|slot| wanted(&slot.role)));
        Ok(gather(&self.mesh, &ranks))
    }

    fn run(&mut self, row: usize, input: StepInput) -> Result<StepOutput, Error> {
        let valid_tokens = input.valid_tokens.max(1) as f32;
        let mut outs = BTreeMap::new();
        for answer in self.ask(&Command::Run(row, Arc::new(input)))? {
            if let Answer::Outs(reported) = answer {
                outs = reported.into_iter().chain(outs).collect();
            }
        }
        let loss = outs.get("loss").map(|sum| sum / valid_tokens);
        Ok(StepOutput { loss, grad_norm: outs.get("norm").copied(), outs })
    }

    /// Tells all ranks the same and waits for all answers.
    fn ask(&mut self, command: &Command) -> Result<Vec<Answer>, Stopped> {
        if let Some(stopped) = &self.failed {
            return Err(stopped.clone());
        }
        for rank in &self.ranks {
            rank.commands.iter().for_each(|commands| drop(commands.send(command.clone())));
        }
        let gone = |rank| Stopped { rank, why: "its thread is gone".to_string() };
        let answer = |(rank, thread): (usize, &Rank)| thread.answers.recv().unwrap_or_else(|_| Err(gone(rank)));
        let answers: Vec<_> = self.ranks.iter().enumerate().map(answer).collect();
        let answers: Result<Vec<Answer>, Stopped> = answers.into_iter().collect();
        self.failed = answers.as_ref().err().cloned();
        answers
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.ranks.iter_mut().for_each(|rank| rank.commands = None);
        for rank in &mut self.ranks {
            rank.thread.take().map(JoinHandle::join);
        }
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
    let slots = workers.iter().flat_map(|worker| worker.device.state.slots());
    slots.filter(|slot| slot.role != Role::Gradient).map(|slot| (slot.name.clone(), slot.ty.elements())).collect()
}

fn load_rank(
    model: &Model,
    programs: &[&Program],
    options: &Options<'_>,
    rank: usize,
    mut comm: Threads,
) -> Result<CpuWorker, String> {
    let (backend, mut state, mut scalars) = (Cpu::new(options.threads), State::default(), Vec::new());
    let mut loader = Loader {
        model,
        rank,
        coordinates: model.mesh.coordinates(rank as u64),
        backend: &backend,
        comm: &mut comm,
        state: &mut state,
        scalars: &mut scalars,
    };
    let rows = programs.iter().map(|program| loader.row(program)).collect::<Result<_, _>>()?;
    let (seed, memory) = (options.seed, Memory::default());
    Ok(Worker { device: Device { backend, comm, state, scalar_names: scalars, seed, memory }, rows })
}

impl Rank {
    fn start(rank: usize, mut worker: CpuWorker) -> Rank {
        let (commands, orders) = channel();
        let (reports, answers) = channel();
        let thread = std::thread::spawn(move || {
            for command in orders {
                let answer = catch_unwind(AssertUnwindSafe(|| obey(rank, &mut worker, command)));
                let answer = answer.unwrap_or_else(|panic| {
                    let why = reason(panic.as_ref());
                    worker.device.comm.fail(why.clone());
                    Err(worker.device.comm.failure().unwrap_or(Stopped { rank: 0, why }))
                });
                if reports.send(answer).is_err() {
                    break;
                }
            }
        });
        Rank { commands: Some(commands), answers, thread: Some(thread) }
    }
}

fn obey(rank: usize, worker: &mut CpuWorker, command: Command) -> Result<Answer, Stopped> {
    match command {
        Command::Reset(seed) => worker.device.state.reset(seed),
        Command::Run(row, input) => return worker.run(row, &input).map(Answer::Outs),
        Command::Export => return Ok(Answer::Slots(worker.device.state.slots().to_vec())),
        Command::FreeBytes => return Ok(Answer::Bytes(worker.device.backend.free_bytes())),
        Command::Import(tensors) => worker.device.state.import(&tensors),
        Command::Visit(visit) => return Ok(Answer::Found(visit(rank, &mut worker.device.state))),
    }
    Ok(Answer::Done)
}

/// What a panic said.
fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_string())
}
