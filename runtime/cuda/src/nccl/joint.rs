//! The rank of this process among those of others: its communicators, and the watch over them.
//!
//! A communicator belongs to a group of ranks and a thread role, or to a line, which has the messages from one rank to another. Each process
//! knows its own once its programs are loaded; all then tell each other. The first member of each names it, and all join theirs in one order,
//! so that no two wait for each other.

use super::super::device::Device;
use super::super::error::Error;
use super::super::memory::Arena;
use super::super::stream::Stream;
use super::communicator::{Communicator, UniqueId};
use super::library::functions;
use super::queue::Queue;
use super::recordings::Recordings;
use comm::wire::{Wire, World};
use comm::{Control, Limits, RankFailure, ThreadRole, WaitReason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time between two looks at the communicators.
const PAUSE: Duration = Duration::from_millis(20);

/// The key of a communicator: its members, and what they do with it. The order of keys is that in which they are joined.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct Key {
    ranks: Vec<usize>,
    purpose: Use,
}

/// Use of a communicator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) enum Use {
    /// Exchanges of main threads.
    Main,
    /// Exchanges of async workers.
    Async,
    /// Messages from the first rank to the second.
    Line,
}

impl Key {
    /// That of a group.
    pub(super) fn group(ranks: &[usize], role: ThreadRole) -> Key {
        let purpose = if role == ThreadRole::Main { Use::Main } else { Use::Async };
        Key { ranks: ranks.to_vec(), purpose }
    }

    /// That of the messages from a rank to another.
    pub(super) fn line(from: usize, to: usize) -> Key {
        Key { ranks: vec![from, to], purpose: Use::Line }
    }
}

/// This rank's end of a communicator: the stream of its calls, and what they go through.
pub(super) struct Endpoint {
    pub(super) stream: Arc<Stream>,
    /// The most bytes of staging memory.
    pub(super) bytes: AtomicUsize,
    communicator: OnceLock<Communicator>,
    staging: OnceLock<Arena>,
    /// Operations of the rank.
    queues: Mutex<Vec<Arc<Queue>>>,
}

impl Endpoint {
    /// A queue of operations of a thread, by its stream.
    pub(super) fn queue(&self, own: Arc<Stream>, recordings: &Arc<Recordings>) -> Arc<Queue> {
        let queue = Queue::new(own, recordings);
        locked(&self.queues).push(queue.clone());
        queue
    }

    /// The communicator.
    ///
    /// # Errors
    /// The ranks have not been joined yet.
    pub(super) fn communicator(&self) -> Result<&Communicator, Error> {
        self.communicator.get().ok_or_else(unjoined)
    }

    /// The staging memory, which the stream alone uses.
    ///
    /// # Errors
    /// As of [`communicator`](Endpoint::communicator).
    pub(super) fn staging(&self) -> Result<&Arena, Error> {
        self.staging.get().ok_or_else(unjoined)
    }
}

fn unjoined() -> Error {
    Error::Program("the ranks are joined after all have loaded".to_string())
}

/// A rank with a GPU of its own, the only one of its process.
pub struct Joint {
    device: Arc<Device>,
    rank: usize,
    control: Control,
    endpoints: Mutex<BTreeMap<Key, Arc<Endpoint>>>,
    recordings: Arc<Recordings>,
    /// The reason why steps are not recorded: once all are joined, that of any rank.
    eager: Mutex<Option<String>>,
    closing: AtomicBool,
    watch: Mutex<Option<JoinHandle<()>>>,
}

/// Words of a process to the others before the first step: the communicators of its rank, with the names of those that it is first in.
#[derive(Serialize, Deserialize)]
struct Named {
    rank: usize,
    keys: KeyNames,
    /// The reason why its steps cannot be recorded, if they cannot.
    eager: Option<String>,
}

