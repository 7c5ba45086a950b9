//! Communicators: how ranks move data to each other.
//!
//! What moves is worked out at load, as a pure function of types and coordinates ([`Exchange`]); a communicator carries
//! it out. [`threads`] joins ranks that are threads of one process and copies nothing twice.

mod exchange;
mod group;
mod region;
#[cfg(test)]
mod tests;
pub mod threads;

pub use exchange::{Exchange, Move, TensorPlan};
pub use region::{Region, assemble, cut, local_len};

use crate::tensor::Tensor;

/// A rank failed, and all others stop with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("rank {rank} failed: {why}")]
pub struct Stopped {
    /// The first rank that failed.
    pub rank: usize,
    /// What happened to it.
    pub why: String,
}

/// One rank's way to the others. Every call that waits ends with an error once any rank has failed.
pub trait Communicator: Send {
    /// Makes a group of ranks known, before the first step. The members name it by equal lists.
    fn join(&mut self, ranks: &[usize]) -> usize;

    /// Carries out an exchange within a group; all members call it in the same order. `results` are written whole.
    ///
    /// # Errors
    /// A rank failed.
    fn exchange(
        &mut self,
        group: usize,
        plan: &Exchange,
        sources: &[Tensor],
        results: &mut [Tensor],
    ) -> Result<(), Stopped>;

    /// Sends a tensor to a rank; does not wait.
    fn send(&mut self, to: usize, tag: u32, tensor: Tensor);

    /// Waits for the next tensor with this tag from a rank.
    ///
    /// # Errors
    /// A rank failed.
    fn recv(&mut self, from: usize, tag: u32) -> Result<Tensor, Stopped>;

    /// Says that this rank failed, and wakes all that wait. Only the first report counts.
    fn fail(&self, why: String);

    /// The first failure, if there was one.
    fn failure(&self) -> Option<Stopped>;
}
