//! State of a simulation: one clock per rank. The runnable rank with the earliest clock executes its next instruction, so messages and
//! collectives match in time order.

use super::costs::{self, Cost, CostedBody, CostedStep};
use super::deadlock::{BlockedRank, Deadlock};
use super::rendezvous::{Completion, Exchanges};
use cost::Platform;
use ir::entity::SecondaryMap;
use ir::graph::Model;
use ir::ids::{BodyId, Token};
use ir::program::{Class, Instr, Program, Transfer};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use trace::{BodyRunId, Event, EventRef, Stream, Trace, TraceSite};

/// The ranks, and the trace of what they have done so far.
pub(super) struct Simulation<'a> {
    pub(super) trace: Trace,
    bodies: SecondaryMap<BodyId, CostedBody>,
    rows: Vec<Vec<Option<Cost>>>,
    ranks: Vec<SimulatedRank<'a>>,
    exchanges: Exchanges,
    /// The site of the pauses in which started bodies compute.
    async_site: u32,
    /// Runnable ranks by clock. The bits of non-negative floats have the order of the floats.
    ready: BinaryHeap<Reverse<(u64, usize)>>,
}

/// One pipeline rank.
pub(super) struct SimulatedRank<'a> {
    pub(super) rank: u64,
    pub(super) stage: u32,
    class: &'a Class,
    /// Index of the instruction stream.
    row: usize,
    coordinates: Vec<u64>,
    next: usize,
    pub(super) clock: f64,
    /// End of the last started body.
    async_end: f64,
    /// Kernel seconds of a started body, for which the instruction stream pauses, and the event of the body.
    async_compute: Option<(f64, EventRef)>,
    /// Time at which each communicator is free, by track.
    free: HashMap<u32, f64>,
    in_flight: HashMap<Token, InFlight>,
    /// The exchange that the rank waits for, if any.
    waits: Option<usize>,
}

/// The operation of a token.
#[derive(Clone, Copy)]
enum InFlight {
    /// A started body or a copy, with its end and its event.
    Until(f64, EventRef),
    /// An exchange, by number.
    Exchange(usize),
}

