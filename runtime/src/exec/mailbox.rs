//! A one-message slot between two threads. Unlike a channel it allocates nothing, not even when a thread waits on it for
//! the first time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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
            match std::mem::replace(&mut *content, Content::Nothing) {
                Content::Message(message) => return Some(message),
                Content::Closed => {
                    *content = Content::Closed;
                    return None;
                }
                Content::Nothing => content = self.changed.wait(content).unwrap_or_else(PoisonError::into_inner),
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
        for number in 0..100 {
            there.put(number);
            assert_eq!(back.take(), Some(2 * number));
        }
        there.close();
        assert_eq!(back.take(), None);
        back.put(1);
        assert_eq!(back.take(), None);
        thread.join().unwrap();
    }
}
