//! Converts the threads' event buffers to a trace: indices of the rank program become program locations, and events that several ranks
//! share are joined.

use super::load::RankView;
use super::rank_program::{Action, BodyStep, RankProgram};
use super::recorder::{EventKind, RecordedEvent};
use crate::backend::HostDirection;
use crate::comm::{Communicator, ThreadRole};
use ir::entity::SecondaryMap;
use ir::graph::Model;
use ir::ids::{BodyId, Token};
use ir::program::{BodyInstr, Class, Instr, Program, Transfer};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Instant;
use trace::{BodyRunId, Event, EventRef, Flow, SiteKind, Stream, Trace, TraceSite, body_sites, instr_site};

/// The trace of the step that began at `began`.
pub(super) fn decode<C: Communicator>(
    model: &Model,
    program: &Program,
    views: &[RankView<C>],
    began: Instant,
) -> Trace {
    let mut decoder = Decoder::new(model, program, began);
    for view in views {
        let rank = view.rank;
        let coordinates = model.mesh.coordinates(rank as u64);
        let Ok(class) = super::row::class_of(program, model, &coordinates) else { continue };
        let (Some(recorders), Some(rank_program)) = (&view.recorders, view.rank_programs.first()) else { continue };
        let recorded = [recorders[0].events(), recorders[1].events()];
        decoder.ranks.push(RankEvents { rank, coordinates, class, rank_program, recorded, places: HashMap::new() });
    }
    decoder.exchanges();
    decoder.messages();
    (0..decoder.ranks.len()).for_each(|rank| decoder.host_copies(rank));
    for rank in 0..decoder.ranks.len() {
        // The async worker comes first, since the main thread waits for it.
        decoder.thread(rank, ThreadRole::Async);
        decoder.thread(rank, ThreadRole::Main);
    }
    decoder.trace.sort();
    decoder.trace
}

struct Decoder<'a, C: Communicator> {
    model: &'a Model,
    program: &'a Program,
    began: Instant,
    trace: Trace,
    /// The site of each body; the sites of its steps follow.
    bodies: SecondaryMap<BodyId, u32>,
    /// Sites of instructions, by class and index.
    rows: HashMap<(u32, u32), Option<u32>>,
    ranks: Vec<RankEvents<'a, C>>,
}

struct RankEvents<'a, C: Communicator> {
    rank: usize,
    coordinates: Vec<u64>,
    class: &'a Class,
    rank_program: &'a RankProgram<C>,
    /// Events of the main thread and of the async worker.
    recorded: [Vec<RecordedEvent>; 2],
    /// The trace events of exchanges, body invocations, and messages (by the action that starts them).
    places: HashMap<EventKind, EventRef>,
}

/// One rank's side of an exchange: the rank, its event, its lane, and its times.
struct ExchangeSide {
    rank: usize,
    kind: EventKind,
    stream: Stream,
    site: u32,
    run: Option<BodyRunId>,
    times: (f64, f64),
    /// True if a device timed the movement itself.
    by_device: bool,
    /// The bytes that have moved, if the step decides them.
    bytes: Option<u64>,
}

