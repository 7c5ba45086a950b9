//! The meeting of the processes of a run. Process 0 listens; all others tell it who they are and at which port they listen themselves.
//! When all have come, it tells each the addresses of all, and each connects to those of lower numbers.

use super::member::Member;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time for one connection or one short message, and between two tries.
const ONE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

/// The most bytes of a message of the meeting.
const MOST: u32 = 1 << 22;

/// Version of these messages and of frames.
const PROTOCOL: u32 = 1;

/// The other processes, as they meet.
pub(crate) struct Met {
    /// The host of each process.
    pub(crate) hosts: Vec<String>,
    /// The connection with each process; none with this one.
    pub(crate) streams: Vec<Option<TcpStream>>,
}

/// The words of a process to process 0, and to those of lower numbers.
#[derive(Serialize, Deserialize)]
struct Hello {
    protocol: u32,
    run: String,
    number: usize,
    count: usize,
    host: String,
    port: u16,
}

/// The answer of process 0 when all have come: their hosts and addresses.
#[derive(Clone, Serialize, Deserialize)]
struct Roll {
    hosts: Vec<String>,
    addresses: Vec<SocketAddr>,
}

/// Meets all others.
///
/// # Errors
/// They do not all come in time, or do not belong together.
pub(crate) fn meet(member: &Member, host: &str, patience: Duration) -> Result<Met, String> {
    let until = Instant::now() + patience;
    if member.count == 1 {
        return Ok(Met { hosts: vec![host.to_string()], streams: vec![None] });
    }
    if member.number == 0 { call_roll(member, host, until) } else { answer_roll(member, host, until) }
}

/// Waits for all others, as process 0.
fn call_roll(member: &Member, host: &str, until: Instant) -> Result<Met, String> {
    let failed = |why: io::Error| format!("process 0 cannot listen at {}:{}: {why}", member.host, member.port);
    let first = (member.host.as_str(), member.port).to_socket_addrs().map_err(failed)?.next();
    let first = first.map_or(Ipv4Addr::UNSPECIFIED.into(), |first| first.ip());
    let listener = TcpListener::bind((listens(member, first), member.port)).map_err(failed)?;
    let mut hosts = vec![host.to_string(); member.count];
    let mut addresses = vec![None; member.count];
    let mut streams: Vec<Option<TcpStream>> = (0..member.count).map(|_| None).collect();
    gather(&listener, &mut streams, 1..member.count, until, &mut |mut stream| {
        let Ok(hello) = take::<Hello>(&mut stream) else { return Ok(None) };
        let (number, place) = (hello.number, stream.peer_addr().map_err(|why| lost(hello.number, &why))?.ip());
        let found = match &hello {
            Hello { run, .. } if *run != member.run => {
                // Processes of another run wait for a process 0 of their own.
                let _ = put::<Result<Roll, String>>(&mut stream, &Err("process 0 is of another run".to_string()));
                return Ok(None);
            }
            Hello { protocol, .. } if *protocol != PROTOCOL => format!("process {number} is of another version"),
            Hello { count, .. } if *count != member.count => {
                format!("process {number} is one of {count}, and process 0 one of {}", member.count)
            }
            _ if !(1..member.count).contains(&number) || addresses[number].is_some() => {
                format!("there are two processes {number}, on {host} and {}", hello.host)
            }
            _ => {
                addresses[number] = Some(SocketAddr::new(place, hello.port));
                hosts[number] = hello.host;
                return Ok(Some(number));
            }
        };
        let _ = put::<Result<Roll, String>>(&mut stream, &Err(found.clone()));
        Err(found)
    })?;
    let unused = SocketAddr::new(first, 0);
    let roll = Roll { hosts, addresses: addresses.into_iter().map(|address| address.unwrap_or(unused)).collect() };
    for (number, stream) in streams.iter().enumerate() {
        let told = stream.iter().try_for_each(|mut stream| put::<Result<&Roll, String>>(&mut stream, &Ok(&roll)));
        told.map_err(|why| lost(number, &why))?;
    }
    Ok(Met { hosts: roll.hosts, streams })
}

