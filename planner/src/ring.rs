//! Rings (Liu, Zaharia and Abbeel 2023, Ring Attention): keys and values go round the ranks that share a sequence, and each rank works on a block
//! of them at a time, instead of gathering all blocks.
//!
//! An op says how it goes in rounds ([`InRounds::rounds`]). The first round has the blocks as they are, and before each further one a shift moves
//! them to the next rank. Results of rounds are joined, or added. The gradients of a block's keys travel with the block: each rank adds its
//! own, and a last shift brings them to the rank that has the block.
//!
//! In the text the ring takes the place of the gathers of an attention, and of the reduce-scatters of its gradients.

use crate::PlanError;
use crate::fault::Fault;
use ir::graph::{Block, Model, SectionKind, Span, Stmt};
use ir::ids::Value;
use ir::mesh::{Axes, Mesh};
use ir::ops::{Binary, BinaryKind, Builder, Collective, InRounds, Op, RoundResult, Rounds, Unary, UnaryKind};
use ir::options::{CpKind, ParallelConfig};
use ir::types::{DType, Dim, Type};
use transforms::renumber::renumber;

/// The dim of queries, keys, values and positions that is the sequence.
const SEQUENCE: usize = 1;

/// True if a configuration lets attention go round a ring.
pub fn is_ring(parallel: &ParallelConfig) -> bool {
    parallel.cp > 1 && parallel.cp_kind == CpKind::Ring
}

/// Lets every op of a model that goes in rounds, and whose keys are gathered, go round a ring.
///
/// # Errors
/// The pass has an internal error.
pub fn ring(model: &mut Model) -> Result<(), PlanError> {
    let mesh = model.mesh.clone();
    for block in model.blocks.values_mut() {
        let mut made = Vec::new();
        for kind in [SectionKind::F, SectionKind::I, SectionKind::W] {
            section(&mesh, block, kind, &mut made).map_err(|fault| fault.in_pass("ring"))?;
        }
        made.sort_unstable();
        while drop_unread(block, &made) {}
        renumber(block);
    }
    Ok(())
}

/// Puts rings in the place of ops; `made` gets the results of all their statements.
fn section(mesh: &Mesh, block: &mut Block, kind: SectionKind, made: &mut Vec<Value>) -> Result<(), Fault> {
    let mut number = 0;
    while let Some(stmt) = block[kind].stmts.get(number).cloned() {
        let Some(ring) = Ring::of(mesh, block, kind, &stmt) else {
            number += 1;
            continue;
        };
        let op = stmt.op.extras().in_rounds.ok_or(Fault::NoRounds)?;
        let mut emit = Emit { block, stmts: Vec::new() };
        emit.rounds(&ring, op, &stmt)?;
        let rounds = emit.stmts;
        made.extend(rounds.iter().flat_map(|stmt| &stmt.results));
        let after = number + rounds.len();
        let stmts = &mut block[kind].stmts;
        stmts.splice(number..=number, rounds);
        // The ring itself makes what the reduce-scatters did.
        let rest = stmts.split_off(after);
        stmts.extend(
            rest.into_iter().filter(|stmt| stmt.results.iter().all(|result| !ring.ends.contains(&Some(*result)))),
        );
        number = after;
    }
    Ok(())
}

/// Removes the gathers, and the statements of rings, that nothing reads: an evaluation needs no sums of exponentials. Returns whether there were
/// some.
fn drop_unread(block: &mut Block, made: &[Value]) -> bool {
    let stmts = block.sections.iter().flat_map(|section| &section.stmts);
    let mut read: Vec<Value> = stmts.flat_map(|stmt| stmt.operands.iter().copied()).collect();
    read.extend(block.sections.iter().flat_map(|section| &section.ret));
    read.sort_unstable();
    let mut has_dropped = false;
    for section in &mut block.sections {
        section.stmts.retain(|stmt| {
            let is_gather = matches!(stmt.op, Op::Collective(Collective::AllGather { .. }));
            let may_go = is_gather || stmt.results.iter().all(|result| made.binary_search(result).is_ok());
            let stays = !may_go || stmt.results.iter().any(|result| read.binary_search(result).is_ok());
            has_dropped |= !stays;
            stays
        });
    }
    has_dropped
}

