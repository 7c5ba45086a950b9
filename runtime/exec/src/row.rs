//! Instruction streams compiled for one rank: every register, persistent tensor, peer and group is resolved once.

use super::body::{self, Extent, Operand};
use super::frees::{self, Holder, Holders};
use super::load_error::LoadError;
use super::offload::{CallRun, CopiedBundle};
use super::places::Places;
use super::rank_program::{Action, ExchangeCall, Feed, RankProgram};
use super::window::widest;
use crate::state::{self, Role, State};
use comm::{Communicator, Exchange, Region, ThreadRole, local_len, pieces};
use device::backend::{Backend, Span};
use ir::entity::EntityRef;
use ir::graph::{Model, ParamInstance, STEP_SCALARS};
use ir::ids::{BodyId, ModelValue, Reg, Token, Value};
use ir::program::{Class, Instr, Program, Transfer};
use ir::types::{DType, Type};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Compiler of the instruction streams of one rank.
pub(super) struct Loader<'a, B, C> {
    pub(super) model: &'a Model,
    pub(super) rank: usize,
    pub(super) coordinates: Vec<u64>,
    /// For the main thread, and for the async worker.
    pub(super) backends: [&'a mut B; 2],
    pub(super) comm: &'a mut C,
    pub(super) state: &'a mut State,
    /// True if what is freed gets poison.
    pub(super) poison: bool,
}

/// A rank program, and the kernels of each of its body codes: for the main thread and for the async worker.
pub(super) type Loaded<B, C> = (RankProgram<C>, [Vec<Kernels<B>>; 2]);

/// The kernels of a code.
pub(super) type Kernels<B> = Vec<<B as Backend>::Kernel>;

/// The class of a rank.
///
/// # Errors
/// There is none.
pub(super) fn class_of<'a>(program: &'a Program, model: &Model, coordinates: &[u64]) -> Result<&'a Class, LoadError> {
    let stage = model.mesh.pipeline().map_or(0, |pp| coordinates[pp.index()]);
    let class = program.classes.iter().find(|class| class.ranks.contains(&(stage as u32)));
    class.ok_or(LoadError::NoClass { stage })
}

impl<B: Backend, C: Communicator> Loader<'_, B, C> {
    /// The row of the rank's class.
    ///
    /// # Errors
    /// The program is broken, or the backend cannot run it.
    pub(super) fn row(&mut self, program: &Program) -> Result<Loaded<B, C>, LoadError> {
        let class = class_of(program, self.model, &self.coordinates)?;
        let places = Places::new(class)?;
        for &owner in &class.params {
            let (ty, resident) = (&self.model.params[owner.0].ty, places.held(owner, &Role::Param)?);
            self.state.slot(self.model, &self.coordinates, resident, ty)?;
        }
        let rank_program = RankProgram {
            actions: Vec::new(),
            origins: Vec::new(),
            codes: Vec::new(),
            runs: Vec::new(),
            outs: Vec::new(),
            completions: [0; 3],
            message_slots: 0,
            feeds: Vec::new(),
            scalars: Vec::new(),
            freed: Vec::new(),
        };
        let mut rows = RowLoader {
            loader: self,
            program,
            class,
            places,
            compiled: HashMap::new(),
            bodies: Vec::new(),
            in_flight: Vec::new(),
            completions: Vec::new(),
            message_slots: Vec::new(),
            stored: HashSet::new(),
            kernels: [Vec::new(), Vec::new()],
            tensors: 1,
            holders: Holders::default(),
            summed: HashMap::new(),
            rank_program,
        };
        rows.scalars();
        for (at, instr) in class.instrs.iter().enumerate() {
            rows.instr(at, instr)?;
            if rows.loader.poison {
                rows.frees(instr)?;
            }
            rows.rank_program.origins.resize(rows.rank_program.actions.len(), at as u32);
        }
        rows.finish()
    }

    /// The ranks at the same place of other pipeline ranks.
    fn stages(&self, stages: &[u32]) -> Result<Vec<usize>, LoadError> {
        stages.iter().map(|&stage| self.stage(u64::from(stage))).collect()
    }

    fn stage(&self, stage: u64) -> Result<usize, LoadError> {
        let mesh = &self.model.mesh;
        let mut coordinates = self.coordinates.clone();
        match mesh.pipeline() {
            Some(pp) if stage < mesh.axes[pp].size => coordinates[pp.index()] = stage,
            None if stage == 0 => {}
            _ => return Err(LoadError::NoStage { stage }),
        }
        Ok(mesh.rank(&coordinates) as usize)
    }
}

