//! Asynchronous work of a rank: in-flight exchanges and asynchronously started bodies, the bodies one after the other.
//!
//! A lane never blocks on one item while another can progress. It runs on a second thread if cores are free; otherwise the
//! main thread advances it while that thread waits.

use super::play::{Carried, Carrier, Hands, Play};
use super::sheet::Sheet;
use super::tape::Tape;
use crate::backend::Backend;
use crate::comm::{Communicator, ThreadRole, WaitReason};
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

/// A lane as its row sees it.
pub(super) enum Beside<B: Backend, C: Communicator> {
    /// The row's own thread does all.
    Here(Box<Lane<B, C>>),
    /// Another thread does.
    Apart(Apart<C>),
}

/// A lane on a thread of its own.
pub(super) struct Apart<C: Communicator> {
    /// None when the lane is to end.
    orders: Option<SyncSender<Order<C>>>,
    done: Arc<[AtomicBool]>,
    thread: Option<JoinHandle<()>>,
    comm: C,
    tape: Option<Tape>,
}

/// What a lane is told to see to.
pub(super) enum Order<C: Communicator> {
    Carry(Carried<C>),
    /// A run, and its berth.
    Run(Play, usize),
}

/// What one lane has to do.
pub(super) struct Lane<B: Backend, C: Communicator> {
    sheets: Arc<[Sheet<C>]>,
    hands: Hands<B>,
    flights: Flights<C>,
    runs: VecDeque<(Play, usize)>,
}

/// Exchanges under way, and which berths are done with.
struct Flights<C: Communicator> {
    carried: Vec<Carried<C>>,
    done: Arc<[AtomicBool]>,
    /// Whether the row waits on another thread.
    apart: bool,
    tape: Option<Tape>,
}

impl<B: Backend + 'static, C: Communicator> Beside<B, C> {
    /// A lane for these sheets, on the row's thread or on one of its own of this name.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn new(
        sheets: Arc<[Sheet<C>]>,
        hands: Hands<B>,
        comm: &C,
        thread: Option<String>,
    ) -> Result<Beside<B, C>, String> {
        let berths = sheets.iter().map(|sheet| sheet.berths.iter().sum()).max().unwrap_or(0);
        let done: Arc<[AtomicBool]> = (0..berths).map(|_| AtomicBool::new(true)).collect();
        let (carried, tape) = (Vec::with_capacity(berths), hands.tape.clone());
        let flights = Flights { carried, done: done.clone(), apart: thread.is_some(), tape: tape.clone() };
        let lane = Lane { sheets, hands, flights, runs: VecDeque::with_capacity(berths) };
        let Some(name) = thread else { return Ok(Beside::Here(Box::new(lane))) };
        let (orders, given) = sync_channel(berths.max(1));
        let own = comm.with_role(ThreadRole::Async);
        let thread = std::thread::Builder::new().name(name).spawn(move || lane.serve(&own, &given));
        let thread = Some(thread.map_err(|why| format!("its lane gets no thread: {why}"))?);
        Ok(Beside::Apart(Apart { orders: Some(orders), done, thread, comm: comm.with_role(ThreadRole::Main), tape }))
    }

    /// Starts a run.
    pub(super) fn run(&mut self, play: Play, berth: usize) {
        match self {
            Beside::Here(lane) => lane.take(Order::Run(play, berth)),
            Beside::Apart(lane) => {
                lane.done[berth].store(false, Ordering::Relaxed);
                lane.give(Order::Run(play, berth));
            }
        }
    }

    /// Does all that can be done now, where the row has to do it; whether anything came to its end.
    pub(super) fn advance(&mut self, comm: &C) -> bool {
        match self {
            Beside::Here(lane) => lane.advance(comm),
            Beside::Apart(_) => false,
        }
    }

    /// What is waited for, if anything is under way.
    pub(super) fn awaited(&self, comm: &C) -> Option<WaitReason> {
        match self {
            Beside::Here(lane) => lane.awaited(comm),
            Beside::Apart(_) => Some(WaitReason::AsyncWorker),
        }
    }
}

impl<B: Backend, C: Communicator> Carrier<C> for Beside<B, C> {
    fn carry(&mut self, carried: Carried<C>) {
        match self {
            Beside::Here(lane) => lane.flights.carry(carried),
            Beside::Apart(lane) => {
                lane.done[carried.berth].store(carried.flight.is_complete(), Ordering::Relaxed);
                if carried.flight.is_complete() {
                    carried.note(lane.tape.as_ref());
                } else {
                    lane.give(Order::Carry(carried));
                }
            }
        }
    }

