//! Worker of one rank: it executes instruction streams as straight lines of actions on spans of its arena.

use super::background::Background;
use super::cursor::{BodyCursor, PendingOp, ProgressEngine, ThreadContext};
use super::executor::{Input, StepInput};
use super::rank_program::{Action, RankProgram};
use super::recorder::EventKind;
use crate::arena::as_floats;
use crate::backend::{Backend, Span};
use crate::comm::{Communicator, RankFailure, RegionPiece};
use crate::state::State;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// One rank.
pub(super) struct Worker<B: Backend, C: Communicator> {
    pub(super) state: State,
    /// The rank programs of a training step and of an evaluation.
    pub(super) rank_programs: Arc<[RankProgram<C>]>,
    pub(super) context: ThreadContext<B>,
    pub(super) comm: C,
    pub(super) background: Background<B, C>,
    pub(super) seed: u64,
    /// The numbers of the messages in flight, by message slot.
    pub(super) message_numbers: Vec<u64>,
    /// The rank's part of an input.
    pub(super) fed: Vec<f32>,
    /// The reported scalars as bits, in the order of the names in the rank program.
    pub(super) outs: Arc<[AtomicU32]>,
}

impl<B: Backend + 'static, C: Communicator> Worker<B, C> {
    /// Executes a rank program; afterwards `outs` has the reported scalars.
    ///
    /// # Errors
    /// A rank failed.
    pub(super) fn run(&mut self, row: usize, input: &StepInput) -> Result<(), RankFailure> {
        let rank_programs = self.rank_programs.clone();
        for (span, value) in rank_programs[row].scalars.iter().zip([input.lr, input.update as f32]) {
            span.iter().for_each(|&span| self.context.backend.write(span, &[value]));
        }
        for (at, action) in rank_programs[row].actions.iter().enumerate() {
            let began = self.context.now();
            self.act(row, (at, action), input)?;
            if !matches!(action, Action::Run(_)) {
                self.context.record(EventKind::Action(at as u32), began);
            }
        }
        Ok(())
    }

    /// Executes one action; all actions of all rank programs pass here.
    fn act(&mut self, row: usize, (at, action): (usize, &Action<C>), input: &StepInput) -> Result<(), RankFailure> {
        let began = self.context.now();
        let backend = &mut self.context.backend;
        match action {
            Action::Feed { to, input: value, microbatch, pieces } => match &input.microbatches[*microbatch][value] {
                Input::Ints(whole) => feed(backend, as_floats(whole), pieces, *to, &mut self.fed),
                Input::Floats(whole) => feed(backend, whole, pieces, *to, &mut self.fed),
            },
            Action::LossGrad { to } => backend.write(*to, &[input.loss_cotangent()]),
            Action::Run(run) => {
                let cursor = BodyCursor::new(&self.rank_programs, row, *run, self.seed, input.step);
                return self.run_body(cursor);
            }
            Action::StartRun { run, completion } => {
                self.background
                    .run(BodyCursor::new(&self.rank_programs, row, *run, self.seed, input.step), *completion);
            }
            Action::Start { call, from, to, completion } => {
                let request = self.comm.start(&call.group, &call.plan, &[*from], &[*to]);
                let record_as = (EventKind::Exchange(at as u32), began);
                self.background.submit(PendingOp { call: call.clone(), request, completion: *completion, record_as });
            }
            Action::Wait { completion } => {
                let Worker { background, comm, .. } = self;
                return comm.wait(&mut || {
                    while !background.is_done(*completion) {
                        if !background.advance(comm) {
                            return background.wait_reason(comm);
                        }
                    }
                    None
                });
            }
            Action::StartMessage { channel, span, message_slot } => {
                self.message_numbers[*message_slot] = self.comm.start_message(channel, *span)
            }
            Action::WaitMessage { channel, message_slot } => {
                let Worker { background, comm, message_numbers, .. } = self;
                return comm.wait(&mut || {
                    comm.pending(channel, message_numbers[*message_slot])?;
                    background.advance(comm);
                    comm.pending(channel, message_numbers[*message_slot])
                });
            }
            Action::Copy { to, from } => backend.copy(*to, *from),
            Action::Add { into, from } => backend.add(*into, *from),
            Action::Out { place, from } => {
                let mut value = [0.0];
                backend.read(*from, &mut value);
                self.outs[*place].store(value[0].to_bits(), Ordering::Relaxed);
            }
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

/// Puts the rank's part of an input in its place.
fn feed(backend: &mut impl Backend, whole: &[f32], pieces: &[RegionPiece], to: Span, part: &mut [f32]) {
    for piece in pieces {
        part[piece.part..][..piece.len].copy_from_slice(&whole[piece.whole..][..piece.len]);
    }
    backend.write(to, &part[..to.len]);
}
