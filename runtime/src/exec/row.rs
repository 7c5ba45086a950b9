//! Rows made ready for one rank: every register, slot, peer and group looked up once.

use super::body::{self, Code};
use super::run::Run;
use crate::backend::Backend;
use crate::comm::{Communicator, Exchange, Region, local_len};
use crate::state::{self, Role, State};
use ir::entity::{EntityRef, SecondaryMap};
use ir::graph::{Model, ParamInstance};
use ir::ids::{BodyId, ModelValue, Reg, Token};
use ir::program::{BodyKind, Class, Instr, Program, Transfer};
use ir::types::{DType, Type};
use std::collections::HashSet;

/// An instruction of a row for one rank.
pub(super) enum Action {
    /// Cuts the rank's part out of an input.
    Feed { out: usize, input: ModelValue, microbatch: u32, ty: Type, region: Region },
    /// The cotangent of the losses.
    Seed { out: usize },
    /// Runs a body.
    Run(Box<Run>),
    /// Starts to send a register.
    Send { reg: usize, to: usize, tag: u32 },
    /// Waits for a tensor.
    Recv { reg: usize, from: usize, tag: u32 },
    /// Replaces a register by what an exchange makes of it.
    Sum { reg: usize, group: usize, plan: Exchange },
    /// Replaces a kept tensor by what an exchange makes of it.
    Slot { slot: usize, group: usize, plan: Exchange },
    /// Adds a register to another.
    Add { into: usize, from: usize },
    /// Reports a scalar.
    Out { name: String, reg: usize },
    /// Lets registers go.
    Free(Vec<usize>),
}

/// A row for one rank.
pub(super) struct Row<K> {
    pub(super) actions: Vec<Action>,
    pub(super) codes: Vec<Code<K>>,
    pub(super) registers: usize,
}

/// What is made ready on one rank for all of its rows.
pub(super) struct Loader<'a, B, C> {
    pub(super) model: &'a Model,
    pub(super) rank: usize,
    pub(super) coordinates: Vec<u64>,
    pub(super) backend: &'a B,
    pub(super) comm: &'a mut C,
    pub(super) state: &'a mut State,
    /// Names of the scalars.
    pub(super) scalars: &'a mut Vec<String>,
}

