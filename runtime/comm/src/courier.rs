//! The courier: the one thread of a process that calls its [`Wire`]. Rank threads submit messages to it and go on; it begins them in the
//! order of submission, and when one has gone or come it counts it where it belongs and unparks who may wait for it.
//!
//! A message that is under way counts as an awake thread of the parking lot, from its submission until it has landed, so that threads
//! which wait for other processes are no deadlock. The courier also carries news of failures: the first failure of this process goes to
//! all others, and one that it hears of aborts all ranks here and goes on to all others. Each process sends a beat to the next one; a
//! process that is silent for too long has failed.
//!
//! A process all of whose threads wait for others, and to which nothing comes, reports so to the first process. When all report so, and
//! nothing has moved anywhere for as long as a silence may last, they wait for each other, and the first process says who for whom.

use super::RankFailure;
use super::driver::{Driver, SumGroups};
use super::flight_record::{EventKind, Events, RECORD_SCHEMA, WireMessage, WireRecord};
use super::parking_lot::{ParkingLot, locked};
use super::stalls::Stalls;
use super::wire::{Finished, MOST_BYTES, MOST_NOTICE, Wire, WireError, World};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Looks at messages under way before the courier sleeps between looks, and its sleep.
const LOOKS: u32 = 200;
pub(super) const SLEEP: Duration = Duration::from_micros(20);

/// Looks of a courier without messages before it sleeps: who has just exchanged may soon do so again, and a thread that sleeps wakes late.
const LINGERS: u32 = 100;

/// The sleep of a courier without messages: as late as this it hears of a failure elsewhere.
pub(super) const IDLE: Duration = Duration::from_millis(20);

/// The tag of messages between the threads that drive processes; lanes come after it.
pub(super) const DRIVER: u32 = 1;
pub(super) const FIRST_LANE: u32 = 2;

/// The time before the first beat of a process. All begin to hear each other as soon as they have met.
const FIRST_BEAT: Duration = Duration::from_secs(10);

/// Limits on the time of processes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A process that says nothing for so long has failed.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { silence: Duration::from_secs(8) }
    }
}

/// A message to send or to receive, or a sum.
pub(super) struct Job {
    pub(super) way: Way,
    /// The other process; of a sum the first other one.
    pub(super) process: usize,
    /// The number of the lane, or of a sum that of its group.
    pub(super) tag: u32,
    /// The numbers of a sum that come to each process; none if all come to each.
    pub(super) parts: Option<Arc<[usize]>>,
    /// The bytes to send, or the place of those that come. Nobody else touches it until the message has landed.
    pub(super) bytes: *mut [u8],
    /// The most bytes of the message, as both ends know it.
    pub(super) most: usize,
    /// True if the message has exactly these bytes.
    pub(super) exact: bool,
    pub(super) landing: Arc<dyn Landing>,
    pub(super) target: Target,
}

// SAFETY: until the message has landed, the courier alone touches the bytes; who submits a job answers for that.
unsafe impl Send for Job {}

/// Direction of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    Send,
    Receive,
    Sum,
}

/// The count of a message that has gone or come: the number of its exchange or message, the phase that it helps to end, and the count
/// that ends the phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) number: u64,
    pub(super) phase: usize,
    pub(super) count: u64,
}

/// Place that counts messages.
pub(super) trait Landing: Send + Sync {
    /// Its name, in words.
    fn name(&self) -> String;

    /// Counts a message that has gone or come, and unparks who may wait for it.
    fn land(&self, target: Target, lot: &ParkingLot);
}

/// A process's courier, as other threads see it.
pub struct Courier {
    pub(super) world: World,
    pub(super) lot: Arc<ParkingLot>,
    jobs: Mutex<VecDeque<Job>>,
    closing: AtomicBool,
    /// True if this process has done all that it has to do.
    is_done: AtomicBool,
    /// The cause why it ends before that, if it is known.
    cause: Mutex<Option<String>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The courier's thread, to wake it.
    sleeper: Mutex<Option<Thread>>,
    pub(super) sums: Mutex<SumGroups>,
    /// Messages of the driving thread that have landed.
    pub(super) driver: Arc<Driver>,
    /// The last events before a failure.
    record: Mutex<Option<WireRecord>>,
}

