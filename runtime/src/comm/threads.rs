//! Ranks as threads of one process, with the fewest possible copies. In a collective each rank publishes its buffers, and
//! each rank reads from its peers' arenas directly into its own results. No exchange completes before all ranks have read.
//! A message is copied once, from arena to arena.

use super::carry::Peer;
use super::group::{Group, Seat, Stage};
use super::line::{Line, LineEnd};
use super::watch::{Watch, locked};
use super::{Awaited, Communicator, Exchange, Flight, Hand, Stopped};
use crate::arena::Arena;
use crate::backend::Span;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// What makes a group: its ranks, and which of their hands start its exchanges.
type Members = (Vec<usize>, Hand);

/// What joins the ranks of a process.
pub struct Fabric {
    ranks: usize,
    /// Whether a lane of its own carries out what a rank starts.
    lanes: bool,
    watch: Watch,
    arenas: Box<[OnceLock<Arc<Arena>>]>,
    groups: Mutex<BTreeMap<Members, Arc<Group>>>,
    lines: Mutex<BTreeMap<(usize, usize, u32), Arc<Line>>>,
    /// The most exchanges or messages that a rank has under way, and the most tensors of an exchange.
    in_flight: AtomicUsize,
    tensors: AtomicUsize,
}

/// One hand of a rank.
pub struct Threads {
    rank: usize,
    hand: Hand,
    fabric: Arc<Fabric>,
    seats: BTreeMap<Members, Arc<Seat>>,
    lines: BTreeMap<(usize, usize, u32), Arc<LineEnd>>,
    scratch: RefCell<Vec<f32>>,
}

impl Fabric {
    /// Joins so many ranks.
    pub fn new(ranks: usize, lanes: bool) -> Arc<Fabric> {
        Arc::new(Fabric {
            ranks,
            lanes,
            watch: Watch::new(if lanes { 2 * ranks } else { ranks }),
            arenas: (0..ranks).map(|_| OnceLock::new()).collect(),
            groups: Mutex::default(),
            lines: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            tensors: AtomicUsize::new(0),
        })
    }

    /// A rank's end, which works on this arena.
    pub fn end(self: &Arc<Fabric>, rank: usize, arena: Arc<Arena>) -> Threads {
        self.arenas[rank].get_or_init(|| arena);
        Threads::new(self, rank, Hand::Row)
    }

    /// So many threads begin to work: before a step, all rows, and once, all lanes.
    pub fn enter(&self, threads: usize) {
        self.watch.enter(threads);
    }

    fn arena(&self, rank: usize) -> &Arena {
        self.arenas[rank].get().expect("all ranks have joined before the first step")
    }

    /// The bed of a hand: exchanges that a row starts are carried out by the lane, if there is one.
    fn bed(&self, rank: usize, hand: Hand) -> usize {
        if self.lanes && hand == Hand::Lane { self.ranks + rank } else { rank }
    }

    /// Counts a rank as having come to the end of a stage; the last one wakes the others.
    fn arrive(&self, rank: usize, group: &Group, number: u64, stage: Stage) {
        if group.arrive(number, stage) {
            let others = group.ranks.iter().filter(|&&other| other != rank);
            others.for_each(|&other| self.watch.wake(self.bed(other, Hand::Lane)));
        }
    }

    fn describe(&self, bed: usize, awaited: Awaited) -> String {
        let (rank, whose) = (bed % self.ranks, if bed < self.ranks { "" } else { "the lane of " });
        let what = match awaited {
            Awaited::Peers { group } => {
                let groups = locked(&self.groups);
                let peers = groups.values().find(|known| known.id == group).map_or(&[][..], |group| &group.ranks);
                let peers = peers.iter().filter(|&&peer| peer != rank).map(ToString::to_string);
                format!("ranks {} in a collective", peers.collect::<Vec<_>>().join(", "))
            }
            Awaited::Receiver { rank, tag } => format!("rank {rank} to receive tag {tag}"),
            Awaited::Sender { rank, tag } => format!("rank {rank} to send tag {tag}"),
            Awaited::Lane => "its lane".to_string(),
        };
        format!("{whose}rank {rank} waits for {what}")
    }
}

impl Threads {
    fn new(fabric: &Arc<Fabric>, rank: usize, hand: Hand) -> Threads {
        let (seats, lines, scratch) = (BTreeMap::new(), BTreeMap::new(), RefCell::default());
        Threads { rank, hand, fabric: fabric.clone(), seats, lines, scratch }
    }

    fn me(&self) -> usize {
        self.fabric.bed(self.rank, self.hand)
    }

    fn line(&mut self, from: usize, to: usize, tag: u32) -> Arc<LineEnd> {
        let (key, sends) = ((from, to, tag), from == self.rank);
        let shared = || {
            let mut lines = locked(&self.fabric.lines);
            lines.entry(key).or_insert_with(|| Arc::new(Line::new(from, to, tag))).clone()
        };
        self.lines.entry(key).or_insert_with(|| Arc::new(LineEnd::new(shared(), sends))).clone()
    }
}

impl Communicator for Threads {
    type Group = Seat;
    type Line = LineEnd;

    fn hand(&self, hand: Hand) -> Threads {
        Threads::new(&self.fabric, self.rank, hand)
    }

