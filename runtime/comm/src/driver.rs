//! The threads that drive processes, as they talk with each other: each gives bytes to all others and takes theirs.

use super::RankFailure;
use super::courier::{Courier, DRIVER, IDLE, Job, Landing, SLEEP, Target, Way};
use super::parking_lot::{ParkingLot, locked};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};

/// The most bytes that drivers give each other at once, so that memory is taken for what comes and not for what a process announces.
const MOST_SHARED: usize = 1 << 26;

/// The thread that drives a process, while it talks with those of others.
#[derive(Default)]
pub(super) struct Driver {
    landed: AtomicUsize,
    /// True while it waits for those of others.
    pub(super) waits: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

/// Groups of processes that make sums, which the wire is to join.
#[derive(Default)]
pub(super) enum SumGroups {
    #[default]
    Unasked,
    Asked(Vec<Vec<usize>>),
    Joined,
}

impl Landing for Driver {
    fn name(&self) -> String {
        "the reports of all processes".to_string()
    }

    fn land(&self, _: Target, _: &ParkingLot) {
        self.landed.fetch_add(1, Ordering::Release);
        locked(&self.thread).iter().for_each(Thread::unpark);
    }
}

impl Courier {
    /// Gives bytes to the driving threads of all other processes, and takes theirs; all processes call it in the same order. Returns
    /// those of all, by process.
    ///
    /// # Errors
    /// A rank failed.
    pub fn share(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, RankFailure> {
        let count = self.world.processes.len();
        let mut lengths: Vec<Vec<u8>> = (0..count).map(|_| vec![0; 8]).collect();
        self.swap(&(own.len() as u64).to_le_bytes(), &mut lengths)?;
        lengths[self.world.me] = (own.len() as u64).to_le_bytes().to_vec();
        let lengths = lengths.iter().map(|bytes| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes) as usize);
        let lengths: Vec<usize> = lengths.collect();
        let most = lengths.iter().copied().max().unwrap_or(0);
        let mut all = vec![Vec::new(); count];
        for start in (0..most).step_by(MOST_SHARED) {
            let rests = lengths.iter().map(|&length| length.saturating_sub(start));
            let mut parts: Vec<Vec<u8>> = rests.map(|rest| vec![0; rest.min(MOST_SHARED)]).collect();
            let rest = own.get(start..).unwrap_or_default();
            self.swap(&rest[..rest.len().min(MOST_SHARED)], &mut parts)?;
            all.iter_mut().zip(parts).for_each(|(all, part)| all.extend(part));
        }
        all[self.world.me] = own.to_vec();
        Ok(all)
    }

    /// Joins groups of processes that make sums, as [`Wire::join_sums`]. Its thread does so while no message of this process is under way.
    ///
    /// # Errors
    /// A rank failed, or the wire cannot join them.
    pub(super) fn join_sums(&self, groups: Vec<Vec<usize>>) -> Result<(), RankFailure> {
        *locked(&self.sums) = SumGroups::Asked(groups);
        self.wake();
        while !matches!(*locked(&self.sums), SumGroups::Joined) {
            if let Some(failure) = self.lot.failure() {
                return Err(failure);
            }
            thread::park_timeout(SLEEP);
        }
        Ok(())
    }

    /// Sends bytes to all other processes, and receives those of each, whose number is known.
    fn swap(&self, own: &[u8], all: &mut [Vec<u8>]) -> Result<(), RankFailure> {
        *locked(&self.driver.thread) = Some(thread::current());
        self.driver.landed.store(0, Ordering::Relaxed);
        self.driver.waits.store(true, Ordering::Release);
        let mut begun = 0;
        for (process, bytes) in all.iter_mut().enumerate().filter(|(process, _)| *process != self.world.me) {
            let received = std::ptr::from_mut(bytes.as_mut_slice());
            for (way, bytes) in [(Way::Receive, received), (Way::Send, std::ptr::from_ref(own).cast_mut())] {
                let landing = self.driver.clone() as Arc<dyn Landing>;
                let (most, target) = (bytes.len(), Target { number: 0, phase: 0, count: 0 });
                self.submit(Job { way, process, tag: DRIVER, bytes, most, parts: None, exact: true, landing, target });
                begun += 1;
            }
        }
        while self.driver.landed.load(Ordering::Acquire) < begun {
            if let Some(failure) = self.lot.failure() {
                // Once its thread has ended, nobody reaches for these bytes.
                self.close();
                return Err(failure);
            }
            thread::park_timeout(IDLE);
        }
        self.driver.waits.store(false, Ordering::Release);
        Ok(())
    }
}
