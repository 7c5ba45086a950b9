//! Symbolic execution of the rows of all ranks: the origin, number and order of all computations.

use super::meetings::{Order, RowPosition};
use super::origin::{Atom, Parts, Reads, RunId, cotangent_places, losses, returned, runs};
use super::{Violation, class_of, pipeline_ranks};
use crate::graph::{ArgKind, Block, Model, ParamInstance, STEP_SCALARS, SectionKind};
use crate::ids::{BodyId, Reg, Token, Value};
use crate::program::{Body, BodyInstr, BodyKind, Instr, Program, Source, Transfer};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The parameter instance of each parameter argument of a run.
type Bound = HashMap<Value, ParamInstance>;

/// A bundle: the run that made it, and its micro-batch.
#[derive(Clone, Copy)]
struct Bundle {
    body: BodyId,
    run: RunId,
    microbatch: Option<u32>,
}

#[derive(Default)]
struct RankTrace {
    tensors: HashMap<Reg, Parts>,
    bundles: HashMap<Reg, Bundle>,
    /// The position of the start of each transfer in flight.
    starts: HashMap<Token, RowPosition>,
    /// Started runs of R that have not been waited for.
    reducing: HashSet<Token>,
    /// Parameters whose gradients R has read.
    reduced: HashSet<ParamInstance>,
    normed: bool,
    accumulated: HashSet<RunId>,
    summed: HashSet<ParamInstance>,
    gathered: HashSet<RunId>,
    updated: HashSet<ParamInstance>,
    shared: HashSet<ParamInstance>,
}

/// The ranks whose runs bind each parameter, and those that have a gradient of it.
#[derive(Default)]
struct Holders {
    bind: BTreeMap<ParamInstance, BTreeSet<u32>>,
    have_gradient: BTreeMap<ParamInstance, BTreeSet<u32>>,
}

impl Holders {
    fn of(model: &Model, program: &Program) -> Holders {
        let mut holders = Holders::default();
        for rank in 0..pipeline_ranks(model) {
            let Some((_, class)) = class_of(program, rank) else { continue };
            let mut seen = HashSet::new();
            for instr in &class.instrs {
                let Instr::Run { body, call, instance, .. } = instr else { continue };
                let Some(block) = program.bodies[*body].block.map(|id| &model.blocks[id]) else { continue };
                if !seen.insert((*call, *instance)) {
                    continue;
                }
                let params = model.call_params(&model.calls[*call], *instance);
                for (value, param) in block.args_of(ArgKind::Param).zip(params) {
                    holders.bind.entry(param).or_default().insert(rank);
                    if block.gradient_of(value).is_some() {
                        holders.have_gradient.entry(param).or_default().insert(rank);
                    }
                }
            }
        }
        holders
    }
}

struct Trace<'a> {
    model: &'a Model,
    program: &'a Program,
    order: &'a Order,
    reads: Reads,
    holders: Holders,
    ranks: Vec<RankTrace>,
    sent: HashMap<RowPosition, Parts>,
    count: BTreeMap<(BodyKind, RunId, Option<u32>), u32>,
    found: &'a mut Vec<Violation>,
    at: RowPosition,
}

pub(super) fn check(model: &Model, program: &Program, order: &Order, found: &mut Vec<Violation>) {
    let ranks = (0..pipeline_ranks(model)).map(|_| RankTrace::default()).collect();
    let mut trace = Trace {
        model,
        program,
        order,
        reads: Reads::new(model),
        holders: Holders::of(model, program),
        ranks,
        sent: HashMap::new(),
        count: BTreeMap::new(),
        found,
        at: RowPosition { rank: 0, position: 0 },
    };
    for &at in &order.sequence {
        trace.at = at;
        if let Some((_, class)) = class_of(program, at.rank) {
            trace.step(&class.instrs[at.position]);
        }
    }
    trace.end();
}

