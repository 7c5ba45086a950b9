//! The place where a process listens: all who come are heard at the same time, so that none keeps others waiting.

use super::message::{
    Answer, Challenge, Channel, Hello, LENGTH, MOST_UNPROVED, PROTOCOL, Sealed, Word, bytes_of, value_of,
};
use super::secret::{Nonce, Nonces, Secret, Side, is_proved, nonce};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use support::one_line::one_line;

/// The time in which who comes says hello.
const HELLO: Duration = Duration::from_secs(5);

/// The time for an answer to go.
const ANSWER: Duration = Duration::from_secs(10);

/// The most who have come and not yet said hello: half of the files that a process may have open by default. The first of them goes when
/// another one comes.
const MOST_GUESTS: usize = 512;

/// A listener, and who has come to it.
pub(crate) struct Reception {
    listener: TcpListener,
    secret: Option<Secret>,
    guests: Vec<Guest>,
}

/// Somebody who has come, and has not said hello yet.
struct Guest {
    stream: TcpStream,
    came: Instant,
    nonce: Nonce,
    said: Vec<u8>,
}

/// Somebody who has said hello.
pub(crate) struct Greeted {
    pub(crate) channel: Channel,
    pub(crate) hello: Hello,
    /// True if it has proved that it knows the secret, or if there is none.
    pub(crate) is_proved: bool,
}

/// Progress of a guest.
enum Heard {
    Part,
    All(Box<Greeted>),
    /// It is gone, late, or no process of a run.
    Nothing,
}

impl Reception {
    /// Listens at an address.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn open(address: SocketAddr, secret: Option<Secret>) -> io::Result<Reception> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Reception { listener, secret, guests: Vec::new() })
    }

    /// The port at which it listens.
    ///
    /// # Errors
    /// The system does not tell.
    pub(crate) fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Lets in who has come, hears all, and returns who has said hello since the last call. It does not wait.
    ///
    /// # Errors
    /// The system accepts nobody.
    pub(crate) fn look(&mut self) -> io::Result<Vec<Greeted>> {
        self.let_in()?;
        let mut greeted = Vec::new();
        let guests = std::mem::take(&mut self.guests);
        for mut guest in guests {
            match guest.hear(self.secret.as_ref()) {
                Heard::Part => self.guests.push(guest),
                Heard::All(one) => greeted.push(*one),
                Heard::Nothing => {}
            }
        }
        Ok(greeted)
    }

    fn let_in(&mut self) -> io::Result<()> {
        // One call lets in few guests, so that those who are there have their turn.
        for _ in 0..MOST_GUESTS {
            match self.listener.accept() {
                // A guest that cannot be greeted is gone.
                Ok((stream, _)) => self.guests.extend(Guest::welcome(stream).ok()),
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(why) if matches!(why.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // The process may have no more files open.
                Err(why) if self.guests.is_empty() => return Err(why),
                Err(_) => {
                    self.guests.remove(0);
                }
            }
            if self.guests.len() > MOST_GUESTS {
                self.guests.remove(0);
            }
        }
        Ok(())
    }
}

impl Guest {
    fn welcome(mut stream: TcpStream) -> io::Result<Guest> {
        stream.set_nonblocking(true)?;
        let nonce = nonce()?;
        stream.write_all(&bytes_of(&Challenge { protocol: PROTOCOL, nonce })?)?;
        Ok(Guest { stream, came: Instant::now(), nonce, said: Vec::new() })
    }

    /// Takes what it has said, up to one message.
    fn hear(&mut self, secret: Option<&Secret>) -> Heard {
        loop {
            let length = self.said.first_chunk::<LENGTH>().map(|length| u32::from_le_bytes(*length) as usize);
            if length.is_some_and(|length| length > MOST_UNPROVED) {
                return Heard::Nothing;
            }
            let missing = LENGTH + length.unwrap_or(0) - self.said.len();
            if missing == 0 && length.is_some() {
                return self.greet(secret).map_or(Heard::Nothing, |greeted| Heard::All(Box::new(greeted)));
            }
            let start = self.said.len();
            self.said.resize(start + missing, 0);
            let count = self.stream.read(&mut self.said[start..]);
            self.said.truncate(start + *count.as_ref().unwrap_or(&0));
            match count {
                Ok(0) => return Heard::Nothing,
                Ok(_) => {}
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock && self.came.elapsed() < HELLO => return Heard::Part,
                Err(_) => return Heard::Nothing,
            }
        }
    }

    /// Reads what it has said.
    fn greet(&self, secret: Option<&Secret>) -> io::Result<Greeted> {
        let Sealed { text, proof } = value_of(&self.said[LENGTH..])?;
        let hello: Hello = value_of(text.as_bytes())?;
        let failure = hello.failure.as_deref().map(|why| one_line(why).into_owned());
        let hello = Hello { host: one_line(&hello.host).into_owned(), failure, ..hello };
        let nonces = Nonces { guest: hello.nonce, host: self.nonce };
        let is_proved = is_proved(secret, Side::Guest, &nonces, &text, &proof);
        let channel = Channel { stream: self.stream.try_clone()?, nonces, side: Side::Host };
        Ok(Greeted { channel, hello, is_proved })
    }
}

impl Greeted {
    /// Answers it.
    ///
    /// # Errors
    /// It is gone, or does not take the answer.
    pub(crate) fn answer(&self, secret: Option<&Secret>, answer: &Answer) -> io::Result<()> {
        self.channel.stream.set_nonblocking(false)?;
        self.channel.say(secret, answer, Instant::now() + ANSWER)
    }

    /// The word about its connections with the others, once it has said it. It does not wait.
    ///
    /// # Errors
    /// It is gone, or says something else.
    pub(crate) fn word(&self, secret: Option<&Secret>) -> io::Result<Option<Word>> {
        match self.channel.has_spoken() {
            true => self.channel.hear(secret, MOST_UNPROVED, Instant::now() + ANSWER).map(Some),
            false => Ok(None),
        }
    }

    /// True if it has closed its connection. It says nothing before it is answered.
    pub(crate) fn has_left(&self) -> bool {
        match self.channel.stream.peek(&mut [0]) {
            Ok(count) => count == 0,
            Err(why) => !matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }
}
