//! A body invocation in progress: it stops where it must wait and later resumes there.

use super::row::Kernels;
use super::sheet::{Call, Run, Sheet, Step};
use super::tape::{Tape, What};
use crate::backend::{Backend, Moment, Span};
use crate::comm::{Communicator, Request, ThreadRole, WaitReason};
use std::sync::Arc;
use std::time::Instant;

/// What one thread of a rank computes with.
pub(super) struct Hands<B: Backend> {
    pub(super) backend: B,
    /// Per sheet and code.
    pub(super) kernels: Vec<Vec<Kernels<B>>>,
    /// Where it notes what it does; none if nobody wants to know.
    pub(super) tape: Option<Tape>,
}

impl<B: Backend> Hands<B> {
    /// The time, if it is to be noted.
    pub(super) fn now(&self) -> Option<Instant> {
        self.tape.as_ref().map(|_| Instant::now())
    }

    /// Notes what has ended now.
    pub(super) fn note(&self, what: What, since: Option<Instant>) {
        if let (Some(tape), Some(since)) = (&self.tape, since) {
            tape.note(what, since);
        }
    }
}

/// An exchange that has begun, and its berth.
pub(super) struct Carried<C: Communicator> {
    pub(super) call: Arc<Call<C>>,
    pub(super) flight: Request,
    pub(super) berth: usize,
    /// What it is noted as when it is over, and when it began.
    pub(super) noted: (What, Option<Instant>),
}

impl<C: Communicator> Carried<C> {
    /// Notes that it is over.
    pub(super) fn note(&self, tape: Option<&Tape>) {
        if let (Some(tape), (what, Some(began))) = (tape, self.noted) {
            tape.note(what, began);
        }
    }
}

/// Who sees to it that what has begun comes to its end.
pub(super) trait Carrier<C: Communicator> {
    /// Takes an exchange over.
    fn carry(&mut self, carried: Carried<C>);

    /// Whether what is in a berth has come to its end.
    fn is_done(&self, berth: usize) -> bool;
}

/// A run, as far as it has come.
#[derive(Clone, Copy)]
pub(super) struct Play {
    pub(super) sheet: usize,
    pub(super) run: usize,
    pub(super) moment: Moment,
    /// The step that is next.
    next: usize,
    /// The first berth of the body.
    berth: usize,
    /// When it began, and when its next step did, if that is to be noted.
    began: Option<Instant>,
    since: Option<Instant>,
}

impl Play {
    /// A run from its beginning.
    pub(super) fn new<C: Communicator>(sheets: &[Sheet<C>], sheet: usize, run: usize, seed: u64, step: u64) -> Play {
        let (berths, of) = (sheets[sheet].berths, &sheets[sheet].runs[run]);
        let berth = match sheets[sheet].codes[of.code].by {
            ThreadRole::Main => berths[0],
            ThreadRole::Async => berths[0] + berths[1],
        };
        let moment = Moment { seed, step, microbatch: of.microbatch, index: of.index };
        Play { sheet, run, moment, next: 0, berth, began: None, since: None }
    }

    /// Goes on as far as it can; what it waits for then, nothing at its end.
    pub(super) fn go_on<B: Backend, C: Communicator>(
        &mut self,
        sheets: &[Sheet<C>],
        hands: &mut Hands<B>,
        comm: &C,
        carrier: &mut impl Carrier<C>,
    ) -> Option<WaitReason> {
        let sheet = &sheets[self.sheet];
        let run = &sheet.runs[self.run];
        let steps = &sheet.codes[run.code].steps;
        self.began = self.began.or_else(|| hands.now());
        while let Some(step) = steps.get(self.next) {
            self.since = self.since.or_else(|| hands.now());
            if let Some(awaited) = self.perform(step, run, hands, comm, carrier) {
                return Some(awaited);
            }
            hands.note(What::Step(self.run as u32, self.next as u32), self.since.take());
            self.next += 1;
            if self.next == steps.len() {
                run.leaves.iter().for_each(|&(to, from)| hands.backend.copy(to, from));
                hands.note(What::Run(self.run as u32), self.began);
            }
        }
        None
    }

    /// Does a step. All steps of all bodies pass here.
    fn perform<B: Backend, C: Communicator>(
        &self,
        step: &Step<C>,
        run: &Run,
        hands: &mut Hands<B>,
        comm: &C,
        carrier: &mut impl Carrier<C>,
    ) -> Option<WaitReason> {
        let (now, at) = (hands.now(), (self.run as u32, self.next as u32));
        let Hands { backend, kernels, tape } = hands;
        let (places, kernels) = (&run.places, &mut kernels[self.sheet][run.code]);
        match step {
            Step::Launch { kernel, operands, results, updated } => {
                let (operands, results) = (&places[operands.clone()], &places[results.clone()]);
                for (&to, &operand) in results.iter().zip(*updated) {
                    move_to(backend, to, operands[operand]);
                }
                backend.launch(&mut kernels[*kernel], self.moment, operands, results, false);
            }
            Step::Accumulate { kernel, operands, into, sum } => {
                let (operands, into) = (&places[operands.clone()], &places[*into..=*into]);
                backend.launch(&mut kernels[*kernel], self.moment, operands, into, run.goes_on[*sum]);
            }
            Step::Start { call, sources, results, berth } => {
                let flight = comm.start(&call.group, &call.plan, &places[sources.clone()], &places[results.clone()]);
                let noted = (What::StepFlight(at.0, at.1), now);
                carrier.carry(Carried { call: call.clone(), flight, berth: self.berth + berth, noted });
            }
            Step::Wait { call, berth, sums } => {
                if !carrier.is_done(self.berth + berth) {
                    return Some(comm.wait_reason(&call.group));
                }
                for pair in places[sums.clone()].chunks_exact(2) {
                    // A sum that begins was written straight.
                    if pair[0] != pair[1] {
                        backend.add(pair[0], pair[1]);
                    }
                }
                if let (Some(tape), Some(now), false) = (tape, now, sums.is_empty()) {
                    tape.note(What::Sums(at.0, at.1), now);
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
