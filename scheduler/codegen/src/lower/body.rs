//! Code generation for sections of blocks: one body per section.

use super::CodegenError;
use crate::order;
use cost::{Platform, Scope};
use fusion::{Target, Unit};
use ir::entity::PrimaryMap;
use ir::graph::{ArgKind, Block, Model, STEP_SCALARS, SectionKind, Stmt, ValueData};
use ir::ids::{BlockId, BodyId, Token, Value};
use ir::mesh::Axes;
use ir::ops::{Collective, Op};
use ir::program::{Body, BodyArg, BodyInstr, BodyKind, Source};
use ir::saved::{forward_args, gathered_values, reads, results, saved_values, unique};
use ir::schedule::{Action, Kind};
use ir::types::{PartialKind, Type};
use std::collections::{HashMap, HashSet};

/// The bodies of one block; none where there is nothing to do.
#[derive(Debug, Default)]
pub(super) struct BlockBodies {
    pub(super) sections: HashMap<BodyKind, BodyId>,
    /// Parameters that have a gradient.
    pub(super) gradients: HashSet<Value>,
    /// Arguments that `U` stores into.
    pub(super) stores: HashSet<Value>,
}

/// All bodies of a program while it is made.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    pub(super) all: PrimaryMap<BodyId, Body>,
    pub(super) blocks: HashMap<BlockId, BlockBodies>,
    pub(super) step: Option<BodyId>,
}

/// A section, or a part of one, on its way to a body.
struct SectionPart<'a> {
    kind: BodyKind,
    stmts: Vec<&'a Stmt>,
    /// From the row.
    args: Vec<Value>,
    results: Vec<Value>,
    keeps: Vec<Value>,
}

impl<'a> SectionPart<'a> {
    fn new(kind: BodyKind, stmts: Vec<&'a Stmt>) -> SectionPart<'a> {
        SectionPart { kind, stmts, args: Vec::new(), results: Vec::new(), keeps: Vec::new() }
    }

    /// Takes arguments from the row, and gives results to it.
    fn with_row(self, args: &[Value], results: &[Value]) -> SectionPart<'a> {
        SectionPart { args: args.to_vec(), results: results.to_vec(), ..self }
    }

    fn saving(self, keeps: Vec<Value>) -> SectionPart<'a> {
        SectionPart { keeps, ..self }
    }
}

/// How the rows of a schedule run I and W.
#[derive(Clone, Copy)]
pub(super) struct Backward {
    /// Some as B.
    in_one: bool,
    /// Some alone.
    alone: bool,
}

impl Backward {
    pub(super) fn of(rows: &[Vec<Action>]) -> Backward {
        Backward { in_one: run(rows, Kind::B), alone: run(rows, Kind::I) || run(rows, Kind::W) }
    }
}

/// True if rows run some item of a kind.
fn run(rows: &[Vec<Action>], kind: Kind) -> bool {
    rows.iter().flatten().flat_map(Action::items).any(|item| item.kind == kind)
}

/// Context for which bodies are made.
#[derive(Clone, Copy)]
struct Context<'a> {
    platform: &'a Platform<'a>,
    model: &'a Model,
}

impl Bodies {
    /// Bodies of all sections, and of the step graph. I and W of a block that has both are one body, B, or two, or both, as
    /// the schedule runs them.
    pub(super) fn training(model: &Model, platform: &Platform<'_>, backward: Backward) -> Result<Bodies, CodegenError> {
        let context = Context { platform, model };
        let mut bodies = Bodies::default();
        for (id, block) in &model.blocks {
            let parts = parts(model, block)?.into_iter();
            let made = parts.map(|part| body(context, &block.name, Some(id), block, part));
            let mut made = made.collect::<Result<Vec<Body>, CodegenError>>()?;
            made.retain(|b| !(b.instrs.is_empty() && b.results.is_empty() && b.keeps.is_empty() && b.args.is_empty()));
            let both = [BodyKind::I, BodyKind::W].iter().all(|kind| made.iter().any(|body| body.kind == *kind));
            made.retain(|body| match body.kind {
                BodyKind::I | BodyKind::W => !both || backward.alone,
                BodyKind::B => both && backward.in_one,
                _ => true,
            });
            let sections = made.into_iter().map(|body| (body.kind, bodies.all.push(body))).collect();
            let mut of_block = BlockBodies { sections, ..BlockBodies::default() };
            of_block.gradients =
                block.args_of(ArgKind::Param).filter(|&param| block.gradient_of(param).is_some()).collect();
            of_block.stores = results(&block[SectionKind::U].stmts).filter(|&v| block.arg_kind(v).is_some()).collect();
            bodies.blocks.insert(id, of_block);
        }
        let step = &model.step.as_ref().ok_or(CodegenError::NotDifferentiated)?.graph;
        let section = &step[SectionKind::F];
        let args = step.args.iter().map(|arg| arg.value).collect();
        let stmts = section.stmts.iter().collect();
        let part = SectionPart { kind: BodyKind::N, stmts, args, results: section.ret.clone(), keeps: Vec::new() };
        bodies.step = Some(bodies.all.push(body(context, "step", None, step, part)?));
        Ok(bodies)
    }

