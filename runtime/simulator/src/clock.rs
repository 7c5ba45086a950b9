//! Clocks of the ranks. The runnable rank with the earliest clock executes its next instruction, so messages and
//! collectives match in time order.

use super::meet::{Meetings, Moved};
use super::price::{self, Cost, Priced, Step};
use super::stuck::{Stuck, Waiting};
use cost::Cluster;
use ir::entity::SecondaryMap;
use ir::graph::Model;
use ir::ids::{BodyId, Token};
use ir::program::{Class, Instr, Program, Transfer};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use trace::{Event, Lane, Place, RunAt, Site, Trace};

/// All ranks, and what they have done so far.
pub(super) struct Clocks<'a> {
    pub(super) trace: Trace,
    bodies: SecondaryMap<BodyId, Priced>,
    rows: Vec<Vec<Option<Cost>>>,
    ranks: Vec<Rank<'a>>,
    meetings: Meetings,
    /// The site of the time that started runs take from the row.
    beside: u32,
    /// Who can go on, by their clocks: of floats that are not negative the bits have the same order.
    ready: BinaryHeap<Reverse<(u64, usize)>>,
}

/// One pipeline rank.
pub(super) struct Rank<'a> {
    pub(super) rank: u64,
    pub(super) stage: u32,
    class: &'a Class,
    /// Which of the rows.
    row: usize,
    coordinates: Vec<u64>,
    next: usize,
    pub(super) clock: f64,
    /// When the last started run is over.
    beside: f64,
    /// Seconds of kernels of a started run, which the row's kernels make room for, and the run.
    makes_room: Option<(f64, Place)>,
    /// When each communicator is free, by its lane's track.
    free: HashMap<u32, f64>,
    under_way: HashMap<Token, UnderWay>,
    /// What it stands at, if it waits.
    waits: Option<usize>,
}

/// What a token stands for.
#[derive(Clone, Copy)]
enum UnderWay {
    /// It will be over then.
    Until(f64, Place),
    /// It meets others: a number of the meetings.
    Meets(usize),
}

