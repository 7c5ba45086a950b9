//! Converts the threads' event buffers to a trace: sheet numbers become program locations, and events that several ranks
//! share are joined.

use super::machine::Memory;
use super::sheet::{Action, Sheet, Step};
use super::tape::{Mark, What};
use crate::comm::ThreadRole;
use crate::comm::threads::ThreadCommunicator;
use ir::entity::SecondaryMap;
use ir::graph::Model;
use ir::ids::{BodyId, Token};
use ir::program::{BodyInstr, Class, Instr, Program, Transfer};
use std::collections::HashMap;
use std::time::Instant;
use trace::{Event, Flow, Kind, Lane, Place, RunAt, Site, Trace, body_sites, instr_site};

/// The trace of the step that began then.
pub(super) fn decode(model: &Model, program: &Program, memories: &[Memory], began: Instant) -> Trace {
    let mut decoder = Decoder::new(model, program, began);
    for (rank, memory) in memories.iter().enumerate() {
        let coordinates = model.mesh.coordinates(rank as u64);
        let Ok(class) = super::row::class_of(program, model, &coordinates) else { continue };
        let (Some(tapes), Some(sheet)) = (&memory.tapes, memory.sheets.first()) else { continue };
        let marks = [tapes[0].marks(), tapes[1].marks()];
        decoder.ranks.push(Rank { rank, coordinates, class, sheet, marks, places: HashMap::new() });
    }
    decoder.flights();
    decoder.messages();
    for rank in 0..decoder.ranks.len() {
        // What goes on beside comes first: the row waits for it.
        decoder.thread(rank, ThreadRole::Async);
        decoder.thread(rank, ThreadRole::Main);
    }
    decoder.trace.sort();
    decoder.trace
}

struct Decoder<'a> {
    model: &'a Model,
    program: &'a Program,
    began: Instant,
    trace: Trace,
    /// The site of a body's run; those of its steps follow it.
    bodies: SecondaryMap<BodyId, u32>,
    /// Sites of rows: by class and instruction.
    rows: HashMap<(u32, u32), Option<u32>>,
    ranks: Vec<Rank<'a>>,
}

struct Rank<'a> {
    rank: usize,
    coordinates: Vec<u64>,
    class: &'a Class,
    sheet: &'a Sheet<ThreadCommunicator>,
    /// Of the row, and of what goes on beside it.
    marks: [Vec<Mark>; 2],
    /// Where what is waited for stands: flights, runs, and messages by the action that starts them.
    places: HashMap<What, Place>,
}

/// One rank's part in an exchange: the rank, what it is noted as, its lane, and its times.
struct Part {
    rank: usize,
    what: What,
    lane: Lane,
    site: u32,
    run: Option<RunAt>,
    times: (f64, f64),
}