    /// Bodies of the forward alone, which save nothing.
    pub(super) fn forward(model: &Model, platform: &Platform<'_>) -> Result<Bodies, CodegenError> {
        let context = Context { platform, model };
        let mut bodies = Bodies::default();
        for (id, block) in &model.blocks {
            let parts = [gather_part(block), forward_part(block, Vec::new())].into_iter();
            let made = parts.map(|part| body(context, &block.name, Some(id), block, part));
            let made = made.collect::<Result<Vec<Body>, CodegenError>>()?.into_iter();
            let sections = made
                .filter(|body| body.kind == BodyKind::F || !body.keeps.is_empty())
                .map(|body| (body.kind, bodies.all.push(body)))
                .collect();
            bodies.blocks.insert(id, BlockBodies { sections, ..BlockBodies::default() });
        }
        Ok(bodies)
    }

    /// The body of a block's section.
    pub(super) fn get(&self, block: BlockId, kind: BodyKind) -> Option<BodyId> {
        self.blocks.get(&block)?.sections.get(&kind).copied()
    }

    /// A body that reduces a partial total.
    pub(super) fn paying(&mut self, name: &str, ty: &Type) -> BodyId {
        let found = self.all.iter().find(|(_, b)| b.name == format!("{name}.N") && b.values[b.args[0].value].ty == *ty);
        if let Some((id, _)) = found {
            return id;
        }
        let over = ty.partial_axes();
        let mut values = PrimaryMap::new();
        let unreduced: Value = values.push(ValueData { name: name.to_string(), ty: ty.clone() });
        let reduced =
            values.push(ValueData { name: "sum".to_string(), ty: ty.partial_over(PartialKind::Sum, &Axes::none()) });
        let token = Token::from_u32(0);
        self.all.push(Body {
            name: format!("{name}.N"),
            block: None,
            kind: BodyKind::N,
            values,
            args: vec![BodyArg { value: unreduced, source: Source::Row }],
            instrs: vec![
                BodyInstr::Start { token, collective: Collective::AllReduce { over }, operands: vec![unreduced] },
                BodyInstr::Wait { token, results: vec![reduced] },
            ],
            results: vec![reduced],
            keeps: Vec::new(),
            frame: None,
        })
    }
}

/// `G`, which leaves what later sections read.
fn gather_part(block: &Block) -> SectionPart<'_> {
    let (stmts, keeps) = (block[SectionKind::G].stmts.iter().collect(), gathered_values(block));
    SectionPart { kind: BodyKind::G, stmts, args: Vec::new(), results: Vec::new(), keeps }
}

fn forward_part(block: &Block, keeps: Vec<Value>) -> SectionPart<'_> {
    let section = &block[SectionKind::F];
    let (args, results) = (forward_args(block).collect(), section.ret.clone());
    SectionPart { kind: BodyKind::F, stmts: section.stmts.iter().collect(), args, results, keeps }
}

fn parts<'a>(model: &Model, block: &'a Block) -> Result<Vec<SectionPart<'a>>, CodegenError> {
    let saved = saved_values(block);
    let (input, weight) = (&block[SectionKind::I], &block[SectionKind::W]);
    let (early, late) = split_update(model, block)?;
    let made_early: HashSet<Value> = results(early.iter().copied()).collect();
    let carried = reads(late.iter().copied(), &[]).into_iter().filter(|v| made_early.contains(v)).collect();
    let on_host = if model.offload_states { states_of_update(block, &early, &late) } else { Vec::new() };
    let (args, results) = (&input.args, &input.ret);
    let both = input.stmts.iter().chain(&weight.stmts).collect();
    Ok(vec![
        gather_part(block),
        forward_part(block, saved.forward),
        SectionPart::new(BodyKind::I, input.stmts.iter().collect()).with_row(args, results).saving(saved.input),
        SectionPart::new(BodyKind::W, weight.stmts.iter().collect()),
        SectionPart::new(BodyKind::B, both).with_row(args, results),
        SectionPart::new(BodyKind::R, early).with_row(&[], &block[SectionKind::U].ret).saving(carried),
        SectionPart::new(BodyKind::U, late).saving(on_host),
    ])
}

/// The states that only this part of `U` touches.
fn states_of_update(block: &Block, early: &[&Stmt], late: &[&Stmt]) -> Vec<Value> {
    let others = [SectionKind::G, SectionKind::F, SectionKind::I, SectionKind::W];
    let others = others.iter().flat_map(|&kind| &block[kind].stmts).chain(early.iter().copied());
    let touched: HashSet<Value> = others.flat_map(|stmt| stmt.operands.iter().chain(&stmt.results)).copied().collect();
    let own = unique(late.iter().flat_map(|stmt| stmt.operands.iter().chain(&stmt.results)).copied());
    own.filter(|&value| block.arg_kind(value) == Some(ArgKind::State) && !touched.contains(&value)).collect()
}