impl<'a> Simulation<'a> {
    /// A simulation with all clocks at zero.
    pub(super) fn new(model: &'a Model, program: &'a Program, platform: &Platform<'_>) -> Simulation<'a> {
        let mut trace = Trace::default();
        trace.sites.push(TraceSite::async_compute());
        let bodies = costs::bodies(model, program, platform, &mut trace.sites);
        let price = |class| costs::row(model, program, class, platform, &mut trace.sites);
        let rows = program.classes.iter().map(price).collect();
        let (mut ranks, pipeline) = (Vec::new(), model.mesh.pipeline());
        for (row, class) in program.classes.iter().enumerate() {
            for stage in class.ranks.clone() {
                let mut coordinates = model.mesh.coordinates(0);
                pipeline.into_iter().for_each(|pp| coordinates[ir::entity::EntityRef::index(pp)] = u64::from(stage));
                let rank = model.mesh.rank(&coordinates);
                trace.track(rank, stage, &Stream::Main);
                ranks.push(SimulatedRank {
                    rank,
                    stage,
                    class,
                    row,
                    coordinates,
                    next: 0,
                    clock: 0.0,
                    async_end: 0.0,
                    async_compute: None,
                    free: HashMap::new(),
                    in_flight: HashMap::new(),
                    waits: None,
                });
            }
        }
        let ready = (0..ranks.len()).map(|rank| Reverse((0, rank))).collect();
        Simulation { trace, bodies, rows, ranks, exchanges: Exchanges::default(), async_site: 0, ready }
    }

    /// Executes all instruction streams to their ends.
    pub(super) fn run(&mut self) -> Result<(), Deadlock> {
        while let Some(Reverse((_, rank))) = self.ready.pop() {
            self.pause_for_async(rank);
            let SimulatedRank { class, next, .. } = self.ranks[rank];
            let Some(instr) = class.instrs.get(next) else { continue };
            if self.instr(rank, instr) {
                self.ranks[rank].next += 1;
                self.wake(rank);
            }
        }
        let waiting: Vec<BlockedRank> = self.ranks.iter().filter_map(|rank| self.blocked(rank)).collect();
        if waiting.is_empty() { Ok(()) } else { Err(Deadlock { waiting }) }
    }

    /// Pauses the instruction stream for the kernels of a started body, since a device computes one kernel at a time.
    fn pause_for_async(&mut self, rank: usize) {
        let Some((seconds, place)) = self.ranks[rank].async_compute.take() else { return };
        let (track, clock) = (self.track(rank, &Stream::Main), self.ranks[rank].clock);
        let event = Event { site: self.async_site, start: clock, seconds, run: None, awaits: Some(place), bytes: None };
        self.trace.push(track, event);
        self.ranks[rank].clock += seconds;
    }

    fn blocked(&self, rank: &SimulatedRank<'_>) -> Option<BlockedRank> {
        let exchange = rank.waits?;
        let at = self.rows[rank.row][rank.next].map_or("", |cost| &self.trace.sites[cost.site as usize].name);
        let missing = self.exchanges.missing(exchange);
        Some(BlockedRank { stage: rank.stage, at: at.to_string(), missing })
    }

    fn wake(&mut self, rank: usize) {
        self.ready.push(Reverse((self.ranks[rank].clock.to_bits(), rank)));
    }

    /// Executes an instruction. Returns false if the rank must wait for other ranks first.
    fn instr(&mut self, rank: usize, instr: &Instr) -> bool {
        let cost = self.rows[self.ranks[rank].row][self.ranks[rank].next];
        match (instr, cost) {
            (Instr::Run { token, body, call, instance, microbatch, .. }, _) => {
                let run = BodyRunId { call: *call as u32, instance: *instance, microbatch: *microbatch };
                self.body(rank, *token, *body, run);
            }
            (Instr::Feed { .. } | Instr::Add { .. }, Some(Cost { site, seconds })) => {
                let track = self.track(rank, &Stream::Main);
                let start = self.ranks[rank].clock;
                self.trace.push(track, Event { site, start, seconds, run: None, awaits: None, bytes: None });
                self.ranks[rank].clock += seconds;
            }
            (Instr::Start { token, transfer, .. }, Some(cost)) => self.start(rank, *token, transfer, cost),
            (Instr::Wait { token, .. }, Some(Cost { site, .. })) => return self.wait(rank, *token, site),
            _ => {}
        }
        true
    }

    fn track(&mut self, rank: usize, stream: &Stream) -> u32 {
        let SimulatedRank { rank, stage, .. } = self.ranks[rank];
        self.trace.track(rank, stage, stream)
    }

    fn start(&mut self, rank: usize, token: Token, transfer: &Transfer, cost: Cost) {
        let at = &self.ranks[rank];
        let peer = |peer: &ir::expr::Expr| peer.eval(&at.coordinates).unwrap_or(-1);
        let (own, pipeline) = (i64::from(at.stage), self.trace.sites[cost.site as usize].axes.clone());
        let arrival = match transfer {
            Transfer::Send { peer: to, tag } => self.exchanges.send((own, peer(to), *tag), rank, cost),
            Transfer::Recv { peer: from, tag, .. } => self.exchanges.receive((peer(from), own, *tag), rank, cost),
            Transfer::Sum { ranks } | Transfer::SumGradient { ranks, .. } | Transfer::ShareParam { ranks, .. } => {
                self.exchanges.sum(ranks, rank, cost)
            }
            Transfer::Offload | Transfer::StoreStates { .. } => return self.copy(rank, token, &Stream::Offloads, cost),
            Transfer::Load | Transfer::LoadStates { .. } => return self.copy(rank, token, &Stream::Loads, cost),
        };
        self.ranks[rank].in_flight.insert(token, InFlight::Exchange(arrival.number));
        if arrival.complete {
            self.rendezvous(arrival.number, at_once(transfer, pipeline), self.ranks[rank].clock);
        }
    }

    /// Copies a bundle on the stream of its direction, once that is free.
    fn copy(&mut self, rank: usize, token: Token, stream: &Stream, Cost { site, seconds }: Cost) {
        let (track, clock) = (self.track(rank, stream), self.ranks[rank].clock);
        let free = self.ranks[rank].free.entry(track).or_default();
        let start = free.max(clock);
        *free = start + seconds;
        let place = self.trace.push(track, Event { site, start, seconds, run: None, awaits: None, bytes: None });
        self.ranks[rank].in_flight.insert(token, InFlight::Until(start + seconds, place));
    }

    /// Moves the data of a complete exchange on one stream of each member, once all of these streams are free.
    fn rendezvous(&mut self, number: usize, stream_of: impl Fn(usize) -> Stream, now: f64) {
        let members = self.exchanges.members(number);
        let tracks: Vec<u32> =
            members.iter().enumerate().map(|(place, m)| self.track(m.rank, &stream_of(place))).collect();
        let free = members.iter().zip(&tracks).map(|(m, track)| self.ranks[m.rank].free.get(track).copied());
        let start = free.flatten().fold(now, f64::max);
        let mut places = Vec::new();
        for (member, &track) in members.iter().zip(&tracks) {
            let Cost { site, seconds } = member.cost;
            self.ranks[member.rank].free.insert(track, start + seconds);
            places.push(self.trace.push(track, Event { site, start, seconds, run: None, awaits: None, bytes: None }));
        }
        self.exchanges.moved(number, start, &places);
        for pair in places.windows(2) {
            self.trace.flows.push(trace::Flow { from: pair[0], to: pair[1] });
        }
        for member in members {
            if self.ranks[member.rank].waits == Some(number) {
                self.wake(member.rank);
            }
        }
    }

    fn wait(&mut self, rank: usize, token: Token, site: u32) -> bool {
        let (end, place) = match self.ranks[rank].in_flight.get(&token) {
            Some(&InFlight::Until(end, place)) => (end, place),
            Some(&InFlight::Exchange(number)) => match self.exchanges.completion(number, rank) {
                Some(Completion { end, place }) => (end, place),
                None => {
                    self.ranks[rank].waits = Some(number);
                    return false;
                }
            },
            None => return true,
        };
        self.ranks[rank].waits = None;
        self.ranks[rank].in_flight.remove(&token);
        let track = self.track(rank, &Stream::Main);
        let clock = self.ranks[rank].clock;
        self.ranks[rank].clock = self.idle_until(track, site, (clock, end), place, None);
        true
    }

    /// Waits on a track from one time to another, if that is later. Returns the time after the wait.
    fn idle_until(
        &mut self,
        track: u32,
        site: u32,
        (from, to): (f64, f64),
        place: EventRef,
        run: Option<BodyRunId>,
    ) -> f64 {
        if to > from {
            self.trace
                .push(track, Event { site, start: from, seconds: to - from, run, awaits: Some(place), bytes: None });
        }
        from.max(to)
    }

    /// Executes a body, on the main stream or, with a token, on the async stream.
    fn body(&mut self, rank: usize, token: Option<Token>, body: BodyId, run: BodyRunId) {
        let stream = if token.is_some() { Stream::Async } else { Stream::Main };
        let track = self.track(rank, &stream);
        let at = &self.ranks[rank];
        let start = if token.is_some() { at.clock.max(at.async_end) } else { at.clock };
        let whole =
            Event { site: self.bodies[body].run, start, seconds: 0.0, run: Some(run), awaits: None, bytes: None };
        let place = self.trace.push(track, whole);
        let end = self.steps(rank, track, body, run, start);
        let seconds = |step: &CostedStep| if let CostedStep::Compute { seconds, .. } = step { *seconds } else { 0.0 };
        let computes: f64 = self.bodies[body].steps.iter().map(seconds).sum();
        self.trace.tracks[place.track as usize].events[place.event as usize].seconds = end - start;
        match token {
            None => self.ranks[rank].clock = end,
            Some(token) => {
                self.ranks[rank].async_end = end;
                self.ranks[rank].async_compute = (computes > 0.0).then_some((computes, place));
                self.ranks[rank].in_flight.insert(token, InFlight::Until(end, place));
            }
        }
    }

    fn steps(&mut self, rank: usize, track: u32, body: BodyId, run: BodyRunId, start: f64) -> f64 {
        let (mut clock, mut in_flight) = (start, HashMap::new());
        let is_async = self.trace.tracks[track as usize].stream == Stream::Async;
        for at in 0..self.bodies[body].steps.len() {
            match self.bodies[body].steps[at] {
                CostedStep::Compute { site, seconds } => {
                    self.trace
                        .push(track, Event { site, start: clock, seconds, run: Some(run), awaits: None, bytes: None });
                    clock += seconds;
                }
                CostedStep::Start { token, site, seconds: Some(seconds) } => {
                    let axes = self.trace.sites[site as usize].axes.clone();
                    let stream = if is_async { Stream::AsyncCollectives(axes) } else { Stream::Collectives(axes) };
                    let stream = self.track(rank, &stream);
                    let free = self.ranks[rank].free.entry(stream).or_default();
                    let start = free.max(clock);
                    *free = start + seconds;
                    let event = Event { site, start, seconds, run: Some(run), awaits: None, bytes: None };
                    in_flight.insert(token, (start + seconds, self.trace.push(stream, event)));
                }
                CostedStep::Start { .. } => {}
                CostedStep::Wait { token, site } => {
                    if let Some((end, place)) = in_flight.remove(&token) {
                        clock = self.idle_until(track, site, (clock, end), place, Some(run));
                    }
                }
            }
        }
        clock
    }
}

/// The stream on which each member of an exchange moves data; the first member of a message sends.
fn at_once(transfer: &Transfer, pipeline: String) -> impl Fn(usize) -> Stream {
    let message = matches!(transfer, Transfer::Send { .. } | Transfer::Recv { .. });
    move |place| match (message, place) {
        (true, 0) => Stream::Sends,
        (true, _) => Stream::Receives,
        (false, _) => Stream::Collectives(pipeline.clone()),
    }
}