impl<'a, C: Communicator> Decoder<'a, C> {
    fn new(model: &'a Model, program: &'a Program, began: Instant) -> Decoder<'a, C> {
        let (mut trace, mut bodies) = (Trace::default(), SecondaryMap::new());
        for (id, body) in &program.bodies {
            let (run, steps) = body_sites(&model.mesh, body);
            bodies[id] = trace.sites.len() as u32;
            trace.sites.push(run);
            trace.sites.extend(steps);
        }
        Decoder { model, program, began, trace, bodies, rows: HashMap::new(), ranks: Vec::new() }
    }

    fn times(&self, recorded: &RecordedEvent) -> (f64, f64) {
        let since = |at: Instant| at.saturating_duration_since(self.began).as_secs_f64();
        (since(recorded.start), since(recorded.end))
    }

    /// The body of an invocation, and its call, instance and micro-batch.
    fn run(&self, rank: usize, run: u32) -> Option<(BodyId, BodyRunId)> {
        let RankEvents { class, rank_program, .. } = self.ranks[rank];
        match &class.instrs[rank_program.runs[run as usize].instr as usize] {
            Instr::Run { body, call, instance, microbatch, .. } => {
                Some((*body, BodyRunId { call: *call as u32, instance: *instance, microbatch: *microbatch }))
            }
            _ => None,
        }
    }

    /// The site of an action.
    fn action_site(&mut self, rank: usize, action: u32) -> Option<u32> {
        let RankEvents { class, rank_program, .. } = self.ranks[rank];
        let instr = rank_program.origins[action as usize];
        let Decoder { model, program, trace, rows, .. } = self;
        *rows.entry((class.ranks.start, instr)).or_insert_with(|| {
            let site = instr_site(model, program, class, instr as usize)?;
            trace.sites.push(site);
            Some(trace.sites.len() as u32 - 1)
        })
    }

    /// The exchanges of all ranks: the n-th of a group is the same for all members, and moves data once all have begun.
    fn exchanges(&mut self) {
        let mut groups: HashMap<(Vec<usize>, ThreadRole, usize), Vec<ExchangeSide>> = HashMap::new();
        for rank in 0..self.ranks.len() {
            let mut counts: HashMap<(Vec<usize>, ThreadRole), usize> = HashMap::new();
            let mut recorded: Vec<RecordedEvent> = self.ranks[rank].recorded.iter().flatten().copied().collect();
            recorded.sort_by_key(|recorded| recorded.start);
            for recorded in recorded {
                let Some((members, role, side)) = self.exchange_side(rank, &recorded) else { continue };
                let number = counts.entry((members.clone(), role)).or_default();
                groups.entry((members, role, *number)).or_default().push(side);
                *number += 1;
            }
        }
        let mut groups: Vec<Vec<ExchangeSide>> = groups.into_values().filter(|sides| sides.len() > 1).collect();
        for sides in &mut groups {
            let all_there = sides.iter().map(|side| side.times.0).fold(0.0, f64::max);
            let on_host = sides.iter_mut().filter(|side| !side.by_device);
            on_host.for_each(|side| side.times.0 = all_there.min(side.times.1));
            sides.sort_by_key(|side| side.rank);
        }
        let ends = |sides: &[ExchangeSide]| sides.iter().map(|side| side.times.1).fold(0.0, f64::max);
        groups.sort_by(|a, b| ends(a).total_cmp(&ends(b)).then(a[0].rank.cmp(&b[0].rank)));
        groups.iter().for_each(|sides| self.join(sides));
    }

    fn exchange_side(
        &mut self,
        rank: usize,
        recorded: &RecordedEvent,
    ) -> Option<(Vec<usize>, ThreadRole, ExchangeSide)> {
        let (call, role, site, run) = match recorded.kind {
            EventKind::StepExchange(run, step) => {
                let (body, at) = self.run(rank, run)?;
                let code = &self.ranks[rank].rank_program.codes[self.ranks[rank].rank_program.runs[run as usize].code];
                let BodyStep::Start { call, .. } = &code.steps[step as usize] else { return None };
                (call, code.role, self.bodies[body] + 1 + step, Some(at))
            }
            EventKind::Exchange(action) => {
                let site = self.action_site(rank, action)?;
                let Action::Start { call, .. } = &self.ranks[rank].rank_program.actions[action as usize] else {
                    return None;
                };
                (call, ThreadRole::Main, site, None)
            }
            _ => return None,
        };
        let axes = self.trace.sites[site as usize].axes.clone();
        let stream = if role == ThreadRole::Main { Stream::Collectives(axes) } else { Stream::AsyncCollectives(axes) };
        let RecordedEvent { kind, by_device, bytes, .. } = *recorded;
        let times = self.times(recorded);
        let side = ExchangeSide { rank, kind, stream, site, run, times, by_device, bytes };
        Some((call.plan.ranks().to_vec(), role, side))
    }

    /// Appends the events of an exchange to the lanes of its ranks, and joins the events by flows.
    fn join(&mut self, sides: &[ExchangeSide]) {
        let mut places: Vec<EventRef> = Vec::new();
        for side in sides {
            let RankEvents { rank, coordinates, .. } = &self.ranks[side.rank];
            let stage = stage_of(self.model, coordinates);
            let track = self.trace.track(*rank as u64, stage, &side.stream);
            let before = self.trace.tracks[track as usize].events.last().map_or(0.0, Event::end);
            let start = side.times.0.max(before).min(side.times.1.max(before));
            let seconds = (side.times.1 - start).max(0.0);
            let place = self
                .trace
                .push(track, Event { site: side.site, start, seconds, run: side.run, awaits: None, bytes: side.bytes });
            self.ranks[side.rank].places.insert(side.kind, place);
            places.push(place);
        }
        for pair in places.windows(2) {
            if self.trace.event(pair[0]).start <= self.trace.event(pair[1]).end() {
                self.trace.flows.push(Flow { from: pair[0], to: pair[1] });
            }
        }
    }

    /// The messages of all ranks. The end that starts second copies the data, unless a device does so later.
    fn messages(&mut self) {
        let mut channels: HashMap<(usize, usize, u32, usize), Vec<ExchangeSide>> = HashMap::new();
        for rank in 0..self.ranks.len() {
            let mut counts: HashMap<(usize, usize, u32), usize> = HashMap::new();
            let recorded = self.ranks[rank].recorded[0].clone();
            let copies = recorded.iter().filter_map(|recorded| match recorded.kind {
                EventKind::Message(action) => Some((action, self.times(recorded))),
                _ => None,
            });
            let copies: HashMap<u32, (f64, f64)> = copies.collect();
            for recorded in &recorded {
                let Some((channel, side)) = self.message(rank, recorded, &copies) else { continue };
                let number = counts.entry(channel).or_default();
                channels.entry((channel.0, channel.1, channel.2, *number)).or_default().push(side);
                *number += 1;
            }
        }
        let mut channels: Vec<Vec<ExchangeSide>> = channels.into_values().filter(|sides| sides.len() == 2).collect();
        for sides in &mut channels {
            let second = sides.iter().max_by(|a, b| {
                (a.by_device, a.times.0).partial_cmp(&(b.by_device, b.times.0)).unwrap_or(Ordering::Equal)
            });
            let times = second.map_or((0.0, 0.0), |side| side.times);
            sides.iter_mut().for_each(|side| side.times = times);
            sides.sort_by_key(|side| side.stream != Stream::Sends);
        }
        channels.sort_by(|a, b| a[0].times.0.total_cmp(&b[0].times.0));
        channels.iter().for_each(|sides| self.join(sides));
    }

    /// The copies of a rank between its device and host memory.
    fn host_copies(&mut self, rank: usize) {
        for recorded in self.ranks[rank].recorded[0].clone() {
            let EventKind::HostCopy(action) = recorded.kind else { continue };
            let Action::StartCopies { direction, .. } = &self.ranks[rank].rank_program.actions[action as usize] else {
                continue;
            };
            let stream = match direction {
                HostDirection::Offload => Stream::Offloads,
                HostDirection::Load => Stream::Loads,
            };
            let Some(site) = self.action_site(rank, action) else { continue };
            let (kind, times, by_device) = (recorded.kind, self.times(&recorded), recorded.by_device);
            self.join(&[ExchangeSide { rank, kind, stream, site, run: None, times, by_device, bytes: None }]);
        }
    }

    /// This side of a message, with the times of its copy if a device copied for this side.
    fn message(
        &mut self,
        rank: usize,
        recorded: &RecordedEvent,
        copies: &HashMap<u32, (f64, f64)>,
    ) -> Option<((usize, usize, u32), ExchangeSide)> {
        let EventKind::Action(action) = recorded.kind else { return None };
        let RankEvents { rank: own, class, rank_program, .. } = self.ranks[rank];
        let Action::StartMessage { .. } = &rank_program.actions[action as usize] else { return None };
        let Instr::Start { transfer, .. } = &class.instrs[rank_program.origins[action as usize] as usize] else {
            return None;
        };
        let peer = |peer: &ir::expr::Expr| {
            let mut coordinates = self.ranks[rank].coordinates.clone();
            let pipeline = ir::entity::EntityRef::index(self.model.mesh.pipeline()?);
            coordinates[pipeline] = u64::try_from(peer.eval(&coordinates)?).ok()?;
            Some(self.model.mesh.rank(&coordinates) as usize)
        };
        let (channel, stream) = match transfer {
            Transfer::Send { peer: to, tag } => ((own, peer(to)?, *tag), Stream::Sends),
            Transfer::Recv { peer: from, tag, .. } => ((peer(from)?, own, *tag), Stream::Receives),
            _ => return None,
        };
        let site = self.action_site(rank, action)?;
        let copy = copies.get(&action).copied();
        let (times, by_device) = (copy.unwrap_or_else(|| self.times(recorded)), copy.is_some());
        let kind = recorded.kind;
        Some((channel, ExchangeSide { rank, kind, stream, site, run: None, times, by_device, bytes: None }))
    }

    /// Appends the events of one thread of a rank.
    fn thread(&mut self, rank: usize, role: ThreadRole) {
        let stream = if role == ThreadRole::Main { Stream::Main } else { Stream::Async };
        let mut recorded = std::mem::take(&mut self.ranks[rank].recorded[usize::from(role == ThreadRole::Async)]);
        // A body invocation precedes its first step, which may begin at the same time.
        recorded.sort_by_key(|recorded| (recorded.start, !matches!(recorded.kind, EventKind::Run(_))));
        let sums = recorded.iter().filter_map(|recorded| match recorded.kind {
            EventKind::Sums(run, step) => Some(((run, step), self.times(recorded).0)),
            _ => None,
        });
        let sums: HashMap<(u32, u32), f64> = sums.collect();
        for recorded in &recorded {
            let (start, mut end) = self.times(recorded);
            let (site, run) = match recorded.kind {
                EventKind::Action(action) => (self.action_site(rank, action), None),
                EventKind::Run(run) => self.run(rank, run).map(|(body, at)| (self.bodies[body], at)).unzip(),
                EventKind::Step(run, step) => {
                    end = sums.get(&(run, step)).copied().unwrap_or(end);
                    self.run(rank, run).map(|(body, at)| (self.bodies[body] + 1 + step, at)).unzip()
                }
                EventKind::Sums(run, step) => match self.run(rank, run) {
                    Some((body, at)) => (Some(self.sums_site(body, step)), Some(at)),
                    None => (None, None),
                },
                EventKind::Exchange(_)
                | EventKind::StepExchange(..)
                | EventKind::Message(_)
                | EventKind::HostCopy(_) => (None, None),
            };
            let Some(site) = site else { continue };
            let awaits = self.awaited(rank, recorded.kind);
            let stage = stage_of(self.model, &self.ranks[rank].coordinates);
            let track = self.trace.track(self.ranks[rank].rank as u64, stage, &stream);
            let place = self.trace.push(track, Event { site, start, seconds: end - start, run, awaits, bytes: None });
            if let EventKind::Run(_) = recorded.kind {
                self.ranks[rank].places.insert(recorded.kind, place);
            }
        }
    }

    /// The site of what follows a wait: `layer.W %w.grad += all_reduce`'s sum.
    fn sums_site(&mut self, body: BodyId, step: u32) -> u32 {
        let name = self.trace.sites[(self.bodies[body] + 1 + step) as usize].name.replace(" wait ", " += ");
        let known = self.trace.sites.iter().position(|site| site.name == name && site.op == "add");
        known.unwrap_or_else(|| {
            let (op, axes, shapes) = ("add".to_string(), String::new(), String::new());
            self.trace.sites.push(TraceSite { name, op, kind: SiteKind::Memory, flops: 0, bytes: 0, axes, shapes });
            self.trace.sites.len() - 1
        }) as u32
    }

    /// The trace event that a wait waits for.
    fn awaited(&self, rank: usize, kind: EventKind) -> Option<EventRef> {
        let RankEvents { class, rank_program, places, .. } = &self.ranks[rank];
        let kind = match kind {
            EventKind::Step(run, step) => {
                let (body, _) = self.run(rank, run)?;
                let steps =
                    self.program.bodies[body].instrs.iter().filter(|instr| !matches!(instr, BodyInstr::Free(_)));
                let steps: Vec<&BodyInstr> = steps.collect();
                let BodyInstr::Wait { token: awaited, .. } = steps[step as usize] else { return None };
                let starts = |instr: &&BodyInstr| matches!(instr, BodyInstr::Start { token, .. } if token == awaited);
                let start = steps[..step as usize].iter().rposition(starts)?;
                EventKind::StepExchange(run, start as u32)
            }
            EventKind::Action(action) => {
                let instr = rank_program.origins[action as usize] as usize;
                let Instr::Wait { token, .. } = &class.instrs[instr] else { return None };
                started(class, rank_program, instr, *token)?
            }
            _ => return None,
        };
        places.get(&kind).copied()
    }
}

/// The event of the last start of a token.
fn started<C: Communicator>(
    class: &Class,
    rank_program: &RankProgram<C>,
    wait: usize,
    token: Token,
) -> Option<EventKind> {
    let starts = |instr: &Instr| match instr {
        Instr::Start { token: started, .. } => *started == token,
        Instr::Run { token: started, .. } => *started == Some(token),
        _ => false,
    };
    let start = class.instrs[..wait].iter().rposition(starts)?;
    let action = rank_program.origins.iter().position(|&origin| origin as usize == start)?;
    match &rank_program.actions[action] {
        Action::StartRun { run, .. } => Some(EventKind::Run(*run as u32)),
        Action::Start { .. } => Some(EventKind::Exchange(action as u32)),
        Action::StartCopies { .. } => Some(EventKind::HostCopy(action as u32)),
        _ => Some(EventKind::Action(action as u32)),
    }
}

fn stage_of(model: &Model, coordinates: &[u64]) -> u32 {
    model.mesh.pipeline().map_or(0, |pp| coordinates[ir::entity::EntityRef::index(pp)] as u32)
}