type Split<'a> = (Vec<&'a Stmt>, Vec<&'a Stmt>);

/// `U` in two: what neither stores nor depends on what the step graph returns, and the rest. Parts of parameters that only the rest
/// reads are sliced there, one after the other: here all of them would be live until then.
fn split_update<'a>(model: &Model, block: &'a Block) -> Result<Split<'a>, CodegenError> {
    let section = &block[SectionKind::U];
    let mut late: HashSet<Value> = block.args_of(ArgKind::Const).collect();
    late.retain(|&value| !STEP_SCALARS.contains(&block.value_name(value)));
    let mut early: Vec<&Stmt> = Vec::new();
    for stmt in &section.stmts {
        let waits = stmt.operands.iter().any(|value| late.contains(value));
        let stores = stmt.results.iter().any(|&value| block.arg_kind(value).is_some());
        if waits || stores {
            late.extend(&stmt.results);
        } else {
            early.push(stmt);
        }
    }
    let read_early = reads(early.iter().copied(), &section.ret);
    let split: Split<'_> = section.stmts.iter().partition(|stmt| {
        let is_part = matches!(&stmt.op, Op::Collective(change) if !change.communicates())
            && stmt.operands.iter().all(|&value| block.arg_kind(value).is_some())
            && !stmt.results.iter().any(|value| read_early.contains(value));
        early.iter().any(|other| std::ptr::eq(*other, *stmt)) && !is_part
    });
    if section.ret.iter().any(|value| late.contains(value)) {
        return Err(CodegenError::Circular { block: block.name.clone() });
    }
    for scalar in block.args_of(ArgKind::Const) {
        let name = block.value_name(scalar);
        let step = model.step.as_ref().map(|step| &step.graph);
        let returned = step.is_some_and(|g| g[SectionKind::F].ret.iter().any(|&v| g.value_name(v) == name));
        if !(returned || STEP_SCALARS.contains(&name)) {
            return Err(CodegenError::Scalar { block: block.name.clone(), name: name.to_string() });
        }
    }
    Ok(split)
}

fn body(
    context: Context<'_>,
    name: &str,
    id: Option<BlockId>,
    block: &Block,
    part: SectionPart<'_>,
) -> Result<Body, CodegenError> {
    let args = arguments(block, &part);
    let instrs = instructions(context, block, &part)?;
    Ok(Body {
        name: format!("{name}.{}", part.kind.letter()),
        block: id,
        kind: part.kind,
        values: block.values.clone(),
        args,
        instrs,
        results: part.results,
        keeps: part.keeps,
        frame: None,
    })
}

/// The row's arguments, then what comes from elsewhere in order of first use.
fn arguments(block: &Block, part: &SectionPart<'_>) -> Vec<BodyArg> {
    let gradients: HashSet<Value> =
        block[SectionKind::W].stmts.iter().filter(|s| s.accumulate).flat_map(|s| s.results.iter().copied()).collect();
    let made: HashSet<Value> = results(part.stmts.iter().copied()).collect();
    let own: HashSet<Value> = part.args.iter().copied().collect();
    let touched = part.stmts.iter().flat_map(|stmt| stmt.operands.iter().chain(&stmt.results)).copied();
    let touched = touched.chain(part.results.iter().chain(&part.keeps).copied());
    let outside = unique(touched).filter(|v| {
        let stored = block.arg_kind(*v).is_some() || gradients.contains(v);
        !own.contains(v) && (stored || !made.contains(v))
    });
    let from_row = part.args.iter().map(|&value| BodyArg { value, source: Source::Row });
    let from_elsewhere = outside.map(|value| {
        let source = match block.arg_kind(value) {
            Some(ArgKind::Param) => Source::Param,
            Some(ArgKind::State) => Source::State,
            Some(ArgKind::Const) => Source::Scalar,
            _ if gradients.contains(&value) => Source::Gradient,
            _ => Source::Saved,
        };
        BodyArg { value, source }
    });
    from_row.chain(from_elsewhere).collect()
}

fn instructions(context: Context<'_>, block: &Block, part: &SectionPart<'_>) -> Result<Vec<BodyInstr>, CodegenError> {
    let left = part.stmts.iter().find(|stmt| matches!(stmt.op, Op::Reshard) || stmt.op.is_composite());
    if let Some(stmt) = left {
        return Err(CodegenError::NotPlanned { block: block.name.clone(), op: stmt.op.name() });
    }
    let given_away: HashSet<Value> = part.results.iter().chain(&part.keeps).copied().collect();
    let own: HashSet<Value> = (part.stmts.iter().filter(|stmt| !stmt.accumulate))
        .flat_map(|stmt| stmt.results.iter().copied())
        .filter(|&value| block.arg_kind(value).is_none() && !given_away.contains(&value))
        .collect();
    let units: Vec<Unit> = part.stmts.iter().map(|&stmt| Unit::Stmt(stmt.clone())).collect();
    let target = Target { platform: context.platform, scope: Scope::of(context.model, &block.values) };
    Ok(order::instructions(target, &units, |value| own.contains(&value)))
}