impl Trace<'_> {
    fn say(&mut self, name: &'static str, text: &str) {
        let class = class_of(self.program, self.at.rank).map_or(0, |(index, _)| index);
        let text = format!("rank {}: {text}", self.at.rank);
        self.found.push(Violation::in_row(name, class, self.at.position, text));
    }

    fn rank(&mut self) -> &mut RankTrace {
        &mut self.ranks[self.at.rank as usize]
    }

    fn parts(&mut self, reg: Reg) -> Parts {
        self.rank().tensors.get(&reg).cloned().unwrap_or_default()
    }

    fn set(&mut self, reg: Reg, parts: Parts) {
        self.rank().tensors.insert(reg, parts);
    }

    fn join(&mut self, mut sum: Parts, more: Parts) -> Parts {
        if !sum.is_disjoint(&more) {
            self.say("added-twice", "a sum gets the same part twice");
        }
        sum.extend(more);
        sum
    }

    fn step(&mut self, instr: &Instr) {
        match instr {
            &Instr::Feed { out, input, microbatch } => self.set(out, Parts::from([Atom::Input { input, microbatch }])),
            &Instr::LossGrad { out, mean } => self.set(out, Parts::from([Atom::LossGrad(mean)])),
            Instr::Run { .. } => self.run(instr),
            Instr::Start { token, transfer, operand } => self.start(*token, transfer, *operand),
            Instr::Wait { token, result } => self.wait(*token, *result),
            &Instr::Add { into, from } => {
                let (sum, more) = (self.parts(into), self.parts(from));
                let sum = self.join(sum, more);
                self.set(into, sum);
            }
            Instr::Out { name, reg } => {
                if name == "loss" && self.parts(*reg) != losses(self.model, self.program.microbatches) {
                    self.say("loss", "the loss is not the sum of all micro-batches' losses");
                }
            }
            Instr::Free(_) => {}
        }
    }

    fn start(&mut self, token: Token, transfer: &Transfer, operand: Option<Reg>) {
        let at = self.at;
        self.rank().starts.insert(token, at);
        if let Some(reg) = operand {
            let parts = self.parts(reg);
            self.sent.insert(at, parts);
        }
        let rank = self.rank();
        match *transfer {
            Transfer::SumGradient { param, instance, .. } if rank.reduced.contains(&(param, instance)) => {
                self.say("step-order", &format!("the gradient of {param}.{instance} is summed after R"));
            }
            Transfer::SumGradient { param, instance, .. } => {
                if !rank.summed.insert((param, instance)) {
                    self.say("added-twice", &format!("the gradient of {param}.{instance} is summed twice"));
                }
            }
            Transfer::ShareParam { param, instance, from, .. } => {
                rank.shared.insert((param, instance));
                if from == at.rank && !rank.updated.contains(&(param, instance)) {
                    self.say("stale-parameter", &format!("{param}.{instance} is shared before its update"));
                }
            }
            Transfer::Send { .. } | Transfer::Recv { .. } | Transfer::Sum { .. } => {}
            Transfer::Offload | Transfer::Load | Transfer::LoadStates { .. } | Transfer::StoreStates { .. } => {}
        }
    }

    fn wait(&mut self, token: Token, result: Option<Reg>) {
        self.rank().reducing.remove(&token);
        let Some(start) = self.rank().starts.get(&token).copied() else { return };
        let class = class_of(self.program, start.rank).map(|(_, class)| class);
        let Some(Instr::Start { transfer, operand, .. }) = class.map(|class| &class.instrs[start.position]) else {
            return;
        };
        match (transfer, operand, result) {
            (Transfer::Recv { .. }, _, Some(reg)) => {
                let parts = self.order.sends.get(&start).and_then(|send| self.sent.get(send)).cloned();
                self.set(reg, parts.unwrap_or_default());
            }
            (Transfer::Sum { .. }, Some(reg), _) => {
                let members = self.order.members.get(&start).cloned().unwrap_or_default();
                let parts: Vec<Parts> = members.iter().filter_map(|at| self.sent.get(at).cloned()).collect();
                let sum = parts.into_iter().fold(Parts::new(), |sum, more| self.join(sum, more));
                self.set(*reg, sum);
            }
            (Transfer::Offload | Transfer::Load, Some(reg), Some(copy)) => {
                let bundle = self.rank().bundles.get(reg).copied();
                self.rank().bundles.extend(bundle.map(|bundle| (copy, bundle)));
            }
            (&Transfer::LoadStates { body, call, instance }, None, Some(reg)) => {
                self.rank().bundles.insert(reg, Bundle { body, run: (call, instance), microbatch: None });
            }
            _ => {}
        }
    }

    fn run(&mut self, instr: &Instr) {
        let &Instr::Run {
            token,
            body: id,
            call,
            instance,
            microbatch,
            first,
            ref args,
            ref bundles,
            ref results,
            keep,
        } = instr
        else {
            return;
        };
        let program = self.program;
        let (body, run) = (&program.bodies[id], (call, instance));
        let given: Vec<Parts> = args.iter().map(|&reg| self.parts(reg)).collect();
        let made: Vec<Parts> = match (body.kind, microbatch) {
            (BodyKind::F, Some(mb)) => {
                self.expect("wrong-value", &given, &self.reads.forward(run, mb), mb);
                (0..results.len()).map(|result| Parts::from([Atom::Result { run, result, microbatch: mb }])).collect()
            }
            (BodyKind::I | BodyKind::B, Some(mb)) => {
                self.expect("wrong-cotangent", &given, &self.reads.backward(self.model, run, mb), mb);
                let places = cotangent_places(self.model, run);
                places.iter().map(|&arg| Parts::from([Atom::Cotangent { run, arg, microbatch: mb }])).collect()
            }
            (BodyKind::R, _) => (0..results.len()).map(|place| Parts::from([Atom::Returned { run, place }])).collect(),
            (BodyKind::N, _) => self.norm(body, given),
            _ => Vec::new(),
        };
        results.iter().zip(made).for_each(|(&reg, parts)| self.set(reg, parts));
        self.bundles(body, run, microbatch, bundles);
        if let Some(reg) = keep {
            self.rank().bundles.insert(reg, Bundle { body: id, run, microbatch });
        }
        if body.block.is_some() {
            let parts = match &body.kind {
                BodyKind::B => &[BodyKind::I, BodyKind::W],
                kind => std::slice::from_ref(kind),
            };
            for &kind in parts {
                *self.count.entry((kind, run, microbatch)).or_default() += 1;
            }
            self.step_order(body, run, first);
        }
        if body.kind == BodyKind::R {
            self.rank().reducing.extend(token);
        }
    }

    fn expect(&mut self, name: &'static str, given: &[Parts], wanted: &[Parts], microbatch: u32) {
        for (place, parts) in given.iter().enumerate().filter(|(place, parts)| wanted.get(*place) != Some(parts)) {
            if parts.iter().any(|atom| atom.microbatch().is_some_and(|mb| mb != microbatch)) {
                self.say("wrong-microbatch", &format!("argument {place} is not of micro-batch {microbatch}"));
            } else {
                self.say(name, &format!("argument {place} is not the value that the model specifies"));
            }
        }
    }

    /// The step graph; a body of collectives alone passes its arguments on.
    fn norm(&mut self, body: &Body, given: Vec<Parts>) -> Vec<Parts> {
        if body.instrs.iter().all(|instr| instr.stmts().is_empty()) {
            return given;
        }
        if given.iter().enumerate().any(|(place, parts)| *parts != returned(self.model, place)) {
            self.say("norm", "the step graph does not read the sums over all instances");
        }
        self.rank().normed = true;
        if !self.rank().reducing.is_empty() {
            self.say("step-order", "N runs before the wait of R");
        }
        (0..body.results.len()).map(|place| Parts::from([Atom::Step { place }])).collect()
    }

    fn bundles(&mut self, body: &Body, run: RunId, microbatch: Option<u32>, bundles: &[Reg]) {
        let program = self.program;
        let given: Vec<Bundle> = bundles.iter().filter_map(|reg| self.rank().bundles.get(reg).copied()).collect();
        for bundle in &given {
            let is_shared = program.bodies[bundle.body].kind == BodyKind::G;
            if bundle.run == run && bundle.microbatch != microbatch && !is_shared {
                self.say("wrong-microbatch", &format!("`@{}` reads the bundle of another micro-batch", body.name));
            } else if bundle.run != run || program.bodies[bundle.body].block != body.block {
                self.say("wrong-bundle", &format!("`@{}` reads the bundle of another block instance", body.name));
            }
        }
        let held: HashSet<Value> =
            given.iter().flat_map(|bundle| &program.bodies[bundle.body].keeps).copied().collect();
        if let Some(arg) = body.args.iter().find(|arg| arg.source == Source::Saved && !held.contains(&arg.value)) {
            let name = body.value_name(arg.value);
            self.say("wrong-bundle", &format!("no bundle has %{name}, which `@{}` reads", body.name));
        }
    }

    fn step_order(&mut self, body: &Body, run: RunId, first: bool) {
        let model = self.model;
        let block = &model.blocks[model.calls[run.0].block];
        let params: Vec<ParamInstance> = model.call_params(&model.calls[run.0], run.1);
        let bound: Bound = block.args_of(ArgKind::Param).zip(params.iter().copied()).collect();
        match body.kind {
            BodyKind::F | BodyKind::I | BodyKind::W | BodyKind::B => {
                let rank = self.rank();
                let late = params.iter().any(|param| rank.updated.contains(param) || rank.shared.contains(param));
                let added = gradients(block, body, &bound);
                let settled = added.iter().any(|param| rank.reduced.contains(param) || rank.summed.contains(param));
                let marked = !body.kind.accumulates() || rank.accumulated.insert(run) == first;
                if late {
                    self.say("step-order", "a micro-batch runs after U");
                }
                if settled {
                    self.say("step-order", "a micro-batch adds to a gradient after R, or after its sum over ranks");
                }
                if !marked {
                    self.say("first", "exactly the first W of the instance must have the mark `first`");
                }
            }
            BodyKind::G => {
                let rank = self.rank();
                let late = params.iter().any(|param| rank.updated.contains(param) || rank.shared.contains(param));
                let again = !rank.gathered.insert(run);
                if late {
                    self.say("step-order", "parameters are gathered after U");
                }
                if again {
                    self.say("duplicate-run", "G of the instance runs a second time");
                }
            }
            BodyKind::R => {
                let read = gradients(block, body, &bound);
                self.holders_summed(&read);
                self.rank().reduced.extend(read);
            }
            BodyKind::U => {
                let mut scalars = body.args.iter().filter(|arg| arg.source == Source::Scalar);
                let reads_norm = scalars.any(|arg| !STEP_SCALARS.contains(&body.value_name(arg.value)));
                if reads_norm && !self.rank().normed {
                    self.say("step-order", "U runs before N");
                }
                self.rank().updated.extend(stored_params(body, &bound));
            }
            BodyKind::N => {}
        }
    }

    /// Checks that gradients that R reads are summed over all ranks with a copy.
    fn holders_summed(&mut self, read: &[ParamInstance]) {
        for &(param, instance) in read {
            let holders = self.holders.have_gradient.get(&(param, instance)).map_or(0, BTreeSet::len);
            if holders > 1 && !self.rank().summed.contains(&(param, instance)) {
                let name = self.model.params[param].instance_name(instance);
                self.say(
                    "missing-collective",
                    &format!("the gradient of %{name} is not summed over the ranks with a copy"),
                );
            }
        }
    }

    /// Checks that all required runs have happened.
    fn end(&mut self) {
        let kinds: BTreeSet<BodyKind> = self.program.bodies.values().map(|body| body.kind).collect();
        let trains = kinds.iter().any(|kind| !matches!(kind, BodyKind::G | BodyKind::F | BodyKind::N));
        for run in runs(self.model) {
            let block = model_block(self.model, run);
            let back = trains && block.differentiable_results().next().is_some();
            let weights = trains && !block[SectionKind::W].stmts.is_empty();
            let wanted = [(BodyKind::F, true), (BodyKind::I, back), (BodyKind::W, weights)];
            for (kind, _) in wanted.into_iter().filter(|(_, wanted)| *wanted) {
                (0..self.program.microbatches).for_each(|mb| self.once(kind, run, Some(mb)));
            }
            let id = self.model.calls[run.0].block;
            for kind in [BodyKind::R, BodyKind::U] {
                if self.program.bodies.values().any(|body| body.block == Some(id) && body.kind == kind) {
                    self.once(kind, run, None);
                }
            }
        }
        let mut instrs = self.program.classes.iter().flat_map(|class| &class.instrs);
        let given = instrs.any(|instr| matches!(instr, Instr::Out { name, .. } if name == "loss"));
        if !given && !losses(self.model, 1).is_empty() {
            self.found.push(Violation::missing("loss", "no rank outputs the loss".to_string()));
        }
        let updated: Vec<(u32, ParamInstance)> =
            (0..).zip(&self.ranks).flat_map(|(r, s)| s.updated.iter().map(move |&p| (r, p))).collect();
        for (owner, param) in updated {
            for &rank in self.holders.bind.get(&param).into_iter().flatten() {
                let fresh = rank == owner || self.ranks[rank as usize].shared.contains(&param);
                if !fresh {
                    let name = self.model.params[param.0].instance_name(param.1);
                    let text = format!(
                        "rank {rank} has a copy of %{name}, which rank {owner} updates, but does not receive the update"
                    );
                    self.found.push(Violation::missing("stale-parameter", text));
                }
            }
        }
    }

    fn once(&mut self, kind: BodyKind, run: RunId, microbatch: Option<u32>) {
        let times = self.count.get(&(kind, run, microbatch)).copied().unwrap_or(0);
        let suffix = microbatch.map_or_else(String::new, |mb| format!(", micro-batch {mb}"));
        let text = format!("{} of call {}, instance {}{suffix} runs {times} times", kind.letter(), run.0, run.1);
        match times {
            0 => self.found.push(Violation::missing("missing-run", text)),
            1 => {}
            _ => self.found.push(Violation::missing("duplicate-run", text)),
        }
    }
}

fn model_block(model: &Model, run: RunId) -> &Block {
    &model.blocks[model.calls[run.0].block]
}

/// The parameters whose gradients a body takes.
fn gradients(block: &Block, body: &Body, bound: &Bound) -> Vec<ParamInstance> {
    let taken = body.args.iter().filter(|arg| arg.source == Source::Gradient);
    taken.filter_map(|arg| bound.get(&block.owner_of(arg.value)?).copied()).collect()
}

/// The parameters that a body stores into.
fn stored_params(body: &Body, bound: &Bound) -> Vec<ParamInstance> {
    let results = body.instrs.iter().flat_map(BodyInstr::defines);
    let stored = results.filter(|v| body.args.iter().any(|arg| arg.value == **v && arg.source == Source::Param));
    stored.filter_map(|value| bound.get(value).copied()).collect()
}
