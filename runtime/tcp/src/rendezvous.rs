//! The meeting of the processes of a run. Process 0 listens; all others tell it who they are and at which port they listen themselves.
//! When all have come, it tells each the addresses of all, and each connects to those of lower numbers.
//!
//! A guest that knows the secret of the run belongs to it, and ends the meeting if it does not fit. Any other is turned away, and the
//! meeting goes on. Without a secret a process of the run looks like a stranger, so that none ends the meeting at once.

use super::member::Member;
use super::message::{Answer, Challenge, Hello, MOST_OF_ANSWER, MOST_UNPROVED, PROTOCOL, Roll, Sealed, put, take};
use super::reception::{Greeted, Reception};
use super::secret::{Nonces, Side, is_proved, nonce, prove};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time for one connection, and between two tries.
const ONE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

/// The time in which another process may take the place of one that has gone, where a stranger may have been the one that went.
const GRACE: Duration = Duration::from_secs(5);

/// The time in which processes that have all met process 0 connect with each other.
const ROUND: Duration = Duration::from_secs(8);

/// The time between two notes about who is missing.
const NOTED: Duration = Duration::from_secs(10);

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

/// Waits for all others, as process 0.
fn call_roll(member: &Member, host: &str, until: Instant, note: &mut dyn FnMut(&str)) -> Result<Met, String> {
    let reception = listen(member)?;
    let places = (0..member.count).map(|_| None).collect();
    let mut call = Call { member, host, reception, places, absent: BTreeMap::new(), turned_away: None, note };
    let all = call.wait(until).and_then(|()| call.roll());
    let Call { places, .. } = call;
    let told = |greeted: &Greeted, answer: &Answer| greeted.answer(member.secret.as_ref(), answer);
    match all {
        Err(why) => {
            // Who is gone needs not be told.
            places.iter().flatten().for_each(|greeted| _ = told(greeted, &Err(why.clone())));
            Err(why)
        }
        Ok(roll) => {
            let answer = Ok(Some(roll.clone()));
            for (number, greeted) in places.iter().enumerate() {
                greeted.iter().try_for_each(|greeted| told(greeted, &answer)).map_err(|why| lost(number, &why))?;
            }
            let streams = places.into_iter().map(|greeted| greeted.map(|greeted| greeted.stream)).collect();
            Ok(Met { hosts: roll.hosts, streams })
        }
    }
}

/// The meeting as process 0 sees it.
struct Call<'a> {
    member: &'a Member,
    host: &'a str,
    reception: Reception,
    /// Those that have come, by number.
    places: Vec<Option<Greeted>>,
    /// Processes that have gone or declined, since when and why.
    absent: BTreeMap<usize, Absence>,
    /// The last one that was turned away, in words.
    turned_away: Option<String>,
    /// Notes for the user while the meeting goes on.
    note: &'a mut dyn FnMut(&str),
}

/// Absence of a process.
struct Absence {
    since: Instant,
    why: String,
}

