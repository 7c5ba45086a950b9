//! Bodies made ready for one rank: kernels with their shapes, layout changes with their blocks.

use crate::backend::{Backend, Site, updated};
use crate::comm::{Communicator, Exchange, Region, local_len};
use ir::entity::EntityRef;
use ir::graph::Stmt;
use ir::ids::{Token, Value};
use ir::mesh::Mesh;
use ir::ops::Collective;
use ir::program::{Body, BodyInstr, Source};
use ir::types::Type;

/// A body for one rank. Values are numbers of places in its frame.
pub(super) struct Code<K> {
    /// Places in the frame.
    pub(super) values: usize,
    /// What is done, in order.
    pub(super) steps: Vec<Step<K>>,
    /// What the row gets.
    pub(super) results: Vec<usize>,
    /// What the bundle gets.
    pub(super) keeps: Vec<usize>,
}

/// A step of a body.
pub(super) enum Step<K> {
    /// Runs a kernel.
    Launch {
        kernel: K,
        operands: Vec<usize>,
        /// Values and their numbers of elements.
        results: Vec<(usize, usize)>,
        /// The operands that the results begin as.
        updated: &'static [usize],
    },
    /// Runs a kernel whose result is a gradient sum.
    Accumulate { kernel: K, operands: Vec<usize>, into: usize },
    /// Changes layouts.
    Exchange { group: usize, plan: Exchange, operands: Vec<usize>, results: Vec<usize> },
    /// Lets values go.
    Free(Vec<usize>),
}

/// Makes a body ready.
///
/// # Errors
/// A statement that has no kernel, or cannot run on its types.
pub(super) fn compile<B: Backend>(
    body: &Body,
    mesh: &Mesh,
    rank: usize,
    backend: &B,
    comm: &mut impl Communicator,
) -> Result<Code<B::Kernel>, String> {
    let coordinates = mesh.coordinates(rank as u64);
    let mut compiler = Compiler { body, mesh, rank, coordinates: &coordinates, started: Vec::new(), steps: Vec::new() };
    for instr in &body.instrs {
        compiler.instr(instr, backend, comm).map_err(|why| format!("body @{}: {why}", body.name))?;
    }
    let (results, keeps) = (places(&body.results), places(&body.keeps));
    Ok(Code { values: body.values.len(), steps: compiler.steps, results, keeps })
}

/// The gradient sums that a body adds to: what `+=` defines, and in `W` and `B` the layout changes that define a gradient.
pub(super) fn accumulators(body: &Body) -> Vec<Value> {
    let gradients = |v: &&Value| body.args.iter().any(|arg| arg.value == **v && arg.source == Source::Gradient);
    let mut sums: Vec<Value> = Vec::new();
    for instr in &body.instrs {
        match instr {
            BodyInstr::Compute(stmt) if stmt.accumulate => sums.extend(&stmt.results),
            BodyInstr::Wait { results, .. } if body.kind.accumulates() => {
                sums.extend(results.iter().filter(gradients));
            }
            _ => {}
        }
    }
    sums
}

fn places(values: &[Value]) -> Vec<usize> {
    values.iter().map(|value| value.index()).collect()
}

struct Compiler<'a, K> {
    body: &'a Body,
    mesh: &'a Mesh,
    rank: usize,
    coordinates: &'a [u64],
    started: Vec<(Token, &'a Collective, &'a [Value])>,
    steps: Vec<Step<K>>,
}

impl<'a, K> Compiler<'a, K> {
    fn instr<B: Backend<Kernel = K>>(
        &mut self,
        instr: &'a BodyInstr,
        backend: &B,
        comm: &mut impl Communicator,
    ) -> Result<(), String> {
        match instr {
            BodyInstr::Compute(stmt) => self.compute(stmt, backend),
            BodyInstr::Start { token, collective, operands } => {
                self.started.push((*token, collective, operands));
                Ok(())
            }
            BodyInstr::Wait { token, results } => self.wait(*token, results, comm),
            BodyInstr::Free(values) => {
                self.free(values);
                Ok(())
            }
        }
    }

    fn types(&self, values: &[Value]) -> Vec<&'a Type> {
        values.iter().map(|&value| &self.body.values[value].ty).collect()
    }

    fn compute<B: Backend<Kernel = K>>(&mut self, stmt: &Stmt, backend: &B) -> Result<(), String> {
        let name = stmt.op.name();
        let op = Body::kernel(stmt).ok_or_else(|| format!("`{name}` has no kernel"))?;
        let (operands, results) = (self.types(&stmt.operands), self.types(&stmt.results));
        let site = Site { mesh: self.mesh, coordinates: self.coordinates, operands: &operands, results: &results };
        let kernel = backend.prepare(op, &site).map_err(|why| format!("`{name}`: {why}"))?;
        let operands = places(&stmt.operands);
        self.steps.push(match (stmt.accumulate, stmt.results.as_slice()) {
            (true, [into]) => Step::Accumulate { kernel, operands, into: into.index() },
            (true, _) => return Err(format!("`{name}` has several results; `+=` has one")),
            (false, values) => {
                let len = |ty: &&Type| local_len(ty, self.mesh, self.coordinates);
                let results = values.iter().map(|v| v.index()).zip(results.iter().map(len)).collect();
                Step::Launch { kernel, operands, results, updated: updated(op) }
            }
        });
        Ok(())
    }

    /// A layout change is carried out where it is waited for.
    fn wait(&mut self, token: Token, results: &[Value], comm: &mut impl Communicator) -> Result<(), String> {
        let place = self.started.iter().position(|started| started.0 == token);
        let (_, collective, operands) = place.map(|place| self.started.remove(place)).ok_or("waits for nothing")?;
        let name = collective.name();
        let types = self.types(operands);
        let plan =
            Exchange::plan(self.mesh, self.rank, collective, &types).map_err(|why| format!("`{name}`: {why}"))?;
        let region = |ty: &Type| Region::of(ty, self.mesh, self.coordinates);
        for (operand, result) in types.iter().zip(self.types(results)) {
            if region(&collective.result_type(operand)?) != region(result) {
                return Err(format!("the result of `{name}` is sharded in another way than it says"));
            }
        }
        let (operands, results) = (places(operands), places(results));
        self.steps.push(Step::Exchange { group: comm.join(&plan.ranks), plan, operands, results });
        Ok(())
    }

    /// What is still to be sent, and what the rank keeps anyway, is let go with the frame.
    fn free(&mut self, values: &[Value]) {
        let sent = |value: &Value| self.started.iter().any(|(_, _, operands)| operands.contains(value));
        let kept = |value: &Value| {
            let bound = |source| matches!(source, Source::Param | Source::State | Source::Gradient);
            self.body.args.iter().any(|arg| arg.value == *value && bound(arg.source))
        };
        let freed: Vec<usize> = values.iter().filter(|v| !sent(v) && !kept(v)).map(|v| v.index()).collect();
        self.steps.push(Step::Free(freed));
    }
}
