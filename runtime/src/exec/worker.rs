//! Worker of one rank: it executes instruction streams as straight lines of actions on spans of its arena.

use super::lane::Beside;
use super::machine::{Input, StepInput};
use super::play::{Carried, Carrier, Hands, Play};
use super::sheet::{Action, Sheet};
use super::tape::What;
use crate::arena::as_floats;
use crate::backend::{Backend, Span};
use crate::comm::{Communicator, RankFailure, RegionPiece};
use crate::state::State;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// One rank.
pub(super) struct Worker<B: Backend, C: Communicator> {
    pub(super) state: State,
    /// The row of a training step, and that of an evaluation.
    pub(super) sheets: Arc<[Sheet<C>]>,
    pub(super) hands: Hands<B>,
    pub(super) comm: C,
    pub(super) beside: Beside<B, C>,
    pub(super) seed: u64,
    /// The numbers of the messages under way.
    pub(super) posts: Vec<u64>,
    /// The rank's part of an input.
    pub(super) fed: Vec<f32>,
    /// What it reports, bit by bit, in the order of the sheet's names.
    pub(super) outs: Arc<[AtomicU32]>,
}

impl<B: Backend + 'static, C: Communicator> Worker<B, C> {
    /// Runs a row; what it reports stands in `outs` then.
    ///
    /// # Errors
    /// A rank failed.
    pub(super) fn run(&mut self, row: usize, input: &StepInput) -> Result<(), RankFailure> {
        let sheets = self.sheets.clone();
        for (span, value) in sheets[row].scalars.iter().zip([input.lr, input.step as f32]) {
            span.iter().for_each(|&span| self.hands.backend.write(span, &[value]));
        }
        for (at, action) in sheets[row].actions.iter().enumerate() {
            let began = self.hands.now();
            self.act(row, (at, action), input)?;
            if !matches!(action, Action::Run(_)) {
                self.hands.note(What::Action(at as u32), began);
            }
        }
        Ok(())
    }

    /// Does one action of a row. All actions of all rows pass here.
    fn act(&mut self, row: usize, (at, action): (usize, &Action<C>), input: &StepInput) -> Result<(), RankFailure> {
        let began = self.hands.now();
        let backend = &mut self.hands.backend;
        match action {
            Action::Feed { to, input: value, microbatch, pieces } => match &input.microbatches[*microbatch][value] {
                Input::Ints(whole) => feed(backend, as_floats(whole), pieces, *to, &mut self.fed),
                Input::Floats(whole) => feed(backend, whole, pieces, *to, &mut self.fed),
            },
            Action::LossGrad { to } => backend.write(*to, &[input.loss_cotangent()]),
            Action::Run(run) => {
                let play = Play::new(&self.sheets, row, *run, self.seed, input.step);
                return self.play(play);
            }
            Action::StartRun { run, berth } => {
                self.beside.run(Play::new(&self.sheets, row, *run, self.seed, input.step), *berth);
            }
            Action::Start { call, from, to, berth } => {
                let flight = self.comm.start(&call.group, &call.plan, &[*from], &[*to]);
                let noted = (What::Request(at as u32), began);
                self.beside.carry(Carried { call: call.clone(), flight, berth: *berth, noted });
            }
            Action::Wait { berth } => {
                let Worker { beside, comm, .. } = self;
                return comm.wait(&mut || {
                    while !beside.is_done(*berth) {
                        if !beside.advance(comm) {
                            return beside.awaited(comm);
                        }
                    }
                    None
                });
            }
            Action::Post { line, span, post } => self.posts[*post] = self.comm.start_message(line, *span),
            Action::Posted { line, post } => {
                let Worker { beside, comm, posts, .. } = self;
                return comm.wait(&mut || {
                    comm.pending(line, posts[*post])?;
                    beside.advance(comm);
                    comm.pending(line, posts[*post])
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

    /// Runs a body to its end. While it waits, what was started goes on.
    fn play(&mut self, mut play: Play) -> Result<(), RankFailure> {
        let Worker { sheets, hands, comm, beside, .. } = self;
        comm.wait(&mut || {
            loop {
                let awaited = play.go_on(sheets, hands, comm, beside)?;
                // What it waits for may have ended; else nothing can be done here.
                if !beside.advance(comm) {
                    return Some(awaited);
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