impl<B: Backend, C: Communicator> Loader<'_, B, C> {
    /// The row of the rank's class.
    ///
    /// # Errors
    /// The program is broken, or the backend cannot run it.
    pub(super) fn row(&mut self, program: &Program) -> Result<Row<B::Kernel>, String> {
        let stage = self.model.mesh.pipeline().map_or(0, |pp| self.coordinates[pp.index()]);
        let class = program.classes.iter().find(|class| class.ranks.contains(&(stage as u32)));
        let class = class.ok_or_else(|| format!("no class has pipeline rank {stage}"))?;
        for (_, body) in program.bodies.iter().filter(|(_, body)| body.kind == BodyKind::N) {
            for &value in &body.results {
                self.scalar(&body.values[value].name);
            }
        }
        for &owner in &class.params {
            let ty = &self.model.params[owner.0].ty;
            self.state.slot(self.model, &self.coordinates, owner, Role::Param, ty)?;
        }
        let mut rows = RowLoader {
            loader: self,
            program,
            class,
            compiled: SecondaryMap::new(),
            started: Vec::new(),
            runs: Vec::new(),
            bundles: SecondaryMap::new(),
            stored: HashSet::new(),
            row: Row { actions: Vec::new(), codes: Vec::new(), registers: class.regs.len() },
        };
        for instr in &class.instrs {
            rows.instr(instr)?;
        }
        Ok(rows.row)
    }

    /// The place of a scalar.
    pub(super) fn scalar(&mut self, name: &str) -> usize {
        let known = self.scalars.iter().position(|scalar| scalar == name);
        known.unwrap_or_else(|| {
            self.scalars.push(name.to_string());
            self.scalars.len() - 1
        })
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

/// One row while it is made ready.
pub(super) struct RowLoader<'l, 'a, B: Backend, C> {
    pub(super) loader: &'l mut Loader<'a, B, C>,
    pub(super) program: &'l Program,
    class: &'l Class,
    compiled: SecondaryMap<BodyId, Option<usize>>,
    started: Vec<(Token, &'l Transfer, Option<Reg>)>,
    runs: Vec<(Token, &'l Instr)>,
    /// The body that made each bundle.
    pub(super) bundles: SecondaryMap<Reg, Option<BodyId>>,
    /// The gradient sums that an earlier run has begun.
    pub(super) stored: HashSet<usize>,
    row: Row<B::Kernel>,
}

impl<'l, B: Backend, C: Communicator> RowLoader<'l, '_, B, C> {
    fn instr(&mut self, instr: &'l Instr) -> Result<(), String> {
        let action = match instr {
            Instr::Feed { out, input, microbatch } => self.feed(*out, *input, *microbatch)?,
            Instr::Seed { out } => Action::Seed { out: out.index() },
            // What a started run reads does not change until its wait: it is carried out there.
            Instr::Run { token: Some(token), .. } => {
                self.runs.push((*token, instr));
                return Ok(());
            }
            Instr::Run { .. } => Action::Run(Box::new(self.run(instr)?)),
            Instr::Start { token, transfer, operand } => {
                self.started.push((*token, transfer, *operand));
                let Transfer::Send { peer, tag } = transfer else { return Ok(()) };
                let to = self.peer(peer)?;
                let reg = operand.ok_or("a send has no operand")?.index();
                Action::Send { reg, to, tag: *tag }
            }
            Instr::Wait { token, result } => match self.wait(*token, *result)? {
                Some(action) => action,
                None => return Ok(()),
            },
            Instr::Add { into, from } => Action::Add { into: into.index(), from: from.index() },
            Instr::Out { name, reg } => Action::Out { name: name.clone(), reg: reg.index() },
            Instr::Free(regs) => Action::Free(regs.iter().map(|reg| reg.index()).collect()),
        };
        self.row.actions.push(action);
        Ok(())
    }

    fn peer(&self, peer: &ir::expr::Expr) -> Result<usize, String> {
        let stage = peer.eval(&self.loader.coordinates).and_then(|stage| u64::try_from(stage).ok());
        self.loader.stage(stage.ok_or("a peer is no pipeline rank")?)
    }

    fn reg_type(&self, reg: Reg) -> Result<&'l Type, String> {
        let data = &self.class.regs[reg];
        data.ty.as_ref().ok_or_else(|| format!("%{} is a bundle, not a tensor", data.name))
    }

    fn feed(&self, out: Reg, input: ModelValue, microbatch: u32) -> Result<Action, String> {
        let ty = self.reg_type(out)?.clone();
        let region = Region::of(&ty, &self.loader.model.mesh, &self.loader.coordinates);
        Ok(Action::Feed { out: out.index(), input, microbatch, ty, region })
    }

    /// A send is done when it has started; all else is carried out where it is waited for.
    fn wait(&mut self, token: Token, result: Option<Reg>) -> Result<Option<Action>, String> {
        if let Some(place) = self.runs.iter().position(|started| started.0 == token) {
            let (_, run) = self.runs.remove(place);
            return Ok(Some(Action::Run(Box::new(self.run(run)?))));
        }
        let place = self.started.iter().position(|started| started.0 == token);
        let (_, transfer, operand) = place.map(|place| self.started.remove(place)).ok_or("waits for nothing")?;
        Ok(Some(match transfer {
            Transfer::Send { .. } => return Ok(None),
            Transfer::Recv { peer, tag, .. } => {
                let reg = result.ok_or("a receive has no result")?.index();
                Action::Recv { reg, from: self.peer(peer)?, tag: *tag }
            }
            Transfer::Sum { ranks } => {
                let reg = operand.ok_or("a sum has no operand")?;
                let len = local_len(self.reg_type(reg)?, &self.loader.model.mesh, &self.loader.coordinates);
                let (ranks, me) = self.members(ranks)?;
                let group = self.loader.comm.join(&ranks);
                Action::Sum { reg: reg.index(), group, plan: Exchange::sum(ranks, me, len) }
            }
            Transfer::SumGradient { param, instance, ranks } => {
                let (slot, len) = self.kept((*param, *instance), &Role::Gradient)?;
                let (ranks, me) = self.members(ranks)?;
                let group = self.loader.comm.join(&ranks);
                Action::Slot { slot, group, plan: Exchange::sum(ranks, me, len) }
            }
            Transfer::ShareParam { param, instance, from, ranks } => {
                let (slot, len) = self.kept((*param, *instance), &Role::Param)?;
                let from = ranks.iter().position(|rank| rank == from).ok_or("who shares a parameter holds it not")?;
                let (ranks, _) = self.members(ranks)?;
                let group = self.loader.comm.join(&ranks);
                Action::Slot { slot, group, plan: Exchange::broadcast(ranks, from, len) }
            }
        }))
    }

    /// A kept tensor of the rank and its number of elements.
    fn kept(&self, owner: ParamInstance, role: &Role) -> Result<(usize, usize), String> {
        let (name, state) = (state::name(self.loader.model, owner, role), &self.loader.state);
        let slot = state.find(&name).ok_or_else(|| format!("the rank does not hold `{name}`"))?;
        Ok((slot, state.slots()[slot].region.len()))
    }

    /// The ranks of a transfer, and the place of this one among them.
    fn members(&self, stages: &[u32]) -> Result<(Vec<usize>, usize), String> {
        let ranks = self.loader.stages(stages)?;
        let me = ranks.iter().position(|&rank| rank == self.loader.rank);
        Ok((ranks, me.ok_or("a rank takes part in a transfer that does not list it")?))
    }

    pub(super) fn code(&mut self, id: BodyId) -> Result<usize, String> {
        if let Some(code) = self.compiled[id] {
            return Ok(code);
        }
        let loader = &mut *self.loader;
        let (mesh, body) = (&loader.model.mesh, &self.program.bodies[id]);
        self.row.codes.push(body::compile(body, mesh, loader.rank, loader.backend, loader.comm)?);
        let code = self.row.codes.len() - 1;
        self.compiled[id] = Some(code);
        Ok(code)
    }
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
