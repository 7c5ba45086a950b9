//! Worker of one rank: it executes instruction streams as straight lines of actions on spans of its arena.

use super::background::{Background, begin_event, end_event};
use super::cursor::{BodyCursor, PendingOp, ProgressEngine, ThreadContext};
use super::executor::{Input, StepInput, TRAINING};
use super::frees;
use super::progress::Site;
use super::rank_program::{Action, Feed, RankProgram};
use super::recorder::EventKind;
use crate::state::State;
use comm::{Communicator, DeviceRecording, RankFailure};
use device::backend::{Backend, Mark};
use device::host::{bytes_of, stored};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One rank.
pub(super) struct Worker<B: Backend, C: Communicator> {
    pub(super) state: State,
    pub(super) arena_bytes: usize,
    /// The rank programs of a training step and of an evaluation.
    pub(super) rank_programs: Arc<[RankProgram<C>]>,
    pub(super) context: ThreadContext<B>,
    pub(super) comm: C,
    pub(super) background: Background<B, C>,
    pub(super) seed: u64,
    /// The numbers of the messages in flight, by message slot.
    pub(super) message_numbers: Vec<u64>,
    /// The rank's part of an input.
    pub(super) fed: Vec<u8>,
    /// The reported scalars, in the order of the names in the rank program.
    pub(super) outs: Vec<f32>,
    pub(super) report: Arc<Report>,
    /// The rank programs that have been run once, if the device may repeat them by itself.
    pub(super) repeats: Option<Vec<bool>>,
    /// The time that it loses at the beginning of each step.
    pub(super) delay: Duration,
    /// The training step in which it gets stuck.
    pub(super) sticks_at: Option<u64>,
}

/// Report of a rank to the executor after a step.
pub(super) struct Report {
    /// The reported scalars as bits.
    pub(super) outs: Box<[AtomicU32]>,
    /// The choices of experts, and those of them that were dropped.
    pub(super) choices: [AtomicU64; 2],
    /// Nanoseconds of the step in which the rank did not wait for others.
    pub(super) own: AtomicU64,
}

impl Report {
    pub(super) fn new(outs: usize) -> Report {
        Report {
            outs: (0..outs).map(|_| AtomicU32::new(0)).collect(),
            choices: Default::default(),
            own: AtomicU64::new(0),
        }
    }
}