impl Courier {
    pub(super) fn new(world: World, lot: Arc<ParkingLot>) -> Arc<Courier> {
        lot.note_place(format!("process {} on {}", world.me, world.processes[world.me].host));
        let (jobs, closing, is_done, cause, thread, sleeper, sums, driver, record) = Default::default();
        Arc::new(Courier { world, lot, jobs, closing, is_done, cause, thread, sleeper, sums, driver, record })
    }

    /// Starts its thread.
    ///
    /// # Errors
    /// The system has no thread.
    pub(super) fn start(self: &Arc<Courier>, wire: Box<dyn Wire>, limits: Limits) -> Result<(), String> {
        let courier = self.clone();
        let name = format!("courier {}", self.world.me);
        let thread = thread::Builder::new().name(name).spawn(move || Rounds::new(&courier, wire, limits).serve());
        let thread = thread.map_err(|why| format!("the courier gets no thread: {why}"))?;
        self.lot.tell(thread.thread().clone());
        *locked(&self.sleeper) = Some(thread.thread().clone());
        *locked(&self.thread) = Some(thread);
        Ok(())
    }

    /// The processes.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Hands over a message. Messages with one process and tag are begun in the order in which they are submitted.
    pub(super) fn submit(&self, job: Job) {
        // Awake before the message can land, and before the thread that submits it can park.
        self.lot.enter(1);
        locked(&self.jobs).push_back(job);
        self.wake();
    }

    pub(super) fn wake(&self) {
        locked(&self.sleeper).iter().for_each(Thread::unpark);
    }

    /// Notes that this process has done all that it has to do, and so have all others. A process that ends without has failed.
    pub fn finish(&self) {
        self.is_done.store(true, Ordering::Release);
    }

    /// Notes why this process ends before it has done all that it has to do. The others hear the first cause.
    pub fn note_cause(&self, why: &str) {
        locked(&self.cause).get_or_insert_with(|| why.to_string());
    }

    /// The last words of a process that ends too early.
    fn last_words(&self) -> String {
        let name = format!("process {} on {}", self.world.me, self.world.processes[self.world.me].host);
        match &*locked(&self.cause) {
            Some(why) => format!("{name} cannot go on: {why}"),
            None => format!("{name} has ended"),
        }
    }

    /// Ends its thread; messages that are under way are dropped.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake();
        let thread = locked(&self.thread).take();
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Courier {
    /// Ends its thread, and gives the last events before a failure, if there was one.
    pub fn record(&self) -> Option<WireRecord> {
        self.close();
        locked(&self.record).clone()
    }
}

/// The courier's thread.
struct Rounds<'a> {
    courier: &'a Courier,
    wire: Box<dyn Wire>,
    /// Messages under way, by ticket; tickets that are free; and how many are not.
    under_way: Vec<Option<UnderWay>>,
    free: Vec<usize>,
    count: usize,
    taken: VecDeque<Job>,
    finished: Vec<Finished>,
    /// Pieces of messages that have landed.
    landed: u64,
    pulse: Pulse,
    /// When each process said that it has done all that it has to do, if it has.
    ended: Vec<Option<Instant>>,
    stalls: Stalls,
    /// The last events.
    events: Events,
    /// True if all other processes know of the failure.
    has_told: bool,
}

/// A message under way, which goes in pieces of at most [`MOST_BYTES`]: those that are left, and the bytes of the others.
struct UnderWay {
    job: Job,
    pieces: usize,
    bytes: usize,
}

/// The beats to the next process, and those of the process before.
struct Pulse {
    silence: Duration,
    next: usize,
    /// The process before, until it ends.
    before: Option<usize>,
    began: Instant,
    said: Option<Instant>,
    heard: Option<Instant>,
    looked: Instant,
}

/// The first byte of a notice.
const BEAT: u8 = 0;
const FAILED: u8 = 1;
const BYE: u8 = 2;
const STALLED: u8 = 3;
const STUCK: u8 = 4;