impl Call<'_> {
    /// Waits until all have come.
    fn wait(&mut self, until: Instant) -> Result<(), String> {
        let mut noted = Instant::now();
        loop {
            let greeted = self.reception.look().map_err(|why| format!("connections cannot be accepted: {why}"))?;
            self.note_who_left();
            greeted.into_iter().try_for_each(|greeted| self.seat(greeted))?;
            let Some(missing) = missing(1..self.member.count, &self.places) else { return Ok(()) };
            let grace = if self.member.secret.is_some() { Duration::ZERO } else { GRACE };
            if let Some(absence) = self.absent.values().find(|absence| absence.since.elapsed() >= grace) {
                return Err(absence.why.clone());
            }
            if noted.elapsed() >= NOTED {
                noted = Instant::now();
                (self.note)(&format!("waiting for processes {missing}"));
            }
            if Instant::now() >= until {
                let last = self.turned_away.as_ref().map_or(String::new(), |why| format!("; turned away: {why}"));
                return Err(format!("processes {missing} have not come{last}"));
            }
            sleep(PAUSE);
        }
    }

    /// Frees the places of those that have closed their connections.
    fn note_who_left(&mut self) {
        for (number, place) in self.places.iter_mut().enumerate() {
            if let Some(left) = place.take_if(|greeted| greeted.has_left()) {
                let why = format!("process {number} on {} is gone before all have come", left.hello.host);
                self.absent.insert(number, Absence { since: Instant::now(), why });
            }
        }
    }

    /// Gives a place to somebody who belongs to this run.
    fn seat(&mut self, greeted: Greeted) -> Result<(), String> {
        let secret = self.member.secret.as_ref();
        let (number, host) = (greeted.hello.number, greeted.hello.host.clone());
        let refusal = self.refusal(&greeted);
        if let Some(refusal) = refusal {
            // Who is gone needs not be told.
            let _ = greeted.answer(secret, &Err(refusal.why.clone()));
            if self.turned_away.as_ref() != Some(&refusal.why) && !refusal.ends {
                (self.note)(&format!("turned away: {}", refusal.why));
            }
            self.turned_away = Some(refusal.why.clone());
            return if refusal.ends { Err(refusal.why) } else { Ok(()) };
        }
        if let Some(why) = &greeted.hello.failure {
            let why = failed_before(number, &host, why);
            let _ = greeted.answer(secret, &Err(why.clone()));
            self.absent.insert(number, Absence { since: Instant::now(), why });
            return Ok(());
        }
        self.absent.remove(&number);
        self.places[number] = Some(greeted);
        Ok(())
    }

    /// The cause why somebody gets no place; none if it gets one.
    fn refusal(&self, greeted: &Greeted) -> Option<Refusal> {
        let Member { count, run, secret, .. } = self.member;
        let hello = &greeted.hello;
        let number = hello.number;
        if !greeted.is_proved || hello.has_secret != secret.is_some() {
            let why = format!(
                "process {number} on {} has another secret than process 0, or one of them has none",
                hello.host
            );
            return Some(Refusal { why, ends: false });
        }
        // Processes of another run wait for a process 0 of their own.
        if hello.run != *run {
            return Some(Refusal { why: "process 0 is of another run".to_string(), ends: false });
        }
        let why = match hello {
            _ if hello.protocol != PROTOCOL => format!("process {number} is of another version"),
            _ if hello.count != *count => {
                format!("process {number} is one of {}, and process 0 one of {count}", hello.count)
            }
            _ if !(1..*count).contains(&number) || self.places[number].is_some() => {
                format!("there are two processes {number}, on {} and {}", self.host_of(number), hello.host)
            }
            _ => return None,
        };
        Some(Refusal { why, ends: secret.is_some() })
    }

    /// The host of who has a number already.
    fn host_of(&self, number: usize) -> &str {
        let place = self.places.get(number).and_then(Option::as_ref);
        place.map_or(self.host, |greeted| &greeted.hello.host)
    }

    /// The hosts and addresses of all who have come.
    fn roll(&self) -> Result<Roll, String> {
        let mut roll = Roll {
            hosts: vec![self.host.to_string(); self.member.count],
            addresses: vec![SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0); self.member.count],
        };
        for (number, greeted) in self.places.iter().enumerate() {
            let Some(Greeted { stream, hello, .. }) = greeted else { continue };
            let address = stream.peer_addr().map_err(|why| lost(number, &why))?;
            roll.hosts[number].clone_from(&hello.host);
            roll.addresses[number] = SocketAddr::new(address.ip(), hello.port);
        }
        Ok(roll)
    }
}

/// A hello that gets no place.
struct Refusal {
    why: String,
    /// True if it is of this run, which cannot be then.
    ends: bool,
}

/// Tells process 0 of this one, hears of all others, and connects with them.
fn answer_roll(member: &Member, host: &str, until: Instant) -> Result<Met, String> {
    let door = reach_first(member, until)?;
    let there = door.stream.peer_addr().map_err(|why| lost(0, &why))?.ip();
    let failed = |why: io::Error| format!("process {} has no port to listen at: {why}", member.number);
    let mut reception =
        Reception::open(SocketAddr::new(listens(member, there), 0), member.secret.clone()).map_err(failed)?;
    let port = reception.port().map_err(failed)?;
    let introduced = door.introduce(member, hello(member, host, port, None), until + ONE);
    let Introduced { stream: zero, answer } = introduced.map_err(|why| lost(0, &why))?;
    let Roll { hosts, addresses } = answer?.ok_or("process 0 has stated no addresses")?;
    if hosts.len() != member.count || addresses.len() != member.count {
        return Err(format!("process 0 has stated {} addresses of {} processes", addresses.len(), member.count));
    }
    let mut streams: Vec<Option<TcpStream>> = (0..member.count).map(|_| None).collect();
    let until = Instant::now() + ROUND;
    for (number, address) in addresses.iter().enumerate().take(member.number).skip(1) {
        // A process that process 0 sees on its own host is there for all.
        let ip = if address.ip().is_loopback() { there } else { address.ip() };
        let door = Door::reach(SocketAddr::new(ip, address.port()), until);
        let introduced = door.and_then(|door| door.introduce(member, hello(member, host, port, None), until));
        let Introduced { stream, answer } = introduced.map_err(|why| lost(number, &why))?;
        answer?;
        streams[number] = Some(stream);
    }
    gather(&mut reception, member, &mut streams, until)?;
    streams[0] = Some(zero);
    Ok(Met { hosts, streams })
}

