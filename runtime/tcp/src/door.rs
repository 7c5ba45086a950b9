//! A connection of a process with one that listens: its hello, and the answer to it.

use super::member::Member;
use super::message::{Answer, Challenge, Channel, Hello, MOST_OF_ANSWER, MOST_UNPROVED, PROTOCOL, take};
use super::secret::{Nonces, Side, nonce};
use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
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
        let streams = place.to_socket_addrs()?.map(|address| TcpStream::connect_timeout(&address, ONE));
        let stream = streams.reduce(Result::or).unwrap_or_else(|| Err(ErrorKind::AddrNotAvailable.into()))?;
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
    pub(crate) fn introduce(self, member: &Member, hello: Hello, until: Instant) -> io::Result<(Channel, Answer)> {
        let Door { stream, challenge: Challenge { protocol, nonce: host } } = self;
        if protocol != PROTOCOL {
            return Err(io::Error::other("it is of another version"));
        }
        let nonces = Nonces { guest: nonce()?, host };
        let (channel, secret) = (Channel { stream, nonces, side: Side::Guest }, member.secret.as_ref());
        channel.say(secret, &Hello { nonce: nonces.guest, ..hello }, until)?;
        let answer = channel.hear(secret, MOST_OF_ANSWER, until)?;
        Ok((channel, answer))
    }
}