    fn is_done(&self, berth: usize) -> bool {
        let done = match self {
            Beside::Here(lane) => &lane.flights.done,
            Beside::Apart(lane) => &lane.done,
        };
        done[berth].load(Ordering::Acquire)
    }
}

impl<C: Communicator> Apart<C> {
    fn give(&self, order: Order<C>) {
        // There is room for all that can be under way; a lane that has failed takes nothing more, and all are told.
        self.orders.as_ref().map(|orders| orders.try_send(order));
        self.comm.unpark(ThreadRole::Async);
    }
}

impl<C: Communicator> Drop for Apart<C> {
    fn drop(&mut self) {
        self.orders = None;
        self.comm.unpark(ThreadRole::Async);
        self.thread.take().map(JoinHandle::join);
    }
}

impl<C: Communicator> Carrier<C> for Flights<C> {
    fn carry(&mut self, carried: Carried<C>) {
        self.done[carried.berth].store(carried.flight.is_complete(), Ordering::Relaxed);
        if carried.flight.is_complete() {
            carried.note(self.tape.as_ref());
        } else {
            self.carried.push(carried);
        }
    }

    fn is_done(&self, berth: usize) -> bool {
        self.done[berth].load(Ordering::Acquire)
    }
}

impl<C: Communicator> Flights<C> {
    /// Does of all exchanges what can be done; whether one came to its end.
    fn advance(&mut self, comm: &C) -> bool {
        let before = self.carried.len();
        let Flights { carried, done, tape, .. } = self;
        carried.retain_mut(|carried| {
            let Carried { call, flight, berth, .. } = carried;
            comm.advance(&call.group, &call.plan, flight);
            let over = flight.is_complete();
            if over {
                done[*berth].store(true, Ordering::Release);
                carried.note(tape.as_ref());
            }
            !over
        });
        let ended = self.carried.len() < before;
        if ended && self.apart {
            comm.unpark(ThreadRole::Main);
        }
        ended
    }
}

impl<B: Backend, C: Communicator> Lane<B, C> {
    fn take(&mut self, order: Order<C>) {
        match order {
            Order::Carry(carried) => self.flights.carry(carried),
            Order::Run(play, berth) => {
                self.flights.done[berth].store(false, Ordering::Relaxed);
                self.runs.push_back((play, berth));
            }
        }
    }

    /// Does all that can be done now; whether anything came to its end.
    fn advance(&mut self, comm: &C) -> bool {
        let mut ended = false;
        loop {
            let runs = self.play(comm);
            let flights = self.flights.advance(comm);
            ended |= runs || flights;
            // A run may go on when a flight has ended.
            if !flights {
                return ended;
            }
        }
    }

    /// What is waited for, if anything is left.
    fn awaited(&self, comm: &C) -> Option<WaitReason> {
        self.flights.carried.first().map(|first| comm.wait_reason(&first.call.group))
    }

    /// Goes on with the runs, in their order; whether one came to its end.
    fn play(&mut self, comm: &C) -> bool {
        let before = self.runs.len();
        while let Some((play, berth)) = self.runs.front_mut() {
            if play.go_on(&self.sheets, &mut self.hands, comm, &mut self.flights).is_some() {
                break;
            }
            self.flights.done[*berth].store(true, Ordering::Release);
            if self.flights.apart {
                comm.unpark(ThreadRole::Main);
            }
            self.runs.pop_front();
        }
        self.runs.len() < before
    }

    /// Carries out orders until there will be no more, or a rank fails.
    fn serve(mut self, comm: &C, orders: &Receiver<Order<C>>) {
        let outcome = catch_unwind(AssertUnwindSafe(|| while self.serve_once(comm, orders) {}));
        if let Err(panic) = outcome {
            comm.fail(reason(panic.as_ref()));
        }
    }

    /// Rests until there is an order and carries out all that there are; whether there may be more.
    fn serve_once(&mut self, comm: &C, orders: &Receiver<Order<C>>) -> bool {
        let mut first = Err(TryRecvError::Empty);
        let called = comm.park(&mut || {
            first = orders.try_recv();
            !matches!(first, Err(TryRecvError::Empty))
        });
        let (Ok(()), Ok(first)) = (called, first) else { return false };
        self.take(first);
        let left = &mut || {
            orders.try_iter().for_each(|order| self.take(order));
            self.advance(comm);
            self.awaited(comm)
        };
        comm.wait(left).is_ok()
    }
}

/// What a panic said.
pub(super) fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_string())
}