/// A compiled body, whose values are placed for each invocation.
pub(super) struct CompiledBody {
    pub(super) places: Vec<(Operand, Extent)>,
    pub(super) sums: [Vec<Value>; 2],
    /// The values in whose places nothing is left after a step.
    pub(super) freed: Vec<FreedValue>,
}

/// A value in whose place nothing is left after a step.
pub(super) struct FreedValue {
    pub(super) step: u32,
    pub(super) value: Value,
    pub(super) extent: Extent,
}

/// A tensor that ranks at the same place of several pipeline ranks add, or that one of them gives to the others.
#[derive(Clone, Copy)]
struct Shared {
    from: Span,
    to: Span,
    /// The place of the rank that gives it; none of a sum.
    sender: Option<usize>,
    /// The register of a sum, and its offset.
    sum: Option<(Reg, u64)>,
}

impl Shared {
    /// The part of a rank.
    fn exchange(&self, ranks: &[usize], rank: usize) -> Result<Exchange, LoadError> {
        let place = ranks.iter().position(|other| *other == rank);
        let place = place.ok_or(LoadError::Unlisted)?;
        Ok(match self.sender {
            None => Exchange::sum(ranks.to_vec(), place, self.from.len),
            Some(sender) => Exchange::broadcast(ranks.to_vec(), place, sender, self.from.len),
        })
    }
}

/// An operation in flight.
pub(super) enum InFlight<C: Communicator> {
    /// A started body, in a completion slot.
    Body(usize),
    /// An exchange, in a completion slot; for a sum its register and offset.
    Exchange(usize, Arc<ExchangeCall<C>>, Option<(Reg, u64)>),
    /// A message in a message slot; for a receive its destination offset.
    Message(usize, Arc<C::Channel>, Option<u64>),
    /// Copies of a bundle, in a completion slot.
    Copies(usize, CopiedBundle),
}

/// Compiler of one instruction stream.
pub(super) struct RowLoader<'l, 'a, B: Backend, C: Communicator> {
    pub(super) loader: &'l mut Loader<'a, B, C>,
    pub(super) program: &'l Program,
    class: &'l Class,
    pub(super) places: Places<'l>,
    compiled: HashMap<(BodyId, ThreadRole), usize>,
    /// Per code.
    pub(super) bodies: Vec<CompiledBody>,
    in_flight: Vec<(Token, InFlight<C>)>,
    /// The completion slots and message slots in use.
    completions: Vec<bool>,
    message_slots: Vec<bool>,
    /// Places of gradient sums that an earlier run has begun.
    pub(super) stored: HashSet<u64>,
    kernels: [Vec<Kernels<B>>; 2],
    /// The most tensors of an exchange.
    tensors: usize,
    /// Holders of bytes so far, if what is freed gets poison, and the registers of sums in flight.
    holders: Holders,
    summed: HashMap<Token, Reg>,
    pub(super) rank_program: RankProgram<C>,
}

