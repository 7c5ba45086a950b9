//! Compiled step of a rank. A sheet is immutable, so the rank's threads share it.

use crate::backend::Span;
use crate::comm::{Communicator, Exchange, RegionPiece, ThreadRole};
use ir::ids::ModelValue;
use std::ops::Range;
use std::sync::Arc;

/// A row for one rank.
pub(super) struct Sheet<C: Communicator> {
    pub(super) actions: Vec<Action<C>>,
    /// The instruction of each action.
    pub(super) origins: Vec<u32>,
    pub(super) codes: Vec<Code<C>>,
    pub(super) runs: Vec<Run>,
    /// The names of what it reports.
    pub(super) outs: Vec<String>,
    /// What is under way has a berth each. So many at most: of the row, of the body that it runs, of one that was started.
    pub(super) berths: [usize; 3],
    /// The most messages under way.
    pub(super) posts: usize,
    /// Elements of the largest input.
    pub(super) fed: usize,
    /// The learning rate, and the number of the step, from 1.
    pub(super) scalars: [Option<Span>; 2],
}

/// An instruction of a row.
pub(super) enum Action<C: Communicator> {
    /// Cuts the rank's part out of an input.
    Feed { to: Span, input: ModelValue, microbatch: usize, pieces: Vec<RegionPiece> },
    /// The cotangent of the losses.
    LossGrad { to: Span },
    /// Runs a body.
    Run(usize),
    /// Starts to run a body.
    StartRun { run: usize, berth: usize },
    /// Starts an exchange.
    Start { call: Arc<Call<C>>, from: Span, to: Span, berth: usize },
    /// Waits for what was started.
    Wait { berth: usize },
    /// Starts to send or to receive.
    Post { line: Arc<C::Channel>, span: Span, post: usize },
    /// Waits until it is over.
    Posted { line: Arc<C::Channel>, post: usize },
    /// Copies a register.
    Copy { to: Span, from: Span },
    /// Adds a register to another.
    Add { into: Span, from: Span },
    /// Reports a scalar.
    Out { place: usize, from: Span },
}

/// An exchange and who takes part in it.
pub(super) struct Call<C: Communicator> {
    pub(super) group: Arc<C::Group>,
    pub(super) plan: Exchange,
}

/// A body for one rank.
pub(super) struct Code<C: Communicator> {
    /// Who carries it out: the row, or the lane where it is started.
    pub(super) by: ThreadRole,
    pub(super) steps: Vec<Step<C>>,
    /// The most that it has started at a time.
    pub(super) berths: usize,
}

/// A step of a body. Ranges are of the places of a run.
pub(super) enum Step<C: Communicator> {
    /// Runs a kernel.
    Launch {
        kernel: usize,
        operands: Range<usize>,
        results: Range<usize>,
        /// The operands that the results begin as.
        updated: &'static [usize],
    },
    /// Runs a kernel whose result is a gradient sum, of this number among those of the body.
    Accumulate { kernel: usize, operands: Range<usize>, into: usize, sum: usize },
    /// Starts a layout change.
    Start { call: Arc<Call<C>>, sources: Range<usize>, results: Range<usize>, berth: usize },
    /// Waits for it. What it made stands beside the gradient sums that it is for: pairs of places, the sum's first.
    Wait { call: Arc<Call<C>>, berth: usize, sums: Range<usize> },
}

/// A run of a body.
pub(super) struct Run {
    /// The instruction that starts it.
    pub(super) instr: u32,
    pub(super) code: usize,
    pub(super) microbatch: u64,
    /// The repeat's variable.
    pub(super) index: u64,
    /// What the steps work on.
    pub(super) places: Vec<Span>,
    /// For each gradient sum of the body, whether it goes on with this run; else it begins.
    pub(super) goes_on: Vec<bool>,
    /// Scalars that it leaves to later runs, and what they are copies of.
    pub(super) leaves: Vec<(Span, Span)>,
}
