//! A body invocation in progress: it stops where it must wait and later resumes there.

use super::frees;
use super::progress::{Progress, Site};
use super::rank_program::{BodyRun, BodyStep, ExchangeCall, RankProgram};
use super::recorder::{EventKind, EventRecorder};
use super::row::Kernels;
use comm::{Communicator, Request, ThreadRole, WaitReason};
use device::backend::{Backend, LaunchSite, Mark, Span};
use std::sync::Arc;
use std::time::Instant;

/// Resources of one thread of a rank.
pub(super) struct ThreadContext<B: Backend> {
    pub(super) backend: B,
    /// By rank program and body code.
    pub(super) kernels: Vec<Vec<Kernels<B>>>,
    /// The event buffer; none if events are not recorded.
    pub(super) recorder: Option<EventRecorder>,
    /// The number of the exchange in each completion slot.
    pub(super) numbers: Vec<u64>,
    pub(super) progress: Progress,
}

impl<B: Backend> ThreadContext<B> {
    /// True if events are recorded.
    pub(super) fn is_recorded(&self) -> bool {
        self.recorder.as_ref().is_some_and(EventRecorder::is_on)
    }

    /// The current time, if events are recorded.
    pub(super) fn now(&mut self) -> Option<Mark> {
        self.is_recorded().then(|| self.backend.mark())
    }

    /// Records an event.
    pub(super) fn record(&self, kind: EventKind, start: Option<Mark>, end: Option<Mark>) {
        if let (Some(recorder), Some(start), Some(end)) = (&self.recorder, start, end) {
            recorder.record(kind, [start, end]);
        }
    }
}

/// An exchange in flight, and its completion slot.
pub(super) struct PendingOp<C: Communicator> {
    pub(super) call: Arc<ExchangeCall<C>>,
    pub(super) request: Request,
    pub(super) completion: usize,
    /// The event of the exchange, and its start time.
    pub(super) record_as: (EventKind, Option<Mark>),
}

impl<C: Communicator> PendingOp<C> {
    /// Records the event of the completed exchange. A device has timed its work.
    pub(super) fn record(&self, recorder: Option<&EventRecorder>) {
        if let (Some(recorder), (kind, Some(began))) = (recorder, self.record_as) {
            let times = self.request.times().unwrap_or_else(|| [began, Mark::Host(Instant::now())]);
            recorder.record_moved(kind, times, self.request.filled_bytes());
        }
    }
}

/// Engine that progresses operations in flight until they complete.
pub(super) trait ProgressEngine<C: Communicator> {
    /// Hands an exchange over to the engine.
    fn submit(&mut self, op: PendingOp<C>);

    /// True if the operation of a completion slot is complete.
    fn is_done(&self, completion: usize) -> bool;
}

/// Cursor of a body invocation: its next step, and where its completion slots begin.
#[derive(Clone, Copy)]
pub(super) struct BodyCursor {
    pub(super) rank_program: usize,
    pub(super) run: usize,
    pub(super) site: LaunchSite,
    /// The next step.
    next: usize,
    /// The first completion slot of the body.
    completion: usize,
    /// Start times of the invocation and of its next step, if events are recorded.
    began: Option<Mark>,
    since: Option<Mark>,
}

impl BodyCursor {
    /// A cursor at the first step of a body invocation.
    pub(super) fn new<C: Communicator>(
        rank_programs: &[RankProgram<C>],
        rank_program: usize,
        run: usize,
    ) -> BodyCursor {
        let (completions, of) = (rank_programs[rank_program].completions, &rank_programs[rank_program].runs[run]);
        let completion = match rank_programs[rank_program].codes[of.code].role {
            ThreadRole::Main => completions[0],
            ThreadRole::Async => completions[0] + completions[1],
        };
        let site = LaunchSite { microbatch: of.microbatch, index: of.index };
        BodyCursor { rank_program, run, site, next: 0, completion, began: None, since: None }
    }

    /// True if it has executed nothing yet.
    pub(super) fn is_at_start(&self) -> bool {
        self.next == 0
    }

