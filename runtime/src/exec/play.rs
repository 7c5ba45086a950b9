//! A run of a body that is being carried out: it stops where it must wait and goes on from there.

use super::row::Kernels;
use super::sheet::{Call, Run, Sheet, Step};
use crate::backend::{Backend, Moment, Span};
use crate::comm::{Awaited, Communicator, Flight, Hand};
use std::sync::Arc;

/// What one thread of a rank computes with.
pub(super) struct Hands<B: Backend> {
    pub(super) backend: B,
    /// Per sheet and code.
    pub(super) kernels: Vec<Vec<Kernels<B>>>,
}

/// An exchange that has begun, and its berth.
pub(super) struct Carried<C: Communicator> {
    pub(super) call: Arc<Call<C>>,
    pub(super) flight: Flight,
    pub(super) berth: usize,
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
}

impl Play {
    /// A run from its beginning.
    pub(super) fn new<C: Communicator>(sheets: &[Sheet<C>], sheet: usize, run: usize, seed: u64, step: u64) -> Play {
        let (berths, of) = (sheets[sheet].berths, &sheets[sheet].runs[run]);
        let berth = match sheets[sheet].codes[of.code].by {
            Hand::Row => berths[0],
            Hand::Lane => berths[0] + berths[1],
        };
        Play { sheet, run, moment: Moment { seed, step, microbatch: of.microbatch, index: of.index }, next: 0, berth }
    }

    /// Goes on as far as it can; what it waits for then, nothing at its end.
    pub(super) fn go_on<B: Backend, C: Communicator>(
        &mut self,
        sheets: &[Sheet<C>],
        hands: &mut Hands<B>,
        comm: &C,
        carrier: &mut impl Carrier<C>,
    ) -> Option<Awaited> {
        let sheet = &sheets[self.sheet];
        let run = &sheet.runs[self.run];
        let steps = &sheet.codes[run.code].steps;
        while let Some(step) = steps.get(self.next) {
            if let Some(awaited) = self.perform(step, run, hands, comm, carrier) {
                return Some(awaited);
            }
            self.next += 1;
            if self.next == steps.len() {
                run.leaves.iter().for_each(|&(to, from)| hands.backend.copy(to, from));
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
    ) -> Option<Awaited> {
        let Hands { backend, kernels } = hands;
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
                carrier.carry(Carried { call: call.clone(), flight, berth: self.berth + berth });
            }
            Step::Wait { call, berth, sums } => {
                if !carrier.is_done(self.berth + berth) {
                    return Some(comm.awaited(&call.group));
                }
                for pair in places[sums.clone()].chunks_exact(2) {
                    // A sum that begins was written straight.
                    if pair[0] != pair[1] {
                        backend.add(pair[0], pair[1]);
                    }
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
