//! TCP as the [`Wire`] between the processes of a run, which need nothing but a network and a secret. It moves bytes and computes
//! nothing: sums are made by the ranks, in the order of their group, so that a run has the same bits wherever its ranks are.
//!
//! ```no_run
//! // Started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, one of four: the processes of a run of eight ranks, and the wire
//! // that joins this one with the others.
//! let member = meshwright_tcp::Member::from_env(meshwright_tcp::Network::Open).map_err(|why| why.to_string())?;
//! let (world, wire) = meshwright_tcp::open(&member, 8, meshwright_tcp::PATIENCE, &mut |note| println!("{note}"))?;
//! assert_eq!((world.processes.len(), world.ranks().len()), (4, 2));
//! # drop(wire);
//! # Ok::<(), String>(())
//! ```

mod door;
mod frame;
mod link;
mod member;
mod message;
mod reception;
mod rendezvous;
mod roll_call;
mod secret;
#[cfg(test)]
mod tests;

use comm::wire::{Finished, Wire, WireError, World, by_host};
use link::{Broken, Landed, Link};
use rendezvous::{Met, meet};
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub use member::{Member, Network, NotAMember, process_number};
pub use secret::Secret;

/// The time by which all processes of a run are there, after the first one.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The time of an end: for the last frames to go, and for others to take them.
const WELL: Duration = Duration::from_secs(10);
const FAILED: Duration = Duration::from_secs(1);

/// The connections of this process with all others.
struct Tcp {
    world: World,
    /// None with this process itself.
    links: Vec<Option<Link>>,
    finished: Vec<Finished>,
    notices: VecDeque<(usize, Vec<u8>)>,
    /// True if the connections were looked at since the last notice was asked for.
    has_looked: bool,
}

/// Meets the other processes of a run, and deals `ranks` ranks out to them: those of a host one after the other, each with as many
/// consecutive ranks. While process 0 waits, it notes who is missing and who was turned away.
///
/// # Errors
/// The processes do not divide the ranks, do not all come within `patience`, or do not belong together.
pub fn open(
    member: &Member,
    ranks: usize,
    patience: Duration,
    note: &mut dyn FnMut(&str),
) -> Result<(World, Box<dyn Wire>), String> {
    if !ranks.is_multiple_of(member.count) {
        let why = format!("{} processes do not divide the {ranks} devices", member.count);
        decline(member, &why);
        return Err(why);
    }
    open_as(member, ranks, &host(), patience, note)
}

fn open_as(
    member: &Member,
    ranks: usize,
    host: &str,
    patience: Duration,
    note: &mut dyn FnMut(&str),
) -> Result<(World, Box<dyn Wire>), String> {
    let Met { hosts, mut streams } = meet(member, host, patience, note)?;
    let (world, numbers) = by_host(member.number, &hosts, ranks);
    let links = numbers.iter().map(|&number| streams[number].take().map(Link::new).transpose());
    let links = links.collect::<io::Result<_>>();
    let links = links.map_err(|why| format!("a connection cannot be set up: {why}"))?;
    let tcp = Tcp { world: world.clone(), links, finished: Vec::new(), notices: VecDeque::new(), has_looked: false };
    Ok((world, Box::new(tcp)))
}

/// Tells the other processes of a run that this one does not take part, and why. It waits until they know, but no longer than seconds.
pub fn decline(member: &Member, why: &str) {
    if member.count > 1 {
        rendezvous::decline(member, &host(), why);
    }
}

/// A port of this host that nobody listens at.
///
/// # Errors
/// There is none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The name of this host.
#[cfg(unix)]
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The name of this host.
#[cfg(not(unix))]
pub fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_string())
}

impl Tcp {
    /// Moves what can move with all processes.
    fn pump(&mut self) {
        let mut landed = Landed::default();
        for (process, link) in self.links.iter_mut().enumerate() {
            let Some(link) = link else { continue };
            link.pump(&mut landed);
            self.notices.extend(landed.notices.drain(..).map(|notice| (process, notice)));
        }
        self.finished.append(&mut landed.finished);
    }

    /// The connection with a process.
    fn link(&mut self, process: usize) -> Result<&mut Link, WireError> {
        self.links[process]
            .as_mut()
            .ok_or_else(|| WireError { process: None, why: format!("there is no connection with process {process}") })
    }

    /// The failure of a process.
    fn broken(&self, process: usize, why: &Broken) -> WireError {
        let why = format!("process {process} on {} is gone: {why}", self.world.processes[process].host);
        WireError { process: Some(process), why }
    }

    /// Pumps until all connections are done, but no longer than a time.
    fn pump_until(&mut self, end: Instant, is_done: impl Fn(&Link) -> bool) {
        loop {
            self.pump();
            if self.links.iter().flatten().all(&is_done) || Instant::now() >= end {
                return;
            }
            sleep(Duration::from_millis(1));
        }
    }
}

impl Wire for Tcp {
    unsafe fn send(&mut self, ticket: usize, to: usize, tag: u32, bytes: *const [u8]) -> Result<(), WireError> {
        self.link(to)?.send(ticket, tag, bytes);
        Ok(())
    }

    unsafe fn receive(&mut self, ticket: usize, from: usize, tag: u32, bytes: *mut [u8]) -> Result<(), WireError> {
        let come = self.link(from)?.receive(ticket, tag, bytes).map_err(|why| self.broken(from, &why))?;
        self.finished.extend(come);
        Ok(())
    }

    fn poll(&mut self, finished: &mut Vec<Finished>) -> Result<(), WireError> {
        self.pump();
        self.has_looked = true;
        finished.append(&mut self.finished);
        Ok(())
    }

    fn notify(&mut self, to: usize, notice: &[u8]) -> Result<(), WireError> {
        self.link(to)?.notify(notice);
        Ok(())
    }

    fn hear(&mut self) -> Result<Option<(usize, Vec<u8>)>, WireError> {
        if self.notices.is_empty() && !std::mem::take(&mut self.has_looked) {
            self.pump();
        }
        // A process that fails says so before it ends.
        if let Some(notice) = self.notices.pop_front() {
            return Ok(Some(notice));
        }
        let mut links = self.links.iter().enumerate();
        match links.find_map(|(process, link)| Some((process, link.as_ref()?.failure()?))) {
            Some((process, why)) => Err(self.broken(process, why)),
            None => Ok(None),
        }
    }

    fn end(mut self: Box<Self>, is_well: bool) {
        let end = Instant::now() + if is_well { WELL } else { FAILED };
        for link in self.links.iter_mut().flatten() {
            link.drop_messages();
            if is_well {
                link.end();
            }
        }
        self.pump_until(end, Link::has_gone);
        self.links.iter().flatten().for_each(Link::shut);
        // A connection that is closed with bytes unread takes back what has gone last.
        self.pump_until(end, Link::is_closed);
    }
}