/// Communicators, with the names of some.
type KeyNames = Vec<(Key, Option<Vec<u8>>)>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Joint {
    /// The rank of this process, on the device of a number; the wire carries what processes tell each other. All processes get a device, or
    /// none does.
    ///
    /// # Errors
    /// There is no NCCL or no such device, here or in another process; two processes have one device; or a process has several ranks.
    pub fn open(ordinal: usize, (world, wire): (World, Box<dyn Wire>), limits: Limits) -> Result<Arc<Joint>, Error> {
        let &[rank] = world.ranks() else {
            let count = world.ranks().len();
            return Err(Error::Program(format!("a process has one rank with NCCL, and this one would have {count}")));
        };
        let control = Control::start(world, wire, limits).map_err(Error::Program)?;
        let opened = functions().and_then(|_| Device::open(ordinal));
        let device = compare_devices(&control, opened).inspect_err(|_| control.close())?;
        Ok(Arc::new(Joint {
            device,
            rank,
            control,
            endpoints: Mutex::default(),
            recordings: Arc::default(),
            eager: Mutex::default(),
            closing: AtomicBool::new(false),
            watch: Mutex::default(),
        }))
    }

    /// The control of the process.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// The rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Its device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The recordings of the rank's steps.
    pub(super) fn recordings(&self) -> &Arc<Recordings> {
        &self.recordings
    }

    /// Notes why steps cannot be recorded, before all are joined.
    pub(super) fn keep_eager(&self, why: &str) {
        locked(&self.eager).get_or_insert_with(|| why.to_string());
    }

    /// The reason why steps are not recorded. Either all ranks record theirs or none does, as NCCL asks for.
    pub fn eager(&self) -> Option<String> {
        locked(&self.eager).clone()
    }

    /// The end of a communicator, which is joined when all ranks have loaded.
    ///
    /// # Errors
    /// The device has no more streams.
    pub(super) fn endpoint(&self, key: Key) -> Result<Arc<Endpoint>, Error> {
        let mut endpoints = locked(&self.endpoints);
        if let Some(known) = endpoints.get(&key) {
            return Ok(known.clone());
        }
        let (bytes, communicator, staging, queues) = Default::default();
        let stream = Arc::new(Stream::urgent(&self.device)?);
        let endpoint = Arc::new(Endpoint { stream, bytes, communicator, staging, queues });
        endpoints.insert(key, endpoint.clone());
        Ok(endpoint)
    }

    /// Joins all communicators, once all ranks have loaded their programs.
    ///
    /// # Errors
    /// A rank failed, ranks have not the same communicators, or there is no memory.
    pub fn join(self: &Arc<Joint>) -> Result<(), String> {
        let endpoints = locked(&self.endpoints).clone();
        let keys = self.named(&endpoints).map_err(|why| why.to_string())?;
        let own = Named { rank: self.rank, keys, eager: self.eager() };
        let own = serde_json::to_vec(&own).map_err(|why| why.to_string())?;
        let all = self.control.share(own).map_err(|why| why.to_string())?;
        let all = all.iter().map(|bytes| serde_json::from_slice::<Named>(bytes)).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(|_| "a process of another version takes part".to_string())?;
        let names = names(self.rank, &all)?;
        *locked(&self.eager) = all.iter().find_map(|named| named.eager.clone());
        let joint = self.clone();
        let watch = thread::Builder::new().name("nccl watch".to_string()).spawn(move || joint.keep_watch());
        *locked(&self.watch) = Some(watch.map_err(|why| format!("the watch over NCCL gets no thread: {why}"))?);
        for (key, endpoint) in &endpoints {
            self.join_one(endpoint, key, names[key]).map_err(|why| why.to_string())?;
        }
        Ok(())
    }

    /// The communicators of this rank, with names for those that it is first in.
    fn named(&self, endpoints: &BTreeMap<Key, Arc<Endpoint>>) -> Result<KeyNames, Error> {
        let name = |key: &Key| {
            let is_first = key.ranks.first() == Some(&self.rank);
            let id = is_first.then(UniqueId::new).transpose()?;
            Ok((key.clone(), id.map(|id| id.0.to_vec())))
        };
        endpoints.keys().map(name).collect()
    }

    fn join_one(&self, endpoint: &Endpoint, key: &Key, id: UniqueId) -> Result<(), Error> {
        let staging = Arena::new(&self.device, endpoint.bytes.load(Ordering::Relaxed))?;
        endpoint.staging.get_or_init(|| staging);
        let place = key.ranks.iter().position(|rank| *rank == self.rank).unwrap_or(0);
        let communicator = Communicator::begin(&self.device, id, [place, key.ranks.len()])?;
        // The watch can end it from here on, should a member never come.
        endpoint.communicator.get_or_init(|| communicator).settle("joining a communicator")
    }

    /// Looks for failures of processes and of communicators, and tells whether the device waits inside of one. After the first failure all
    /// communicators end, so that nobody waits in them.
    fn keep_watch(&self) {
        if let Err(why) = self.device.bind() {
            self.control.fail(self.rank, &why.to_string());
        }
        let each = |f: &dyn Fn(&Communicator)| {
            let endpoints = locked(&self.endpoints).clone();
            endpoints.values().filter_map(|endpoint| endpoint.communicator.get()).for_each(f);
        };
        while !self.closing.load(Ordering::Acquire) {
            if self.control.failure().is_some() {
                return self.abort();
            }
            each(&|communicator| {
                if let Err(why) = communicator.check() {
                    self.control.fail(self.rank, &why.to_string());
                }
            });
            self.control.note_device(self.look());
            thread::park_timeout(PAUSE);
        }
    }

    /// Ends all communicators at once. NCCL waits until no recording has calls of a communicator that ends, so each ends in a thread of its
    /// own, for which nobody waits.
    fn abort(&self) {
        let endpoints = locked(&self.endpoints).clone();
        for endpoint in endpoints.into_values().filter(|endpoint| endpoint.communicator.get().is_some()) {
            let abort = move || endpoint.communicator.get().into_iter().for_each(Communicator::abort);
            // A process that gets no thread ends soon, and its communicators with it.
            let _ = thread::Builder::new().name("nccl abort".to_string()).spawn(abort);
        }
    }

    /// A number that changes whenever something moves through NCCL, and what the device waits for, if it is inside of an operation.
    fn look(&self) -> Option<(u64, WaitReason)> {
        let endpoints = locked(&self.endpoints).clone();
        let queues = endpoints.values().flat_map(|endpoint| locked(&endpoint.queues).clone());
        let looks = queues.map(|queue| queue.look()).chain([self.recordings.look()]);
        let looks: Vec<(u64, Option<WaitReason>)> = looks.collect();
        let reason = looks.iter().find_map(|(_, reason)| *reason)?;
        Some((looks.iter().map(|(moved, _)| moved).sum(), reason))
    }

    /// Ends all communicators together with the other ranks, which all have done all that they have to do. Nobody has a recording any more.
    pub fn finish(&self) {
        let endpoints = locked(&self.endpoints).clone();
        let mut communicators = endpoints.values().filter_map(|endpoint| endpoint.communicator.get());
        // One that cannot end so is ended with the rank.
        let _ = communicators.try_for_each(Communicator::finish);
        self.control.finish();
    }

    /// Ends the watch and the courier, and communicators that have not ended.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        if let Some(watch) = locked(&self.watch).take() {
            watch.thread().unpark();
            drop(watch.join());
        }
        self.abort();
        self.control.close();
    }
}

