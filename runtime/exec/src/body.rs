//! Bodies compiled for one rank: kernels with their shapes, collectives with their blocks.

use super::load_error::LoadError;
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
    backend: &mut B,
    comm: &mut C,
) -> Result<Compiled<C, B::Kernel>, LoadError> {
    let code = BodyCode { role, steps: Vec::new(), completions: 0 };
    let compiled =
        Compiled { code, kernels: Vec::new(), places: Vec::new(), sums: [Vec::new(), Vec::new()], tensors: 0 };
    let coordinates = mesh.coordinates(rank as u64);
    let mut compiler = Compiler { body, mesh, rank, coordinates, started: Vec::new(), compiled };
    for at in 0..body.instrs.len() {
        compiler.instr(at, backend, comm).map_err(|why| why.in_body(&body.name))?;
    }
    match compiler.started.iter().any(Option::is_some) {
        true => Err(LoadError::BodyNeverWaits { body: body.name.clone() }),
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

/// A reshard as a body starts it.
struct Transfer<'a> {
    token: Token,
    collective: &'a Collective,
    operands: &'a [Value],
    /// The results of the wait for it.
    results: &'a [Value],
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
    fn instr<B: Backend<Kernel = K>>(&mut self, at: usize, backend: &mut B, comm: &mut C) -> Result<(), LoadError> {
        match &self.body.instrs[at] {
            BodyInstr::Compute(stmt) => self.compute(stmt, backend),
            BodyInstr::Fused(fused) => self.group(fused, backend),
            BodyInstr::Start { token, collective, operands } => {
                let results = self.awaited(at, *token)?;
                self.start(Transfer { token: *token, collective, operands, results }, comm)
            }
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

    fn compute<B: Backend<Kernel = K>>(&mut self, stmt: &Stmt, backend: &mut B) -> Result<(), LoadError> {
        let name = stmt.op.name();
        let op = stmt.op.kernel().ok_or_else(|| LoadError::NoKernel { op: name.to_string() })?;
        let (operands, results) = (self.types(&stmt.operands), self.types(&stmt.results));
        let forward = self.body.kind == BodyKind::F;
        let site = KernelSite {
            mesh: self.mesh,
            coordinates: &self.coordinates,
            operands: &operands,
            results: &results,
            forward,
        };
        self.compiled
            .kernels
            .push(backend.prepare(op, &site).map_err(|why| LoadError::Op { op: name.to_string(), why })?);
        let kernel = self.compiled.kernels.len() - 1;
        let operands = self.places(values(&stmt.operands));
        let results = self.places(values(&stmt.results));
        let step = match (stmt.accumulate, stmt.results.as_slice()) {
            (true, &[sum]) => {
                self.compiled.sums[0].push(sum);
                let number = self.compiled.sums[0].len() - 1;
                BodyStep::Accumulate { kernel, operands, into: results.start, sum: number }
            }
            (true, _) => return Err(LoadError::SeveralSums { op: name.to_string() }),
            (false, _) => BodyStep::Launch { kernel, operands, results, updated: updated(op) },
        };
        self.compiled.code.steps.push(step);
        Ok(())
    }

    fn group<B: Backend<Kernel = K>>(&mut self, fused: &Fused, backend: &mut B) -> Result<(), LoadError> {
        let at = GroupPlace {
            values: &self.body.values,
            mesh: self.mesh,
            coordinates: &self.coordinates,
            forward: self.body.kind == BodyKind::F,
        };
        let kernel = GroupSite::with(fused, at, |site| backend.prepare_group(site));
        let kernel = kernel.map_err(|why| LoadError::Group { why })?;
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
    fn start(&mut self, transfer: Transfer<'a>, comm: &mut C) -> Result<(), LoadError> {
        let Transfer { token, collective, operands, results } = transfer;
        let types = self.types(operands);
        let exchange = self.exchange(self.rank, collective, &types)?;
        let group = comm.join(&exchange.ranks, self.compiled.code.role)?;
        let dtypes: Vec<DType> = collective.moved(&types).iter().map(|ty| ty.dtype).collect();
        let moved = operands.first().map_or("", |&value| self.body.values[value].name.as_str());
        let op = format!("{} of %{moved} in @{}", collective.name(), self.body.name);
        let mut own = Some(exchange);
        let plan = comm.fit(&group, &op, &dtypes, &mut |rank| match own.take_if(|_| rank == self.rank) {
            Some(exchange) => Ok(exchange),
            None => self.exchange(rank, collective, &types).map_err(|why| why.to_string()),
        })?;
        let call = Arc::new(ExchangeCall { group, plan });
        self.compiled.tensors = self.compiled.tensors.max(operands.len());
        let results: Vec<Operand> = results
            .iter()
            .map(|&value| if self.is_sum(value) { Operand::Staged(value) } else { Operand::Value(value) })
            .collect();
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

    /// The part of a rank in a reshard.
    fn exchange(&self, rank: usize, collective: &Collective, types: &[&Type]) -> Result<Exchange, LoadError> {
        let exchange = Exchange::plan(self.mesh, rank, collective, types);
        exchange.map_err(|why| LoadError::Op { op: collective.name().to_string(), why })
    }

    /// The results of the next wait for a token.
    fn awaited(&self, at: usize, token: Token) -> Result<&'a [Value], LoadError> {
        let results = self.body.instrs[at..].iter().find_map(|instr| match instr {
            BodyInstr::Wait { token: awaited, results } if *awaited == token => Some(results.as_slice()),
            _ => None,
        });
        results.ok_or(LoadError::NeverAwaited)
    }

    fn wait(&mut self, token: Token, results: &[Value]) -> Result<(), LoadError> {
        let mut slots = self.started.iter_mut();
        let awaited = slots.position(|started| started.as_ref().is_some_and(|started| started.token == token));
        let completion = awaited.ok_or(LoadError::WaitForNothing)?;
        let Some(started) = self.started[completion].take() else { return Ok(()) };
        let moved = started.collective.moved(started.operands);
        for (operand, result) in self.types(moved).iter().zip(self.types(results)) {
            let made = started.collective.result_type(operand)?;
            let [made, stated] = [&made, result].map(|ty| Region::of(ty, self.mesh, &self.coordinates));
            if made != stated {
                return Err(LoadError::ResultSharding { op: started.collective.name().to_string() });
            }
        }
        if started.results.len() != moved.len() {
            return Err(LoadError::ResultCount { op: started.collective.name().to_string() });
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