    /// Executes steps until one must wait, and returns the reason; none at the end of the body.
    pub(super) fn resume<B: Backend, C: Communicator>(
        &mut self,
        rank_programs: &[RankProgram<C>],
        context: &mut ThreadContext<B>,
        comm: &C,
        engine: &mut impl ProgressEngine<C>,
    ) -> Option<WaitReason> {
        let rank_program = &rank_programs[self.rank_program];
        let run = &rank_program.runs[self.run];
        let steps = &rank_program.codes[run.code].steps;
        self.began = self.began.or_else(|| context.now());
        self.since = self.since.or(self.began);
        while let Some(step) = steps.get(self.next) {
            if let Some(wait_reason) = self.execute(step, run, context, comm, engine) {
                return Some(wait_reason);
            }
            frees::after(&run.freed, self.next).for_each(|span| context.backend.poison(span));
            let end = context.now();
            context.record(EventKind::Step(self.run as u32, self.next as u32), self.since, end);
            self.since = end;
            self.next += 1;
            if self.next == steps.len() {
                run.leaves.iter().for_each(|&(to, from)| context.backend.copy(to, from));
                let end = if run.leaves.is_empty() { end } else { context.now() };
                context.record(EventKind::Run(self.run as u32), self.began, end);
            }
        }
        None
    }

    /// Executes one step; all steps of all bodies pass here.
    fn execute<B: Backend, C: Communicator>(
        &self,
        step: &BodyStep<C>,
        run: &BodyRun,
        context: &mut ThreadContext<B>,
        comm: &C,
        engine: &mut impl ProgressEngine<C>,
    ) -> Option<WaitReason> {
        let at = (self.run as u32, self.next as u32);
        let ThreadContext { backend, kernels, recorder, numbers, progress } = context;
        progress.begin(Site::Step(at.0, at.1));
        let (places, kernels) = (&run.places, &mut kernels[self.rank_program][run.code]);
        match step {
            BodyStep::Launch { kernel, operands, results, updated } => {
                let (operands, results) = (&places[operands.clone()], &places[results.clone()]);
                for (&to, &operand) in results.iter().zip(*updated) {
                    move_to(backend, to, operands[operand]);
                }
                backend.launch(&mut kernels[*kernel], self.site, operands, results, false);
            }
            BodyStep::Accumulate { kernel, operands, into, sum } => {
                let (operands, into) = (&places[operands.clone()], &places[*into..=*into]);
                backend.launch(&mut kernels[*kernel], self.site, operands, into, run.accumulates[*sum]);
            }
            BodyStep::Group { kernel, operands, results, sums } => {
                let (operands, results) = (&places[operands.clone()], &places[results.clone()]);
                let accumulate = &run.accumulates[sums.clone()];
                backend.launch_group(&mut kernels[*kernel], self.site, operands, results, accumulate);
            }
            BodyStep::Start { call, sources, results, completion } => {
                let request = comm.start(&call.group, &call.plan, &places[sources.clone()], &places[results.clone()]);
                let completion = self.completion + completion;
                numbers[completion] = request.number();
                let record_as = (EventKind::StepExchange(at.0, at.1), self.since);
                engine.submit(PendingOp { call: call.clone(), request, completion, record_as });
            }
            BodyStep::Wait { call, completion, sums } => {
                let number = numbers[self.completion + completion];
                if !engine.is_done(self.completion + completion) {
                    progress.rest();
                    return Some(comm.wait_reason(&call.group, &call.plan, number));
                }
                comm.receive(&call.group, number);
                let recorder = recorder.as_ref().filter(|recorder| recorder.is_on() && !sums.is_empty());
                let came = recorder.map(|_| backend.mark());
                for pair in places[sums.clone()].chunks_exact(2) {
                    // A sum that begins was written straight.
                    if pair[0] != pair[1] {
                        backend.add(pair[0], pair[1]);
                    }
                }
                if let (Some(recorder), Some(came)) = (recorder, came) {
                    recorder.record(EventKind::Sums(at.0, at.1), [came, backend.mark()]);
                }
            }
        }
        None
    }
}

/// Copies, unless it is there already.
fn move_to(backend: &mut impl Backend, to: Span, from: Span) {
    if to != from {
        backend.copy(to, from);
    }
}
