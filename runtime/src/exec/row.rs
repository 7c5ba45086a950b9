//! Instruction streams compiled for one rank: every register, persistent tensor, peer and group is resolved once.

use super::body::{self, Operand};
use super::places::Places;
use super::sheet::{Action, Call, Sheet};
use crate::backend::{Backend, Span};
use crate::comm::{Communicator, Exchange, Region, ThreadRole, local_len, pieces};
use crate::state::{self, Role, State};
use ir::entity::EntityRef;
use ir::graph::{Model, ParamInstance};
use ir::ids::{BodyId, ModelValue, Reg, Token, Value};
use ir::program::{Class, Instr, Program, Transfer};
use ir::types::{DType, Type};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What is made ready on one rank for all of its rows.
pub(super) struct Loader<'a, B, C> {
    pub(super) model: &'a Model,
    pub(super) rank: usize,
    pub(super) coordinates: Vec<u64>,
    /// For the row, and for its lane.
    pub(super) backends: [&'a mut B; 2],
    pub(super) comm: &'a mut C,
    pub(super) state: &'a mut State,
}

/// A row, and the kernels of each of its codes: those that the row runs, and those that the lane does.
pub(super) type Loaded<B, C> = (Sheet<C>, [Vec<Kernels<B>>; 2]);

/// The kernels of a code.
pub(super) type Kernels<B> = Vec<<B as Backend>::Kernel>;

/// The class of a rank.
///
/// # Errors
/// There is none.
pub(super) fn class_of<'a>(program: &'a Program, model: &Model, coordinates: &[u64]) -> Result<&'a Class, String> {
    let stage = model.mesh.pipeline().map_or(0, |pp| coordinates[pp.index()]);
    let class = program.classes.iter().find(|class| class.ranks.contains(&(stage as u32)));
    class.ok_or_else(|| format!("no class has pipeline rank {stage}"))
}

impl<B: Backend, C: Communicator> Loader<'_, B, C> {
    /// The row of the rank's class.
    ///
    /// # Errors
    /// The program is broken, or the backend cannot run it.
    pub(super) fn row(&mut self, program: &Program) -> Result<Loaded<B, C>, String> {
        let class = class_of(program, self.model, &self.coordinates)?;
        let places = Places::new(class)?;
        for &owner in &class.params {
            let (ty, at) = (&self.model.params[owner.0].ty, places.held(owner, &Role::Param)?);
            self.state.slot(self.model, &self.coordinates, (owner, &Role::Param), ty, at)?;
        }
        let sheet = Sheet {
            actions: Vec::new(),
            origins: Vec::new(),
            codes: Vec::new(),
            runs: Vec::new(),
            outs: Vec::new(),
            berths: [0; 3],
            posts: 0,
            fed: 0,
            scalars: ["lr", "step"].map(|name| places.scalar(name).map(|at| Span { offset: at as usize, len: 1 })),
        };
        let mut rows = RowLoader {
            loader: self,
            program,
            class,
            places,
            compiled: HashMap::new(),
            bodies: Vec::new(),
            under_way: Vec::new(),
            berths: Vec::new(),
            posts: Vec::new(),
            stored: HashSet::new(),
            kernels: [Vec::new(), Vec::new()],
            tensors: 1,
            sheet,
        };
        for (at, instr) in class.instrs.iter().enumerate() {
            rows.instr(at, instr)?;
            rows.sheet.origins.resize(rows.sheet.actions.len(), at as u32);
        }
        rows.finish()
    }

    /// The ranks at the same place of other pipeline ranks.
    fn stages(&self, stages: &[u32]) -> Result<Vec<usize>, String> {
        stages.iter().map(|&stage| self.stage(u64::from(stage))).collect()
    }

    fn stage(&self, stage: u64) -> Result<usize, String> {
        let mesh = &self.model.mesh;
        let mut coordinates = self.coordinates.clone();
        match mesh.pipeline() {
            Some(pp) if stage < mesh.axes[pp].size => coordinates[pp.index()] = stage,
            None if stage == 0 => {}
            _ => return Err(format!("there is no pipeline rank {stage}")),
        }
        Ok(mesh.rank(&coordinates) as usize)
    }
}

/// A body that is made ready, where its values are to be placed for each run.
pub(super) struct Placed {
    pub(super) places: Vec<(Operand, usize)>,
    pub(super) sums: [Vec<Value>; 2],
}

/// What is under way in a row.
enum UnderWay<C: Communicator> {
    /// An exchange or a run, in a berth; of a sum the register and where it is made.
    Berth(usize, Option<(Reg, u64)>),
    /// A message, by its number among those under way; of a receive where it comes.
    Post(usize, Arc<C::Channel>, Option<u64>),
}

