//! Threads: assignment of a rank's thread to a processor core, and a check that the system grants enough threads.

use std::thread::{Builder, scope};

/// True if the system can run this number of threads at a time. Threads that wait for each other would wait forever for one that it
/// does not give.
pub(crate) fn check_threads(count: usize) -> Result<(), String> {
    let gate = std::sync::RwLock::new(());
    let closed = gate.write();
    let given = scope(|scope| {
        let idle = || drop(gate.read());
        let started = (0..count).try_for_each(|_| Builder::new().spawn_scoped(scope, idle).map(drop));
        drop(closed);
        started
    });
    given.map_err(|why| format!("the system gives no {count} threads: {why}"))
}

/// Pins the calling thread of a rank to one core, round-robin, if every core gets the same number of ranks and more than one.
/// An unpinned rank may move to a busy core when an exchange unparks it, while another core is idle. With eight ranks on two
/// cores, each exchange then loses about the time that a rank computes between two exchanges. If the system refuses to pin,
/// the thread runs on any core.
#[cfg(target_os = "linux")]
pub(crate) fn pin_thread(rank: usize, ranks: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let count = allowed.count() as usize;
    if ranks <= count || !ranks.is_multiple_of(count) {
        return;
    }
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let mut own = CpuSet::new();
    cores.nth(rank % count).into_iter().for_each(|core| own.set(core));
    let _ = sched_setaffinity(None, &own);
}

/// Nothing: the thread runs on any core.
#[cfg(not(target_os = "linux"))]
pub(crate) fn pin_thread(_rank: usize, _ranks: usize) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::pin_thread;
    use rustix::thread::{CpuSet, sched_getaffinity};

    fn cores_of(rank: usize, ranks: usize) -> CpuSet {
        let own = move || {
            pin_thread(rank, ranks);
            sched_getaffinity(None).unwrap()
        };
        std::thread::spawn(own).join().unwrap()
    }

    #[test]
    fn ranks_share_cores_evenly_or_not_at_all() {
        let allowed = sched_getaffinity(None).unwrap();
        let count = allowed.count() as usize;
        assert!(cores_of(0, count) == allowed);
        assert!(count == 1 || cores_of(0, 2 * count + 1) == allowed);
        let own: Vec<CpuSet> = (0..2 * count).map(|rank| cores_of(rank, 2 * count)).collect();
        for core in &own {
            assert_eq!((core.count(), own.iter().filter(|other| *other == core).count()), (1, 2));
        }
    }
}