impl<'a> Rounds<'a> {
    fn new(courier: &'a Courier, wire: Box<dyn Wire>, limits: Limits) -> Rounds<'a> {
        let (me, count, now) = (courier.world.me, courier.world.processes.len(), Instant::now());
        let (next, before) = ((me + 1) % count, Some((me + count - 1) % count).filter(|before| *before != me));
        let pulse = Pulse { silence: limits.silence, next, before, began: now, said: None, heard: None, looked: now };
        let (under_way, free, taken, finished) = Default::default();
        let stalls = Stalls::new(me, count, limits.silence);
        Rounds {
            courier,
            wire,
            under_way,
            free,
            count: 0,
            taken,
            finished,
            landed: 0,
            pulse,
            ended: vec![None; count],
            stalls,
            events: Events::default(),
            has_told: false,
        }
    }

    fn serve(mut self) {
        let lot = self.courier.lot.clone();
        let mut looks = 0;
        loop {
            let failure = lot.failure();
            if let Some(failure) = &failure {
                self.record(failure);
                self.tell(failure);
            }
            if self.courier.closing.load(Ordering::Acquire) {
                let is_done = self.courier.is_done.load(Ordering::Acquire);
                if is_done && failure.is_none() {
                    let _ = self.notify_all(&[BYE]);
                    return self.wire.end(true);
                }
                self.tell(&RankFailure::new(lot.ranks()[0], self.courier.last_words()));
                return self.wire.end(false);
            }
            let moved = if failure.is_some() { Ok(false) } else { self.look() };
            let moved =
                moved.and_then(|moved| Ok(self.hear()? || moved)).unwrap_or_else(|WireError { process, why }| {
                    match process {
                        Some(process) => self.lose(process, &why),
                        None => drop(lot.abort(RankFailure::new(lot.ranks()[0], why))),
                    }
                    true
                });
            looks = if moved { 0 } else { looks + 1 };
            match (self.count > 0, looks) {
                _ if failure.is_some() => thread::park_timeout(IDLE),
                (true, ..LOOKS) | (false, ..LINGERS) => thread::yield_now(),
                (true, _) => thread::park_timeout(SLEEP * (looks / LOOKS).min(10)),
                (false, _) => thread::park_timeout(IDLE),
            }
        }
    }

    /// Begins what was submitted, and lands what has gone or come. Returns whether anything moved.
    fn look(&mut self) -> Result<bool, WireError> {
        let mut sums = locked(&self.courier.sums);
        if let SumGroups::Asked(groups) = &*sums {
            self.wire.join_sums(groups)?;
            *sums = SumGroups::Joined;
        }
        drop(sums);
        std::mem::swap(&mut self.taken, &mut *locked(&self.courier.jobs));
        let mut moved = !self.taken.is_empty();
        while let Some(job) = self.taken.pop_front() {
            self.begin(job)?;
        }
        if self.count > 0 {
            self.wire.poll(&mut self.finished)?;
        }
        while let Some(Finished { ticket, bytes }) = self.finished.pop() {
            moved = true;
            let Some(under_way) = &mut self.under_way[ticket] else { continue };
            self.landed += 1;
            under_way.pieces -= 1;
            under_way.bytes += bytes;
            if under_way.pieces == 0 {
                self.land(ticket)?;
            }
        }
        Ok(moved)
    }

    fn begin(&mut self, job: Job) -> Result<(), WireError> {
        let ticket = self.free.pop().unwrap_or_else(|| {
            self.under_way.push(None);
            self.under_way.len() - 1
        });
        self.events.note(EventKind::Begun, &job, job.bytes.len());
        self.count += 1;
        if job.way == Way::Sum {
            return self.begin_sum(ticket, job);
        }
        let (way, process, tag, bytes) = (job.way, job.process, job.tag, job.bytes);
        // Both ends know the most bytes, so they agree on the number of pieces.
        let pieces = job.most.div_ceil(MOST_BYTES).max(1);
        self.under_way[ticket] = Some(UnderWay { job, pieces, bytes: 0 });
        for piece in 0..pieces {
            let start = (piece * MOST_BYTES).min(bytes.len());
            let len = MOST_BYTES.min(bytes.len() - start);
            // SAFETY: the piece is within the bytes.
            let part = std::ptr::slice_from_raw_parts_mut(unsafe { bytes.cast::<u8>().add(start) }, len);
            // SAFETY: who submits a job leaves the bytes alone until it has landed, and they live until this thread has ended.
            unsafe {
                match way {
                    Way::Send => self.wire.send(ticket, process, tag, part)?,
                    _ => self.wire.receive(ticket, process, tag, part)?,
                }
            }
        }
        Ok(())
    }

    /// Begins a sum in pieces, each of which comes to all members of the group, or to one.
    fn begin_sum(&mut self, ticket: usize, job: Job) -> Result<(), WireError> {
        const MOST: usize = MOST_BYTES / size_of::<f32>();
        let (group, numbers, parts) = (job.tag as usize, job.bytes.cast::<f32>(), job.parts.clone());
        let all = [job.bytes.len() / size_of::<f32>()];
        let (parts, is_whole) = parts.as_deref().map_or((&all[..], true), |parts| (parts, false));
        let pieces = parts.iter().map(|len| len.div_ceil(MOST)).sum();
        self.under_way[ticket] = Some(UnderWay { job, pieces, bytes: 0 });
        let mut end = 0;
        for (member, &len) in parts.iter().enumerate() {
            let to = (!is_whole).then_some(member);
            end += len;
            for start in (end - len..end).step_by(MOST) {
                // SAFETY: the piece is within the numbers.
                let piece = std::ptr::slice_from_raw_parts_mut(unsafe { numbers.add(start) }, MOST.min(end - start));
                // SAFETY: as of messages.
                unsafe { self.wire.sum(ticket, group, piece, to)? };
            }
        }
        Ok(())
    }

    fn land(&mut self, ticket: usize) -> Result<(), WireError> {
        let Some(UnderWay { job, bytes, .. }) = self.under_way[ticket].take() else { return Ok(()) };
        self.free.push(ticket);
        self.count -= 1;
        self.events.note(EventKind::Landed, &job, bytes);
        if job.way == Way::Receive && job.exact && bytes != job.most {
            let (process, most) = (job.process, job.most);
            return Err(format!("process {process} sent {bytes} bytes where {most} were awaited").into());
        }
        job.landing.land(job.target, &self.courier.lot);
        self.courier.lot.leave();
        Ok(())
    }

    /// Sends and hears beats, and hears of failures. Returns whether a failure was heard of.
    fn hear(&mut self) -> Result<bool, WireError> {
        let (lot, world, now) = (&self.courier.lot, &self.courier.world, Instant::now());
        let Pulse { silence, next, before, .. } = self.pulse;
        // A process that was suspended itself has heard nobody meanwhile.
        if now - self.pulse.looked > silence / 2 {
            self.pulse.heard = self.pulse.heard.map(|_| now);
        }
        self.pulse.looked = now;
        if before.is_some() && self.pulse.said.is_none_or(|said| now - said > silence / 10) {
            self.pulse.said = Some(now);
            self.wire.notify(next, &[BEAT])?;
        }
        while let Some((from, notice)) = self.wire.hear()? {
            if Some(from) == before {
                self.pulse.heard = Some(now);
            }
            match notice.split_first() {
                Some((&kind @ (FAILED | STUCK), text)) if text.len() >= 4 => {
                    let (rank, why) = text.split_at(4);
                    let rank = rank.try_into().map_or(0, u32::from_le_bytes) as usize;
                    let (is_stuck, why) = (kind == STUCK, String::from_utf8_lossy(why));
                    let heard = RankFailure { rank, why: why.into_owned(), is_stuck };
                    let waits = if is_stuck { lot.who_waits_for(rank) } else { String::new() };
                    // The notice of the first process may be late: it arrives from this one before the end of this one does.
                    self.tell(&heard);
                    lot.abort(RankFailure { why: format!("{}{waits}", heard.why), ..heard });
                    return Ok(true);
                }
                Some((&BYE, _)) => {
                    self.ended[from].get_or_insert(now);
                    self.pulse.before = self.pulse.before.filter(|before| *before != from);
                }
                Some((&STALLED, report)) => self.stalls.hear(from, report, now),
                _ => {}
            }
        }
        let limit = if self.pulse.heard.is_some() { silence } else { silence.max(FIRST_BEAT) };
        let since = self.pulse.heard.unwrap_or(self.pulse.began);
        if let Some(silent) = self.pulse.before.filter(|_| now - since > limit) {
            let (host, seconds) = (&world.processes[silent].host, limit.as_secs_f64());
            self.lose(silent, &format!("process {silent} on {host} has said nothing for {seconds} s"));
        }
        self.look_for_ended(now);
        self.stall(now)?;
        Ok(false)
    }

    /// Aborts all ranks here if one waits for a process that has ended. What that has sent before has had the time of a silence to come.
    fn look_for_ended(&self, now: Instant) {
        let mut awaited = self.under_way.iter().flatten().map(|under_way| under_way.job.process);
        let ended = awaited.find(|&process| self.ended[process].is_some_and(|at| now - at > self.pulse.silence));
        if let Some(process) = ended {
            let host = &self.courier.world.processes[process].host;
            self.lose(process, &format!("process {process} on {host} has ended, and this one waits for it"));
        }
    }

    /// Aborts all ranks here, since another process is lost.
    fn lose(&self, process: usize, why: &str) {
        let (lot, ranks) = (&self.courier.lot, &self.courier.world.processes[process].ranks);
        let ours = lot.waits().into_iter().next().map_or(String::new(), |wait| format!("; here {wait}"));
        let why = format!("{why} (step {}{ours})", lot.step());
        lot.abort(RankFailure::new(ranks.first().copied().unwrap_or(0), why));
    }

    /// Reports to the first process if all threads here wait for others. There aborts all if those of all processes do.
    fn stall(&mut self, now: Instant) -> Result<(), WireError> {
        let Rounds { courier, wire, stalls, count, landed, .. } = self;
        let lot = &courier.lot;
        let waits = *count > 0 && (lot.has_waiting() || courier.driver.waits.load(Ordering::Acquire));
        let is_stalled = waits && locked(&courier.jobs).is_empty() && lot.is_still(*count);
        let moved = lot.device().or(is_stalled.then_some(*landed));
        let report = stalls.look(moved, now, || match lot.waits() {
            none if none.is_empty() => "its ranks have done their part".to_string(),
            waits => waits.join("; "),
        });
        match report {
            Some(report) if courier.world.me > 0 => wire.notify(0, &[&[STALLED][..], &report].concat())?,
            Some(report) => stalls.hear(0, &report, now),
            None => {}
        }
        if let Some(waits) = stalls.deadlock(now) {
            let why = format!("all processes wait for each other (step {}): {waits}", lot.step());
            lot.abort(RankFailure::new(lot.ranks()[0], why));
        }
        Ok(())
    }

    /// Keeps the last events before the first failure.
    fn record(&mut self, failure: &RankFailure) {
        let Courier { world, lot, record, .. } = self.courier;
        locked(record).get_or_insert_with(|| WireRecord {
            schema: RECORD_SCHEMA,
            step: lot.step(),
            process: world.me,
            host: world.processes[world.me].host.clone(),
            failed_rank: failure.rank,
            why: failure.why.clone(),
            waits: lot.waits(),
            pending: self.under_way.iter().flatten().map(|under_way| WireMessage::of(&under_way.job)).collect(),
            events: self.events.list(),
        });
    }

    /// Tells all other processes of the first failure, here or elsewhere, once.
    fn tell(&mut self, failure: &RankFailure) {
        if !std::mem::replace(&mut self.has_told, true) {
            let mut notice = vec![if failure.is_stuck { STUCK } else { FAILED }];
            notice.extend((failure.rank as u32).to_le_bytes());
            let room = MOST_NOTICE - notice.len();
            let end = (0..=failure.why.len().min(room)).rev().find(|&end| failure.why.is_char_boundary(end));
            notice.extend(&failure.why.as_bytes()[..end.unwrap_or(0)]);
            // Processes that it does not reach learn it from others, or from the silence.
            let _ = self.notify_all(&notice);
        }
    }

    fn notify_all(&mut self, notice: &[u8]) -> Result<(), WireError> {
        let Rounds { courier, wire, .. } = self;
        let others = (0..courier.world.processes.len()).filter(|process| *process != courier.world.me);
        others.map(|process| wire.notify(process, notice)).fold(Ok(()), Result::and)
    }
}
