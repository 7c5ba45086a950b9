//! Threads: assignment of a rank's thread to a processor core, and a check that the system grants enough threads.

#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;
use std::thread::{Builder, scope};
#[cfg(target_os = "linux")]
use std::time::Duration;

/// True if the system can run this number of threads at a time. Threads that wait for each other would wait forever for one that it
/// does not give.
pub fn check_threads(count: usize) -> Result<(), String> {
    let gate = std::sync::RwLock::new(());
    let closed = gate.write();
    let given = scope(|scope| {
        let started = (0..count).try_for_each(|_| Builder::new().spawn_scoped(scope, || drop(gate.read())).map(drop));
        drop(closed);
        started
    });
    given.map_err(|why| format!("the system gives no {count} threads: {why}"))
}

/// The cores that the main thread of a rank may run on, by its place among the ranks of this process. It is one of them, round-robin, if
/// every core gets the same number of ranks and more than one. Else it is all that the process may use; none if the system does not say.
pub fn cores_of(place: usize, ranks: usize) -> Vec<usize> {
    let allowed = allowed();
    if ranks <= allowed.len() || !ranks.is_multiple_of(allowed.len().max(1)) {
        return allowed;
    }
    allowed.get(place % allowed.len().max(1)).copied().into_iter().collect()
}

/// The cores that the calling thread may use.
#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let allowed = sched_getaffinity(None).ok();
    allowed.map_or_else(Vec::new, |allowed| (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect())
}

/// Nothing is known of cores.
#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<usize> {
    Vec::new()
}

/// The longest turn that Linux gives a thread among others of its core (`sched_setattr`, since version 6.12).
#[cfg(target_os = "linux")]
const LONGEST_TURN: Duration = Duration::from_millis(100);

/// Pins the calling thread of a rank to its [`cores_of`], and gives it long turns if ranks share cores.
/// An unpinned rank may move to a busy core when an exchange unparks it, while another core is idle. With eight ranks on two
/// cores, each exchange then loses about the time that a rank computes between two exchanges. If the system refuses to pin,
/// the thread runs on any core. A rank that computes is not done earlier if another one of its core has a turn meanwhile, but finds its
/// operands out of the core's caches then.
#[cfg(target_os = "linux")]
pub fn pin_thread(place: usize, ranks: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    if ranks > allowed().len() {
        lengthen_turns();
    }
    let mut own = CpuSet::new();
    cores_of(place, ranks).into_iter().for_each(|core| own.set(core));
    if own.count() > 0 {
        let _ = sched_setaffinity(None, &own);
    }
}

/// Gives the calling thread the [`LONGEST_TURN`], if it has turns at all. Older systems leave it as it is.
#[cfg(target_os = "linux")]
fn lengthen_turns() {
    let Some(mut attributes) = attributes() else { return };
    if [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&(attributes.sched_policy as i32)) {
        attributes.sched_runtime = LONGEST_TURN.as_nanos() as u64;
        // SAFETY: the call reads the attributes, which state their size.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

/// The scheduling of the calling thread; `None` if the system does not say.
#[cfg(target_os = "linux")]
fn attributes() -> Option<libc::sched_attr> {
    let mut attributes = MaybeUninit::<libc::sched_attr>::uninit();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: a call that succeeds has written all attributes, which have this size.
    unsafe {
        let failed = libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), size, 0) != 0;
        (!failed).then(|| attributes.assume_init())
    }
}

/// Nothing: the thread runs on any core.
#[cfg(not(target_os = "linux"))]
pub fn pin_thread(_place: usize, _ranks: usize) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{LONGEST_TURN, attributes, pin_thread};
    use rustix::thread::{CpuSet, sched_getaffinity};

    fn pinned(rank: usize, ranks: usize) -> CpuSet {
        let own = std::thread::spawn(move || {
            pin_thread(rank, ranks);
            sched_getaffinity(None).unwrap()
        });
        own.join().unwrap()
    }

    /// The turns of a thread before and after it is pinned as one of these ranks.
    fn turns(ranks: usize) -> [u64; 2] {
        let turns = std::thread::spawn(move || {
            let before = attributes().unwrap().sched_runtime;
            pin_thread(0, ranks);
            [before, attributes().unwrap().sched_runtime]
        });
        turns.join().unwrap()
    }

    #[test]
    fn ranks_share_cores_evenly_or_not_at_all() {
        let allowed = sched_getaffinity(None).unwrap();
        let count = allowed.count() as usize;
        assert!(pinned(0, count) == allowed);
        assert!(count == 1 || pinned(0, 2 * count + 1) == allowed);
        let own: Vec<CpuSet> = (0..2 * count).map(|rank| pinned(rank, 2 * count)).collect();
        for core in &own {
            assert_eq!((core.count(), own.iter().filter(|other| *other == core).count()), (1, 2));
        }
    }

    /// Systems that do not say how long turns are have the same ones for all threads.
    #[test]
    fn ranks_that_share_a_core_have_long_turns() {
        let count = sched_getaffinity(None).unwrap().count() as usize;
        let [before, alone] = turns(count);
        assert_eq!(before, alone);
        let [before, shared] = turns(2 * count);
        let longest = LONGEST_TURN.as_nanos() as u64;
        assert!(before < longest && shared == if before > 0 { longest } else { 0 }, "{before} {shared}");
    }
}
