//! Deadline of an answer.

use crate::cancel::CancelToken;
use crate::error::Error;
use crate::request_error::RequestError;
use std::time::{Duration, Instant};

/// The moment from which on an answer is given with what is known by then; without one, never. A deadline is over too once its
/// token is cancelled.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Deadline {
    moment: Option<Instant>,
    cancel: Option<CancelToken>,
}

impl Deadline {
    /// So many seconds from here. More seconds than a clock counts are no deadline.
    pub fn after(seconds: Option<f64>) -> Deadline {
        let wait = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Deadline { moment: wait.and_then(|wait| Instant::now().checked_add(wait)), cancel: None }
    }

    /// A deadline `--deadline` seconds from now.
    ///
    /// # Errors
    /// They are not above 0.
    pub fn asked(seconds: Option<f64>) -> Result<Deadline, RequestError> {
        match seconds.filter(|seconds| !(*seconds > 0.0 && seconds.is_finite())) {
            Some(seconds) => Err(RequestError::Deadline { seconds }),
            None => Ok(Deadline::after(seconds)),
        }
    }

    /// The same deadline, which is over as soon as `cancel` is cancelled.
    #[must_use]
    pub fn or_cancelled(self, cancel: &CancelToken) -> Deadline {
        Deadline { cancel: Some(cancel.clone()), ..self }
    }

    /// True if it is over.
    pub fn is_over(&self) -> bool {
        self.is_cancelled() || self.moment.is_some_and(|moment| Instant::now() >= moment)
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Fails once the token is cancelled. A deadline that is over by the clock is no error.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn check_cancelled(&self) -> Result<(), Error> {
        self.cancel.as_ref().map_or(Ok(()), CancelToken::check)
    }

    /// Seconds that are left; `None`: there is no deadline.
    pub fn left(&self) -> Option<f64> {
        self.moment.map(|moment| moment.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    /// The deadline of a part that may take this share of the time that is left.
    #[must_use]
    pub fn share(&self, share: f64) -> Deadline {
        Deadline { cancel: self.cancel.clone(), ..Deadline::after(self.left().map(|left| left * share)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_over_when_its_seconds_are() {
        assert!(Deadline::after(Some(0.0)).is_over());
        let hour = Deadline::after(Some(3600.0));
        assert!(!hour.is_over() && hour.share(0.5).left().is_some_and(|left| (1790.0..=1800.0).contains(&left)));
        for never in [Deadline::default(), Deadline::after(None), Deadline::after(Some(1e300))] {
            assert!(!never.is_over() && never.left().is_none() && never.share(0.5) == never);
        }
    }

    #[test]
    fn a_cancelled_deadline_is_over_in_all_its_parts() {
        let cancel = CancelToken::new();
        let deadline = Deadline::default().or_cancelled(&cancel);
        let part = deadline.share(0.5);
        assert!(!part.is_over() && part.check_cancelled().is_ok());
        cancel.cancel();
        assert!(deadline.is_over() && part.is_over() && part.left().is_none());
        assert_eq!(part.check_cancelled(), Err(Error::Cancelled));
        assert_eq!(Deadline::after(Some(0.0)).check_cancelled(), Ok(()));
    }
}
