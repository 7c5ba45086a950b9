//! Messages of a meeting: a length of four bytes and JSON. Who listens speaks first.

use super::secret::{Nonce, Nonces, Proof, Secret, Side, is_proved, prove};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Version of these messages and of frames.
pub(crate) const PROTOCOL: u32 = 3;

/// The most bytes of a message of somebody who has proved nothing yet.
pub(crate) const MOST_UNPROVED: usize = 1 << 13;

/// The most bytes of an answer: the addresses of 16,384 processes with long names of hosts.
pub(crate) const MOST_OF_ANSWER: usize = 1 << 22;

/// Bytes of the length before a message.
pub(crate) const LENGTH: usize = 4;

/// The first words of who listens.
#[derive(Serialize, Deserialize)]
pub(crate) struct Challenge {
    pub(crate) protocol: u32,
    pub(crate) nonce: Nonce,
}

/// The words of a process to process 0, and to those of lower numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    pub(crate) run: String,
    pub(crate) number: usize,
    pub(crate) count: usize,
    pub(crate) host: String,
    /// The port at which it listens.
    pub(crate) port: u16,
    pub(crate) nonce: Nonce,
    pub(crate) has_secret: bool,
    /// The cause why it does not take part; none if it does.
    pub(crate) failure: Option<String>,
}

/// The answer to a hello: of process 0 all addresses once all have come, or why there is no meeting. It answers once more, without
/// addresses, when all have connected.
pub(crate) type Answer = Result<Option<Roll>, String>;

/// The word of a process to process 0 once it has connected with all others, or why it has not.
pub(crate) type Word = Result<(), String>;

/// The hosts and addresses of all processes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Roll {
    pub(crate) hosts: Vec<String>,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// A connection whose two sides have drawn their numbers: what it carries is sealed by both.
pub(crate) struct Channel {
    pub(crate) stream: TcpStream,
    pub(crate) nonces: Nonces,
    /// The side of this process.
    pub(crate) side: Side,
}

impl Channel {
    /// Says something by a time.
    ///
    /// # Errors
    /// The other side is gone.
    pub(crate) fn say<T: Serialize>(&self, secret: Option<&Secret>, value: &T, until: Instant) -> io::Result<()> {
        let text = serde_json::to_string(value)?;
        let proof = prove(secret, self.side, &self.nonces, &text);
        put(&self.stream, &Sealed { text, proof }, until)
    }

    /// Hears what the other side says next, of at most `most` bytes.
    ///
    /// # Errors
    /// The other side is gone, says nothing by then, or does not know the secret.
    pub(crate) fn hear<T: DeserializeOwned>(
        &self,
        secret: Option<&Secret>,
        most: usize,
        until: Instant,
    ) -> io::Result<T> {
        let Sealed { text, proof } = take(&self.stream, most, until)?;
        if !is_proved(secret, self.side.other(), &self.nonces, &text, &proof) {
            return Err(io::Error::other("it has another secret, or none"));
        }
        Ok(serde_json::from_str(&text)?)
    }

    /// True if the other side has said something, or is gone. It does not wait.
    pub(crate) fn has_spoken(&self) -> bool {
        let looked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let _ = self.stream.set_nonblocking(false);
        !looked.is_err_and(|why| matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted))
    }
}

/// JSON of a message, and the proof that who says it knows the secret.
#[derive(Serialize, Deserialize)]
pub(crate) struct Sealed {
    pub(crate) text: String,
    pub(crate) proof: Proof,
}

/// The bytes of a message.
pub(crate) fn bytes_of<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(value)?;
    let length = u32::try_from(json.len()).map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
    Ok([&length.to_le_bytes()[..], &json].concat())
}

/// The value of the bytes behind a length.
pub(crate) fn value_of<T: DeserializeOwned>(json: &[u8]) -> io::Result<T> {
    Ok(serde_json::from_slice(json)?)
}

/// Reads a message of at most `most` bytes by a time, however slowly its bytes come.
pub(crate) fn take<T: DeserializeOwned>(stream: &TcpStream, most: usize, until: Instant) -> io::Result<T> {
    let mut length = [0; LENGTH];
    fill(stream, &mut length, until)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > most {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("a message of {length} bytes")));
    }
    let mut json = vec![0; length];
    fill(stream, &mut json, until)?;
    value_of(&json)
}

/// Writes a message by a time.
fn put<T: Serialize>(mut stream: &TcpStream, value: &T, until: Instant) -> io::Result<()> {
    stream.set_write_timeout(Some(left(until)))?;
    stream.write_all(&bytes_of(value)?)
}

/// Fills a place by a time.
fn fill(mut stream: &TcpStream, mut place: &mut [u8], until: Instant) -> io::Result<()> {
    while !place.is_empty() {
        if Instant::now() >= until {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left(until)))?;
        match stream.read(place) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => place = &mut place[count..],
            Err(why) if matches!(why.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// The time that is left, which is never none: the system takes that for no limit.
fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}