impl<'a> Decoder<'a> {
    fn new(model: &'a Model, program: &'a Program, began: Instant) -> Decoder<'a> {
        let (mut trace, mut bodies) = (Trace::default(), SecondaryMap::new());
        for (id, body) in &program.bodies {
            let (run, steps) = body_sites(&model.mesh, body);
            bodies[id] = trace.sites.len() as u32;
            trace.sites.push(run);
            trace.sites.extend(steps);
        }
        Decoder { model, program, began, trace, bodies, rows: HashMap::new(), ranks: Vec::new() }
    }

    fn times(&self, mark: &Mark) -> (f64, f64) {
        let since = |at: Instant| at.saturating_duration_since(self.began).as_secs_f64();
        (since(mark.start), since(mark.end))
    }

    /// Which body a run is of, and of what.
    fn run(&self, rank: usize, run: u32) -> Option<(BodyId, RunAt)> {
        let Rank { class, sheet, .. } = self.ranks[rank];
        match &class.instrs[sheet.runs[run as usize].instr as usize] {
            Instr::Run { body, call, instance, microbatch, .. } => {
                Some((*body, RunAt { call: *call as u32, instance: *instance, microbatch: *microbatch }))
            }
            _ => None,
        }
    }

    /// The site of an action.
    fn action_site(&mut self, rank: usize, action: u32) -> Option<u32> {
        let Rank { class, sheet, .. } = self.ranks[rank];
        let instr = sheet.origins[action as usize];
        let Decoder { model, program, trace, rows, .. } = self;
        *rows.entry((class.ranks.start, instr)).or_insert_with(|| {
            let site = instr_site(model, program, class, instr as usize)?;
            trace.sites.push(site);
            Some(trace.sites.len() as u32 - 1)
        })
    }

    /// The exchanges of all ranks: the n-th of a group is the same for all members, and moves data once all have begun.
    fn flights(&mut self) {
        let mut groups: HashMap<(Vec<usize>, ThreadRole, usize), Vec<Part>> = HashMap::new();
        for rank in 0..self.ranks.len() {
            let mut counts: HashMap<(Vec<usize>, ThreadRole), usize> = HashMap::new();
            let mut marks: Vec<Mark> = self.ranks[rank].marks.iter().flatten().copied().collect();
            marks.sort_by_key(|mark| mark.start);
            for mark in marks {
                let Some((members, hand, part)) = self.part(rank, &mark) else { continue };
                let number = counts.entry((members.clone(), hand)).or_default();
                groups.entry((members, hand, *number)).or_default().push(part);
                *number += 1;
            }
        }
        let mut groups: Vec<Vec<Part>> = groups.into_values().filter(|parts| parts.len() > 1).collect();
        for parts in &mut groups {
            let all_there = parts.iter().map(|part| part.times.0).fold(0.0, f64::max);
            parts.iter_mut().for_each(|part| part.times.0 = all_there.min(part.times.1));
            parts.sort_by_key(|part| part.rank);
        }
        let ends = |parts: &[Part]| parts.iter().map(|part| part.times.1).fold(0.0, f64::max);
        groups.sort_by(|a, b| ends(a).total_cmp(&ends(b)).then(a[0].rank.cmp(&b[0].rank)));
        groups.iter().for_each(|parts| self.together(parts));
    }

    fn part(&mut self, rank: usize, mark: &Mark) -> Option<(Vec<usize>, ThreadRole, Part)> {
        let (call, hand, site, run) = match mark.what {
            What::StepFlight(run, step) => {
                let (body, at) = self.run(rank, run)?;
                let code = &self.ranks[rank].sheet.codes[self.ranks[rank].sheet.runs[run as usize].code];
                let Step::Start { call, .. } = &code.steps[step as usize] else { return None };
                (call, code.by, self.bodies[body] + 1 + step, Some(at))
            }
            What::Request(action) => {
                let site = self.action_site(rank, action)?;
                let Action::Start { call, .. } = &self.ranks[rank].sheet.actions[action as usize] else { return None };
                (call, ThreadRole::Main, site, None)
            }
            _ => return None,
        };
        let axes = self.trace.sites[site as usize].axes.clone();
        let lane = if hand == ThreadRole::Main { Lane::Changes(axes) } else { Lane::ChangesBeside(axes) };
        let part = Part { rank, what: mark.what, lane, site, run, times: self.times(mark) };
        Some((call.plan.ranks.clone(), hand, part))
    }

    /// Events of what ranks do together, each on its lane after what is there, and flows from one to the next.
    fn together(&mut self, parts: &[Part]) {
        let mut places: Vec<Place> = Vec::new();
        for part in parts {
            let Rank { rank, coordinates, .. } = &self.ranks[part.rank];
            let stage = stage_of(self.model, coordinates);
            let track = self.trace.track(*rank as u64, stage, &part.lane);
            let before = self.trace.tracks[track as usize].events.last().map_or(0.0, Event::end);
            let start = part.times.0.max(before).min(part.times.1.max(before));
            let seconds = (part.times.1 - start).max(0.0);
            let place = self.trace.push(track, Event { site: part.site, start, seconds, run: part.run, awaits: None });
            self.ranks[part.rank].places.insert(part.what, place);
            places.push(place);
        }
        for pair in places.windows(2) {
            if self.trace.event(pair[0]).start <= self.trace.event(pair[1]).end() {
                self.trace.flows.push(Flow { from: pair[0], to: pair[1] });
            }
        }
    }

    /// The messages of all ranks: who posts second copies.
    fn messages(&mut self) {
        let mut lines: HashMap<(usize, usize, u32, usize), Vec<Part>> = HashMap::new();
        for rank in 0..self.ranks.len() {
            let mut counts: HashMap<(usize, usize, u32), usize> = HashMap::new();
            for mark in self.ranks[rank].marks[0].clone() {
                let Some((line, part)) = self.message(rank, &mark) else { continue };
                let number = counts.entry(line).or_default();
                lines.entry((line.0, line.1, line.2, *number)).or_default().push(part);
                *number += 1;
            }
        }
        let mut lines: Vec<Vec<Part>> = lines.into_values().filter(|parts| parts.len() == 2).collect();
        for parts in &mut lines {
            let second = parts.iter().map(|part| part.times).fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
            parts.iter_mut().for_each(|part| part.times = second);
            parts.sort_by_key(|part| part.lane != Lane::Sends);
        }
        lines.sort_by(|a, b| a[0].times.0.total_cmp(&b[0].times.0));
        lines.iter().for_each(|parts| self.together(parts));
    }

    fn message(&mut self, rank: usize, mark: &Mark) -> Option<((usize, usize, u32), Part)> {
        let What::Action(action) = mark.what else { return None };
        let Rank { rank: own, class, sheet, .. } = self.ranks[rank];
        let Action::Post { .. } = &sheet.actions[action as usize] else { return None };
        let Instr::Start { transfer, .. } = &class.instrs[sheet.origins[action as usize] as usize] else { return None };
        let peer = |peer: &ir::expr::Expr| {
            let mut coordinates = self.ranks[rank].coordinates.clone();
            let pipeline = ir::entity::EntityRef::index(self.model.mesh.pipeline()?);
            coordinates[pipeline] = u64::try_from(peer.eval(&coordinates)?).ok()?;
            Some(self.model.mesh.rank(&coordinates) as usize)
        };
        let (line, lane) = match transfer {
            Transfer::Send { peer: to, tag } => ((own, peer(to)?, *tag), Lane::Sends),
            Transfer::Recv { peer: from, tag, .. } => ((peer(from)?, own, *tag), Lane::Receives),
            _ => return None,
        };
        let site = self.action_site(rank, action)?;
        Some((line, Part { rank, what: mark.what, lane, site, run: None, times: self.times(mark) }))
    }

    /// What a row did, or what was done beside it.
    fn thread(&mut self, rank: usize, hand: ThreadRole) {
        let lane = if hand == ThreadRole::Main { Lane::Row } else { Lane::Beside };
        let mut marks = std::mem::take(&mut self.ranks[rank].marks[usize::from(hand == ThreadRole::Async)]);
        // A run before its first step, which may begin at the same time.
        marks.sort_by_key(|mark| (mark.start, !matches!(mark.what, What::Run(_))));
        let sums = marks.iter().filter_map(|mark| match mark.what {
            What::Sums(run, step) => Some(((run, step), self.times(mark).0)),
            _ => None,
        });
        let sums: HashMap<(u32, u32), f64> = sums.collect();
        for mark in &marks {
            let (start, mut end) = self.times(mark);
            let (site, run) = match mark.what {
                What::Action(action) => (self.action_site(rank, action), None),
                What::Run(run) => self.run(rank, run).map(|(body, at)| (self.bodies[body], at)).unzip(),
                What::Step(run, step) => {
                    end = sums.get(&(run, step)).copied().unwrap_or(end);
                    self.run(rank, run).map(|(body, at)| (self.bodies[body] + 1 + step, at)).unzip()
                }
                What::Sums(run, step) => match self.run(rank, run) {
                    Some((body, at)) => (Some(self.sums_site(body, step)), Some(at)),
                    None => (None, None),
                },
                What::Request(_) | What::StepFlight(..) => (None, None),
            };
            let Some(site) = site else { continue };
            let awaits = self.awaited(rank, mark.what);
            let stage = stage_of(self.model, &self.ranks[rank].coordinates);
            let track = self.trace.track(self.ranks[rank].rank as u64, stage, &lane);
            let place = self.trace.push(track, Event { site, start, seconds: end - start, run, awaits });
            if let What::Run(_) = mark.what {
                self.ranks[rank].places.insert(mark.what, place);
            }
        }
    }

    /// The site of what follows a wait: `layer.W %w.grad += all_reduce`'s sum.
    fn sums_site(&mut self, body: BodyId, step: u32) -> u32 {
        let name = self.trace.sites[(self.bodies[body] + 1 + step) as usize].name.replace(" wait ", " += ");
        let known = self.trace.sites.iter().position(|site| site.name == name && site.op == "add");
        known.unwrap_or_else(|| {
            let (op, axes, shapes) = ("add".to_string(), String::new(), String::new());
            self.trace.sites.push(Site { name, op, kind: Kind::Memory, flops: 0, bytes: 0, axes, shapes });
            self.trace.sites.len() - 1
        }) as u32
    }

    /// Where what a wait waits for stands.
    fn awaited(&self, rank: usize, what: What) -> Option<Place> {
        let Rank { class, sheet, places, .. } = &self.ranks[rank];
        let what = match what {
            What::Step(run, step) => {
                let (body, _) = self.run(rank, run)?;
                let steps =
                    self.program.bodies[body].instrs.iter().filter(|instr| !matches!(instr, BodyInstr::Free(_)));
                let steps: Vec<&BodyInstr> = steps.collect();
                let BodyInstr::Wait { token: awaited, .. } = steps[step as usize] else { return None };
                let starts = |instr: &&BodyInstr| matches!(instr, BodyInstr::Start { token, .. } if token == awaited);
                let start = steps[..step as usize].iter().rposition(starts)?;
                What::StepFlight(run, start as u32)
            }
            What::Action(action) => {
                let instr = sheet.origins[action as usize] as usize;
                let Instr::Wait { token, .. } = &class.instrs[instr] else { return None };
                started(class, sheet, instr, *token)?
            }
            _ => return None,
        };
        places.get(&what).copied()
    }
}

/// What the last start of a token is noted as.
fn started(class: &Class, sheet: &Sheet<ThreadCommunicator>, wait: usize, token: Token) -> Option<What> {
    let starts = |instr: &Instr| match instr {
        Instr::Start { token: started, .. } => *started == token,
        Instr::Run { token: started, .. } => *started == Some(token),
        _ => false,
    };
    let start = class.instrs[..wait].iter().rposition(starts)?;
    let action = sheet.origins.iter().position(|&origin| origin as usize == start)?;
    match &sheet.actions[action] {
        Action::StartRun { run, .. } => Some(What::Run(*run as u32)),
        Action::Start { .. } => Some(What::Request(action as u32)),
        _ => Some(What::Action(action as u32)),
    }
}

fn stage_of(model: &Model, coordinates: &[u64]) -> u32 {
    model.mesh.pipeline().map_or(0, |pp| coordinates[ir::entity::EntityRef::index(pp)] as u32)
}
