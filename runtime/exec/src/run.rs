//! Body invocations compiled: the location of each value of a body, and the tensors that the invocation updates.

use super::body::{Extent, Operand};
use super::places::Frame;
use super::rank_program::BodyRun;
use super::row::{RowLoader, scalar_at};
use comm::{Communicator, ThreadRole};
use device::backend::{Backend, Span};
use ir::arena::Role;
use ir::graph::{ArgKind, Block, Call, Model, ParamInstance};
use ir::ids::{Reg, Value};
use ir::program::{Body, BodyKind, Instr, Source};
use std::collections::HashMap;

impl<B: Backend, C: Communicator> RowLoader<'_, '_, B, C> {
    /// Makes a run ready; `at` is its place in the row. Its number among the runs of the row.
    ///
    /// # Errors
    /// It does not give the body what the body reads.
    pub(super) fn run(&mut self, at: usize, instr: &Instr) -> Result<usize, String> {
        let Instr::Run { token, body: id, call, instance, microbatch, first, args, bundles, results, keep } = instr
        else {
            return Err("is no run".to_string());
        };
        let body = &self.program.bodies[*id];
        let failed = |why: String| format!("run of @{}: {why}", body.name);
        let code = self.code(*id, if token.is_some() { ThreadRole::Async } else { ThreadRole::Main })?;
        let binding = Binding { model: self.loader.model, body, call: *call, instance: *instance };
        if (results.len(), keep.is_some()) != (body.results.len(), !body.keeps.is_empty()) {
            return Err(failed("its results are not those of the body".to_string()));
        }
        let given = self.given(&binding, args, bundles).map_err(failed)?;
        let stated = self.places.stated(at);
        let mut frame = Frame { body, given, begins: Vec::new(), stated, keeps: keep.is_some() };
        let accumulates = self.sums(&binding, code, &mut frame, *first).map_err(failed)?;
        let place = |&(operand, extent): &(Operand, Extent)| Ok(extent.at(frame.at(operand)?));
        let places = self.bodies[code].places.iter().map(place).collect::<Result<_, _>>().map_err(failed)?;
        let index = if body.block.is_some() { u64::from(binding.call()?.index(*instance)) } else { 0 };
        let microbatch = u64::from(microbatch.unwrap_or(0));
        let leaves = self.leaves(&frame).map_err(failed)?;
        let place =
            |&(step, value, extent): &(u32, Value, Extent)| Ok((step, extent.at(frame.at(Operand::Value(value))?)));
        let freed = self.bodies[code].freed.iter().map(place).collect::<Result<_, _>>().map_err(failed)?;
        for (&reg, &value) in results.iter().zip(&body.results) {
            let at = frame.at(Operand::Value(value)).map_err(failed)?;
            self.places.set(reg, at);
        }
        if let Some(reg) = *keep {
            let kept = body.keeps.iter().map(|&value| Ok((value, frame.at(Operand::Value(value))?)));
            let kept = kept.collect::<Result<_, _>>().map_err(failed)?;
            self.places.set_bundle(reg, *id, kept);
        }
        let instr = at as u32;
        self.rank_program.runs.push(BodyRun { instr, code, microbatch, index, places, accumulates, leaves, freed });
        Ok(self.rank_program.runs.len() - 1)
    }

    /// Place of each argument of a body.
    fn given(&mut self, binding: &Binding<'_>, args: &[Reg], bundles: &[Reg]) -> Result<HashMap<Value, u64>, String> {
        let mut args = args.iter();
        let mut given = HashMap::new();
        for arg in &binding.body.args {
            let name = &binding.body.values[arg.value].name;
            let at = match arg.source {
                Source::Row => self.places.register(*args.next().ok_or_else(|| format!("%{name} is not given"))?)?,
                Source::Saved => {
                    self.places.kept(bundles, arg.value).ok_or_else(|| format!("no bundle has %{name}"))?
                }
                Source::Param | Source::State | Source::Gradient => {
                    let span = self.resident(binding, arg.value)?;
                    match binding.body.is_on_host(arg.value) {
                        true => self.places.kept(bundles, arg.value).ok_or_else(|| format!("no bundle has %{name}"))?,
                        false => span.offset as u64,
                    }
                }
                Source::Scalar => {
                    self.places.scalar(name).ok_or_else(|| format!("nothing gives the scalar %{name}"))?
                }
            };
            given.insert(arg.value, at);
        }
        match args.next() {
            Some(_) => Err("has more arguments than the body".to_string()),
            None => Ok(given),
        }
    }

    /// The place of a tensor that lives from step to step.
    ///
    /// # Errors
    /// It has none, or two.
    pub(super) fn resident(&mut self, binding: &Binding<'_>, value: Value) -> Result<Span, String> {
        let (owner, role) = binding.tensor(value)?;
        let data = &binding.body.values[value];
        let resident = self.places.held(owner, &role).map_err(|why| format!("%{}: {why}", data.name))?;
        let slot = self.loader.state.slot(self.loader.model, &self.loader.coordinates, resident, &data.ty)?;
        Ok(slot.span)
    }

    /// For each gradient sum that the body's kernels add to, whether it goes on with this run. Those of its reshards
    /// that begin are noted in the frame.
    fn sums(
        &mut self,
        binding: &Binding<'_>,
        code: usize,
        frame: &mut Frame<'_>,
        first: bool,
    ) -> Result<Vec<bool>, String> {
        let mut seen = Vec::new();
        let mut accumulates = Vec::new();
        let [kernels, changes] = &self.bodies[code].sums;
        for (place, &value) in kernels.iter().chain(changes).enumerate() {
            let at = *frame.given.get(&value).ok_or("it adds to what is no gradient of its parameters")?;
            if seen.contains(&at) {
                return Err("a parameter is bound twice in one call; use it once, inside the block".to_string());
            }
            seen.push(at);
            let begins = self.stored.insert(at);
            if begins && !first {
                let name = &binding.body.values[value].name;
                return Err(format!("%{name} is added to before it is stored"));
            }
            match place < kernels.len() {
                true => accumulates.push(!begins),
                false if begins => frame.begins.push(value),
                false => {}
            }
        }
        Ok(accumulates)
    }

    /// Copies of results of the step graph that later runs read.
    fn leaves(&self, frame: &Frame<'_>) -> Result<Vec<(Span, Span)>, String> {
        let body = frame.body;
        let mut leaves = Vec::new();
        for &value in body.results.iter().filter(|_| body.kind == BodyKind::N) {
            if let Some(scalar) = self.places.scalar(&body.values[value].name) {
                leaves.push((scalar_at(scalar), scalar_at(frame.at(Operand::Value(value))?)));
            }
        }
        Ok(leaves)
    }
}

/// A body as a call of the model binds it.
pub(super) struct Binding<'a> {
    pub(super) model: &'a Model,
    pub(super) body: &'a Body,
    pub(super) call: usize,
    pub(super) instance: u32,
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
