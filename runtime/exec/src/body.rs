//! Bodies compiled for one rank: kernels with their shapes, collectives with their blocks.

use super::rank_program::{BodyCode, BodyStep, ExchangeCall};
use comm::{Communicator, Exchange, Region, ThreadRole, local_len};
use device::backend::{Backend, GroupPlace, GroupSite, KernelSite, Span, updated};
use ir::fused::Fused;
use ir::graph::Stmt;
use ir::ids::{Token, Value};
use ir::mesh::Mesh;
use ir::ops::Collective;
use ir::program::{Body, BodyInstr, BodyKind, Source};
use ir::types::{DType, Type};
use std::ops::Range;
use std::sync::Arc;

/// A body for one rank, before its values have places.
pub(super) struct Compiled<C: Communicator, K> {
    pub(super) code: BodyCode<C>,
    pub(super) kernels: Vec<K>,
    /// Operands of the steps, with their numbers of elements.
    pub(super) places: Vec<(Operand, Extent)>,
    /// The gradient sums that its kernels add to, and then those that its reshards add to.
    pub(super) sums: [Vec<Value>; 2],
    /// The most tensors of one reshard.
    pub(super) tensors: usize,
}

/// Type and number of the elements of an operand.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    dtype: DType,
    len: usize,
}

impl Extent {
    /// That of the part of a rank of a tensor.
    pub(super) fn of(ty: &Type, mesh: &Mesh, coordinates: &[u64]) -> Extent {
        Extent { dtype: ty.dtype, len: local_len(ty, mesh, coordinates) }
    }

    /// The operand at an offset.
    pub(super) fn at(self, offset: u64) -> Span {
        Span::new(self.dtype, offset as usize, self.len)
    }
}

/// Operand of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operand {
    /// A value.
    Value(Value),
    /// Result of a reshard, before it is added to a gradient sum.
    Staged(Value),
}

/// Makes a body ready.
///
/// # Errors
/// A statement that has no kernel, or cannot run on its types.
pub(super) fn compile<B: Backend, C: Communicator>(
    body: &Body,
    mesh: &Mesh,
    rank: usize,
    role: ThreadRole,
    (backend, comm): (&mut B, &mut C),
) -> Result<Compiled<C, B::Kernel>, String> {
    let code = BodyCode { role, steps: Vec::new(), completions: 0 };
    let compiled =
        Compiled { code, kernels: Vec::new(), places: Vec::new(), sums: [Vec::new(), Vec::new()], tensors: 0 };
    let coordinates = mesh.coordinates(rank as u64);
    let mut compiler = Compiler { body, mesh, rank, coordinates, started: Vec::new(), compiled };
    for at in 0..body.instrs.len() {
        compiler.instr(at, backend, comm).map_err(|why| format!("body @{}: {why}", body.name))?;
    }
    match compiler.started.iter().any(Option::is_some) {
        true => Err(format!("body @{} starts what it does not wait for", body.name)),
        false => Ok(compiler.compiled),
    }
}

struct Compiler<'a, C: Communicator, K> {
    body: &'a Body,
    mesh: &'a Mesh,
    rank: usize,
    coordinates: Vec<u64>,
    /// The exchanges in flight, by completion slot.
    started: Vec<Option<Started<'a, C>>>,
    compiled: Compiled<C, K>,
}

struct Started<'a, C: Communicator> {
    token: Token,
    call: Arc<ExchangeCall<C>>,
    collective: &'a Collective,
    operands: &'a [Value],
    /// The destination of its results, and the index of the step that starts it.
    results: Range<usize>,
}

impl<'a, C: Communicator, K> Compiler<'a, C, K> {
    fn instr<B: Backend<Kernel = K>>(&mut self, at: usize, backend: &mut B, comm: &mut C) -> Result<(), String> {
        match &self.body.instrs[at] {
            BodyInstr::Compute(stmt) => self.compute(stmt, backend),
            BodyInstr::Fused(fused) => self.group(fused, backend),
            BodyInstr::Start { token, collective, operands } => self.start(at, (*token, collective, operands), comm),
            BodyInstr::Wait { token, results } => self.wait(*token, results),
            BodyInstr::Free(_) => Ok(()),
        }
    }