impl<'l, B: Backend, C: Communicator> RowLoader<'l, '_, B, C> {
    fn instr(&mut self, at: usize, instr: &'l Instr) -> Result<(), LoadError> {
        match instr {
            Instr::Feed { out, input, microbatch } => self.input(at, *out, *input, *microbatch)?,
            Instr::LossGrad { out, mean } => {
                let place = self.places.one(at)?;
                self.places.set(*out, place);
                let to = self.span(*out)?;
                self.feed(Feed::LossCotangent(*mean), to);
            }
            Instr::Run { token, .. } => {
                let run = self.run(at, instr)?;
                let action = match token {
                    None => Action::Run(run),
                    Some(token) => {
                        let completion = acquire(&mut self.completions);
                        self.in_flight.push((*token, InFlight::Body(completion)));
                        Action::StartRun { run, completion }
                    }
                };
                self.rank_program.actions.push(action);
            }
            Instr::Start { token, transfer, operand } => {
                let in_flight = self.start(at, transfer, *operand)?;
                self.in_flight.push((*token, in_flight));
            }
            Instr::Wait { token, result } => self.wait(*token, *result)?,
            Instr::Add { into, from } => {
                let (old, from) = (self.span(*into)?, self.span(*from)?);
                let place = self.places.one(at)?;
                self.places.set(*into, place);
                let into = self.span(*into)?;
                if into != old {
                    self.rank_program.actions.push(Action::Copy { to: into, from: old });
                }
                self.rank_program.actions.push(Action::Add { into, from });
            }
            Instr::Out { name, reg } => {
                let (from, place) = (self.span(*reg)?, self.rank_program.outs.len());
                self.rank_program.outs.push(name.clone());
                self.rank_program.actions.push(Action::Out { place, from });
            }
            Instr::Free(_) => {}
        }
        Ok(())
    }

    /// Notes what holds bytes after an instruction, and what is free.
    fn frees(&mut self, instr: &Instr) -> Result<(), LoadError> {
        let register = Holder::Register;
        let mut freed = Vec::new();
        match instr {
            Instr::Feed { out, .. } | Instr::LossGrad { out, .. } => {
                freed = self.holders.hold(register(*out), vec![self.span(*out)?]);
            }
            Instr::Run { token, args, bundles, results, keep, .. } => {
                if let Some(token) = token {
                    let read = args.iter().chain(bundles).flat_map(|&reg| self.holders.held(register(reg)));
                    let read = read.collect();
                    freed.extend(self.holders.hold(Holder::InFlight(*token), read));
                }
                for &reg in results {
                    freed.extend(self.holders.hold(register(reg), vec![self.span(reg)?]));
                }
                if let Some(reg) = *keep {
                    let kept = self.bundle(reg);
                    freed.extend(self.holders.hold(register(reg), kept));
                }
            }
            Instr::Start { token, transfer, operand } => {
                let mut moved = operand.map_or_else(Vec::new, |reg| self.holders.held(register(reg)));
                // What a sum or a receive makes has its place from the start on; model states are nobody's to free.
                match (transfer, self.rank_program.actions.last()) {
                    (Transfer::Recv { .. }, Some(Action::StartMessage { span, .. })) => moved.push(*span),
                    (Transfer::Sum { .. }, Some(Action::Start { to, .. })) => moved.push(*to),
                    (Transfer::Load | Transfer::LoadStates { .. }, Some(Action::StartCopies { copies, .. })) => {
                        moved.extend(copies.iter().map(|copy| copy.span));
                    }
                    _ => {}
                }
                if let (Transfer::Sum { .. }, Some(reg)) = (transfer, operand) {
                    self.summed.insert(*token, *reg);
                }
                freed = self.holders.hold(Holder::InFlight(*token), moved);
            }
            Instr::Wait { token, result } => {
                // The result, if there is one, takes over before the operation lets go.
                if let Some(reg) = self.summed.remove(token).or(*result) {
                    let is_tensor = self.class.regs[reg].ty.is_some();
                    let spans = if is_tensor { vec![self.span(reg)?] } else { self.bundle(reg) };
                    freed.extend(self.holders.hold(register(reg), spans));
                }
                freed.extend(self.holders.release(Holder::InFlight(*token)));
            }
            Instr::Add { into, .. } => freed = self.holders.hold(register(*into), vec![self.span(*into)?]),
            Instr::Free(regs) => freed.extend(regs.iter().flat_map(|&reg| self.holders.release(register(reg)))),
            Instr::Out { .. } => {}
        }
        if let Some(last) = self.rank_program.actions.len().checked_sub(1) {
            self.rank_program.freed.extend(freed.into_iter().map(|span| (last as u32, span)));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Loaded<B, C>, LoadError> {
        if let Some((token, _)) = self.in_flight.first() {
            return Err(LoadError::Unawaited { token: token.index() });
        }
        let [main, on_worker] = [ThreadRole::Main, ThreadRole::Async].map(|role| {
            let codes = self.rank_program.codes.iter().filter(|code| code.role == role);
            codes.map(|code| code.completions).max().unwrap_or(0)
        });
        self.rank_program.completions = [self.completions.len(), main, on_worker];
        self.rank_program.message_slots = self.message_slots.len();
        self.loader.comm.expect(widest(&self.rank_program), self.tensors);
        Ok((self.rank_program, self.kernels))
    }

    fn peer(&self, peer: &ir::expr::Expr) -> Result<usize, LoadError> {
        let stage = peer.eval(&self.loader.coordinates).and_then(|stage| u64::try_from(stage).ok());
        self.loader.stage(stage.ok_or(LoadError::PeerNoStage)?)
    }

    fn reg_type(&self, reg: Reg) -> Result<&'l Type, LoadError> {
        let data = &self.class.regs[reg];
        data.ty.as_ref().ok_or_else(|| LoadError::Bundle { reg: data.name.clone() })
    }

    fn len(&self, reg: Reg) -> Result<usize, LoadError> {
        Ok(local_len(self.reg_type(reg)?, &self.loader.model.mesh, &self.loader.coordinates))
    }

    /// Place of a register.
    fn span(&self, reg: Reg) -> Result<Span, LoadError> {
        Ok(Span::new(self.reg_type(reg)?.dtype, self.places.register(reg)? as usize, self.len(reg)?))
    }

    /// The scalars that a step begins with, in the places that the program reads.
    fn scalars(&mut self) {
        let feeds = [Feed::LearningRate, Feed::Update, Feed::InverseScale];
        for (name, feed) in STEP_SCALARS.into_iter().zip(feeds) {
            if let Some(at) = self.places.scalar(name) {
                self.rank_program.scalars.push((self.rank_program.feeds.len(), scalar_at(at)));
                self.rank_program.feeds.push(feed);
            }
        }
    }

    fn feed(&mut self, feed: Feed, to: Span) {
        self.rank_program.actions.push(Action::Feed { feed: self.rank_program.feeds.len(), to });
        self.rank_program.feeds.push(feed);
    }

    fn input(&mut self, at: usize, out: Reg, input: ModelValue, microbatch: u32) -> Result<(), LoadError> {
        let place = self.places.one(at)?;
        self.places.set(out, place);
        let (ty, to) = (self.reg_type(out)?, self.span(out)?);
        let pieces = pieces(ty, &Region::of(ty, &self.loader.model.mesh, &self.loader.coordinates));
        let (microbatch, len, dtype) = (microbatch as usize, to.len, to.dtype);
        self.feed(Feed::Input { input, microbatch, pieces, len, dtype }, to);
        Ok(())
    }

    fn start(&mut self, at: usize, transfer: &Transfer, operand: Option<Reg>) -> Result<InFlight<C>, LoadError> {
        match transfer {
            Transfer::Send { peer, tag } => {
                let span = self.span(operand.ok_or(LoadError::NoOperand("a send"))?)?;
                let to = self.peer(peer)?;
                let channel = self.loader.comm.channel_to(to, *tag)?;
                Ok(self.message(channel, span, None))
            }
            Transfer::Recv { peer, tag, ty } => {
                let place = self.places.one(at)?;
                let len = local_len(ty, &self.loader.model.mesh, &self.loader.coordinates);
                let from = self.peer(peer)?;
                let channel = self.loader.comm.channel_from(from, *tag)?;
                Ok(self.message(channel, Span::new(ty.dtype, place as usize, len), Some(place)))
            }
            Transfer::Sum { ranks } => {
                let reg = operand.ok_or(LoadError::NoOperand("a sum"))?;
                let (from, place) = (self.span(reg)?, self.places.one(at)?);
                let to = Span { offset: place as usize, ..from };
                let op = format!("sum of %{}", self.class.regs[reg].name);
                let shared = Shared { from, to, sender: None, sum: Some((reg, place)) };
                self.exchange(ranks, &op, shared)
            }
            Transfer::SumGradient { param, instance, ranks } => {
                let span = self.kept((*param, *instance), &Role::Gradient)?;
                let shared = Shared { from: span, to: span, sender: None, sum: None };
                self.exchange(ranks, "sum of a gradient that stages share", shared)
            }
            Transfer::Offload => self.offload(at, operand.ok_or(LoadError::NoOperand("an offload"))?),
            Transfer::Load => self.load(at, operand.ok_or(LoadError::NoOperand("a load"))?),
            Transfer::LoadStates { body, call, instance } => {
                self.load_states(at, *body, CallRun { call: *call, instance: *instance })
            }
            Transfer::StoreStates { call, instance } => {
                let states = operand.ok_or(LoadError::NoOperand("a store of states"))?;
                self.store_states(states, CallRun { call: *call, instance: *instance })
            }
            Transfer::ShareParam { param, instance, from, ranks } => {
                let span = self.kept((*param, *instance), &Role::Param)?;
                let from = ranks.iter().position(|rank| rank == from).ok_or(LoadError::SharerLacks)?;
                let shared = Shared { from: span, to: span, sender: Some(from), sum: None };
                self.exchange(ranks, "broadcast of a parameter that stages share", shared)
            }
        }
    }

    pub(super) fn acquire_completion(&mut self) -> usize {
        acquire(&mut self.completions)
    }

    fn message(&mut self, channel: Arc<C::Channel>, span: Span, destination: Option<u64>) -> InFlight<C> {
        let message_slot = acquire(&mut self.message_slots);
        self.rank_program.actions.push(Action::StartMessage { channel: channel.clone(), span, message_slot });
        InFlight::Message(message_slot, channel, destination)
    }

    fn exchange(&mut self, stages: &[u32], op: &str, shared: Shared) -> Result<InFlight<C>, LoadError> {
        let ranks = self.loader.stages(stages)?;
        shared.exchange(&ranks, self.loader.rank)?;
        let Shared { from, to, sum, .. } = shared;
        let group = self.loader.comm.join(&ranks, ThreadRole::Main)?;
        let plan = self
            .loader
            .comm
            .fit(&group, op, &[from.dtype], &mut |rank| shared.exchange(&ranks, rank).map_err(|why| why.to_string()))?;
        let (call, completion) = (Arc::new(ExchangeCall { group, plan }), acquire(&mut self.completions));
        self.rank_program.actions.push(Action::Start { call: call.clone(), from, to, completion });
        Ok(InFlight::Exchange(completion, call, sum))
    }

    fn wait(&mut self, token: Token, result: Option<Reg>) -> Result<(), LoadError> {
        let place =
            self.in_flight.iter().position(|(started, _)| *started == token).ok_or(LoadError::WaitForNothing)?;
        match self.in_flight.remove(place).1 {
            InFlight::Body(completion) => {
                self.completions[completion] = false;
                self.rank_program.actions.push(Action::Wait { completion, call: None });
            }
            InFlight::Exchange(completion, call, sum) => {
                sum.into_iter().for_each(|(reg, place)| self.places.set(reg, place));
                self.completions[completion] = false;
                self.rank_program.actions.push(Action::Wait { completion, call: Some(call) });
            }
            InFlight::Message(message_slot, channel, destination) => {
                if let Some(place) = destination {
                    self.places.set(result.ok_or(LoadError::NoResult("a receive"))?, place);
                }
                self.message_slots[message_slot] = false;
                self.rank_program.actions.push(Action::WaitMessage { channel, message_slot });
            }
            InFlight::Copies(completion, copied) => {
                self.copied(result, copied)?;
                self.completions[completion] = false;
                self.rank_program.actions.push(Action::WaitCopies { completion });
            }
        }
        Ok(())
    }

    /// Place of a model-state tensor of the rank.
    fn kept(&self, owner: ParamInstance, role: &Role) -> Result<Span, LoadError> {
        let (name, state) = (state::name(self.loader.model, owner, role), &self.loader.state);
        state.find(&name).map(|slot| slot.span).ok_or(LoadError::NotHeld { name })
    }

    /// The code of a body for a thread role, compiled on first use.
    pub(super) fn code(&mut self, id: BodyId, role: ThreadRole) -> Result<usize, LoadError> {
        if let Some(&code) = self.compiled.get(&(id, role)) {
            return Ok(code);
        }
        let loader = &mut *self.loader;
        let backend = &mut *loader.backends[usize::from(role == ThreadRole::Async)];
        let (mesh, body) = (&loader.model.mesh, &self.program.bodies[id]);
        let compiled = body::compile(body, mesh, loader.rank, role, backend, &mut *loader.comm)?;
        self.tensors = self.tensors.max(compiled.tensors);
        let [own, other] = if role == ThreadRole::Main { [0, 1] } else { [1, 0] };
        self.kernels[own].push(compiled.kernels);
        self.kernels[other].push(Vec::new());
        self.rank_program.codes.push(compiled.code);
        let freed = if loader.poison { frees::freed(body) } else { Vec::new() };
        let freed = freed.into_iter().map(|(step, value)| FreedValue {
            step,
            value,
            extent: Extent::of(&body.values[value].ty, mesh, &loader.coordinates),
        });
        let freed = freed.collect();
        self.bodies.push(CompiledBody { places: compiled.places, sums: compiled.sums, freed });
        self.compiled.insert((id, role), self.bodies.len() - 1);
        Ok(self.bodies.len() - 1)
    }
}

/// The place of a scalar of the step.
pub(super) fn scalar_at(offset: u64) -> Span {
    Span::new(DType::F32, offset as usize, 1)
}

/// Takes a number that is not in use.
fn acquire(used: &mut Vec<bool>) -> usize {
    let free = used.iter().position(|used| !used).unwrap_or(used.len());
    used.resize(used.len().max(free + 1), false);
    used[free] = true;
    free
}

/// The inputs that a program feeds.
pub(super) fn fed(program: &Program) -> Vec<ModelValue> {
    let instrs = program.classes.iter().flat_map(|class| &class.instrs);
    let feeds = instrs.filter_map(|instr| if let Instr::Feed { input, .. } = instr { Some(*input) } else { None });
    let mut fed: Vec<ModelValue> = feeds.collect();
    fed.sort();
    fed.dedup();
    fed
}

/// True if a tensor of this type holds integers.
pub(super) fn is_integer(ty: &Type) -> bool {
    ty.dtype == DType::I32
}
