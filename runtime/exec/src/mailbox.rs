//! A one-message slot between two threads. Unlike a channel it allocates nothing, not even when a thread waits on it for
//! the first time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Holds at most one message.
pub(super) struct Mailbox<T> {
    content: Mutex<Content<T>>,
    changed: Condvar,
}

enum Content<T> {
    Nothing,
    Message(T),
    /// One side has gone.
    Closed,
}

impl<T> Content<T> {
    /// Takes the message, or learns that none will come.
    fn take(&mut self) -> Option<Option<T>> {
        match std::mem::replace(self, Content::Nothing) {
            Content::Message(message) => Some(Some(message)),
            Content::Nothing => None,
            Content::Closed => {
                *self = Content::Closed;
                Some(None)
            }
        }
    }
}

/// No message has come in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TimedOut;

impl<T> Mailbox<T> {
    pub(super) fn new() -> Mailbox<T> {
        Mailbox { content: Mutex::new(Content::Nothing), changed: Condvar::new() }
    }

    fn content(&self) -> MutexGuard<'_, Content<T>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a message in; one that nobody has taken is lost.
    pub(super) fn put(&self, message: T) {
        let mut content = self.content();
        if !matches!(*content, Content::Closed) {
            *content = Content::Message(message);
            self.changed.notify_all();
        }
    }

    /// Waits for the next message; none once the mailbox is closed.
    pub(super) fn take(&self) -> Option<T> {
        let mut content = self.content();
        loop {
            match content.take() {
                Some(message) => return message,
                None => content = self.changed.wait(content).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Waits for the next message for a time; gives none once the mailbox is closed.
    ///
    /// # Errors
    /// None has come.
    pub(super) fn take_within(&self, limit: Duration) -> Result<Option<T>, TimedOut> {
        let (began, mut content) = (Instant::now(), self.content());
        loop {
            let left = limit.saturating_sub(began.elapsed());
            match content.take() {
                Some(message) => return Ok(message),
                None if left.is_zero() => return Err(TimedOut),
                None => content = self.changed.wait_timeout(content, left).unwrap_or_else(PoisonError::into_inner).0,
            }
        }
    }

    /// Ends the mailbox: waiting threads are notified, and messages in it are dropped.
    pub(super) fn close(&self) {
        *self.content() = Content::Closed;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn messages_come_in_turn_until_it_is_closed() {
        let (there, back) = (Arc::new(Mailbox::new()), Arc::new(Mailbox::new()));
        let (given, answers) = (there.clone(), back.clone());
        let thread = std::thread::spawn(move || {
            while let Some(number) = given.take() {
                answers.put(2 * number);
            }
            answers.close();
        });
        assert_eq!(back.take_within(Duration::from_millis(1)), Err(TimedOut));
        for number in 0..100 {
            there.put(number);
            assert_eq!(back.take(), Some(2 * number));
            there.put(number);
            assert_eq!(back.take_within(Duration::from_secs(600)), Ok(Some(2 * number)));
        }
        there.close();
        assert_eq!(back.take(), None);
        assert_eq!(back.take_within(Duration::ZERO), Ok(None));
        back.put(1);
        assert_eq!(back.take(), None);
        thread.join().unwrap();
    }
}
