//! Asynchronous work of a rank: in-flight exchanges and asynchronously started bodies, the bodies one after the other.
//!
//! The async worker never blocks on one item while another can progress. The worker has a thread of its own if cores are
//! free. Otherwise the main thread advances the worker while the main thread waits.

use super::cursor::{BodyCursor, PendingOp, ProgressEngine, ThreadContext};
use super::rank_program::RankProgram;
use super::recorder::EventRecorder;
use comm::{Communicator, ThreadRole, WaitReason};
use device::at_once::panic_message;
use device::backend::Backend;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

/// The event in a backend at which a started body of a completion slot may begin.
pub(super) fn begin_event(completion: usize) -> usize {
    2 * completion
}

/// The event at its end.
pub(super) fn end_event(completion: usize) -> usize {
    2 * completion + 1
}

/// The async worker as the main thread sees it.
pub(super) enum Background<B: Backend, C: Communicator> {
    /// The main thread itself advances the worker.
    Inline(Box<AsyncWorker<B, C>>),
    /// The worker has a thread of its own.
    Thread(BackgroundThread<C>),
}

/// Handle of an async worker on a thread of its own.
pub(super) struct BackgroundThread<C: Communicator> {
    /// `None` once the worker must end.
    tasks: Option<SyncSender<Task<C>>>,
    done: Arc<[AtomicBool]>,
    thread: Option<JoinHandle<()>>,
    comm: C,
    recorder: Option<EventRecorder>,
}

/// A task for the async worker.
pub(super) enum Task<C: Communicator> {
    /// Completes an exchange.
    Submit(PendingOp<C>),
    /// Executes a body, and completes this slot at its end.
    Run(BodyCursor, usize),
}

/// The tasks of one rank that run asynchronously.
pub(super) struct AsyncWorker<B: Backend, C: Communicator> {
    rank_programs: Arc<[RankProgram<C>]>,
    context: ThreadContext<B>,
    pending: PendingOps<C>,
    bodies: VecDeque<(BodyCursor, usize)>,
}

/// Exchanges in flight, and the completion slots that are done.
struct PendingOps<C: Communicator> {
    ops: Vec<PendingOp<C>>,
    done: Arc<[AtomicBool]>,
    /// True if the main thread waits on another thread than this one.
    on_own_thread: bool,
    recorder: Option<EventRecorder>,
}

impl<B: Backend + 'static, C: Communicator> Background<B, C> {
    /// An async worker for these programs, inline or, with a name, on a thread of that name.
    ///
    /// # Errors
    /// The system has no thread.
    pub(super) fn new(
        rank_programs: Arc<[RankProgram<C>]>,
        context: ThreadContext<B>,
        comm: &C,
        thread: Option<String>,
    ) -> io::Result<Background<B, C>> {
        let completions =
            rank_programs.iter().map(|rank_program| rank_program.completions.iter().sum()).max().unwrap_or(0);
        let done: Arc<[AtomicBool]> = (0..completions).map(|_| AtomicBool::new(true)).collect();
        let (ops, recorder) = (Vec::with_capacity(completions), context.recorder.clone());
        let pending =
            PendingOps { ops, done: done.clone(), on_own_thread: thread.is_some(), recorder: recorder.clone() };
        let worker = AsyncWorker { rank_programs, context, pending, bodies: VecDeque::with_capacity(completions) };
        let Some(name) = thread else { return Ok(Background::Inline(Box::new(worker))) };
        let (tasks, inbox) = sync_channel(completions.max(1));
        let own = comm.with_role(ThreadRole::Async);
        let thread = std::thread::Builder::new().name(name).spawn(move || worker.serve(&own, &inbox));
        let thread =
            thread.map_err(|why| io::Error::new(why.kind(), format!("its async worker gets no thread: {why}")))?;
        Ok(Background::Thread(BackgroundThread {
            tasks: Some(tasks),
            done,
            thread: Some(thread),
            comm: comm.with_role(ThreadRole::Main),
            recorder,
        }))
    }

    /// Starts a body.
    pub(super) fn run(&mut self, cursor: BodyCursor, completion: usize) {
        match self {
            Background::Inline(worker) => worker.accept(Task::Run(cursor, completion)),
            Background::Thread(worker) => {
                worker.done[completion].store(false, Ordering::Relaxed);
                worker.send(Task::Run(cursor, completion));
            }
        }
    }

    /// Advances an inline worker as far as possible. Returns whether anything completed.
    pub(super) fn advance(&mut self, comm: &C) -> bool {
        match self {
            Background::Inline(worker) => worker.advance(comm),
            Background::Thread(_) => false,
        }
    }

    /// The reason why the worker waits, if anything is in flight.
    pub(super) fn wait_reason(&self, comm: &C) -> Option<WaitReason> {
        match self {
            Background::Inline(worker) => worker.wait_reason(comm),
            Background::Thread(_) => Some(WaitReason::AsyncWorker),
        }
    }
}

impl<B: Backend, C: Communicator> ProgressEngine<C> for Background<B, C> {
    fn submit(&mut self, op: PendingOp<C>) {
        match self {
            Background::Inline(worker) => worker.pending.submit(op),
            Background::Thread(worker) => {
                worker.done[op.completion].store(op.request.is_complete(), Ordering::Relaxed);
                if op.request.is_complete() {
                    op.record(worker.recorder.as_ref());
                } else {
                    worker.send(Task::Submit(op));
                }
            }
        }
    }

