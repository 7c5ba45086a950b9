//! Converts the threads' event buffers of this process's ranks: indices of the rank program become program locations. `merge` joins the
//! events that several ranks share.

use super::load::RankView;
use super::merge::{ExchangeKey, MessageKey, RankTimeline, Side, ThreadEvent, Timeline};
use super::rank_program::{Action, BodyStep, RankProgram};
use super::recorder::{EventKind, RecordedEvent};
use comm::{Communicator, ExchangePlan, ThreadRole};
use device::backend::HostDirection;
use ir::entity::{EntityRef, SecondaryMap};
use ir::expr::Expr;
use ir::graph::Model;
use ir::ids::{BodyId, Token};
use ir::program::{BodyInstr, Class, Instr, Program, Transfer};
use std::collections::HashMap;
use std::time::Instant;
use trace::{BodyRunId, SiteKind, Stream, TraceSite, body_sites, instr_site};

/// The events of the step that began at `began`, of the ranks of this process.
pub(super) fn decode<C: Communicator>(
    model: &Model,
    program: &Program,
    views: &[RankView<C>],
    began: Instant,
) -> Timeline {
    let mut decoder = Decoder::new(model, program, began);
    for view in views {
        let rank = view.rank;
        let coordinates = model.mesh.coordinates(rank as u64);
        let Ok(class) = super::row::class_of(program, model, &coordinates) else { continue };
        let (Some(recorders), Some(rank_program)) = (&view.recorders, view.rank_programs.first()) else { continue };
        let recorded = [recorders[0].events(), recorders[1].events()];
        decoder.ranks.push(RankEvents { rank, coordinates, class, rank_program, recorded });
    }
    let mut ranks = Vec::new();
    for rank in 0..decoder.ranks.len() {
        let RankEvents { rank: number, coordinates, .. } = &decoder.ranks[rank];
        let (number, stage) = (*number as u64, stage_of(model, coordinates));
        let (exchanges, messages, copies) =
            (decoder.exchanges(rank), decoder.messages(rank), decoder.host_copies(rank));
        let threads = [ThreadRole::Main, ThreadRole::Async].map(|role| decoder.thread(rank, role));
        ranks.push(RankTimeline { rank: number, stage, exchanges, messages, copies, threads });
    }
    Timeline { sites: decoder.sites, ranks }
}

struct Decoder<'a, C: Communicator> {
    model: &'a Model,
    program: &'a Program,
    began: Instant,
    sites: Vec<TraceSite>,
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
}

