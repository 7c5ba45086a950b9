//! Checkpoints of a run that goes on: while they are written, what a failed one means, and the time that they cost.

use super::checkpoint::refused;
use super::report::Progress;
use crate::error::Error;
use checkpoint::{Before, Save, Saver};
use exec::{Executor, Platform};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The checkpoints of a run.
pub(super) struct Saving {
    saver: Saver,
    /// Step and path of the last one in the run's folder.
    last: Option<(u64, PathBuf)>,
    /// The time in which the run waited for them.
    waited: Duration,
}

impl Saving {
    /// Those of a run that goes on from this one.
    pub(super) fn after(last: Option<(u64, PathBuf)>) -> Saving {
        Saving { saver: Saver::default(), last, waited: Duration::ZERO }
    }

    /// Step and path of the last one in the run's folder.
    pub(super) fn last(&self) -> Option<&(u64, PathBuf)> {
        self.last.as_ref()
    }

    /// The step of the one that is under way.
    pub(super) fn step(&self) -> Option<u64> {
        self.saver.step()
    }

    /// True while this process writes.
    pub(super) fn is_busy(&self) -> bool {
        self.saver.is_busy()
    }

    /// Seconds in which the run waited.
    pub(super) fn seconds(&self) -> f64 {
        self.waited.as_secs_f64()
    }

    /// Begins to save; none is under way.
    ///
    /// # Errors
    /// The system refuses, or a rank failed.
    pub(super) fn begin<P: Platform>(
        &mut self,
        executor: &mut Executor<P>,
        order: &Save<'_>,
        before: Option<Before>,
    ) -> Result<(), checkpoint::Error> {
        let clock = Instant::now();
        let begun = self.saver.begin(executor, order, before);
        self.waited += clock.elapsed();
        begun
    }

    /// Goes on with the one that is under way after a step, if no process writes. That of the last step has none after it.
    ///
    /// # Errors
    /// A rank failed, or the system refuses the last one.
    pub(super) fn look<P: Platform>(
        &mut self,
        executor: &mut Executor<P>,
        last: u64,
        progress: &mut dyn Progress,
    ) -> Result<(), Error> {
        let Some(step) = self.saver.step().filter(|_| !executor.is_busy()) else { return Ok(()) };
        let outcome = self.go_on(executor, Saver::advance);
        if step == last { outcome.map_err(refused) } else { excused(outcome, progress) }
    }

    /// Waits for the one that is under way.
    ///
    /// # Errors
    /// The system refuses, or a rank failed.
    pub(super) fn finish<P: Platform>(&mut self, executor: &mut Executor<P>) -> Result<(), checkpoint::Error> {
        self.go_on(executor, Saver::finish)
    }

    fn go_on<P: Platform>(
        &mut self,
        executor: &mut Executor<P>,
        work: impl FnOnce(&mut Saver, &mut Executor<P>) -> Result<Option<PathBuf>, checkpoint::Error>,
    ) -> Result<(), checkpoint::Error> {
        let (clock, step) = (Instant::now(), self.saver.step());
        let outcome = work(&mut self.saver, executor);
        self.waited += clock.elapsed();
        let saved = match &outcome {
            Ok(saved) => saved.as_ref(),
            Err(checkpoint::Error::Unremoved { checkpoint, .. }) => Some(checkpoint),
            Err(_) => None,
        };
        self.last = step.zip(saved.cloned()).or(self.last.take());
        outcome.map(drop)
    }
}

/// Reports that a checkpoint is missing, which does not end the run.
///
/// # Errors
/// A rank failed.
pub(super) fn excused(outcome: Result<(), checkpoint::Error>, progress: &mut dyn Progress) -> Result<(), Error> {
    match outcome {
        Ok(()) => Ok(()),
        Err(why @ checkpoint::Error::Executor(_)) => Err(refused(why)),
        Err(why) => {
            progress.noted(&format!("{why}; the run goes on, and the next step that saves tries again"));
            Ok(())
        }
    }
}