    fn types(&self, values: &[Value]) -> Vec<&'a Type> {
        values.iter().map(|&value| &self.body.values[value].ty).collect()
    }

    /// Adds to what steps work on.
    fn places(&mut self, operands: impl IntoIterator<Item = Operand>) -> Range<usize> {
        let start = self.compiled.places.len();
        for operand in operands {
            let (Operand::Value(value) | Operand::Staged(value)) = operand;
            let extent = Extent::of(&self.body.values[value].ty, self.mesh, &self.coordinates);
            self.compiled.places.push((operand, extent));
        }
        start..self.compiled.places.len()
    }

    fn compute<B: Backend<Kernel = K>>(&mut self, stmt: &Stmt, backend: &mut B) -> Result<(), String> {
        let name = stmt.op.name();
        let op = stmt.op.kernel().ok_or_else(|| format!("`{name}` has no kernel"))?;
        let (operands, results) = (self.types(&stmt.operands), self.types(&stmt.results));
        let forward = self.body.kind == BodyKind::F;
        let site = KernelSite {
            mesh: self.mesh,
            coordinates: &self.coordinates,
            operands: &operands,
            results: &results,
            forward,
        };
        self.compiled.kernels.push(backend.prepare(op, &site).map_err(|why| format!("`{name}`: {why}"))?);
        let kernel = self.compiled.kernels.len() - 1;
        let operands = self.places(values(&stmt.operands));
        let results = self.places(values(&stmt.results));
        let step = match (stmt.accumulate, stmt.results.as_slice()) {
            (true, &[sum]) => {
                self.compiled.sums[0].push(sum);
                let number = self.compiled.sums[0].len() - 1;
                BodyStep::Accumulate { kernel, operands, into: results.start, sum: number }
            }
            (true, _) => return Err(format!("`{name}` has several results; `+=` has one")),
            (false, _) => BodyStep::Launch { kernel, operands, results, updated: updated(op) },
        };
        self.compiled.code.steps.push(step);
        Ok(())
    }

    fn group<B: Backend<Kernel = K>>(&mut self, fused: &Fused, backend: &mut B) -> Result<(), String> {
        let at = GroupPlace {
            values: &self.body.values,
            mesh: self.mesh,
            coordinates: &self.coordinates,
            forward: self.body.kind == BodyKind::F,
        };
        let kernel = GroupSite::with(fused, at, |site| backend.prepare_group(site));
        let kernel = kernel.map_err(|why| format!("a group: {why}"))?;
        self.compiled.kernels.push(kernel);
        let kernel = self.compiled.kernels.len() - 1;
        let (operands, results) = (self.places(values(&fused.reads())), self.places(values(&fused.outs)));
        let first = self.compiled.sums[0].len();
        let added = fused.stmts.iter().filter(|stmt| stmt.accumulate);
        self.compiled.sums[0].extend(added.flat_map(|stmt| &stmt.results));
        let sums = first..self.compiled.sums[0].len();
        self.compiled.code.steps.push(BodyStep::Group { kernel, operands, results, sums });
        Ok(())
    }

    /// The wait of a reshard defines its results: until then its step lacks them.
    fn start(
        &mut self,
        at: usize,
        (token, collective, operands): (Token, &'a Collective, &'a [Value]),
        comm: &mut C,
    ) -> Result<(), String> {
        let (mesh, own, types) = (self.mesh, self.rank, self.types(operands));
        let plan = |rank| {
            let plan = Exchange::plan(mesh, rank, collective, &types);
            plan.map_err(|why| format!("`{}`: {why}", collective.name()))
        };
        let mut exchange = Some(plan(own)?);
        let ranks = exchange.iter().flat_map(|exchange| exchange.ranks.clone()).collect::<Vec<usize>>();
        let group = comm.join(&ranks, self.compiled.code.role)?;
        let dtypes: Vec<DType> = collective.moved(&types).iter().map(|ty| ty.dtype).collect();
        let mut of = |rank| exchange.take_if(|_| rank == own).map_or_else(|| plan(rank), Ok);
        let moved = operands.first().map_or("", |&value| self.body.values[value].name.as_str());
        let op = format!("{} of %{moved} in @{}", collective.name(), self.body.name);
        let plan = comm.fit(&group, &op, &dtypes, &mut of)?;
        let call = Arc::new(ExchangeCall { group, plan });
        self.compiled.tensors = self.compiled.tensors.max(operands.len());
        let result = |&value| if self.is_sum(value) { Operand::Staged(value) } else { Operand::Value(value) };
        let results: Vec<Operand> = self.awaited(at, token)?.iter().map(result).collect();
        let (sources, results) = (self.places(values(operands)), self.places(results));
        let free = self.started.iter().position(Option::is_none);
        let completion = free.unwrap_or_else(|| {
            self.started.push(None);
            self.started.len() - 1
        });
        self.compiled.code.completions = self.started.len();
        let started = Started { token, call: call.clone(), collective, operands, results: results.clone() };
        self.started[completion] = Some(started);
        self.compiled.code.steps.push(BodyStep::Start { call, sources, results, completion });
        Ok(())
    }

    /// The results of the next wait for a token.
    fn awaited(&self, at: usize, token: Token) -> Result<&'a [Value], String> {
        let wait = |instr: &'a BodyInstr| match instr {
            BodyInstr::Wait { token: awaited, results } if *awaited == token => Some(results.as_slice()),
            _ => None,
        };
        self.body.instrs[at..].iter().find_map(wait).ok_or_else(|| "starts what it does not wait for".to_string())
    }

    fn wait(&mut self, token: Token, results: &[Value]) -> Result<(), String> {
        let awaited = |started: &Option<Started<'_, C>>| started.as_ref().is_some_and(|s| s.token == token);
        let completion = self.started.iter().position(awaited).ok_or("waits for nothing")?;
        let Some(started) = self.started[completion].take() else { return Ok(()) };
        let region = |ty: &Type| Region::of(ty, self.mesh, &self.coordinates);
        let moved = started.collective.moved(started.operands);
        for (operand, result) in self.types(moved).iter().zip(self.types(results)) {
            if region(&started.collective.result_type(operand)?) != region(result) {
                let name = started.collective.name();
                return Err(format!("the result of `{name}` has another sharding than its type"));
            }
        }
        if started.results.len() != moved.len() {
            return Err(format!("`{}` has not one result for each operand", started.collective.name()));
        }
        let sums: Vec<Value> = results.iter().copied().filter(|&value| self.is_sum(value)).collect();
        let pairs = sums.iter().flat_map(|&sum| [Operand::Value(sum), Operand::Staged(sum)]);
        let sums_places = self.places(pairs);
        self.compiled.sums[1].extend(sums);
        self.compiled.code.steps.push(BodyStep::Wait { call: started.call, completion, sums: sums_places });
        Ok(())
    }

    /// True if a value that a reshard makes is a gradient sum of the rank.
    fn is_sum(&self, value: Value) -> bool {
        self.body.args.iter().any(|arg| arg.value == value && arg.source == Source::Gradient)
    }
}

fn values(values: &[Value]) -> impl Iterator<Item = Operand> {
    values.iter().map(|&value| Operand::Value(value))
}