/// An op in rounds whose travelling operands are gathered over the axes of its queries.
struct Ring {
    rounds: Rounds,
    over: Axes,
    ranks: u64,
    /// Positions of a block.
    length: u64,
    /// The rank's own parts of the operands that travel.
    own: Vec<Value>,
    /// By result, the result of its reduce-scatter, if it travels.
    ends: Vec<Option<Value>>,
}

/// The dim of a value that is its sequence.
fn sequence(block: &Block, value: Value) -> Option<&Dim> {
    block.ty(value).dims.get(SEQUENCE)
}

impl Ring {
    fn of(mesh: &Mesh, block: &Block, kind: SectionKind, stmt: &Stmt) -> Option<Ring> {
        let Dim { axes: over, size, .. } = sequence(block, *stmt.operands.first()?)?.clone();
        let (ranks, length) = (mesh.size(&over), size / mesh.size(&over).max(1));
        let rounds = stmt.op.extras().in_rounds?.rounds(length).filter(|_| ranks > 1 && mesh.is_even(size, &over))?;
        let gather = Op::Collective(Collective::AllGather { dim: Some(SEQUENCE), over: over.clone() });
        let mut own = Vec::with_capacity(rounds.travelling.len());
        for &place in rounds.travelling {
            let made = block[kind].stmts.iter().find(|made| made.results == [stmt.operands[place]])?;
            let part = made.operands[0];
            let is_own = sequence(block, part).is_some_and(|dim| dim.axes == over && dim.size == size);
            if made.op != gather || !is_own {
                return None;
            }
            own.push(part);
        }
        let scatter = Op::Collective(Collective::ReduceScatter { dim: Some(SEQUENCE), over: over.clone() });
        let mut ends = Vec::with_capacity(rounds.results.len());
        for (use_of, &result) in rounds.results.iter().zip(&stmt.results) {
            ends.push(match use_of {
                RoundResult::Travelling => Some(end_of(block, kind, result, &scatter)?),
                RoundResult::Joined | RoundResult::Summed => None,
            });
        }
        Some(Ring { rounds, over, ranks, length, own, ends })
    }

    fn shift(&self) -> Op {
        Op::Collective(Collective::Shift { dim: SEQUENCE, by: self.length, over: self.over.clone() })
    }
}

/// The result of the reduce-scatter of a gradient, which nothing else reads.
fn end_of(block: &Block, kind: SectionKind, gradient: Value, scatter: &Op) -> Option<Value> {
    let stmts = block.sections.iter().flat_map(|section| &section.stmts);
    let mut readers = stmts.filter(|one| one.operands.contains(&gradient));
    let (reader, other) = (readers.next()?, readers.next());
    let is_returned = block.sections.iter().any(|section| section.ret.contains(&gradient));
    let is_here = block[kind].stmts.iter().any(|one| one.results == reader.results);
    let is_end = reader.op == *scatter && reader.results.len() == 1 && other.is_none() && is_here && !is_returned;
    is_end.then(|| reader.results[0])
}

/// Statements of a ring, whose types follow from those of the op.
struct Emit<'a> {
    block: &'a mut Block,
    stmts: Vec<Stmt>,
}