    fn is_done(&self, completion: usize) -> bool {
        let done = match self {
            Background::Inline(worker) => &worker.pending.done,
            Background::Thread(worker) => &worker.done,
        };
        done[completion].load(Ordering::Acquire)
    }
}

impl<C: Communicator> BackgroundThread<C> {
    fn send(&self, task: Task<C>) {
        // The queue holds all that can be in flight. A failed worker accepts nothing, and its failure aborts all ranks.
        if let Some(tasks) = &self.tasks {
            let _ = tasks.try_send(task);
        }
        self.comm.unpark(ThreadRole::Async);
    }
}

impl<C: Communicator> Drop for BackgroundThread<C> {
    fn drop(&mut self) {
        self.tasks = None;
        self.comm.unpark(ThreadRole::Async);
        self.thread.take().map(JoinHandle::join);
    }
}

impl<C: Communicator> ProgressEngine<C> for PendingOps<C> {
    fn submit(&mut self, op: PendingOp<C>) {
        self.done[op.completion].store(op.request.is_complete(), Ordering::Relaxed);
        if op.request.is_complete() {
            op.record(self.recorder.as_ref());
        } else {
            self.ops.push(op);
        }
    }

    fn is_done(&self, completion: usize) -> bool {
        self.done[completion].load(Ordering::Acquire)
    }
}

impl<C: Communicator> PendingOps<C> {
    /// Progresses all exchanges as far as possible. Returns whether one completed.
    fn advance(&mut self, comm: &C) -> bool {
        let before = self.ops.len();
        let PendingOps { ops, done, recorder, .. } = self;
        ops.retain_mut(|op| {
            let PendingOp { call, request, completion, .. } = op;
            comm.advance(&call.group, &call.plan, request);
            let complete = request.is_complete();
            if complete {
                done[*completion].store(true, Ordering::Release);
                op.record(recorder.as_ref());
            }
            !complete
        });
        let completed_any = self.ops.len() < before;
        if completed_any && self.on_own_thread {
            comm.unpark(ThreadRole::Main);
        }
        completed_any
    }
}

impl<B: Backend, C: Communicator> AsyncWorker<B, C> {
    fn accept(&mut self, task: Task<C>) {
        match task {
            Task::Submit(op) => self.pending.submit(op),
            Task::Run(cursor, completion) => {
                self.pending.done[completion].store(false, Ordering::Relaxed);
                self.bodies.push_back((cursor, completion));
            }
        }
    }

    /// Advances all tasks as far as possible. Returns whether anything completed.
    fn advance(&mut self, comm: &C) -> bool {
        let mut completed_any = false;
        loop {
            let bodies = self.advance_bodies(comm);
            let exchanges = self.pending.advance(comm);
            completed_any |= bodies || exchanges;
            // A completed exchange may unblock a body.
            if !exchanges {
                return completed_any;
            }
        }
    }

    /// The reason why the worker waits, if an exchange is in flight.
    fn wait_reason(&self, comm: &C) -> Option<WaitReason> {
        self.pending
            .ops
            .first()
            .map(|first| comm.wait_reason(&first.call.group, &first.call.plan, first.request.number()))
    }

    /// Resumes the started bodies in order. Returns whether one completed.
    fn advance_bodies(&mut self, comm: &C) -> bool {
        let before = self.bodies.len();
        while let Some((cursor, completion)) = self.bodies.front_mut() {
            if cursor.is_at_start() {
                self.context.backend.wait(begin_event(*completion));
            }
            if cursor.resume(&self.rank_programs, &mut self.context, comm, &mut self.pending).is_some() {
                break;
            }
            self.context.progress.rest();
            self.context.backend.record(end_event(*completion));
            self.pending.done[*completion].store(true, Ordering::Release);
            if self.pending.on_own_thread {
                comm.unpark(ThreadRole::Main);
            }
            self.bodies.pop_front();
        }
        self.bodies.len() < before
    }

    /// Executes tasks until the queue is closed or a rank fails.
    fn serve(mut self, comm: &C, tasks: &Receiver<Task<C>>) {
        let outcome = catch_unwind(AssertUnwindSafe(|| while self.serve_once(comm, tasks) {}));
        if let Err(panic) = outcome {
            comm.fail(panic_message(panic.as_ref()));
        }
    }

    /// Parks until a task arrives, then executes all tasks. Returns whether more tasks may arrive.
    fn serve_once(&mut self, comm: &C, tasks: &Receiver<Task<C>>) -> bool {
        let mut first = Err(TryRecvError::Empty);
        let parked = comm.park(&mut || {
            first = tasks.try_recv();
            !matches!(first, Err(TryRecvError::Empty))
        });
        let (Ok(()), Ok(first)) = (parked, first) else { return false };
        self.accept(first);
        let waited = comm.wait(&mut || {
            tasks.try_iter().for_each(|task| self.accept(task));
            self.advance(comm);
            self.wait_reason(comm)
        });
        waited.is_ok()
    }
}