impl<'a> Clocks<'a> {
    /// All at zero.
    pub(super) fn new(model: &'a Model, program: &'a Program, cluster: &Cluster) -> Clocks<'a> {
        let mut trace = Trace::default();
        trace.sites.push(Site::beside());
        let bodies = price::bodies(model, program, cluster, &mut trace.sites);
        let price = |class| price::row(model, program, class, cluster, &mut trace.sites);
        let rows = program.classes.iter().map(price).collect();
        let (mut ranks, pipeline) = (Vec::new(), model.mesh.pipeline());
        for (row, class) in program.classes.iter().enumerate() {
            for stage in class.ranks.clone() {
                let mut coordinates = model.mesh.coordinates(0);
                pipeline.into_iter().for_each(|pp| coordinates[ir::entity::EntityRef::index(pp)] = u64::from(stage));
                let rank = model.mesh.rank(&coordinates);
                trace.track(rank, stage, &Lane::Row);
                ranks.push(Rank {
                    rank,
                    stage,
                    class,
                    row,
                    coordinates,
                    next: 0,
                    clock: 0.0,
                    beside: 0.0,
                    makes_room: None,
                    free: HashMap::new(),
                    under_way: HashMap::new(),
                    waits: None,
                });
            }
        }
        let ready = (0..ranks.len()).map(|rank| Reverse((0, rank))).collect();
        Clocks { trace, bodies, rows, ranks, meetings: Meetings::default(), beside: 0, ready }
    }

    /// Runs all rows to their ends.
    pub(super) fn run(&mut self) -> Result<(), Stuck> {
        while let Some(Reverse((_, rank))) = self.ready.pop() {
            self.make_room(rank);
            let Rank { class, next, .. } = self.ranks[rank];
            let Some(instr) = class.instrs.get(next) else { continue };
            if self.instr(rank, instr) {
                self.ranks[rank].next += 1;
                self.wake(rank);
            }
        }
        let waiting: Vec<Waiting> = self.ranks.iter().filter_map(|rank| self.stuck(rank)).collect();
        if waiting.is_empty() { Ok(()) } else { Err(Stuck { waiting }) }
    }

    /// A device computes one kernel at a time: what a started run computes, the row does not.
    fn make_room(&mut self, rank: usize) {
        let Some((seconds, place)) = self.ranks[rank].makes_room.take() else { return };
        let (track, clock) = (self.track(rank, &Lane::Row), self.ranks[rank].clock);
        let event = Event { site: self.beside, start: clock, seconds, run: None, awaits: Some(place) };
        self.trace.push(track, event);
        self.ranks[rank].clock += seconds;
    }

    fn stuck(&self, rank: &Rank<'_>) -> Option<Waiting> {
        let meeting = rank.waits?;
        let at = self.rows[rank.row][rank.next].map_or("", |cost| &self.trace.sites[cost.site as usize].name);
        let missing = self.meetings.missing(meeting);
        Some(Waiting { stage: rank.stage, at: at.to_string(), missing })
    }

    fn wake(&mut self, rank: usize) {
        self.ready.push(Reverse((self.ranks[rank].clock.to_bits(), rank)));
    }

    /// Does an instruction; false if the rank must wait for others first.
    fn instr(&mut self, rank: usize, instr: &Instr) -> bool {
        let cost = self.rows[self.ranks[rank].row][self.ranks[rank].next];
        match (instr, cost) {
            (Instr::Run { token, body, call, instance, microbatch, .. }, _) => {
                let run = RunAt { call: *call as u32, instance: *instance, microbatch: *microbatch };
                self.body(rank, *token, *body, run);
            }
            (Instr::Feed { .. } | Instr::Add { .. }, Some(Cost { site, seconds })) => {
                let track = self.track(rank, &Lane::Row);
                let start = self.ranks[rank].clock;
                self.trace.push(track, Event { site, start, seconds, run: None, awaits: None });
                self.ranks[rank].clock += seconds;
            }
            (Instr::Start { token, transfer, .. }, Some(cost)) => self.start(rank, *token, transfer, cost),
            (Instr::Wait { token, .. }, Some(Cost { site, .. })) => return self.wait(rank, *token, site),
            _ => {}
        }
        true
    }

    fn track(&mut self, rank: usize, lane: &Lane) -> u32 {
        let Rank { rank, stage, .. } = self.ranks[rank];
        self.trace.track(rank, stage, lane)
    }

    fn start(&mut self, rank: usize, token: Token, transfer: &Transfer, cost: Cost) {
        let at = &self.ranks[rank];
        let peer = |peer: &ir::expr::Expr| peer.eval(&at.coordinates).unwrap_or(-1);
        let (own, pipeline) = (i64::from(at.stage), self.trace.sites[cost.site as usize].axes.clone());
        let met = match transfer {
            Transfer::Send { peer: to, tag } => self.meetings.send((own, peer(to), *tag), rank, cost),
            Transfer::Recv { peer: from, tag, .. } => self.meetings.receive((peer(from), own, *tag), rank, cost),
            Transfer::Sum { ranks } | Transfer::SumGradient { ranks, .. } | Transfer::ShareParam { ranks, .. } => {
                self.meetings.sum(ranks, rank, cost)
            }
        };
        self.ranks[rank].under_way.insert(token, UnderWay::Meets(met.number));
        if met.complete {
            self.meet(met.number, at_once(transfer, pipeline), self.ranks[rank].clock);
        }
    }

    /// All are there: the data moves on a lane of each, as soon as all of these are free.
    fn meet(&mut self, number: usize, lane_of: impl Fn(usize) -> Lane, now: f64) {
        let members = self.meetings.members(number);
        let tracks: Vec<u32> =
            members.iter().enumerate().map(|(place, m)| self.track(m.rank, &lane_of(place))).collect();
        let free = members.iter().zip(&tracks).map(|(m, track)| self.ranks[m.rank].free.get(track).copied());
        let start = free.flatten().fold(now, f64::max);
        let mut places = Vec::new();
        for (member, &track) in members.iter().zip(&tracks) {
            let Cost { site, seconds } = member.cost;
            self.ranks[member.rank].free.insert(track, start + seconds);
            places.push(self.trace.push(track, Event { site, start, seconds, run: None, awaits: None }));
        }
        self.meetings.moved(number, start, &places);
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
        let (end, place) = match self.ranks[rank].under_way.get(&token) {
            Some(&UnderWay::Until(end, place)) => (end, place),
            Some(&UnderWay::Meets(number)) => match self.meetings.over(number, rank) {
                Some(Moved { end, place }) => (end, place),
                None => {
                    self.ranks[rank].waits = Some(number);
                    return false;
                }
            },
            None => return true,
        };
        self.ranks[rank].waits = None;
        self.ranks[rank].under_way.remove(&token);
        let track = self.track(rank, &Lane::Row);
        let clock = self.ranks[rank].clock;
        self.ranks[rank].clock = self.idle_until(track, site, (clock, end), place, None);
        true
    }

    /// Waits on a track from a time to another, if that is later. When it goes on.
    fn idle_until(&mut self, track: u32, site: u32, (from, to): (f64, f64), place: Place, run: Option<RunAt>) -> f64 {
        if to > from {
            self.trace.push(track, Event { site, start: from, seconds: to - from, run, awaits: Some(place) });
        }
        from.max(to)
    }

    /// Runs a body, on the row or, with a token, beside it.
    fn body(&mut self, rank: usize, token: Option<Token>, body: BodyId, run: RunAt) {
        let lane = if token.is_some() { Lane::Beside } else { Lane::Row };
        let track = self.track(rank, &lane);
        let at = &self.ranks[rank];
        let start = if token.is_some() { at.clock.max(at.beside) } else { at.clock };
        let whole = Event { site: self.bodies[body].run, start, seconds: 0.0, run: Some(run), awaits: None };
        let place = self.trace.push(track, whole);
        let end = self.steps(rank, track, body, run, start);
        let seconds = |step: &Step| if let Step::Compute { seconds, .. } = step { *seconds } else { 0.0 };
        let computes: f64 = self.bodies[body].steps.iter().map(seconds).sum();
        self.trace.tracks[place.track as usize].events[place.event as usize].seconds = end - start;
        match token {
            None => self.ranks[rank].clock = end,
            Some(token) => {
                self.ranks[rank].beside = end;
                self.ranks[rank].makes_room = (computes > 0.0).then_some((computes, place));
                self.ranks[rank].under_way.insert(token, UnderWay::Until(end, place));
            }
        }
    }

    fn steps(&mut self, rank: usize, track: u32, body: BodyId, run: RunAt, start: f64) -> f64 {
        let (mut clock, mut under_way) = (start, HashMap::new());
        let beside = self.trace.tracks[track as usize].lane == Lane::Beside;
        for at in 0..self.bodies[body].steps.len() {
            match self.bodies[body].steps[at] {
                Step::Compute { site, seconds } => {
                    self.trace.push(track, Event { site, start: clock, seconds, run: Some(run), awaits: None });
                    clock += seconds;
                }
                Step::Start { token, site, seconds: Some(seconds) } => {
                    let axes = self.trace.sites[site as usize].axes.clone();
                    let lane = if beside { Lane::ChangesBeside(axes) } else { Lane::Changes(axes) };
                    let lane = self.track(rank, &lane);
                    let free = self.ranks[rank].free.entry(lane).or_default();
                    let start = free.max(clock);
                    *free = start + seconds;
                    let event = Event { site, start, seconds, run: Some(run), awaits: None };
                    under_way.insert(token, (start + seconds, self.trace.push(lane, event)));
                }
                Step::Start { .. } => {}
                Step::Wait { token, site } => {
                    if let Some((end, place)) = under_way.remove(&token) {
                        clock = self.idle_until(track, site, (clock, end), place, Some(run));
                    }
                }
            }
        }
        clock
    }
}

/// On which lane each member of a meeting moves data: of a message the first sends.
fn at_once(transfer: &Transfer, pipeline: String) -> impl Fn(usize) -> Lane {
    let message = matches!(transfer, Transfer::Send { .. } | Transfer::Recv { .. });
    move |place| match (message, place) {
        (true, 0) => Lane::Sends,
        (true, _) => Lane::Receives,
        (false, _) => Lane::Changes(pipeline.clone()),
    }
}
