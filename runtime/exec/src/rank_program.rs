//! Compiled step of a rank. A rank program is immutable, so the rank's threads share it.

use comm::{Communicator, RegionPiece, ThreadRole};
use device::backend::{HostCopy, HostDirection, Span};
use ir::graph::LossMean;
use ir::ids::ModelValue;
use ir::types::DType;
use std::ops::Range;
use std::sync::Arc;

/// An instruction stream compiled for one rank.
pub(super) struct RankProgram<C: Communicator> {
    pub(super) actions: Vec<Action<C>>,
    /// The instruction of each action.
    pub(super) origins: Vec<u32>,
    pub(super) codes: Vec<BodyCode<C>>,
    pub(super) runs: Vec<BodyRun>,
    /// The names of what it reports.
    pub(super) outs: Vec<String>,
    /// Each operation in flight has a completion slot. The largest numbers in use at a time: by the instruction stream, by
    /// the body that it runs, by a started body.
    pub(super) completions: [usize; 3],
    /// The largest number of messages in flight.
    pub(super) message_slots: usize,
    /// Sources of the data that it takes from the host, by the number of the feed.
    pub(super) feeds: Vec<Feed>,
    /// Feeds of scalars that are there from the beginning of the step.
    pub(super) scalars: Vec<(usize, Span)>,
    /// Places that are free after an action, by its number, if they get poison.
    pub(super) freed: Vec<(u32, Span)>,
}

/// Source of data that the host stages for a step.
pub(super) enum Feed {
    /// The rank's part of an input, of `len` elements of a type.
    Input { input: ModelValue, microbatch: usize, pieces: Vec<RegionPiece>, len: usize, dtype: DType },
    /// The cotangent of summed losses.
    LossCotangent(LossMean),
    /// The learning rate.
    LearningRate,
    /// The number of the update, from 1.
    Update,
    /// The reciprocal of the loss scale.
    InverseScale,
}

/// A compiled instruction.
pub(super) enum Action<C: Communicator> {
    /// Takes over what was staged.
    Feed { feed: usize, to: Span },
    /// Runs a body.
    Run(usize),
    /// Starts a body on the async worker.
    StartRun { run: usize, completion: usize },
    /// Starts an exchange.
    Start { call: Arc<ExchangeCall<C>>, from: Span, to: Span, completion: usize },
    /// Waits until a completion slot is done: that of an exchange, or without one of a started body.
    Wait { completion: usize, call: Option<Arc<ExchangeCall<C>>> },
    /// Starts to send or to receive.
    StartMessage { channel: Arc<C::Channel>, span: Span, message_slot: usize },
    /// Waits until the message is complete.
    WaitMessage { channel: Arc<C::Channel>, message_slot: usize },
    /// Starts to copy tensors to host memory or back.
    StartCopies { copies: Vec<HostCopy>, direction: HostDirection, completion: usize },
    /// Waits until the copies are there.
    WaitCopies { completion: usize },
    /// Copies a register.
    Copy { to: Span, from: Span },
    /// Adds a register to another.
    Add { into: Span, from: Span },
    /// Reports a scalar.
    Out { place: usize, from: Span },
}

/// An exchange and its group.
pub(super) struct ExchangeCall<C: Communicator> {
    pub(super) group: Arc<C::Group>,
    pub(super) plan: C::Plan,
}

/// A body compiled for one rank and one thread role.
pub(super) struct BodyCode<C: Communicator> {
    /// The thread that executes the body.
    pub(super) role: ThreadRole,
    pub(super) steps: Vec<BodyStep<C>>,
    /// The largest number of its operations in flight.
    pub(super) completions: usize,
}

/// A step of a body. Ranges are indices of [`BodyRun::places`].
pub(super) enum BodyStep<C: Communicator> {
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
    /// Runs a group, with its gradient sums among those of the body.
    Group { kernel: usize, operands: Range<usize>, results: Range<usize>, sums: Range<usize> },
    /// Starts a reshard.
    Start { call: Arc<ExchangeCall<C>>, sources: Range<usize>, results: Range<usize>, completion: usize },
    /// Waits for an exchange, then adds its results to gradient sums. `sums` has pairs: the sum, then the result.
    Wait { call: Arc<ExchangeCall<C>>, completion: usize, sums: Range<usize> },
}

/// An invocation of a body.
pub(super) struct BodyRun {
    /// The instruction that starts it.
    pub(super) instr: u32,
    pub(super) code: usize,
    pub(super) microbatch: u64,
    /// The repeat's variable.
    pub(super) index: u64,
    /// Places of the operands of the steps.
    pub(super) places: Vec<Span>,
    /// For each gradient sum of the body, whether this invocation adds to the sum; else it begins the sum.
    pub(super) accumulates: Vec<bool>,
    /// Scalars that it leaves to later runs, and what they are copies of.
    pub(super) leaves: Vec<(Span, Span)>,
    /// Places that are free after a step, by its number, if they get poison.
    pub(super) freed: Vec<(u32, Span)>,
}