impl<'a, C: Communicator> Decoder<'a, C> {
    fn new(model: &'a Model, program: &'a Program, began: Instant) -> Decoder<'a, C> {
        let (mut sites, mut bodies) = (Vec::new(), SecondaryMap::new());
        for (id, body) in &program.bodies {
            let (run, steps) = body_sites(&model.mesh, body);
            bodies[id] = sites.len() as u32;
            sites.push(run);
            sites.extend(steps);
        }
        Decoder { model, program, began, sites, bodies, rows: HashMap::new(), ranks: Vec::new() }
    }

    fn times(&self, recorded: &RecordedEvent) -> (f64, f64) {
        let [start, end] =
            [recorded.start, recorded.end].map(|at| at.saturating_duration_since(self.began).as_secs_f64());
        (start, end)
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
        let Decoder { model, program, sites, rows, .. } = self;
        *rows.entry((class.ranks.start, instr)).or_insert_with(|| {
            let site = instr_site(model, program, class, instr as usize)?;
            sites.push(site);
            Some(sites.len() as u32 - 1)
        })
    }

    /// The exchanges of a rank: the n-th of a group is the same for all members.
    fn exchanges(&mut self, rank: usize) -> Vec<(ExchangeKey, Side)> {
        let mut counts: HashMap<(Vec<usize>, ThreadRole), usize> = HashMap::new();
        let mut recorded: Vec<RecordedEvent> = self.ranks[rank].recorded.iter().flatten().copied().collect();
        recorded.sort_by_key(|recorded| recorded.start);
        let mut sides = Vec::new();
        for recorded in recorded {
            let Some((ranks, role, side)) = self.exchange_side(rank, &recorded) else { continue };
            let count = counts.entry((ranks.clone(), role)).or_default();
            sides.push((ExchangeKey { ranks, role, number: *count }, side));
            *count += 1;
        }
        sides
    }

    fn exchange_side(&mut self, rank: usize, recorded: &RecordedEvent) -> Option<(Vec<usize>, ThreadRole, Side)> {
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
        let axes = self.sites[site as usize].axes.clone();
        let stream = if role == ThreadRole::Main { Stream::Collectives(axes) } else { Stream::AsyncCollectives(axes) };
        let RecordedEvent { kind, by_device, bytes, .. } = *recorded;
        let times = self.times(recorded);
        let side = Side { kind, stream, site, run, times, known: None, by_device, bytes };
        Some((call.plan.ranks().to_vec(), role, side))
    }

    /// The messages of a rank: the n-th of a channel is the same for both ends.
    fn messages(&mut self, rank: usize) -> Vec<(MessageKey, Side)> {
        let (mut counts, mut sides) = (HashMap::<(usize, usize, u32), usize>::new(), Vec::new());
        let recorded = self.ranks[rank].recorded[0].clone();
        let copies = recorded.iter().filter_map(|recorded| match recorded.kind {
            EventKind::Message(action) => Some((action, self.times(recorded))),
            _ => None,
        });
        let copies: HashMap<u32, (f64, f64)> = copies.collect();
        let ends = self.message_ends(rank);
        for recorded in &recorded {
            let Some((channel, mut side)) = self.message(rank, recorded, &copies) else { continue };
            if let EventKind::Action(action) = recorded.kind {
                side.known = ends.get(&action).copied();
            }
            let count = counts.entry(channel).or_default();
            let (from, to, tag) = channel;
            sides.push((MessageKey { from, to, tag, number: *count }, side));
            *count += 1;
        }
        sides
    }

    /// The time at which a rank knows that a message is complete, by the action that starts it: the end of the wait for it.
    fn message_ends(&self, rank: usize) -> HashMap<u32, f64> {
        let RankEvents { class, rank_program, recorded, .. } = &self.ranks[rank];
        let mut ends = HashMap::new();
        for recorded in &recorded[0] {
            let EventKind::Action(action) = recorded.kind else { continue };
            let Action::WaitMessage { .. } = &rank_program.actions[action as usize] else { continue };
            if let Some(EventKind::Action(start)) = self.awaited(class, rank_program, recorded.kind) {
                ends.insert(start, self.times(recorded).1);
            }
        }
        ends
    }

    /// The copies of a rank between its device and host memory.
    fn host_copies(&mut self, rank: usize) -> Vec<Side> {
        let mut sides = Vec::new();
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
            sides.push(Side { kind, stream, site, run: None, times, known: None, by_device, bytes: None });
        }
        sides
    }

    /// This side of a message, with the times of its copy if a device copied for this side.
    fn message(
        &mut self,
        rank: usize,
        recorded: &RecordedEvent,
        copies: &HashMap<u32, (f64, f64)>,
    ) -> Option<((usize, usize, u32), Side)> {
        let EventKind::Action(action) = recorded.kind else { return None };
        let RankEvents { rank: own, class, rank_program, .. } = self.ranks[rank];
        let Action::StartMessage { .. } = &rank_program.actions[action as usize] else { return None };
        let Instr::Start { transfer, .. } = &class.instrs[rank_program.origins[action as usize] as usize] else {
            return None;
        };
        let (channel, stream) = match transfer {
            Transfer::Send { peer, tag } => ((own, self.peer(rank, peer)?, *tag), Stream::Sends),
            Transfer::Recv { peer, tag, .. } => ((self.peer(rank, peer)?, own, *tag), Stream::Receives),
            _ => return None,
        };
        let site = self.action_site(rank, action)?;
        let copy = copies.get(&action).copied();
        let (times, by_device) = (copy.unwrap_or_else(|| self.times(recorded)), copy.is_some());
        let kind = recorded.kind;
        Some((channel, Side { kind, stream, site, run: None, times, known: None, by_device, bytes: None }))
    }

    /// The rank that a peer of a transfer is.
    fn peer(&self, rank: usize, peer: &Expr) -> Option<usize> {
        let mut coordinates = self.ranks[rank].coordinates.clone();
        let stage = u64::try_from(peer.eval(&coordinates)?).ok()?;
        coordinates[self.model.mesh.pipeline()?.index()] = stage;
        Some(self.model.mesh.rank(&coordinates) as usize)
    }

    /// The events of one thread of a rank.
    fn thread(&mut self, rank: usize, role: ThreadRole) -> Vec<ThreadEvent> {
        let mut recorded = std::mem::take(&mut self.ranks[rank].recorded[usize::from(role == ThreadRole::Async)]);
        let mut events = Vec::new();
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
            let RankEvents { class, rank_program, .. } = &self.ranks[rank];
            let awaits = self.awaited(class, rank_program, recorded.kind);
            events.push(ThreadEvent { kind: recorded.kind, site, times: (start, end), run, awaits });
        }
        events
    }

    /// The site of what follows a wait: `layer.W %w.grad += all_reduce`'s sum.
    fn sums_site(&mut self, body: BodyId, step: u32) -> u32 {
        let name = self.sites[(self.bodies[body] + 1 + step) as usize].name.replace(" wait ", " += ");
        let known = self.sites.iter().position(|site| site.name == name && site.op == "add");
        known.unwrap_or_else(|| {
            let (op, axes, shapes) = ("add".to_string(), String::new(), String::new());
            self.sites.push(TraceSite { name, op, kind: SiteKind::Memory, flops: 0, bytes: 0, axes, shapes });
            self.sites.len() - 1
        }) as u32
    }

    /// The event that a wait waits for.
    fn awaited(&self, class: &Class, rank_program: &RankProgram<C>, kind: EventKind) -> Option<EventKind> {
        match kind {
            EventKind::Step(run, step) => {
                let Instr::Run { body, .. } = &class.instrs[rank_program.runs[run as usize].instr as usize] else {
                    return None;
                };
                let steps =
                    self.program.bodies[*body].instrs.iter().filter(|instr| !matches!(instr, BodyInstr::Free(_)));
                let steps: Vec<&BodyInstr> = steps.collect();
                let BodyInstr::Wait { token: awaited, .. } = steps[step as usize] else { return None };
                let start = steps[..step as usize]
                    .iter()
                    .rposition(|instr| matches!(instr, BodyInstr::Start { token, .. } if token == awaited))?;
                Some(EventKind::StepExchange(run, start as u32))
            }
            EventKind::Action(action) => {
                let instr = rank_program.origins[action as usize] as usize;
                let Instr::Wait { token, .. } = &class.instrs[instr] else { return None };
                started(class, rank_program, instr, *token)
            }
            _ => None,
        }
    }
}

/// The event of the last start of a token.
fn started<C: Communicator>(
    class: &Class,
    rank_program: &RankProgram<C>,
    wait: usize,
    token: Token,
) -> Option<EventKind> {
    let start = class.instrs[..wait].iter().rposition(|instr| match instr {
        Instr::Start { token: started, .. } => *started == token,
        Instr::Run { token: started, .. } => *started == Some(token),
        _ => false,
    })?;
    let action = rank_program.origins.iter().position(|&origin| origin as usize == start)?;
    match &rank_program.actions[action] {
        Action::StartRun { run, .. } => Some(EventKind::Run(*run as u32)),
        Action::Start { .. } => Some(EventKind::Exchange(action as u32)),
        Action::StartCopies { .. } => Some(EventKind::HostCopy(action as u32)),
        _ => Some(EventKind::Action(action as u32)),
    }
}

fn stage_of(model: &Model, coordinates: &[u64]) -> u32 {
    model.mesh.pipeline().map_or(0, |pp| coordinates[pp.index()] as u32)
}
