//! The meeting of the processes of a run. Process 0 listens; all others tell it who they are and at which port they listen themselves.
//! When all have come, it tells each the addresses of all, and each connects to those of lower numbers. Each says whether it has reached
//! all; once all have, process 0 tells them to begin.
//!
//! A guest that knows the secret of the run belongs to it, and ends the meeting if it does not fit. Any other is turned away, and the
//! meeting goes on. Without a secret a process of the run looks like a stranger, so that none ends the meeting at once.

use super::door::Door;
use super::member::Member;
use super::message::{Answer, Channel, Hello, MOST_OF_ANSWER, PROTOCOL, Roll, Word};
use super::reception::{Greeted, Reception};
use super::roll_call::call_roll;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time between two looks.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// The time in which processes that have all met process 0 connect with each other.
pub(crate) const ROUND: Duration = Duration::from_secs(8);

/// The time by which who waits for another process waits longer than that one.
pub(crate) const MARGIN: Duration = Duration::from_secs(2);

/// The time in which a process that does not take part says so.
const DECLINE: Duration = Duration::from_secs(10);

/// The other processes, as they meet.
pub(crate) struct Met {
    /// The host of each process.
    pub(crate) hosts: Vec<String>,
    /// The connection with each process; none with this one.
    pub(crate) streams: Vec<Option<TcpStream>>,
}

/// Meets all others.
///
/// # Errors
/// They do not all come in time, or do not belong together.
pub(crate) fn meet(member: &Member, host: &str, patience: Duration, note: &mut dyn FnMut(&str)) -> Result<Met, String> {
    let until = Instant::now() + patience;
    if member.count == 1 {
        return Ok(Met { hosts: vec![host.to_string()], streams: vec![None] });
    }
    if member.number == 0 { call_roll(member, host, until, note) } else { answer_roll(member, host, until) }
}

/// Tells the others that this process does not take part, and why. Who cannot be reached learns nothing.
pub(crate) fn decline(member: &Member, host: &str, why: &str) {
    let until = Instant::now() + DECLINE;
    if member.number > 0 {
        let hello = hello(member, host, 0, Some(why.to_string()));
        if let Ok(door) = reach_first(member, until) {
            let _ = door.introduce(member, hello, until);
        }
        return;
    }
    let Ok(mut reception) = listen(member) else { return };
    let mut told = BTreeSet::new();
    let answer = Err(failed_before(0, host, why));
    while told.len() + 1 < member.count && Instant::now() < until {
        for greeted in reception.look().unwrap_or_default() {
            let heard = greeted.answer(member.secret.as_ref(), &answer).is_ok();
            told.extend((heard && greeted.is_proved).then_some(greeted.hello.number));
        }
        sleep(PAUSE);
    }
}

/// Tells process 0 of this one, hears of all others, and connects with them.
fn answer_roll(member: &Member, host: &str, until: Instant) -> Result<Met, String> {
    let secret = member.secret.as_ref();
    let door = reach_first(member, until)?;
    let there = door.stream.peer_addr().map_err(lost_zero)?.ip();
    let reception = Reception::open(SocketAddr::new(listens(member, there), 0), member.secret.clone());
    let opened = reception.and_then(|reception| Ok((reception.port()?, reception)));
    let (port, mut reception) =
        opened.map_err(|why| format!("process {} has no port to listen at: {why}", member.number))?;
    let hello = hello(member, host, port, None);
    let (zero, answer) = door.introduce(member, hello.clone(), until + MARGIN).map_err(lost_zero)?;
    let Roll { hosts, addresses } = answer?.ok_or("process 0 has stated no addresses")?;
    if hosts.len() != member.count || addresses.len() != member.count {
        return Err(format!("process 0 has stated {} addresses of {} processes", addresses.len(), member.count));
    }
    let until = Instant::now() + ROUND;
    let streams = connect(member, &hello, &addresses, there, until)
        .and_then(|lower| gather(&mut reception, member, &zero, lower, until + MARGIN));
    let word: Word = streams.as_ref().map(|_| ()).map_err(Clone::clone);
    let said = zero.say(secret, &word, until + 2 * MARGIN);
    let mut streams = streams?;
    said.map_err(lost_zero)?;
    let begins: Answer = zero.hear(secret, MOST_OF_ANSWER, until + 3 * MARGIN).map_err(lost_zero)?;
    begins?;
    streams[0] = Some(zero.stream);
    Ok(Met { hosts, streams })
}

