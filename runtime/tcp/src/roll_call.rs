//! The meeting as process 0 sees it. It gives a place to each of the others, tells them the addresses of all, and lets the run begin once
//! each has connected with all others.

use super::member::Member;
use super::message::{Answer, PROTOCOL, Roll};
use super::reception::{Greeted, Reception};
use super::rendezvous::{MARGIN, Met, PAUSE, ROUND, failed_before, listed, listen, lost, missing};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::one_line::one_line;

/// The time in which another process may take the place of one that has gone, where a stranger may have been the one that went.
const GRACE: Duration = Duration::from_secs(5);

/// The time between two notes about who is missing.
const NOTED: Duration = Duration::from_secs(10);

/// Waits for all others, as process 0.
///
/// # Errors
/// They do not all come in time, do not belong together, or do not reach each other.
pub(crate) fn call_roll(
    member: &Member,
    host: &str,
    until: Instant,
    note: &mut dyn FnMut(&str),
) -> Result<Met, String> {
    let reception = listen(member)?;
    let places = (0..member.count).map(|_| None).collect();
    let mut call = Call { member, host, reception, places, absent: BTreeMap::new(), turned_away: None, note };
    let roll = call.wait(until).and_then(|()| call.roll());
    let met = roll.and_then(|roll| {
        call.answer_all(&Ok(Some(roll.clone())))?;
        call.wait_until_connected()?;
        Ok(roll.hosts)
    });
    match met {
        Err(why) => {
            call.answer_who_is_there(&Err(why.clone()));
            Err(why)
        }
        Ok(hosts) => {
            call.answer_all(&Ok(None))?;
            let streams =
                call.places.into_iter().map(|greeted| greeted.map(|greeted| greeted.channel.stream)).collect();
            Ok(Met { hosts, streams })
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

    /// Answers all others.
    fn answer_all(&self, answer: &Answer) -> Result<(), String> {
        for (number, greeted) in self.places.iter().enumerate() {
            let answered = greeted.iter().try_for_each(|greeted| greeted.answer(self.member.secret.as_ref(), answer));
            answered.map_err(|why| lost(number, &why))?;
        }
        Ok(())
    }

    /// Answers all others. Who is gone needs not be told.
    fn answer_who_is_there(&self, answer: &Answer) {
        for greeted in self.places.iter().flatten() {
            let _ = greeted.answer(self.member.secret.as_ref(), answer);
        }
    }

    /// Waits until all others have connected with each other. Who fails at it says with whom; who says nothing may have been stopped.
    fn wait_until_connected(&self) -> Result<(), String> {
        // Who waits for a silent process says so before that is noticed here.
        let until = Instant::now() + ROUND + 2 * MARGIN;
        let mut silent: BTreeSet<usize> = (1..self.member.count).collect();
        loop {
            for (number, greeted) in self.places.iter().enumerate() {
                let Some(greeted) = greeted.as_ref().filter(|_| silent.contains(&number)) else { continue };
                if self.has_connected(number, greeted)? {
                    silent.remove(&number);
                }
            }
            if silent.is_empty() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(format!("processes {} have come, and say nothing since", listed(silent)));
            }
            sleep(PAUSE);
        }
    }

    /// True if a process has said that it has connected with the others.
    fn has_connected(&self, number: usize, greeted: &Greeted) -> Result<bool, String> {
        let host = &greeted.hello.host;
        match greeted.word(self.member.secret.as_ref()) {
            Ok(Some(Ok(()))) => Ok(true),
            Ok(Some(Err(why))) => Err(format!("process {number} on {host}: {}", one_line(&why))),
            Ok(None) => Ok(false),
            Err(why) => Err(format!("process {number} on {host} is gone before all have met: {why}")),
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
            let Some(Greeted { channel, hello, .. }) = greeted else { continue };
            let address = channel.stream.peer_addr().map_err(|why| lost(number, &why))?;
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
