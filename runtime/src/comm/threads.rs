//! Ranks as threads of one process. A collective copies nothing but what it must: each rank says where its tensors lie,
//! all meet, each reads what it needs straight from its peers' memory into its own result, and all meet again before
//! anyone may write or free. A tensor that is sent changes hands without a copy.

use super::group::{Alarm, Group, Reading, locked};
use super::{Communicator, Exchange, Move, Stopped, TensorPlan};
use crate::tensor::Tensor;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// What joins the ranks of a process.
pub struct Fabric {
    alarm: Alarm,
    groups: Mutex<BTreeMap<Vec<usize>, Arc<Group>>>,
    mailboxes: Vec<Mailbox>,
}

/// Tensors on their way to one rank, by sender and tag.
#[derive(Default)]
struct Mailbox {
    letters: Mutex<HashMap<(usize, u32), VecDeque<Tensor>>>,
    arrived: Condvar,
}

/// One rank's end of a [`Fabric`].
pub struct Threads {
    rank: usize,
    fabric: Arc<Fabric>,
    groups: Vec<Member>,
    scratch: Vec<f32>,
}

/// A group and the rank's place in it.
struct Member {
    ranks: Vec<usize>,
    group: Arc<Group>,
    place: usize,
}

impl Fabric {
    /// Joins so many ranks: one end for each, in their order.
    pub fn join(ranks: usize) -> Vec<Threads> {
        let fabric = Arc::new(Fabric {
            alarm: Alarm::default(),
            groups: Mutex::default(),
            mailboxes: (0..ranks).map(|_| Mailbox::default()).collect(),
        });
        let end = |rank| Threads { rank, fabric: fabric.clone(), groups: Vec::new(), scratch: Vec::new() };
        (0..ranks).map(end).collect()
    }

    fn fail(&self, stopped: Stopped) {
        self.alarm.raise(stopped);
        locked(&self.groups).values().for_each(|group| group.wake());
        for mailbox in &self.mailboxes {
            drop(locked(&mailbox.letters));
            mailbox.arrived.notify_all();
        }
    }
}

impl Communicator for Threads {
    fn join(&mut self, ranks: &[usize]) -> usize {
        if let Some(known) = self.groups.iter().position(|member| member.ranks == ranks) {
            return known;
        }
        let mut groups = locked(&self.fabric.groups);
        let group = groups.entry(ranks.to_vec()).or_insert_with(|| Arc::new(Group::new(ranks.len()))).clone();
        let place = ranks.iter().position(|&rank| rank == self.rank).unwrap_or(0);
        self.groups.push(Member { ranks: ranks.to_vec(), group, place });
        self.groups.len() - 1
    }

    fn exchange(
        &mut self,
        group: usize,
        plan: &Exchange,
        sources: &[Tensor],
        results: &mut [Tensor],
    ) -> Result<(), Stopped> {
        let Member { group, place, .. } = &self.groups[group];
        if plan.ranks.len() == 1 {
            for ((tensor, source), result) in plan.tensors.iter().zip(sources).zip(results) {
                tensor.make(|_| source.floats(), result.write(), &mut self.scratch);
            }
            return Ok(());
        }
        let mut meeting = Meeting { group, alarm: &self.fabric.alarm, place: *place, scratch: &mut self.scratch };
        let outcome = meeting.run(plan, sources, results);
        if outcome.is_err() {
            group.wait_for_readers();
        }
        outcome
    }

    fn send(&mut self, to: usize, tag: u32, tensor: Tensor) {
        let mailbox = &self.fabric.mailboxes[to];
        locked(&mailbox.letters).entry((self.rank, tag)).or_default().push_back(tensor);
        mailbox.arrived.notify_all();
    }

