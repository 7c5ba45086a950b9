//! Control of a process whose ranks' data goes by another way than the wire: waiting and failing of its threads, and what drivers share.

use super::courier::{Courier, Limits};
use super::parking_lot::ParkingLot;
use super::wire::{Wire, World};
use super::{RankFailure, WaitReason};
use std::sync::Arc;
use std::time::Duration;

/// The threads of a process, each a rank, and its courier.
pub struct Control {
    world: World,
    lot: Arc<ParkingLot>,
    /// None if this process is the only one.
    courier: Option<Arc<Courier>>,
}

impl Control {
    /// Begins to hear the other processes.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(world: World, wire: Box<dyn Wire>, limits: Limits) -> Result<Control, String> {
        let lot = Arc::new(ParkingLot::new(world.ranks().to_vec(), false));
        let courier = (world.processes.len() > 1).then(|| Courier::new(world.clone(), lot.clone()));
        if let Some(courier) = &courier {
            courier.start(wire, limits)?;
        }
        Ok(Control { world, lot, courier })
    }

    /// The processes.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Gives bytes to the drivers of all processes and takes theirs, by process.
    ///
    /// # Errors
    /// A rank failed.
    pub fn share(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, RankFailure> {
        match &self.courier {
            Some(courier) => courier.share(&own),
            None => Ok(vec![own]),
        }
    }

    /// Notes that this process has done all that it has to do, and so have all others.
    pub fn finish(&self) {
        self.courier.iter().for_each(|courier| courier.finish());
    }

    /// Notes why this process ends too early, for the others.
    pub fn note_cause(&self, why: &str) {
        self.courier.iter().for_each(|courier| courier.note_cause(why));
    }

    /// Ends the courier.
    pub fn close(&self) {
        self.courier.iter().for_each(|courier| courier.close());
    }

    /// Counts the thread of a rank as awake in a step.
    pub fn enter(&self, step: u64) {
        self.lot.enter(1);
        self.lot.note_step(step);
    }

    /// Counts it as asleep until the next step.
    pub fn leave(&self) {
        self.lot.leave();
    }

    /// The number of a group in messages.
    pub fn number(&self, ranks: &[usize]) -> u32 {
        self.lot.number(ranks)
    }

    /// The number of the name of an exchange in messages.
    pub fn number_op(&self, op: &str) -> u32 {
        self.lot.number_op(op)
    }

    /// Notes what the device of the only rank waits for inside of an operation, if it does, with a number that changes whenever it goes on.
    /// Such a process waits as one whose threads do.
    pub fn note_device(&self, waits: Option<(u64, WaitReason)>) {
        self.lot.note_device(waits);
    }

    /// The time in which the thread of the rank at a place has waited so far.
    pub fn waited(&self, me: usize) -> Duration {
        self.lot.waited(me)
    }

    /// Waits, as [`Parking::wait`](super::Parking::wait), in the thread of the rank at a place.
    ///
    /// # Errors
    /// A rank failed, or all threads wait.
    pub fn wait(&self, me: usize, pending: &mut dyn FnMut() -> Option<WaitReason>) -> Result<(), RankFailure> {
        self.lot.wait(me, pending)
    }

    /// Parks the thread of the rank at a place until it has work.
    ///
    /// # Errors
    /// A rank failed.
    pub fn park(&self, me: usize, has_work: &mut dyn FnMut() -> bool) -> Result<(), RankFailure> {
        self.lot.park(me, has_work)
    }

    /// Unparks it.
    pub fn unpark(&self, me: usize) {
        self.lot.unpark(me);
    }

    /// Reports that a rank of this process failed. Only the first report counts.
    pub fn fail(&self, rank: usize, why: &str) {
        self.lot.fail(rank, why);
    }

    /// Reports that a rank of this process is stuck. Returns the first failure.
    pub fn give_up(&self, rank: usize, why: &str) -> RankFailure {
        self.lot.give_up(rank, why)
    }

    /// True if the device of the only rank waits inside of an operation.
    pub fn device_waits(&self) -> bool {
        self.lot.device().is_some()
    }

    /// The first failure, if any.
    pub fn failure(&self) -> Option<RankFailure> {
        self.lot.failure()
    }
}
