//! A wire in memory: several processes of a run within one, to test all that lies above a wire. Messages are late by random numbers of
//! looks, so that those of different tags overtake each other, and sends end at once or with their receives, as on real wires. Sums begin
//! with the last process, as those of an engine have an order of their own. Chance
//! comes from a seed, and of faults a process may fall silent, be cut off, or be slow.

use super::parking_lot::locked;
use super::wire::{Finished, Process, Wire, WireError, World, blocks};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Looks by which a message may be late, most and seldom.
const LATE: [u64; 2] = [6, 60];

/// A process that does not do what it should, from a number of its messages on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The process.
    pub process: usize,
    /// Messages that it sends before.
    pub after: u64,
    /// The fate of the others.
    pub kind: FaultKind,
}

/// Kinds of faults of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// Nothing that it sends arrives any more, and nothing arrives at it.
    Silence,
    /// Its wire reports an error.
    Cut,
    /// Its notices arrive at this process alone.
    HeardBy(usize),
    /// Each of its messages is late by a time.
    Slow(Duration),
}

/// One process's end of a wire in memory.
pub struct Looped {
    me: usize,
    hub: Arc<Mutex<Hub>>,
    /// The groups that make sums, and the number of the next sum of each.
    groups: Vec<(SumGroup, u64)>,
}

/// The messages between all processes.
struct Hub {
    /// The state of a generator of random numbers.
    random: u64,
    fault: Option<Fault>,
    /// Messages that each process has sent.
    sent: Vec<u64>,
    lines: BTreeMap<LineKey, Line>,
    /// The lines on which a process awaits something.
    awaited: Vec<BTreeSet<LineKey>>,
    /// The numbers of processes that have begun a sum which others have yet to begin.
    sums: BTreeMap<(SumGroup, u64), BTreeMap<usize, Place>>,
    /// Sends and sums of each process that have ended.
    gone: Vec<Vec<Finished>>,
    notices: Vec<VecDeque<(usize, Vec<u8>)>>,
}

/// The processes of a group, and its place among groups of the same ones.
type SumGroup = (Vec<usize>, usize);

/// Process that sends, process that receives, and tag.
type LineKey = (usize, usize, u32);

/// Messages of one line, which keep their order.
#[derive(Default)]
struct Line {
    sent: VecDeque<Sent>,
    awaited: VecDeque<Place>,
}

/// A message that was sent.
struct Sent {
    content: Content,
    looks: u64,
    due: Option<Instant>,
}

enum Content {
    /// A copy: the send has ended.
    Copy(Vec<u8>),
    /// The sender's bytes: the send ends when they have been received.
    Original(Place),
}

/// Bytes of a process.
struct Place {
    ticket: usize,
    bytes: *mut [u8],
}

// SAFETY: the owner leaves the bytes alone until the ticket comes back; here only who holds the hub touches them.
unsafe impl Send for Place {}

/// The wires of a number of processes with these ranks each, in their order.
pub fn looped(ranks: Vec<Vec<usize>>, seed: u64, fault: Option<Fault>) -> Vec<(World, Looped)> {
    let count = ranks.len();
    let hub = Arc::new(Mutex::new(Hub {
        random: seed,
        fault,
        sent: vec![0; count],
        lines: BTreeMap::new(),
        awaited: vec![BTreeSet::new(); count],
        sums: BTreeMap::new(),
        gone: (0..count).map(|_| Vec::new()).collect(),
        notices: vec![VecDeque::new(); count],
    }));
    let numbered = ranks.into_iter().enumerate();
    let processes: Vec<Process> =
        numbered.map(|(number, ranks)| Process { host: format!("looped-{number}"), ranks }).collect();
    let worlds = (0..count).map(|me| World { me, processes: processes.clone() });
    worlds.map(|world| (world.clone(), Looped { me: world.me, hub: hub.clone(), groups: Vec::new() })).collect()
}

/// Ranks of each process: in blocks, or for tests at random.
pub fn deal(ranks: usize, processes: usize, seed: Option<u64>) -> Vec<Vec<usize>> {
    let Some(mut random) = seed else { return blocks(ranks, processes).map(Iterator::collect).collect() };
    let mut dealt = vec![Vec::new(); processes];
    // Each process gets one at least, if there are as many.
    for rank in 0..ranks {
        let process = if rank < processes { rank } else { below(&mut random, processes as u64) as usize };
        dealt[process].push(rank);
    }
    dealt.retain(|ranks| !ranks.is_empty());
    dealt
}