    fn recv(&mut self, from: usize, tag: u32) -> Result<Tensor, Stopped> {
        let mailbox = &self.fabric.mailboxes[self.rank];
        let mut letters = locked(&mailbox.letters);
        loop {
            if let Some(tensor) = letters.get_mut(&(from, tag)).and_then(VecDeque::pop_front) {
                return Ok(tensor);
            }
            if let Some(stopped) = self.fabric.alarm.check() {
                return Err(stopped);
            }
            letters = mailbox.arrived.wait(letters).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn fail(&self, why: String) {
        self.fabric.fail(Stopped { rank: self.rank, why });
    }

    fn failure(&self) -> Option<Stopped> {
        self.fabric.alarm.check()
    }
}

/// One exchange of one member.
struct Meeting<'a> {
    group: &'a Group,
    alarm: &'a Alarm,
    place: usize,
    scratch: &'a mut Vec<f32>,
}

impl Meeting<'_> {
    fn run(&mut self, plan: &Exchange, sources: &[Tensor], results: &mut [Tensor]) -> Result<(), Stopped> {
        self.publish(sources, results);
        self.group.meet(self.alarm, true)?;
        let reading = Reading(self.group);
        for (index, tensor) in plan.tensors.iter().enumerate() {
            // SAFETY: the meeting is open.
            let source = |peer: usize| unsafe { slice(self.group.slot(peer).sources[index]) };
            // SAFETY: the result is this rank's own, and no peer reads it before the next meeting.
            let result = unsafe { slice_mut(self.group.slot(self.place).results[index]) };
            tensor.make(source, result, self.scratch);
        }
        drop(reading);
        if plan.gathers() {
            self.group.meet(self.alarm, true)?;
            let _reading = Reading(self.group);
            for (index, tensor) in plan.tensors.iter().enumerate() {
                tensor.gather.iter().for_each(|block| self.take_over(index, block));
            }
        }
        self.group.meet(self.alarm, false)
    }

    fn publish(&self, sources: &[Tensor], results: &mut [Tensor]) {
        // SAFETY: this is the member's own slot, and the last meeting of the exchange before is over.
        let slot = unsafe { self.group.slot_mut(self.place) };
        slot.sources.clear();
        slot.sources.extend(sources.iter().map(|tensor| (tensor.floats().as_ptr(), tensor.len())));
        slot.results.clear();
        slot.results.extend(results.iter_mut().map(|tensor| {
            let result = tensor.write();
            (result.as_mut_ptr().cast_const(), result.len())
        }));
    }

    /// Copies a contiguous piece of a peer's result, which the peer has made, to the same place of this rank's.
    fn take_over(&self, index: usize, block: &Move) {
        // SAFETY: the meeting is open.
        let (theirs, own) = unsafe { (self.group.slot(block.peer).results[index], self.group.slot(self.place)) };
        let (own, len) = (own.results[index].0, block.sizes[0]);
        assert!(block.from + len <= theirs.1 && block.to + len <= theirs.1, "pieces lie within the tensor");
        // SAFETY: both pieces lie within their tensors, and no rank writes the peer's piece or reads this one's now.
        unsafe { std::ptr::copy_nonoverlapping(theirs.0.add(block.from), own.cast_mut().add(block.to), len) }
    }
}

impl TensorPlan {
    /// Makes the result from the peers' sources.
    fn make<'a>(&self, source: impl Fn(usize) -> &'a [f32], result: &mut [f32], scratch: &mut Vec<f32>) {
        if self.zero {
            result.fill(0.0);
        }
        for (place, block) in self.moves.iter().enumerate() {
            let combine = self.combine.filter(|_| place > 0);
            block.apply(combine, source(block.peer), result, scratch);
        }
    }
}

/// # Safety
/// The elements are there and nobody writes them during `'a`.
unsafe fn slice<'a>((first, len): (*const f32, usize)) -> &'a [f32] {
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(first, len) }
}

/// # Safety
/// The elements are there, writable, and nobody else touches them during `'a`.
unsafe fn slice_mut<'a>((first, len): (*const f32, usize)) -> &'a mut [f32] {
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts_mut(first.cast_mut(), len) }
}