/// The device that this process has opened, if all have one, each another.
fn compare_devices(control: &Control, opened: Result<Arc<Device>, Error>) -> Result<Arc<Device>, Error> {
    let opened = opened.and_then(|device| Ok((device.identity()?, device)));
    let own = opened.as_ref().map(|(identity, _)| identity.to_vec()).map_err(Error::to_string);
    let lost = |why: RankFailure| Error::Nccl { what: "meeting the other processes", why: why.to_string() };
    let all = control.share(serde_json::to_vec(&own).unwrap_or_default()).map_err(lost)?;
    let (_, device) = opened?;
    let host = |process: usize| control.world().processes[process].host.clone();
    let mut devices: Vec<(String, Vec<u8>)> = Vec::new();
    for (process, bytes) in all.iter().enumerate() {
        let told = serde_json::from_slice::<Result<Vec<u8>, String>>(bytes);
        let told = told.unwrap_or_else(|_| Err("it is of another version".to_string()));
        let identity = told.map_err(|why| Error::Elsewhere { process, host: host(process), why })?;
        let one = (host(process), identity);
        if let Some(first) = devices.iter().position(|other| *other == one) {
            return Err(Error::Shared { processes: [first, process], host: one.0 });
        }
        devices.push(one);
    }
    Ok(device)
}

/// The names of the communicators of a rank, from what all processes have told.
fn names(rank: usize, all: &[Named]) -> Result<BTreeMap<Key, UniqueId>, String> {
    let of = |rank: usize| all.iter().find(|named| named.rank == rank);
    let mut names = BTreeMap::new();
    for (key, _) in of(rank).map_or(&[][..], |own| &own.keys) {
        let mut id = None;
        for &member in &key.ranks {
            let known = of(member).and_then(|named| named.keys.iter().find(|(other, _)| other == key));
            let Some((_, name)) = known else {
                let ranks: Vec<String> = key.ranks.iter().map(usize::to_string).collect();
                let ranks = ranks.join(", ");
                return Err(format!("rank {rank} exchanges with ranks {ranks}, and rank {member} not with these"));
            };
            id = id.or_else(|| Some(UniqueId(name.as_deref()?.try_into().ok()?)));
        }
        let id = id.ok_or_else(|| "a communicator has no name: a process of another version takes part".to_string())?;
        names.insert(key.clone(), id);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(rank: usize, keys: &[Key]) -> Named {
        let name = |key: &Key| (key.clone(), (key.ranks[0] == rank).then(|| vec![rank as u8; 128]));
        Named { rank, keys: keys.iter().map(name).collect(), eager: None }
    }

    #[test]
    fn all_members_of_a_communicator_have_the_name_that_the_first_gave() {
        let (group, line) = (Key::group(&[0, 1, 2], ThreadRole::Main), Key::line(2, 1));
        let all = [
            named(0, std::slice::from_ref(&group)),
            named(1, &[group.clone(), line.clone()]),
            named(2, &[group.clone(), line.clone()]),
        ];
        let of = |rank: usize| names(rank, &all).unwrap();
        assert!((0..3).all(|rank| of(rank)[&group].0 == [0; 128]));
        assert!([1, 2].iter().all(|&rank| of(rank)[&line].0 == [2; 128]) && of(0).len() == 1);
        // Messages have an order of their own, and so have exchanges of the async workers.
        assert!(Key::group(&[1, 2], ThreadRole::Main) < Key::group(&[1, 2], ThreadRole::Async));
        assert_ne!(Key::line(1, 2), Key::group(&[1, 2], ThreadRole::Main));
    }

    #[test]
    fn a_member_that_has_another_group_is_named() {
        let all =
            [named(0, &[Key::group(&[0, 1], ThreadRole::Main)]), named(1, &[Key::group(&[0, 1], ThreadRole::Async)])];
        let why = names(0, &all).unwrap_err();
        assert_eq!(why, "rank 0 exchanges with ranks 0, 1, and rank 1 not with these");
    }
}