impl<B: Backend + 'static, C: Communicator> Worker<B, C> {
    /// Executes a rank program; afterwards the report has what it tells.
    ///
    /// # Errors
    /// A rank failed.
    pub(super) fn run(&mut self, row: usize, input: &StepInput) -> Result<(), RankFailure> {
        let (began, waited) = (Instant::now(), self.comm.waited());
        self.context.progress.sticks = row == TRAINING && self.sticks_at == Some(input.step);
        self.context.progress.begin(Site::Begin);
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        let rank_programs = self.rank_programs.clone();
        self.context.backend.set_timing(self.context.is_recorded());
        self.begin(&rank_programs[row], input);
        let repeats = self.repeats.is_some() && self.comm.repeats() && !self.context.is_recorded();
        if repeats {
            self.comm.note_recording(DeviceRecording::Repeated(row));
        }
        if !repeats || !self.context.backend.replay(row) {
            self.launch(row, &rank_programs[row], repeats)?;
        }
        self.context.progress.begin(Site::End);
        self.end(&rank_programs[row]);
        self.comm.note_recording(DeviceRecording::None);
        self.context.progress.rest();
        let own = began.elapsed().saturating_sub(self.comm.waited().saturating_sub(waited));
        self.report.own.store(own.as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Executes all actions of a rank program. The second time the device may record them, if it repeats steps.
    fn launch(&mut self, row: usize, rank_program: &RankProgram<C>, repeats: bool) -> Result<(), RankFailure> {
        let has_run = self.repeats.as_mut().is_some_and(|repeats| std::mem::replace(&mut repeats[row], true));
        if has_run && repeats {
            self.comm.note_recording(DeviceRecording::Made(row));
        }
        let records = has_run && repeats && self.context.backend.begin_recording();
        for (at, action) in rank_program.actions.iter().enumerate() {
            self.context.progress.begin(Site::Action(at as u32));
            // A body records its own events.
            let is_event = !matches!(action, Action::Run(_));
            let began = if is_event { self.context.now() } else { None };
            self.act(row, at, action, began)?;
            frees::after(&rank_program.freed, at).for_each(|span| self.context.backend.poison(span));
            let ended = if is_event { self.context.now() } else { None };
            self.context.record(EventKind::Action(at as u32), began, ended);
        }
        if records {
            self.comm.note_recording(DeviceRecording::Repeated(row));
            self.context.backend.end_recording(row);
        }
        Ok(())
    }

    /// Gives the backend all that the step takes from the host.
    fn begin(&mut self, rank_program: &RankProgram<C>, input: &StepInput) {
        let Worker { context: ThreadContext { backend, .. }, seed, fed, .. } = self;
        for (number, feed) in rank_program.feeds.iter().enumerate() {
            let scalar = match feed {
                Feed::Input { .. } => {
                    cut(feed, input, fed);
                    backend.stage(number, fed);
                    continue;
                }
                Feed::LossCotangent(mean) => input.loss_cotangent(*mean),
                Feed::LearningRate => input.lr,
                Feed::Update => input.update as f32,
                Feed::InverseScale => 1.0 / input.loss_scale,
            };
            backend.stage(number, &scalar.to_le_bytes());
        }
        backend.begin_step(*seed, input.step);
        rank_program.scalars.iter().for_each(|&(feed, to)| backend.feed(feed, to));
    }

    /// Tells what the step gives to the host.
    fn end(&mut self, rank_program: &RankProgram<C>) {
        let Worker { context: ThreadContext { backend, .. }, outs, report, .. } = self;
        let outs = &mut outs[..rank_program.outs.len()];
        backend.reports(outs);
        report.outs.iter().zip(outs).for_each(|(to, out)| to.store(out.to_bits(), Ordering::Relaxed));
        report.choices.iter().zip(backend.take_choices()).for_each(|(to, count)| to.store(count, Ordering::Relaxed));
        if let Some(recorder) = self.context.recorder.as_ref().filter(|recorder| recorder.is_on()) {
            recorder.set_times(backend.take_times());
        }
    }

    /// Executes one action, which begins at a time; all actions of all rank programs pass here.
    fn act(&mut self, row: usize, at: usize, action: &Action<C>, began: Option<Mark>) -> Result<(), RankFailure> {
        let backend = &mut self.context.backend;
        match action {
            Action::Feed { feed, to } => backend.feed(*feed, *to),
            Action::Run(run) => self.run_body(BodyCursor::new(&self.rank_programs, row, *run))?,
            Action::StartRun { run, completion } => {
                backend.record(begin_event(*completion));
                self.background.run(BodyCursor::new(&self.rank_programs, row, *run), *completion);
                if B::RUNS_LATE {
                    self.background.advance(&self.comm);
                }
            }
            Action::Start { call, from, to, completion } => {
                let request = self.comm.start(&call.group, &call.plan, &[*from], &[*to]);
                self.context.numbers[*completion] = request.number();
                let record_as = (EventKind::Exchange(at as u32), began);
                self.background.submit(PendingOp { call: call.clone(), request, completion: *completion, record_as });
            }
            Action::Wait { completion, call } => {
                let Worker { background, comm, context, .. } = self;
                context.progress.rest();
                comm.wait(&mut || {
                    while !background.is_done(*completion) {
                        if !background.advance(comm) {
                            return background.wait_reason(comm);
                        }
                    }
                    None
                })?;
                match call {
                    Some(call) => comm.receive(&call.group, self.context.numbers[*completion]),
                    None => self.context.backend.wait(end_event(*completion)),
                }
            }
            Action::StartMessage { channel, span, message_slot } => {
                let message = self.comm.start_message(channel, *span);
                self.message_numbers[*message_slot] = message.number;
                if let (Some(recorder), Some(times)) = (&self.context.recorder, message.times) {
                    recorder.record(EventKind::Message(at as u32), times);
                }
            }
            Action::WaitMessage { channel, message_slot } => {
                let Worker { background, comm, message_numbers, context, .. } = self;
                context.progress.rest();
                let number = message_numbers[*message_slot];
                comm.wait(&mut || {
                    comm.pending(channel, number)?;
                    background.advance(comm);
                    comm.pending(channel, number)
                })?;
                comm.receive_message(channel, number);
            }
            Action::StartCopies { copies, direction, completion } => {
                let events = [begin_event(*completion), end_event(*completion)];
                let times = backend.copy_host(copies, *direction, events);
                if let Some(recorder) = self.context.recorder.as_ref().filter(|recorder| recorder.is_on()) {
                    recorder.record(EventKind::HostCopy(at as u32), times);
                }
            }
            Action::WaitCopies { completion } => backend.wait(end_event(*completion)),
            Action::Copy { to, from } => backend.copy(*to, *from),
            Action::Add { into, from } => backend.add(*into, *from),
            Action::Out { place, from } => backend.report(*place, *from),
        }
        Ok(())
    }

    /// Runs a body to its end. While the body waits, an inline async worker advances.
    fn run_body(&mut self, mut cursor: BodyCursor) -> Result<(), RankFailure> {
        let Worker { rank_programs, context, comm, background, .. } = self;
        comm.wait(&mut || {
            loop {
                let wait_reason = cursor.resume(rank_programs, context, comm, background)?;
                // The awaited operation may have completed; else this thread parks.
                if !background.advance(comm) {
                    return Some(wait_reason);
                }
            }
        })
    }
}

/// Cuts the rank's part out of an input, as it is stored.
fn cut(feed: &Feed, input: &StepInput, part: &mut Vec<u8>) {
    let Feed::Input { input: value, microbatch, pieces, len, dtype } = feed else { return };
    let element = dtype.bytes() as usize;
    part.resize(len * element, 0);
    for piece in pieces {
        let whole = piece.whole..piece.whole + piece.len;
        let stored = match &input.microbatches[*microbatch][value] {
            Input::Ints(elements) => Cow::Borrowed(bytes_of(&elements[whole])),
            Input::Floats(elements) => stored(*dtype, &elements[whole]),
        };
        part[piece.part * element..][..stored.len()].copy_from_slice(&stored);
    }
}