/// A random number below a bound (Knuth's MMIX generator).
fn below(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % bound
}

impl Hub {
    fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.random, bound)
    }

    /// The fault of a process, once it has sent its number of messages.
    fn fault(&self, process: usize) -> Option<FaultKind> {
        let fault = self.fault.filter(|fault| fault.process == process && self.sent[process] > fault.after)?;
        Some(fault.kind)
    }

    fn is_silent(&self, process: usize) -> bool {
        self.fault(process) == Some(FaultKind::Silence)
    }

    /// An error if a process is cut off.
    fn check(&self, process: usize) -> Result<(), WireError> {
        match self.fault(process) {
            Some(FaultKind::Cut) => Err("the wire is cut".to_string().into()),
            _ => Ok(()),
        }
    }

    /// Moves the first message of a line, if it is due and awaited. Returns whether it did.
    fn deliver(&mut self, key: LineKey, finished: &mut Vec<Finished>) -> Result<bool, WireError> {
        let (from, to, _) = key;
        if self.is_silent(from) || self.is_silent(to) {
            return Ok(false);
        }
        let Some(line) = self.lines.get_mut(&key) else { return Ok(false) };
        let (Some(sent), Some(_)) = (line.sent.front_mut(), line.awaited.front()) else { return Ok(false) };
        sent.looks = sent.looks.saturating_sub(1);
        if sent.looks > 0 || sent.due.is_some_and(|due| due > Instant::now()) {
            return Ok(false);
        }
        let (Some(sent), Some(place)) = (line.sent.pop_front(), line.awaited.pop_front()) else { return Ok(false) };
        if line.awaited.is_empty() {
            self.awaited[to].remove(&key);
        }
        let bytes: &[u8] = match &sent.content {
            Content::Copy(bytes) => bytes,
            // SAFETY: the sender leaves its bytes alone until its ticket comes back.
            Content::Original(place) => unsafe { &*place.bytes },
        };
        // SAFETY: the receiver leaves its bytes alone until its ticket comes back.
        let into = unsafe { &mut *place.bytes };
        let count = bytes.len();
        let room = into.get_mut(..count);
        let room = room.ok_or_else(|| format!("process {from} sent {count} bytes, more than are awaited"))?;
        room.copy_from_slice(bytes);
        finished.push(Finished { ticket: place.ticket, bytes: count });
        if let Content::Original(place) = sent.content {
            self.gone[from].push(Finished { ticket: place.ticket, bytes: count });
        }
        Ok(true)
    }
}

/// Adds the numbers of processes, beginning with the last one. The sum comes to all of them or to one.
fn add(places: &BTreeMap<usize, Place>, to: Option<usize>) {
    let mut sum: Vec<f32> = Vec::new();
    for place in places.values().rev() {
        // SAFETY: all processes leave their numbers alone until their tickets come back.
        let numbers = unsafe { numbers(place.bytes) };
        match sum.is_empty() {
            true => sum.extend_from_slice(numbers),
            false => sum.iter_mut().zip(numbers).for_each(|(a, b)| *a += *b),
        }
    }
    for (_, place) in places.iter().filter(|(process, _)| to.is_none_or(|to| to == **process)) {
        // SAFETY: as above.
        unsafe { numbers(place.bytes) }.copy_from_slice(&sum);
    }
}

/// The numbers of some bytes.
///
/// # Safety
/// The bytes live, and nobody else touches them.
unsafe fn numbers<'a>(bytes: *mut [u8]) -> &'a mut [f32] {
    // SAFETY: by the caller's contract.
    unsafe { std::slice::from_raw_parts_mut(bytes.cast::<f32>(), bytes.len() / size_of::<f32>()) }
}

