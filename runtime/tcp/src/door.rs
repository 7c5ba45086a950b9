//! A connection of a process with one that listens: its hello, and the answer to it.

use super::member::Member;
use super::message::{
    Answer, Challenge, Hello, MOST_OF_ANSWER, MOST_UNPROVED, PROTOCOL, Sealed, Word, has_spoken, put, take,
};
use super::secret::{Nonces, Secret, Side, is_proved, nonce, prove};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time for one connection, and between two tries.
const ONE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// A connection with who listens, and its first words.
pub(crate) struct Door {
    pub(crate) stream: TcpStream,
    challenge: Challenge,
}

impl Door {
    /// Connects with who listens at a place, or will soon, and hears its first words. Who has no time for another guest now may have later.
    ///
    /// # Errors
    /// Nobody answers by then.
    pub(crate) fn reach(place: impl ToSocketAddrs, until: Instant) -> io::Result<Door> {
        loop {
            match Door::knock(&place, until.min(Instant::now() + 5 * ONE)) {
                Err(why) if Instant::now() >= until => return Err(why),
                Err(_) => sleep(PAUSE),
                door => return door,
            }
        }
    }

    fn knock(place: &impl ToSocketAddrs, until: Instant) -> io::Result<Door> {
        let one = |address: SocketAddr| TcpStream::connect_timeout(&address, ONE);
        let none = io::Error::from(ErrorKind::AddrNotAvailable);
        let stream = place.to_socket_addrs()?.map(one).reduce(Result::or).unwrap_or(Err(none))?;
        // While nobody listens, a connection may by chance be one with itself.
        if stream.peer_addr()? == stream.local_addr()? {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let challenge = take(&stream, MOST_UNPROVED, until)?;
        Ok(Door { stream, challenge })
    }

    /// Says hello, and waits for the answer.
    ///
    /// # Errors
    /// The other side is gone, is of another version, or does not know the secret.
    pub(crate) fn introduce(self, member: &Member, hello: Hello, until: Instant) -> io::Result<(Introduced, Answer)> {
        let Door { stream, challenge: Challenge { protocol, nonce: host } } = self;
        if protocol != PROTOCOL {
            return Err(io::Error::other("it is of another version"));
        }
        let nonces = Nonces { guest: nonce()?, host };
        let text = serde_json::to_string(&Hello { nonce: nonces.guest, ..hello })?;
        let proof = prove(member.secret.as_ref(), Side::Guest, &nonces, &text);
        put(&stream, &Sealed { text, proof }, until)?;
        let introduced = Introduced { stream, nonces };
        let answer = introduced.hear(member.secret.as_ref(), until)?;
        Ok((introduced, answer))
    }
}

/// A connection with who has answered.
pub(crate) struct Introduced {
    pub(crate) stream: TcpStream,
    nonces: Nonces,
}

impl Introduced {
    /// Hears the next answer.
    ///
    /// # Errors
    /// The other side is gone, says nothing by then, or does not know the secret.
    pub(crate) fn hear(&self, secret: Option<&Secret>, until: Instant) -> io::Result<Answer> {
        let Sealed { text, proof } = take(&self.stream, MOST_OF_ANSWER, until)?;
        if !is_proved(secret, Side::Host, &self.nonces, &text, &proof) {
            return Err(io::Error::other("it has another secret, or none"));
        }
        Ok(serde_json::from_str(&text)?)
    }

    /// True if the other side has said something more, or is gone.
    pub(crate) fn has_spoken(&self) -> bool {
        has_spoken(&self.stream)
    }

    /// Says whether this process has connected with all others.
    ///
    /// # Errors
    /// The other side is gone.
    pub(crate) fn say(&self, secret: Option<&Secret>, word: &Word, until: Instant) -> io::Result<()> {
        let text = serde_json::to_string(word)?;
        let proof = prove(secret, Side::Guest, &self.nonces, &text);
        put(&self.stream, &Sealed { text, proof }, until)
    }
}