impl Emit<'_> {
    /// A statement with these results.
    fn stmt(&mut self, op: impl Into<Op>, operands: &[Value], results: Vec<Value>) {
        let (operands, op) = (operands.to_vec(), op.into());
        self.stmts.push(Stmt { results, accumulate: false, op, operands, comments: Vec::new(), span: Span::default() });
    }

    /// A statement whose new results have these types.
    fn made(&mut self, op: impl Into<Op>, operands: &[Value], types: Vec<Type>) -> Vec<Value> {
        let results: Vec<Value> = types.into_iter().map(|ty| self.block.add_value("", ty)).collect();
        self.stmt(op, operands, results.clone());
        results
    }

    fn types(&self, values: &[Value]) -> Vec<Type> {
        values.iter().map(|&value| self.block.ty(value).clone()).collect()
    }

    /// A value in f32.
    fn wide(&mut self, value: Value) -> Value {
        let ty = Type { dtype: DType::F32, ..self.block.ty(value).clone() };
        let is_wide = self.block.ty(value).dtype == DType::F32;
        if is_wide { value } else { self.made(Unary(UnaryKind::Cast(DType::F32)), &[value], vec![ty])[0] }
    }

    fn sum(&mut self, before: Value, next: Value) -> Value {
        let types = self.types(&[before]);
        self.made(Binary::of(BinaryKind::Add), &[before, next], types)[0]
    }

    /// Tensors of the rank before, in one transfer.
    fn shifted(&mut self, ring: &Ring, values: &[Value]) -> Vec<Value> {
        let types = self.types(values);
        self.made(ring.shift(), values, types)
    }

    /// All rounds, and the results of the statement.
    fn rounds(&mut self, ring: &Ring, op: &dyn InRounds, stmt: &Stmt) -> Result<(), Fault> {
        let ends = stmt.results.iter().zip(&ring.ends).map(|(&result, end)| end.unwrap_or(result)).collect::<Vec<_>>();
        let types = self.types(&ends);
        let (mut own, mut so_far) = (ring.own.clone(), None);
        for round in 0..ring.ranks {
            let mut operands = stmt.operands.clone();
            if round > 0 {
                own = self.shifted(ring, &own);
                operands.truncate(ring.rounds.once_from);
            }
            ring.rounds.travelling.iter().zip(&own).for_each(|(&place, &value)| operands[place] = value);
            let mut next = self.made(ring.rounds.op.clone(), &operands, types.clone());
            for (value, use_of) in next.iter_mut().zip(ring.rounds.results) {
                if *use_of != RoundResult::Travelling && self.block.ty(*value).dtype.is_float() {
                    *value = self.wide(*value);
                }
            }
            so_far = Some(match so_far {
                None => next,
                Some(before) => self.together(ring, op, before, &next)?,
            });
        }
        self.end(ring, &so_far.ok_or(Fault::EmptyRing)?, &ends);
        Ok(())
    }

    /// The results of the rounds before and of the next one.
    fn together(
        &mut self,
        ring: &Ring,
        op: &dyn InRounds,
        before: Vec<Value>,
        next: &[Value],
    ) -> Result<Vec<Value>, Fault> {
        let uses = ring.rounds.results;
        if uses.contains(&RoundResult::Joined) {
            return self.joined(op, &before, next);
        }
        let travelling = before.iter().zip(uses).filter(|(_, use_of)| **use_of == RoundResult::Travelling);
        let travelling: Vec<Value> = travelling.map(|(&value, _)| value).collect();
        let mut moved = self.shifted(ring, &travelling).into_iter();
        let mut sums = Vec::new();
        for ((value, &own), use_of) in before.into_iter().zip(next).zip(uses) {
            let value = match use_of {
                RoundResult::Travelling => moved.next().ok_or(Fault::ShortShift)?,
                RoundResult::Joined | RoundResult::Summed => value,
            };
            sums.push(self.sum(value, own));
        }
        Ok(sums)
    }

    /// The results of two rounds as one. A value of the join is sharded as the result of its rank is.
    fn joined(&mut self, op: &dyn InRounds, before: &[Value], next: &[Value]) -> Result<Vec<Value>, Fault> {
        let types = self.types(before);
        let mut builder = Builder::new(self.block);
        let made = op.join(&mut builder, before, next).map_err(Fault::Op)?;
        let stmts = builder.stmts;
        for &value in stmts.iter().flat_map(|stmt| &stmt.results) {
            let like = types.iter().find(|ty| ty.rank() == self.block.ty(value).rank());
            let like = like.ok_or(Fault::JoinedRank)?.clone();
            self.block.values[value].ty = Type { dtype: self.block.ty(value).dtype, ..like };
        }
        self.stmts.extend(stmts);
        Ok(made)
    }

    /// The last values as results of the statement, rounded once; what travels goes home.
    fn end(&mut self, ring: &Ring, last: &[Value], ends: &[Value]) {
        let mut home = (Vec::new(), Vec::new());
        for ((&value, &end), use_of) in last.iter().zip(ends).zip(ring.rounds.results) {
            let dtype = self.block.ty(end).dtype;
            if *use_of == RoundResult::Travelling {
                home.0.push(value);
                home.1.push(end);
            } else if self.block.ty(value).dtype == dtype {
                self.rename(value, end);
            } else {
                self.stmt(Unary(UnaryKind::Cast(dtype)), &[value], vec![end]);
            }
        }
        if !home.0.is_empty() {
            self.stmt(ring.shift(), &home.0, home.1);
        }
    }

    /// Gives a result of the ring's statements the place of another value.
    fn rename(&mut self, from: Value, to: Value) {
        for stmt in &mut self.stmts {
            let values = stmt.results.iter_mut().chain(&mut stmt.operands);
            values.filter(|value| **value == from).for_each(|value| *value = to);
        }
    }
}
