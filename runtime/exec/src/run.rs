//! Body invocations compiled: the location of each value of a body, and the tensors that the invocation updates.

use super::body::Operand;
use super::load_error::LoadError;
use super::places::Frame;
use super::rank_program::BodyRun;
use super::row::{CompiledBody, FreedValue, RowLoader, scalar_at};
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
    pub(super) fn run(&mut self, at: usize, instr: &Instr) -> Result<usize, LoadError> {
        let Instr::Run { token, body: id, call, instance, microbatch, .. } = instr else {
            return Err(LoadError::NoRun);
        };
        let body = &self.program.bodies[*id];
        let code = self.code(*id, if token.is_some() { ThreadRole::Async } else { ThreadRole::Main })?;
        let binding = Binding { model: self.loader.model, body, call: *call, instance: *instance };
        let placed = self.place(at, instr, &binding, code).map_err(|why| why.in_run(&body.name))?;
        let PlacedRun { places, accumulates, leaves, freed } = placed;
        let index = if body.block.is_some() { u64::from(binding.call()?.index(*instance)) } else { 0 };
        let (instr, microbatch) = (at as u32, u64::from(microbatch.unwrap_or(0)));
        self.rank_program.runs.push(BodyRun { instr, code, microbatch, index, places, accumulates, leaves, freed });
        Ok(self.rank_program.runs.len() - 1)
    }

    /// Places all that a run reads and makes.
    fn place(&mut self, at: usize, instr: &Instr, binding: &Binding<'_>, code: usize) -> Result<PlacedRun, LoadError> {
        let Instr::Run { body: id, first, args, bundles, results, keep, .. } = instr else {
            return Err(LoadError::NoRun);
        };
        let body = binding.body;
        if (results.len(), keep.is_some()) != (body.results.len(), !body.keeps.is_empty()) {
            return Err(LoadError::OtherResults);
        }
        let given = self.given(binding, args, bundles)?;
        let stated = self.places.stated(at);
        let mut frame = Frame { body, given, begins: Vec::new(), stated, keeps: keep.is_some() };
        let accumulates = self.sums(binding, code, &mut frame, *first)?;
        let CompiledBody { places: operands, freed: values, .. } = &self.bodies[code];
        let (mut places, mut freed) = (Vec::with_capacity(operands.len()), Vec::new());
        for (operand, extent) in operands {
            places.push(extent.at(frame.at(*operand)?));
        }
        let leaves = self.leaves(&frame)?;
        for FreedValue { step, value, extent } in values {
            freed.push((*step, extent.at(frame.at(Operand::Value(*value))?)));
        }
        for (&reg, &value) in results.iter().zip(&body.results) {
            self.places.set(reg, frame.at(Operand::Value(value))?);
        }
        if let Some(reg) = *keep {
            let kept = body.keeps.iter().map(|&value| Ok((value, frame.at(Operand::Value(value))?)));
            self.places.set_bundle(reg, *id, kept.collect::<Result<_, LoadError>>()?);
        }
        Ok(PlacedRun { places, accumulates, leaves, freed })
    }

    /// Place of each argument of a body.
    fn given(
        &mut self,
        binding: &Binding<'_>,
        args: &[Reg],
        bundles: &[Reg],
    ) -> Result<HashMap<Value, u64>, LoadError> {
        let mut args = args.iter();
        let mut given = HashMap::new();
        for arg in &binding.body.args {
            let name = &binding.body.values[arg.value].name;
            let at = match arg.source {
                Source::Row => {
                    self.places.register(*args.next().ok_or_else(|| LoadError::NotGiven { value: name.clone() })?)?
                }
                Source::Saved => {
                    self.places.kept(bundles, arg.value).ok_or_else(|| LoadError::NotSaved { value: name.clone() })?
                }
                Source::Param | Source::State | Source::Gradient => {
                    let span = self.resident(binding, arg.value)?;
                    match binding.body.is_on_host(arg.value) {
                        true => self
                            .places
                            .kept(bundles, arg.value)
                            .ok_or_else(|| LoadError::NotSaved { value: name.clone() })?,
                        false => span.offset as u64,
                    }
                }
                Source::Scalar => {
                    self.places.scalar(name).ok_or_else(|| LoadError::NoScalar { value: name.clone() })?
                }
            };
            given.insert(arg.value, at);
        }
        match args.next() {
            Some(_) => Err(LoadError::MoreArguments),
            None => Ok(given),
        }
    }

    /// The place of a tensor that lives from step to step.
    ///
    /// # Errors
    /// It has none, or two.
    pub(super) fn resident(&mut self, binding: &Binding<'_>, value: Value) -> Result<Span, LoadError> {
        let (owner, role) = binding.tensor(value)?;
        let data = &binding.body.values[value];
        let resident = self.places.held(owner, &role).map_err(|why| why.of_value(&data.name))?;
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
    ) -> Result<Vec<bool>, LoadError> {
        let mut seen = Vec::new();
        let mut accumulates = Vec::new();
        let [kernels, changes] = &self.bodies[code].sums;
        for (place, &value) in kernels.iter().chain(changes).enumerate() {
            let at = *frame.given.get(&value).ok_or(LoadError::NoGradient)?;
            if seen.contains(&at) {
                return Err(LoadError::BoundTwice);
            }
            seen.push(at);
            let begins = self.stored.insert(at);
            if begins && !first {
                let name = &binding.body.values[value].name;
                return Err(LoadError::AddedFirst { value: name.clone() });
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
    fn leaves(&self, frame: &Frame<'_>) -> Result<Vec<(Span, Span)>, LoadError> {
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

/// Places of a run, as [`BodyRun`] has them.
struct PlacedRun {
    places: Vec<Span>,
    accumulates: Vec<bool>,
    leaves: Vec<(Span, Span)>,
    freed: Vec<(u32, Span)>,
}

/// A body as a call of the model binds it.
pub(super) struct Binding<'a> {
    pub(super) model: &'a Model,
    pub(super) body: &'a Body,
    pub(super) call: usize,
    pub(super) instance: u32,
}

impl<'a> Binding<'a> {
    fn call(&self) -> Result<&'a Call, LoadError> {
        self.model.calls.get(self.call).ok_or(LoadError::NoCall { call: self.call })
    }

    /// The parameter instance that a value belongs to, and what the value is of it.
    fn tensor(&self, value: Value) -> Result<(ParamInstance, Role), LoadError> {
        let block: &Block = &self.model.blocks[self.body.block.ok_or(LoadError::StepGraph)?];
        let kind = block.arg_kind(value);
        let param = if kind == Some(ArgKind::Param) { Some(value) } else { block.owner_of(value) };
        let name = block.value_name(value);
        let place = block.args_of(ArgKind::Param).position(|arg| Some(arg) == param);
        let bound = self.model.call_params(self.call()?, self.instance);
        let owner = place.and_then(|place| bound.get(place).copied());
        let owner = owner.ok_or_else(|| LoadError::Unbound { value: name.to_string() })?;
        let role = match kind {
            Some(ArgKind::Param) => Role::Param,
            Some(ArgKind::State) => Role::State(name.rsplit_once('.').map_or(name, |(_, suffix)| suffix).to_string()),
            _ => Role::Gradient,
        };
        Ok((owner, role))
    }
}