/// Tells process 0 of this one, hears of all others, and connects with them.
fn answer_roll(member: &Member, host: &str, until: Instant) -> Result<Met, String> {
    let mut zero = reach(member, until)?;
    let there = zero.peer_addr().map_err(|why| lost(0, &why))?.ip();
    let failed = |why: io::Error| format!("process {} has no port to listen at: {why}", member.number);
    let listener = TcpListener::bind((listens(member, there), 0)).map_err(failed)?;
    let hello = Hello {
        protocol: PROTOCOL,
        run: member.run.clone(),
        number: member.number,
        count: member.count,
        host: host.to_string(),
        port: listener.local_addr().map_err(failed)?.port(),
    };
    let left = until.saturating_duration_since(Instant::now()) + ONE;
    let roll = zero.set_read_timeout(Some(left)).and_then(|()| put(&mut zero, &hello)).and_then(|()| take(&mut zero));
    let Roll { hosts, addresses } = roll.map_err(|why| lost(0, &why)).and_then(|roll: Result<Roll, String>| roll)?;
    let mut streams: Vec<Option<TcpStream>> = (0..member.count).map(|_| None).collect();
    for (number, address) in addresses.iter().enumerate().take(member.number).skip(1) {
        // A process that process 0 sees on its own host is there for all.
        let ip = if address.ip().is_loopback() { there } else { address.ip() };
        let connected = TcpStream::connect_timeout(&SocketAddr::new(ip, address.port()), 5 * ONE);
        let greeted = connected.and_then(|mut stream| put(&mut stream, &hello).map(|()| stream));
        streams[number] = Some(greeted.map_err(|why| lost(number, &why))?);
    }
    gather(&listener, &mut streams, member.number + 1..member.count, until, &mut |mut stream| {
        let hello = take::<Hello>(&mut stream).ok().filter(|hello| hello.run == member.run);
        Ok(hello.map(|hello| hello.number).filter(|number| (member.number + 1..member.count).contains(number)))
    })?;
    streams[0] = Some(zero);
    Ok(Met { hosts, streams })
}

/// The address to listen at: on one host only its own, else all, of the kind of another one.
fn listens(member: &Member, other: IpAddr) -> IpAddr {
    match other {
        _ if member.is_local() => other,
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Connects with process 0, which may begin to listen later.
fn reach(member: &Member, until: Instant) -> Result<TcpStream, String> {
    let place = (member.host.as_str(), member.port);
    loop {
        let one = |address: SocketAddr| TcpStream::connect_timeout(&address, ONE);
        let found = place.to_socket_addrs().and_then(|addresses| {
            let none = io::Error::from(ErrorKind::AddrNotAvailable);
            addresses.map(one).reduce(Result::or).unwrap_or(Err(none))
        });
        // While nobody listens, a connection may by chance be one with itself.
        let is_own = |stream: &TcpStream| stream.peer_addr().ok() == stream.local_addr().ok();
        match found {
            Ok(stream) if !is_own(&stream) => return Ok(stream),
            Err(why) if Instant::now() >= until => {
                return Err(format!("process 0 does not answer at {}:{}: {why}", member.host, member.port));
            }
            _ => sleep(5 * PAUSE),
        }
    }
}

/// Accepts connections until one with each process of a range is there. `greet` says of a connection with which it is, if with any.
fn gather(
    listener: &TcpListener,
    streams: &mut [Option<TcpStream>],
    range: Range<usize>,
    until: Instant,
    greet: &mut dyn FnMut(&TcpStream) -> Result<Option<usize>, String>,
) -> Result<(), String> {
    let failed = |why: io::Error| format!("connections cannot be accepted: {why}");
    listener.set_nonblocking(true).map_err(failed)?;
    loop {
        let missing: Vec<String> = range.clone().filter(|&at| streams[at].is_none()).map(|at| at.to_string()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        match listener.accept() {
            Ok((stream, _)) => {
                let limited = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(ONE)));
                if let (Ok(()), Some(number)) = (limited, greet(&stream)?) {
                    streams[number] = Some(stream);
                }
            }
            Err(why) if why.kind() != ErrorKind::WouldBlock => return Err(failed(why)),
            Err(_) if Instant::now() >= until => return Err(format!("processes {} have not come", missing.join(", "))),
            Err(_) => sleep(PAUSE),
        }
    }
}

fn lost(number: usize, why: &io::Error) -> String {
    format!("process {number} is lost: {why}")
}

fn put<T: Serialize>(stream: &mut impl Write, value: &T) -> io::Result<()> {
    let bytes = serde_json::to_vec(value)?;
    let mut message = (bytes.len() as u32).to_le_bytes().to_vec();
    message.extend(bytes);
    stream.write_all(&message)
}

fn take<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MOST {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}