/// Accepts connections until one with each process of a higher number is there.
fn gather(
    reception: &mut Reception,
    member: &Member,
    streams: &mut [Option<TcpStream>],
    until: Instant,
) -> Result<(), String> {
    let higher = member.number + 1..member.count;
    loop {
        for greeted in reception.look().map_err(|why| format!("connections cannot be accepted: {why}"))? {
            let hello = &greeted.hello;
            let belongs = greeted.is_proved && hello.run == member.run && higher.contains(&hello.number);
            let answer = match belongs && streams[hello.number].is_none() {
                true => Ok(None),
                false => Err(format!("process {} is of another run, or there are two", hello.number)),
            };
            if greeted.answer(member.secret.as_ref(), &answer).is_ok() && answer.is_ok() {
                let number = hello.number;
                streams[number] = Some(greeted.stream);
            }
        }
        match missing(higher.clone(), streams) {
            None => return Ok(()),
            Some(missing) if Instant::now() >= until => return Err(format!("processes {missing} have not come")),
            Some(_) => sleep(PAUSE),
        }
    }
}

fn hello(member: &Member, host: &str, port: u16, failure: Option<String>) -> Hello {
    let Member { number, count, run, .. } = member.clone();
    let (host, has_secret) = (host.to_string(), member.secret.is_some());
    Hello { protocol: PROTOCOL, run, number, count, host, port, nonce: [0; 32], has_secret, failure }
}

/// The port of process 0.
fn listen(member: &Member) -> Result<Reception, String> {
    let failed = |why: io::Error| format!("process 0 cannot listen at {}:{}: {why}", member.host, member.port);
    let first = (member.host.as_str(), member.port).to_socket_addrs().map_err(failed)?.next();
    let first = first.map_or(Ipv4Addr::UNSPECIFIED.into(), |first| first.ip());
    Reception::open(SocketAddr::new(listens(member, first), member.port), member.secret.clone()).map_err(failed)
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
fn missing<T>(numbers: Range<usize>, places: &[Option<T>]) -> Option<String> {
    let missing: Vec<String> = numbers.filter(|&at| places[at].is_none()).map(|at| at.to_string()).collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// A connection with who listens, and its first words.
struct Door {
    stream: TcpStream,
    challenge: Challenge,
}

impl Door {
    /// Connects with who listens at a place, or will soon, and hears its first words. Who has no time for another guest now may have later.
    ///
    /// # Errors
    /// Nobody answers by then.
    fn reach(place: impl ToSocketAddrs, until: Instant) -> io::Result<Door> {
        loop {
            match Door::knock(&place, until.min(Instant::now() + 5 * ONE)) {
                Err(why) if Instant::now() >= until => return Err(why),
                Err(_) => sleep(5 * PAUSE),
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
    fn introduce(self, member: &Member, hello: Hello, until: Instant) -> io::Result<Introduced> {
        let Door { stream, challenge: Challenge { protocol, nonce: host } } = self;
        if protocol != PROTOCOL {
            return Err(io::Error::other("it is of another version"));
        }
        let nonces = Nonces { guest: nonce()?, host };
        let text = serde_json::to_string(&Hello { nonce: nonces.guest, ..hello })?;
        let proof = prove(member.secret.as_ref(), Side::Guest, &nonces, &text);
        put(&stream, &Sealed { text, proof }, until)?;
        let Sealed { text, proof } = take(&stream, MOST_OF_ANSWER, until)?;
        if !is_proved(member.secret.as_ref(), Side::Host, &nonces, &text, &proof) {
            return Err(io::Error::other("it has another secret, or none"));
        }
        Ok(Introduced { stream, answer: serde_json::from_str(&text)? })
    }
}

/// A connection, and what the other side has answered.
struct Introduced {
    stream: TcpStream,
    answer: Answer,
}

/// Connects with process 0, which may begin to listen later.
fn reach_first(member: &Member, until: Instant) -> Result<Door, String> {
    let silent = |why| format!("process 0 does not answer at {}:{}: {why}", member.host, member.port);
    Door::reach((member.host.as_str(), member.port), until).map_err(silent)
}

fn failed_before(number: usize, host: &str, why: &str) -> String {
    format!("process {number} on {host} has failed before the meeting: {why}")
}

fn lost(number: usize, why: &io::Error) -> String {
    format!("process {number} is lost: {why}")
}