/// One row while it is made ready.
pub(super) struct RowLoader<'l, 'a, B: Backend, C: Communicator> {
    pub(super) loader: &'l mut Loader<'a, B, C>,
    pub(super) program: &'l Program,
    class: &'l Class,
    pub(super) places: Places<'l>,
    compiled: HashMap<(BodyId, ThreadRole), usize>,
    /// Per code.
    pub(super) bodies: Vec<Placed>,
    under_way: Vec<(Token, UnderWay<C>)>,
    /// Which berths and posts are in use.
    berths: Vec<bool>,
    posts: Vec<bool>,
    /// Where gradient sums lie that an earlier run has begun.
    pub(super) stored: HashSet<u64>,
    kernels: [Vec<Kernels<B>>; 2],
    /// The most tensors of an exchange.
    tensors: usize,
    pub(super) sheet: Sheet<C>,
}

impl<'l, B: Backend, C: Communicator> RowLoader<'l, '_, B, C> {
    fn instr(&mut self, at: usize, instr: &'l Instr) -> Result<(), String> {
        match instr {
            Instr::Feed { out, input, microbatch } => self.feed(at, *out, *input, *microbatch)?,
            Instr::LossGrad { out } => {
                let place = self.places.one(at)?;
                self.places.set(*out, place);
                let to = self.span(*out)?;
                self.sheet.actions.push(Action::LossGrad { to });
            }
            Instr::Run { token, .. } => {
                let run = self.run(at, instr)?;
                let action = match token {
                    None => Action::Run(run),
                    Some(token) => {
                        let berth = take(&mut self.berths);
                        self.under_way.push((*token, UnderWay::Berth(berth, None)));
                        Action::StartRun { run, berth }
                    }
                };
                self.sheet.actions.push(action);
            }
            Instr::Start { token, transfer, operand } => {
                let under_way = self.start(at, transfer, *operand)?;
                self.under_way.push((*token, under_way));
            }
            Instr::Wait { token, result } => self.wait(*token, *result)?,
            Instr::Add { into, from } => {
                let (old, from) = (self.span(*into)?, self.span(*from)?);
                let place = self.places.one(at)?;
                self.places.set(*into, place);
                let into = self.span(*into)?;
                if into != old {
                    self.sheet.actions.push(Action::Copy { to: into, from: old });
                }
                self.sheet.actions.push(Action::Add { into, from });
            }
            Instr::Out { name, reg } => {
                let (from, place) = (self.span(*reg)?, self.sheet.outs.len());
                self.sheet.outs.push(name.clone());
                self.sheet.actions.push(Action::Out { place, from });
            }
            Instr::Free(_) => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Loaded<B, C>, String> {
        if let Some((token, _)) = self.under_way.first() {
            return Err(format!("nothing waits for %t{}", token.index()));
        }
        let most = |by: ThreadRole| self.sheet.codes.iter().filter(|code| code.by == by).map(|code| code.berths).max();
        self.sheet.berths =
            [self.berths.len(), most(ThreadRole::Main).unwrap_or(0), most(ThreadRole::Async).unwrap_or(0)];
        self.sheet.posts = self.posts.len();
        let in_flight = self.sheet.berths.iter().sum::<usize>().max(self.sheet.posts);
        self.loader.comm.expect(in_flight, self.tensors);
        Ok((self.sheet, self.kernels))
    }

    fn peer(&self, peer: &ir::expr::Expr) -> Result<usize, String> {
        let stage = peer.eval(&self.loader.coordinates).and_then(|stage| u64::try_from(stage).ok());
        self.loader.stage(stage.ok_or("a peer is no pipeline rank")?)
    }

    fn reg_type(&self, reg: Reg) -> Result<&'l Type, String> {
        let data = &self.class.regs[reg];
        data.ty.as_ref().ok_or_else(|| format!("%{} is a bundle, not a tensor", data.name))
    }

    fn len(&self, reg: Reg) -> Result<usize, String> {
        Ok(local_len(self.reg_type(reg)?, &self.loader.model.mesh, &self.loader.coordinates))
    }

    /// Where a register lies.
    fn span(&self, reg: Reg) -> Result<Span, String> {
        Ok(Span { len: self.len(reg)?, offset: self.places.register(reg)? as usize })
    }

    fn feed(&mut self, at: usize, out: Reg, input: ModelValue, microbatch: u32) -> Result<(), String> {
        let place = self.places.one(at)?;
        self.places.set(out, place);
        let (ty, to) = (self.reg_type(out)?, self.span(out)?);
        let pieces = pieces(ty, &Region::of(ty, &self.loader.model.mesh, &self.loader.coordinates));
        self.sheet.fed = self.sheet.fed.max(to.len);
        self.sheet.actions.push(Action::Feed { to, input, microbatch: microbatch as usize, pieces });
        Ok(())
    }

    fn start(&mut self, at: usize, transfer: &Transfer, operand: Option<Reg>) -> Result<UnderWay<C>, String> {
        match transfer {
            Transfer::Send { peer, tag } => {
                let span = self.span(operand.ok_or("a send has no operand")?)?;
                let to = self.peer(peer)?;
                let line = self.loader.comm.channel_to(to, *tag);
                Ok(self.post(line, span, None))
            }
            Transfer::Recv { peer, tag, ty } => {
                let place = self.places.one(at)?;
                let len = local_len(ty, &self.loader.model.mesh, &self.loader.coordinates);
                let from = self.peer(peer)?;
                let line = self.loader.comm.channel_from(from, *tag);
                Ok(self.post(line, Span { offset: place as usize, len }, Some(place)))
            }
            Transfer::Sum { ranks } => {
                let reg = operand.ok_or("a sum has no operand")?;
                let (from, place) = (self.span(reg)?, self.places.one(at)?);
                let (ranks, me) = self.members(ranks)?;
                let plan = Exchange::sum(ranks, me, from.len);
                Ok(self.exchange(plan, from, Span { offset: place as usize, ..from }, Some((reg, place))))
            }
            Transfer::SumGradient { param, instance, ranks } => {
                let span = self.kept((*param, *instance), &Role::Gradient)?;
                let (ranks, me) = self.members(ranks)?;
                Ok(self.exchange(Exchange::sum(ranks, me, span.len), span, span, None))
            }
            Transfer::ShareParam { param, instance, from, ranks } => {
                let span = self.kept((*param, *instance), &Role::Param)?;
                let from = ranks.iter().position(|rank| rank == from).ok_or("who shares a parameter holds it not")?;
                let (ranks, me) = self.members(ranks)?;
                Ok(self.exchange(Exchange::broadcast(ranks, me, from, span.len), span, span, None))
            }
        }
    }

    fn post(&mut self, line: Arc<C::Channel>, span: Span, comes: Option<u64>) -> UnderWay<C> {
        let post = take(&mut self.posts);
        self.sheet.actions.push(Action::Post { line: line.clone(), span, post });
        UnderWay::Post(post, line, comes)
    }

    fn exchange(&mut self, plan: Exchange, from: Span, to: Span, sum: Option<(Reg, u64)>) -> UnderWay<C> {
        let (group, berth) = (self.loader.comm.join(&plan.ranks, ThreadRole::Main), take(&mut self.berths));
        self.sheet.actions.push(Action::Start { call: Arc::new(Call { group, plan }), from, to, berth });
        UnderWay::Berth(berth, sum)
    }

    fn wait(&mut self, token: Token, result: Option<Reg>) -> Result<(), String> {
        let place = self.under_way.iter().position(|(started, _)| *started == token).ok_or("waits for nothing")?;
        match self.under_way.remove(place).1 {
            UnderWay::Berth(berth, sum) => {
                sum.into_iter().for_each(|(reg, place)| self.places.set(reg, place));
                self.berths[berth] = false;
                self.sheet.actions.push(Action::Wait { berth });
            }
            UnderWay::Post(post, line, comes) => {
                if let Some(place) = comes {
                    self.places.set(result.ok_or("a receive has no result")?, place);
                }
                self.posts[post] = false;
                self.sheet.actions.push(Action::Posted { line, post });
            }
        }
        Ok(())
    }

    /// Where a kept tensor of the rank lies.
    fn kept(&self, owner: ParamInstance, role: &Role) -> Result<Span, String> {
        let (name, state) = (state::name(self.loader.model, owner, role), &self.loader.state);
        state.find(&name).map(|slot| slot.span).ok_or_else(|| format!("the rank does not hold `{name}`"))
    }

    /// The ranks of a transfer, and the place of this one among them.
    fn members(&self, stages: &[u32]) -> Result<(Vec<usize>, usize), String> {
        let ranks = self.loader.stages(stages)?;
        let me = ranks.iter().position(|&rank| rank == self.loader.rank);
        Ok((ranks, me.ok_or("a rank takes part in a transfer that does not list it")?))
    }

    /// A body made ready for who carries it out.
    pub(super) fn code(&mut self, id: BodyId, by: ThreadRole) -> Result<usize, String> {
        if let Some(&code) = self.compiled.get(&(id, by)) {
            return Ok(code);
        }
        let loader = &mut *self.loader;
        let backend = &mut *loader.backends[usize::from(by == ThreadRole::Async)];
        let (mesh, body) = (&loader.model.mesh, &self.program.bodies[id]);
        let compiled = body::compile(body, mesh, loader.rank, by, (backend, &mut *loader.comm))?;
        self.tensors = self.tensors.max(compiled.tensors);
        let [own, other] = if by == ThreadRole::Main { [0, 1] } else { [1, 0] };
        self.kernels[own].push(compiled.kernels);
        self.kernels[other].push(Vec::new());
        self.sheet.codes.push(compiled.code);
        self.bodies.push(Placed { places: compiled.places, sums: compiled.sums });
        self.compiled.insert((id, by), self.bodies.len() - 1);
        Ok(self.bodies.len() - 1)
    }
}

/// Takes a number that is not in use.
fn take(used: &mut Vec<bool>) -> usize {
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

/// Whether a tensor of this type holds integers.
pub(super) fn is_integer(ty: &Type) -> bool {
    ty.dtype == DType::I32
}