/// Connects with all of lower numbers but process 0. A process that process 0 sees on its own host is `there` for all.
fn connect(
    member: &Member,
    hello: &Hello,
    addresses: &[SocketAddr],
    there: IpAddr,
    until: Instant,
) -> Result<Vec<Option<TcpStream>>, String> {
    let mut streams: Vec<Option<TcpStream>> = (0..member.count).map(|_| None).collect();
    for (number, address) in addresses.iter().enumerate().take(member.number).skip(1) {
        let ip = if address.ip().is_loopback() { there } else { address.ip() };
        let door = Door::reach(SocketAddr::new(ip, address.port()), until);
        let introduced = door.and_then(|door| door.introduce(member, hello.clone(), until));
        let (channel, answer) = introduced.map_err(|why| lost(number, &why))?;
        answer?;
        streams[number] = Some(channel.stream);
    }
    Ok(streams)
}

/// Accepts connections until one with each process of a higher number is there, or process 0 says that there is no meeting.
fn gather(
    reception: &mut Reception,
    member: &Member,
    zero: &Channel,
    mut streams: Vec<Option<TcpStream>>,
    until: Instant,
) -> Result<Vec<Option<TcpStream>>, String> {
    let higher = member.number + 1..member.count;
    loop {
        for greeted in reception.look().map_err(|why| format!("connections cannot be accepted: {why}"))? {
            seat(greeted, member, &higher, &mut streams);
        }
        match missing(higher.clone(), &streams) {
            None => return Ok(streams),
            // It says nothing before it has heard of all, but that the meeting has failed.
            Some(_) if zero.has_spoken() => {
                // It may do so at the very end, since the others give up then, too.
                let answer = zero.hear(member.secret.as_ref(), MOST_OF_ANSWER, until + MARGIN);
                let answer: Answer = answer.map_err(|why| lost(0, &why))?;
                return Err(answer.err().unwrap_or_else(|| "process 0 begins before all have met".to_string()));
            }
            Some(missing) if Instant::now() >= until => return Err(format!("processes {missing} have not come")),
            Some(_) => sleep(PAUSE),
        }
    }
}

/// Takes the connection of a process of a higher number, if it is one.
fn seat(greeted: Greeted, member: &Member, higher: &Range<usize>, streams: &mut [Option<TcpStream>]) {
    let number = greeted.hello.number;
    let belongs = greeted.is_proved && greeted.hello.run == member.run && higher.contains(&number);
    let answer = match belongs && streams[number].is_none() {
        true => Ok(None),
        false => Err(format!("process {number} is of another run, or there are two")),
    };
    if greeted.answer(member.secret.as_ref(), &answer).is_ok() && answer.is_ok() {
        streams[number] = Some(greeted.channel.stream);
    }
}

pub(crate) fn hello(member: &Member, host: &str, port: u16, failure: Option<String>) -> Hello {
    let Member { number, count, run, .. } = member.clone();
    let (host, has_secret) = (host.to_string(), member.secret.is_some());
    Hello { protocol: PROTOCOL, run, number, count, host, port, nonce: [0; 32], has_secret, failure }
}

/// The port of process 0.
pub(crate) fn listen(member: &Member) -> Result<Reception, String> {
    let reception = (member.host.as_str(), member.port).to_socket_addrs().and_then(|mut addresses| {
        let first = addresses.next().map_or(Ipv4Addr::UNSPECIFIED.into(), |first| first.ip());
        Reception::open(SocketAddr::new(listens(member, first), member.port), member.secret.clone())
    });
    reception.map_err(|why| format!("process 0 cannot listen at {}:{}: {why}", member.host, member.port))
}

/// The address to listen at: on one host only its own, else all, of the kind of another one.
fn listens(member: &Member, other: IpAddr) -> IpAddr {
    match other {
        _ if member.is_local() => other,
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The numbers of a range that have no place yet, as a list; none if all have one.
pub(crate) fn missing<T>(numbers: Range<usize>, places: &[Option<T>]) -> Option<String> {
    let missing = listed(numbers.filter(|&at| places[at].is_none()));
    (!missing.is_empty()).then_some(missing)
}

/// Numbers as a list.
pub(crate) fn listed(numbers: impl IntoIterator<Item = usize>) -> String {
    numbers.into_iter().map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
}

/// Connects with process 0, which may begin to listen later.
pub(crate) fn reach_first(member: &Member, until: Instant) -> Result<Door, String> {
    let door = Door::reach((member.host.as_str(), member.port), until);
    door.map_err(|why| format!("process 0 does not answer at {}:{}: {why}", member.host, member.port))
}

pub(crate) fn failed_before(number: usize, host: &str, why: &str) -> String {
    format!("process {number} on {host} has failed before the meeting: {why}")
}

fn lost_zero(why: io::Error) -> String {
    lost(0, &why)
}

pub(crate) fn lost(number: usize, why: &io::Error) -> String {
    format!("process {number} is lost: {why}")
}
