//! A rank's thread: it is told what to do, and answers.

use super::lane::reason;
use super::machine::StepInput;
use super::worker::Worker;
use crate::backends::cpu::Cpu;
use crate::comm::threads::Threads;
use crate::comm::{Communicator, Stopped};
use crate::state::Part;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// A rank on the processor, joined to others of this process.
pub(super) type CpuWorker = Worker<Cpu, Threads>;

/// A rank's thread.
pub(super) struct Rank {
    commands: Option<SyncSender<Command>>,
    answers: Receiver<Result<Answer, Stopped>>,
    thread: Option<JoinHandle<()>>,
}

/// What a rank is told.
#[derive(Clone)]
pub(super) enum Command {
    /// Set all kept tensors to their first numbers.
    Reset(u64),
    /// Run a row.
    Run(usize, Arc<StepInput>),
    /// Give the kept tensors.
    Export,
    /// Take over kept tensors.
    Import(Arc<BTreeMap<String, Vec<f32>>>),
}

/// What a rank answers.
pub(super) enum Answer {
    Done,
    Parts(Vec<Part>),
}

impl Rank {
    /// Starts a thread of this name.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn start(mut worker: CpuWorker, name: String) -> Result<Rank, String> {
        let (commands, orders) = sync_channel(1);
        let (reports, answers) = sync_channel(1);
        let work = move || {
            for command in orders {
                let answer = catch_unwind(AssertUnwindSafe(|| obey(&mut worker, command)));
                let answer = answer.unwrap_or_else(|panic| {
                    let why = reason(panic.as_ref());
                    worker.comm.fail(why.clone());
                    Err(worker.comm.failure().unwrap_or(Stopped { rank: 0, why }))
                });
                if reports.send(answer).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(work);
        let thread = Some(thread.map_err(|why| format!("no thread: {why}"))?);
        Ok(Rank { commands: Some(commands), answers, thread })
    }

    pub(super) fn tell(&self, command: Command) {
        self.commands.iter().for_each(|commands| drop(commands.send(command.clone())));
    }

    /// The answer to what it was told last; none if its thread is gone.
    pub(super) fn answer(&self) -> Option<Result<Answer, Stopped>> {
        self.answers.recv().ok()
    }

    /// It will be told nothing more.
    pub(super) fn dismiss(&mut self) {
        self.commands = None;
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        self.dismiss();
        self.thread.take().map(JoinHandle::join);
    }
}

fn obey(worker: &mut CpuWorker, command: Command) -> Result<Answer, Stopped> {
    let backend = &mut worker.hands.backend;
    match command {
        Command::Reset(seed) => worker.state.reset(backend, seed),
        Command::Run(row, input) => {
            let outcome = worker.run(row, &input);
            worker.comm.leave();
            outcome?;
        }
        Command::Export => return Ok(Answer::Parts(worker.state.export(backend))),
        Command::Import(tensors) => worker.state.import(backend, &tensors),
    }
    Ok(Answer::Done)
}