impl Wire for Looped {
    unsafe fn send(&mut self, ticket: usize, to: usize, tag: u32, bytes: *const [u8]) -> Result<(), WireError> {
        let mut hub = locked(&self.hub);
        hub.sent[self.me] += 1;
        hub.check(self.me)?;
        let slow = hub.fault(self.me);
        let due = if let Some(FaultKind::Slow(late)) = slow { Some(Instant::now() + late) } else { None };
        let most = LATE[usize::from(hub.below(16) == 0)];
        let looks = if hub.below(2) == 0 { 0 } else { hub.below(most) };
        let content = if hub.below(2) == 0 {
            let count = bytes.len();
            hub.gone[self.me].push(Finished { ticket, bytes: count });
            // SAFETY: nobody writes them during this call.
            Content::Copy(unsafe { &*bytes }.to_vec())
        } else {
            Content::Original(Place { ticket, bytes: bytes.cast_mut() })
        };
        hub.lines.entry((self.me, to, tag)).or_default().sent.push_back(Sent { content, looks, due });
        Ok(())
    }

    unsafe fn receive(&mut self, ticket: usize, from: usize, tag: u32, bytes: *mut [u8]) -> Result<(), WireError> {
        let mut hub = locked(&self.hub);
        hub.check(self.me)?;
        let key = (from, self.me, tag);
        hub.lines.entry(key).or_default().awaited.push_back(Place { ticket, bytes });
        hub.awaited[self.me].insert(key);
        Ok(())
    }

    fn join_sums(&mut self, groups: &[Vec<usize>]) -> Result<(), WireError> {
        for processes in groups {
            let same = self.groups.iter().filter(|((other, _), _)| other == processes).count();
            self.groups.push(((processes.clone(), same), 0));
        }
        Ok(())
    }

    unsafe fn sum(
        &mut self,
        ticket: usize,
        group: usize,
        numbers: *mut [f32],
        to: Option<usize>,
    ) -> Result<(), WireError> {
        let mut hub = locked(&self.hub);
        hub.sent[self.me] += 1;
        hub.check(self.me)?;
        let (group, next) = &mut self.groups[group];
        let key = (group.clone(), *next);
        *next += 1;
        if hub.is_silent(self.me) {
            return Ok(());
        }
        let bytes = std::ptr::slice_from_raw_parts_mut(numbers.cast::<u8>(), 4 * numbers.len());
        let places = hub.sums.entry(key.clone()).or_default();
        places.insert(self.me, Place { ticket, bytes });
        if places.len() == group.0.len() {
            add(places, to.map(|member| group.0[member]));
            let places = hub.sums.remove(&key).unwrap_or_default();
            for (process, Place { ticket, bytes }) in places {
                hub.gone[process].push(Finished { ticket, bytes: bytes.len() });
            }
        }
        Ok(())
    }

    fn poll(&mut self, finished: &mut Vec<Finished>) -> Result<(), WireError> {
        let mut hub = locked(&self.hub);
        hub.check(self.me)?;
        finished.append(&mut hub.gone[self.me]);
        let awaited: Vec<LineKey> = hub.awaited[self.me].iter().copied().collect();
        awaited.into_iter().try_for_each(|key| hub.deliver(key, finished).map(drop))
    }

    fn notify(&mut self, to: usize, notice: &[u8]) -> Result<(), WireError> {
        let mut hub = locked(&self.hub);
        hub.check(self.me)?;
        let is_lost = match hub.fault(self.me) {
            Some(FaultKind::Silence) => true,
            Some(FaultKind::HeardBy(process)) => process != to,
            _ => false,
        };
        if !is_lost {
            hub.notices[to].push_back((self.me, notice.to_vec()));
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<Option<(usize, Vec<u8>)>, WireError> {
        let mut hub = locked(&self.hub);
        hub.check(self.me)?;
        Ok(if hub.is_silent(self.me) { None } else { hub.notices[self.me].pop_front() })
    }

    fn end(self: Box<Self>, _: bool) {
        // Others may look for messages yet, but the bytes of this process are gone.
        let mut hub = locked(&self.hub);
        for ((from, to, _), line) in &mut hub.lines {
            if *from == self.me {
                line.sent.retain(|sent| matches!(sent.content, Content::Copy(_)));
            }
            if *to == self.me {
                line.awaited.clear();
            }
        }
        hub.awaited[self.me].clear();
        hub.sums.retain(|_, places| !places.contains_key(&self.me));
    }
}