    fn join(&mut self, ranks: &[usize], by: Hand) -> Arc<Seat> {
        let key = (ranks.to_vec(), by);
        let fabric = &self.fabric;
        let place = ranks.iter().position(|&rank| rank == self.rank).unwrap_or(0);
        let seat = || {
            let mut groups = locked(&fabric.groups);
            let id = groups.len() as u32;
            let group = groups.entry((ranks.to_vec(), by)).or_insert_with(|| Arc::new(Group::new(id, ranks)));
            Arc::new(Seat::new(group.clone(), place))
        };
        self.seats.entry(key).or_insert_with(seat).clone()
    }

    fn line_to(&mut self, peer: usize, tag: u32) -> Arc<LineEnd> {
        self.line(self.rank, peer, tag)
    }

    fn line_from(&mut self, peer: usize, tag: u32) -> Arc<LineEnd> {
        self.line(peer, self.rank, tag)
    }

    fn expect(&mut self, in_flight: usize, tensors: usize) {
        self.fabric.in_flight.fetch_max(in_flight, Ordering::Relaxed);
        self.fabric.tensors.fetch_max(tensors, Ordering::Relaxed);
    }

    fn start(&self, seat: &Seat, plan: &Exchange, sources: &[Span], results: &[Span]) -> Flight {
        if plan.ranks.len() == 1 {
            let own = Peer { arena: self.fabric.arena(self.rank), sources, results };
            // SAFETY: the program gives the results places of their own.
            unsafe { plan.pull(0, |_| own, &mut self.scratch.borrow_mut()) };
            return Flight { number: 0, stage: None };
        }
        let [rounds, tensors] = [&self.fabric.in_flight, &self.fabric.tensors].map(|most| most.load(Ordering::Relaxed));
        let number = seat.publish(sources, results, rounds, tensors);
        self.fabric.arrive(self.rank, &seat.group, number, Stage::Published);
        Flight { number, stage: Some(Stage::Published) }
    }

    fn advance(&self, seat: &Seat, plan: &Exchange, flight: &mut Flight) {
        let Threads { rank, fabric, scratch, .. } = self;
        let (group, number) = (&*seat.group, flight.number);
        while let Some(stage) = flight.stage.filter(|&stage| group.have_all(number, stage)) {
            let peer = |place: usize| {
                // SAFETY: all have published, and this member has not counted itself as having read.
                let table = unsafe { group.round(number).table(place) };
                Peer { arena: fabric.arena(group.ranks[place]), sources: &table.sources, results: &table.results }
            };
            let next = match stage {
                Stage::Published => {
                    // SAFETY: sources change only when all have read, and results are this rank's own until all have made.
                    unsafe { plan.pull(seat.place, peer, &mut scratch.borrow_mut()) };
                    // Without a gathering nobody waits for that, but counts stay in step.
                    fabric.arrive(*rank, group, number, Stage::Made);
                    if !plan.gathers() {
                        fabric.arrive(*rank, group, number, Stage::Read);
                    }
                    Some(if plan.gathers() { Stage::Made } else { Stage::Read })
                }
                Stage::Made => {
                    // SAFETY: all have made theirs, and the pieces of others in the own results are read by nobody.
                    unsafe { plan.gather(seat.place, peer) };
                    fabric.arrive(*rank, group, number, Stage::Read);
                    Some(Stage::Read)
                }
                Stage::Read => None,
            };
            flight.stage = next;
        }
    }

    fn awaited(&self, seat: &Seat) -> Awaited {
        Awaited::Peers { group: seat.group.id }
    }

    fn post(&self, end: &LineEnd, span: Span) -> u64 {
        let arenas = [end.line.from, end.line.to].map(|rank| self.fabric.arena(rank));
        let (number, over) = end.post(span, arenas, &self.fabric.in_flight);
        if over {
            self.fabric.watch.wake(self.fabric.bed(end.peer(), Hand::Row));
        }
        number
    }

    fn unmet(&self, end: &LineEnd, number: u64) -> Option<Awaited> {
        let (rank, tag) = (end.peer(), end.line.tag);
        let awaited = if end.sends { Awaited::Receiver { rank, tag } } else { Awaited::Sender { rank, tag } };
        (!end.is_over(number)).then_some(awaited)
    }

    fn wait(&self, unmet: &mut dyn FnMut() -> Option<Awaited>) -> Result<(), Stopped> {
        self.fabric.watch.wait(self.me(), unmet, &|bed, awaited| self.fabric.describe(bed, awaited))
    }

    fn rest(&self, called: &mut dyn FnMut() -> bool) -> Result<(), Stopped> {
        self.fabric.watch.rest(self.me(), called, &|bed, awaited| self.fabric.describe(bed, awaited))
    }

    fn call(&self, hand: Hand) {
        self.fabric.watch.wake(self.fabric.bed(self.rank, hand));
    }

    fn leave(&self) {
        self.fabric.watch.leave(&|bed, awaited| self.fabric.describe(bed, awaited));
    }

    fn fail(&self, why: String) {
        self.fabric.watch.raise(Stopped { rank: self.rank, why });
    }

    fn failure(&self) -> Option<Stopped> {
        self.fabric.watch.failure()
    }
}
