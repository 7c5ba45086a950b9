//! A rank's thread, which executes commands and sends answers.

use super::Error;
use super::cursor::ThreadContext;
use super::executor::StepInput;
use super::mailbox::{Mailbox, TimedOut};
use super::progress::{Progress, Site};
use super::worker::Worker;
use crate::state::{State, StateShard, StateSlot};
use comm::{Communicator, RankFailure};
use device::at_once::panic_message;
use device::backend::{Backend, Memory};
use device::cores::pin_thread;
use kernels::cpu::Par;
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A rank's thread.
pub(super) struct RankThread {
    commands: Arc<Mailbox<Command>>,
    answers: Arc<Mailbox<Result<Answer, RankFailure>>>,
    thread: Option<JoinHandle<()>>,
}

/// Command to a rank.
#[derive(Clone)]
pub(super) enum Command {
    /// Set all persistent tensors to their first numbers.
    Reset(u64),
    /// Run a row.
    Run(usize, Arc<StepInput>),
    /// Give the persistent tensors that are wanted.
    Export(Wanted),
    /// Take over persistent tensors.
    Import(Arc<BTreeMap<String, Vec<f32>>>),
    /// Do something with the persistent tensors.
    Visit(Visit),
}

/// True of the persistent tensors that are exported.
pub(super) type Wanted = fn(&StateSlot) -> bool;

/// Function of a rank's number and persistent tensors; its result goes to the caller.
pub(super) type Visit = Arc<dyn Fn(usize, &mut RankState<'_>) -> Box<dyn Any + Send> + Send + Sync>;

/// Access to the persistent tensors of a rank.
pub struct RankState<'a> {
    state: &'a State,
    memory: &'a mut dyn Memory,
    progress: &'a mut Progress,
    arena_bytes: usize,
}

impl RankState<'_> {
    /// The persistent tensors.
    pub fn slots(&self) -> &[StateSlot] {
        self.state.slots()
    }

    /// The numbers of the rank's part of one.
    pub fn read(&mut self, slot: usize) -> Vec<f32> {
        self.copy(slot, |slot, memory| slot.get(memory))
    }

    /// Replaces them, rounded to the format of the tensor.
    ///
    /// # Panics
    /// If their number differs.
    pub fn write(&mut self, slot: usize, part: &[f32]) {
        self.copy(slot, |slot, memory| slot.put(memory, part));
    }

    /// Copies the bytes of the rank's part of one, as they are stored.
    pub fn stored(&mut self, slot: usize) -> Vec<u8> {
        self.copy(slot, |slot, memory| slot.bytes(memory))
    }

    /// Replaces the bytes of the rank's part of one.
    ///
    /// # Panics
    /// If their number differs.
    pub fn store(&mut self, slot: usize, bytes: &[u8]) {
        self.copy(slot, |slot, memory| {
            assert_eq!(bytes.len(), slot.span.bytes(), "the bytes of `{}`", slot.name);
            if slot.host { memory.write_host(slot.span, bytes) } else { memory.write(slot.span, bytes) }
        });
    }

    /// Copies the rank's part of one. A rank whose device never ends the copy is stuck.
    pub(super) fn copy<T>(&mut self, slot: usize, copy: impl FnOnce(&StateSlot, &mut dyn Memory) -> T) -> T {
        self.progress.begin(Site::State(slot as u32));
        let copied = copy(&self.state.slots()[slot], self.memory);
        self.progress.rest();
        copied
    }

    pub(super) fn memory(&mut self) -> &mut dyn Memory {
        self.memory
    }

    pub(super) fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }
}

/// Answer of a rank.
pub(super) enum Answer {
    Done,
    Parts(Vec<StateShard>),
    Found(Box<dyn Any + Send>),
}

/// A rank among those of its process.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub(super) rank: usize,
    /// Its place among the ranks of this process, and their number.
    pub(super) place: usize,
    pub(super) ranks: usize,
}

impl RankThread {
    /// Starts its thread.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn start<B: Backend + 'static, C: Communicator>(
        placed: Placed,
        mut worker: Worker<B, C>,
    ) -> Result<RankThread, Error> {
        let Placed { rank, place, ranks } = placed;
        let (commands, answers) = (Arc::new(Mailbox::new()), Arc::new(Mailbox::new()));
        let (inbox, reports) = (commands.clone(), answers.clone());
        let thread = std::thread::Builder::new().name(format!("rank {rank}")).spawn(move || {
            pin_thread(place, ranks);
            while let Some(command) = inbox.take() {
                let answer = catch_unwind(AssertUnwindSafe(|| execute(placed, &mut worker, command)));
                reports.put(answer.unwrap_or_else(|panic| {
                    let why = panic_message(panic.as_ref());
                    worker.comm.fail(why.clone());
                    Err(worker.comm.failure().unwrap_or_else(|| RankFailure::new(rank, why)))
                }));
            }
            reports.close();
        });
        let thread = thread.map_err(|why| Error::Resources(format!("rank {rank} of {ranks} gets no thread: {why}")))?;
        Ok(RankThread { commands, answers, thread: Some(thread) })
    }

    pub(super) fn tell(&self, command: Command) {
        self.commands.put(command);
    }

    /// The answer to the last command, if it comes within a time; `None` if its thread has ended.
    pub(super) fn answer_within(&self, limit: Duration) -> Result<Option<Result<Answer, RankFailure>>, TimedOut> {
        self.answers.take_within(limit)
    }

    /// Leaves its thread to itself, which may never end.
    pub(super) fn abandon(&mut self) {
        self.thread = None;
    }

    /// It gets no more commands.
    pub(super) fn dismiss(&mut self) {
        self.commands.close();
    }
}

impl Drop for RankThread {
    fn drop(&mut self) {
        self.dismiss();
        self.thread.take().map(JoinHandle::join);
    }
}

fn execute<B: Backend + 'static, C: Communicator>(
    placed: Placed,
    worker: &mut Worker<B, C>,
    command: Command,
) -> Result<Answer, RankFailure> {
    let Placed { rank, ranks, .. } = placed;
    let ThreadContext { backend: memory, progress, .. } = &mut worker.context;
    match command {
        Command::Reset(seed) => {
            let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
            worker.state.reset(memory, seed, Par((cores / ranks).max(1)));
        }
        Command::Run(row, input) => {
            let outcome = worker.run(row, &input);
            worker.comm.leave();
            outcome?;
        }
        Command::Export(wanted) => return Ok(Answer::Parts(worker.state.export(memory, wanted))),
        Command::Visit(what) => {
            let mut kept = RankState { state: &worker.state, memory, progress, arena_bytes: worker.arena_bytes };
            return Ok(Answer::Found(what(rank, &mut kept)));
        }
        Command::Import(tensors) => worker.state.import(memory, &tensors),
    }
    Ok(Answer::Done)
}
