//! Runs of bodies made ready: where each value of a body comes from, and what it changes.

use super::body::accumulators;
use super::row::RowLoader;
use super::worker::{LR, STEP};
use crate::backend::Backend;
use crate::comm::Communicator;
use crate::state::Role;
use ir::entity::EntityRef;
use ir::graph::{ArgKind, Block, Call, Model, ParamInstance};
use ir::ids::{Reg, Value};
use ir::program::{Body, BodyKind, Instr, Source};

/// A run of a body.
pub(super) struct Run {
    pub(super) code: usize,
    pub(super) microbatch: u64,
    /// The repeat's variable.
    pub(super) index: u64,
    /// Values and the registers that they come from.
    pub(super) row: Vec<(usize, usize)>,
    /// Values, and the bundle and the place in it that they come from.
    pub(super) kept: Vec<(usize, usize, usize)>,
    /// Values and the kept tensors that they read.
    pub(super) reads: Vec<(usize, usize)>,
    /// Values and the kept tensors that they change.
    pub(super) changes: Vec<(usize, usize)>,
    /// Of those, the gradient sums that begin with this run: they are stored.
    pub(super) begins: Vec<usize>,
    /// Of those, the gradient sums that go on: they are added to.
    pub(super) adds: Vec<usize>,
    /// Values and the scalars that they read.
    pub(super) scalars: Vec<(usize, usize)>,
    /// Values and the scalars that they leave to later runs.
    pub(super) leaves: Vec<(usize, usize)>,
    pub(super) results: Vec<usize>,
    pub(super) keep: Option<usize>,
}

impl<B: Backend, C: Communicator> RowLoader<'_, '_, B, C> {
    /// Makes a run ready.
    ///
    /// # Errors
    /// It does not give the body what the body reads.
    pub(super) fn run(&mut self, instr: &Instr) -> Result<Run, String> {
        let Instr::Run { body: id, call, instance, microbatch, first, args, bundles, results, keep, .. } = instr else {
            return Err("is no run".to_string());
        };
        let code = self.code(*id)?;
        let body = &self.program.bodies[*id];
        let mut run = Run {
            code,
            microbatch: u64::from(microbatch.unwrap_or(0)),
            index: 0,
            row: Vec::new(),
            kept: Vec::new(),
            reads: Vec::new(),
            changes: Vec::new(),
            begins: Vec::new(),
            adds: Vec::new(),
            scalars: Vec::new(),
            leaves: Vec::new(),
            results: results.iter().map(|reg| reg.index()).collect(),
            keep: keep.map(|reg| reg.index()),
        };
        let binding = Binding { model: self.loader.model, body, call: *call, instance: *instance };
        if body.block.is_some() {
            run.index = u64::from(binding.call()?.index(*instance));
        }
        let failed = |why: String| format!("run of @{}: {why}", body.name);
        self.bind(&binding, &mut run, args, bundles).map_err(failed)?;
        self.sums(&binding, &mut run, *first).map_err(failed)?;
        if body.kind == BodyKind::N {
            for &value in &body.results {
                run.leaves.push((value.index(), self.loader.scalar(&body.values[value].name)));
            }
        }
        if (results.len(), keep.is_some()) != (body.results.len(), !body.keeps.is_empty()) {
            return Err(failed("its results are not those of the body".to_string()));
        }
        keep.iter().for_each(|&reg| self.bundles[reg] = Some(*id));
        Ok(run)
    }

    /// Where each argument of a body comes from.
    fn bind(&mut self, binding: &Binding<'_>, run: &mut Run, args: &[Reg], bundles: &[Reg]) -> Result<(), String> {
        let mut args = args.iter();
        let body = binding.body;
        for arg in &body.args {
            let (value, name) = (arg.value.index(), &body.values[arg.value].name);
            match arg.source {
                Source::Row => {
                    let reg = args.next().ok_or_else(|| format!("%{name} is not given"))?;
                    run.row.push((value, reg.index()));
                }
                Source::Kept => {
                    let place = |reg: &Reg| {
                        let maker = &self.program.bodies[self.bundles[*reg]?];
                        Some((reg.index(), maker.keeps.iter().position(|&kept| kept == arg.value)?))
                    };
                    let found = bundles.iter().find_map(place).ok_or_else(|| format!("no bundle has %{name}"))?;
                    run.kept.push((value, found.0, found.1));
                }
                Source::Param | Source::State if body.kind == BodyKind::U => {
                    run.changes.push((value, self.slot(binding, arg.value)?));
                }
                Source::Gradient if body.kind.accumulates() => {}
                Source::Param | Source::State | Source::Gradient => {
                    run.reads.push((value, self.slot(binding, arg.value)?));
                }
                Source::Scalar => {
                    let known = [LR, STEP].contains(&name.as_str()) || self.loader.scalars.contains(name);
                    if !known {
                        return Err(format!("nothing gives the scalar %{name}"));
                    }
                    run.scalars.push((value, self.loader.scalar(name)));
                }
            }
        }
        match args.next() {
            Some(_) => Err("has more arguments than the body".to_string()),
            None => Ok(()),
        }
    }

    /// The gradient sums that a body adds to.
    fn sums(&mut self, binding: &Binding<'_>, run: &mut Run, first: bool) -> Result<(), String> {
        for value in accumulators(binding.body) {
            let slot = self.slot(binding, value)?;
            if run.changes.iter().any(|change| change.1 == slot) {
                return Err("a parameter is bound twice in one call; use it once, inside the block".to_string());
            }
            run.changes.push((value.index(), slot));
            match (self.stored.insert(slot), first) {
                (true, false) => return Err("a gradient is added to before it is stored".to_string()),
                (true, true) => run.begins.push(value.index()),
                (false, _) => run.adds.push(value.index()),
            }
        }
        Ok(())
    }

    /// The kept tensor that a value of a body stands for.
    fn slot(&mut self, binding: &Binding<'_>, value: Value) -> Result<usize, String> {
        let (owner, role) = binding.tensor(value)?;
        let loader = &mut *self.loader;
        loader.state.slot(loader.model, &loader.coordinates, owner, role, &binding.body.values[value].ty)
    }
}

/// A body as a call of the model binds it.
struct Binding<'a> {
    model: &'a Model,
    body: &'a Body,
    call: usize,
    instance: u32,
}

impl<'a> Binding<'a> {
    fn call(&self) -> Result<&'a Call, String> {
        self.model.calls.get(self.call).ok_or_else(|| format!("the model has no call {}", self.call))
    }

    /// The parameter instance that a value belongs to, and what the value is of it.
    fn tensor(&self, value: Value) -> Result<(ParamInstance, Role), String> {
        let block: &Block = &self.model.blocks[self.body.block.ok_or("the step graph has no parameters")?];
        let kind = block.arg_kind(value);
        let param = if kind == Some(ArgKind::Param) { Some(value) } else { block.owner_of(value) };
        let name = block.value_name(value);
        let place = block.args_of(ArgKind::Param).position(|arg| Some(arg) == param);
        let bound = self.model.call_params(self.call()?, self.instance);
        let owner = place.and_then(|place| bound.get(place).copied());
        let owner = owner.ok_or_else(|| format!("the call binds no parameter to %{name}"))?;
        let role = match kind {
            Some(ArgKind::Param) => Role::Param,
            Some(ArgKind::State) => Role::State(name.rsplit_once('.').map_or(name, |(_, suffix)| suffix).to_string()),
            _ => Role::Gradient,
        };
        Ok((owner, role))
    }
}
