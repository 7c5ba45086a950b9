//! The way between processes: messages of bytes, and notices, which are short texts that nobody awaits.

use std::ops::Range;

/// The processes of a run, and the ranks of each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct World {
    /// This process's number.
    pub me: usize,
    /// All processes, in the order of their numbers.
    pub processes: Vec<Process>,
}

/// A process of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// The name of its machine.
    pub host: String,
    /// Its ranks.
    pub ranks: Vec<usize>,
}

impl World {
    /// The ranks of this process.
    pub fn ranks(&self) -> &[usize] {
        &self.processes[self.me].ranks
    }

    /// The process of each rank.
    pub fn homes(&self) -> Vec<usize> {
        let mut homes = vec![0; self.processes.iter().map(|process| process.ranks.len()).sum()];
        for (number, process) in self.processes.iter().enumerate() {
            process.ranks.iter().for_each(|&rank| homes[rank] = number);
        }
        homes
    }
}

/// Ranks of each of several processes: consecutive ones, as evenly as they divide.
pub fn blocks(ranks: usize, processes: usize) -> impl Iterator<Item = Range<usize>> {
    (0..processes).map(move |process| process * ranks / processes..(process + 1) * ranks / processes)
}

/// The processes of a run, by the host of each in the order of a launcher's numbers, and that number of each. Each has as many ranks.
/// Launchers deal processes out to hosts in any order. Neighbours in rank exchange the most, so they belong on one host.
pub fn by_host(own: usize, hosts: &[String], ranks: usize) -> (World, Vec<usize>) {
    let mut numbers: Vec<usize> = (0..hosts.len()).collect();
    numbers.sort_by_key(|&number| hosts.iter().position(|host| *host == hosts[number]));
    let me = numbers.iter().position(|&number| number == own).unwrap_or(0);
    let dealt = blocks(ranks, hosts.len()).zip(&numbers);
    let processes = dealt.map(|(ranks, &n)| Process { host: hosts[n].clone(), ranks: ranks.collect() }).collect();
    (World { me, processes }, numbers)
}

/// A message or a notice cannot go, or another process is gone.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{why}")]
pub struct WireError {
    /// The process that is gone, if it is known.
    pub process: Option<usize>,
    /// The cause.
    pub why: String,
}

impl From<String> for WireError {
    /// An error of this process or of an unknown one.
    fn from(why: String) -> WireError {
        WireError { process: None, why }
    }
}

/// A message that has gone or come, or a sum that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finished {
    /// Its ticket.
    pub ticket: usize,
    /// Its bytes.
    pub bytes: usize,
}

/// The most bytes of a message or a sum: few enough that one lands within seconds on a slow wire.
pub const MOST_BYTES: usize = 1 << 22;

/// The most bytes of a notice.
pub const MOST_NOTICE: usize = 1 << 11;

/// The way to other processes. One thread alone calls it, the courier; nothing blocks but [`end`](Wire::end).
///
/// Messages from one process to another with one tag arrive in the order in which they were begun, in receives in the order in which
/// those were begun. No order holds between tags.
pub trait Wire: Send {
    /// Begins to send bytes. The ticket comes back from [`poll`](Wire::poll) when they may change again.
    ///
    /// # Errors
    /// The wire is broken.
    ///
    /// # Safety
    /// The bytes live, and nobody writes them, until then.
    unsafe fn send(&mut self, ticket: usize, to: usize, tag: u32, bytes: *const [u8]) -> Result<(), WireError>;

    /// Begins to receive a message of at most these bytes. The ticket comes back from [`poll`](Wire::poll) when it is there.
    ///
    /// # Errors
    /// The wire is broken.
    ///
    /// # Safety
    /// The bytes live, and nobody touches them, until then.
    unsafe fn receive(&mut self, ticket: usize, from: usize, tag: u32, bytes: *mut [u8]) -> Result<(), WireError>;

    /// Joins processes in groups that make sums, before the first of them: each has its members, of which this process is one. All
    /// members name their groups in one order, and this call waits for them.
    ///
    /// # Errors
    /// The wire is broken, or adds nothing.
    fn join_sums(&mut self, groups: &[Vec<usize>]) -> Result<(), WireError> {
        match groups {
            [] => Ok(()),
            _ => Err("this wire adds nothing".to_string().into()),
        }
    }

    /// Begins to add the numbers of all members of a group, by its place among those joined; all members begin its sums in one order.
    /// The sum comes to the place of the numbers, of all members or of the one at place `to`. The ticket comes back from
    /// [`poll`](Wire::poll) when it is there.
    ///
    /// # Errors
    /// As of [`join_sums`](Wire::join_sums).
    ///
    /// # Safety
    /// The numbers live, and nobody touches them, until then.
    unsafe fn sum(
        &mut self,
        _ticket: usize,
        _group: usize,
        _numbers: *mut [f32],
        _to: Option<usize>,
    ) -> Result<(), WireError> {
        self.join_sums(&[Vec::new()])
    }

    /// Adds the messages that have gone or come since the last call.
    ///
    /// # Errors
    /// The wire is broken, or a message is longer than its place.
    fn poll(&mut self, finished: &mut Vec<Finished>) -> Result<(), WireError>;

    /// Sends a notice, of at most [`MOST_NOTICE`] bytes. It needs no receive.
    ///
    /// # Errors
    /// The wire is broken.
    fn notify(&mut self, to: usize, notice: &[u8]) -> Result<(), WireError>;

    /// The next notice that has come, and its sender.
    ///
    /// # Errors
    /// The wire is broken.
    fn hear(&mut self) -> Result<Option<(usize, Vec<u8>)>, WireError>;

    /// Ends the wire, if all is well together with all other processes.
    fn end(self: Box<Self>, is_well: bool);
}
