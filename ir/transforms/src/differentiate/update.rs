//! The parameter update, once a step: each block's `U`, which sums squared gradients and updates the parameters that the
//! block owns, and the step graph, which computes the norm and the clip factor from those sums.

use super::counts::{self, records};
use super::muon::Matrix;
use super::{DifferentiateError, free};
use crate::build_error::BuildError;
use ir::entity::{EntitySet, SecondaryMap};
use ir::graph::{Arg, ArgKind, Block, Call, Model, ParamInstance, ResultKind, Section, SectionKind, Span, Step, Stmt};
use ir::ids::{BlockId, Value};
use ir::ops::{
    AdamW, Binary, BinaryKind, Builder, ClipFactor, Compare, CompareKind, Concat, Op, Sgd, Slice, SumSquares, Unary,
    UnaryKind,
};
use ir::optimizer::{Matrices, Optimizer, OptimizerKind};
use ir::types::{DType, Dims, Type};
use std::collections::HashSet;

/// The binding of a parameter argument of a block, from the calls of the block.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Binding {
    /// The argument.
    param: Value,
    /// True if the block updates it. If several calls pass a parameter, the block of the first one updates it.
    owned: bool,
    /// Weight decay applies.
    decay: bool,
    /// The matrix of which it is a part.
    part_of: Option<String>,
}

impl Binding {
    /// The decay of the parameter, where others have this one.
    fn decayed(&self, weight_decay: f64) -> f64 {
        if self.decay { weight_decay } else { 0.0 }
    }
}

/// The parameters of every block that its calls leave as they are.
///
/// # Errors
/// Some calls of a block train a parameter, and others do not.
pub(super) fn frozen(model: &Model) -> Result<SecondaryMap<BlockId, EntitySet<Value>>, DifferentiateError> {
    let mut frozen: SecondaryMap<BlockId, EntitySet<Value>> = SecondaryMap::new();
    let mut trained: SecondaryMap<BlockId, EntitySet<Value>> = SecondaryMap::new();
    for call in &model.calls {
        let block = &model.blocks[call.block];
        for instance in 0..call.instances() {
            for (param, bound) in block.args_of(ArgKind::Param).zip(model.call_params(call, instance)) {
                let (own, other) = match model.params[bound.0].frozen {
                    true => (&mut frozen[call.block], &trained[call.block]),
                    false => (&mut trained[call.block], &frozen[call.block]),
                };
                if other.contains(param) {
                    return Err(disagreement(block, param, "are frozen"));
                }
                own.insert(param);
            }
        }
    }
    Ok(frozen)
}

/// The bindings of every block's parameters that have a gradient. A block that is never called owns all of its parameters.
///
/// # Errors
/// The calls of a block do not agree.
pub(super) fn bindings(model: &Model) -> Result<SecondaryMap<BlockId, Vec<Binding>>, DifferentiateError> {
    let mut bindings: SecondaryMap<BlockId, Vec<Binding>> = SecondaryMap::new();
    let mut owned = HashSet::new();
    for call in &model.calls {
        for instance in 0..call.instances() {
            let run = run_bindings(model, call, instance, &mut owned);
            let known = &mut bindings[call.block];
            if known.is_empty() {
                *known = run;
            } else if let Some((_, other)) = known.iter().zip(&run).find(|(a, b)| a != b) {
                let what = "are updated by an earlier call, decay, or are parts of a matrix";
                return Err(disagreement(&model.blocks[call.block], other.param, what));
            }
        }
    }
    for (id, block) in &model.blocks {
        if !model.calls.iter().any(|call| call.block == id) {
            let trained = block.args_of(ArgKind::Param).filter(|&param| block.gradient_of(param).is_some());
            bindings[id] = trained.map(|param| Binding { param, owned: true, decay: false, part_of: None }).collect();
        }
    }
    Ok(bindings)
}

fn run_bindings(model: &Model, call: &Call, instance: u32, owned: &mut HashSet<ParamInstance>) -> Vec<Binding> {
    let block = &model.blocks[call.block];
    let bound = block.args_of(ArgKind::Param).zip(model.call_params(call, instance));
    let trained = bound.filter(|&(param, _)| block.gradient_of(param).is_some());
    trained
        .map(|(param, bound)| {
            let of = &model.params[bound.0];
            Binding { param, owned: owned.insert(bound), decay: of.decay, part_of: of.part_of.clone() }
        })
        .collect()
}

fn disagreement(block: &Block, param: Value, what: &str) -> DifferentiateError {
    let name = block.value_name(param);
    let message = format!(
        "its calls pass parameters to `%{name}`, and some of these, but not all, {what}; call a copy of the block under \
         another name where they differ"
    );
    DifferentiateError::in_block(block, message)
}

/// Fills `U` and adds the arguments that it reads.
///
/// # Errors
/// A name that the update needs is taken.
pub(super) fn update(
    block: &mut Block,
    bindings: &[Binding],
    optimizer: &Optimizer,
    dims: &Dims,
) -> Result<(), BuildError> {
    let records = records(block);
    let mut owned: Vec<Binding> = bindings.iter().filter(|binding| binding.owned).cloned().collect();
    owned.retain(|binding| records.iter().all(|record| record.param != binding.param));
    if owned.is_empty() {
        return Ok(());
    }
    let is_scaled = owned.iter().any(|binding| block.ty(binding.param).dtype == DType::F16);
    let rules: Vec<Rule> = owned.iter().map(|binding| Rule::of(block, binding, &optimizer.kind, dims)).collect();
    let mut scalars = Scalars::add(block, &rules, is_scaled)?;
    let mut builder = Builder::new(block);
    let squares = sum_squares(&mut builder, &owned, scalars.inv_scale)?;
    if let Some(inv_scale) = scalars.inv_scale {
        scalars.clip = builder.one(Binary::of(BinaryKind::Mul), &[scalars.clip, inv_scale])?;
    }
    let moves_bias = records.iter().any(|record| record.bias.is_some());
    if moves_bias || rules.iter().any(|rule| matches!(rule, Rule::Orthogonal(_))) {
        scalars.goes_on = Some(goes_on(&mut builder, scalars.clip)?);
    }
    for (binding, rule) in owned.iter().zip(&rules) {
        match rule {
            Rule::AdamW(op) => adamw(&mut builder, binding.param, &scalars, op)?,
            Rule::Sgd(op) => sgd(&mut builder, binding.param, &scalars, op)?,
            Rule::Orthogonal(own) => {
                let parts = own.parts(binding.param, &owned, &rules);
                // The first part updates all.
                if parts.first().is_some_and(|(param, _)| *param == binding.param) {
                    update_matrix(&mut builder, &parts, &scalars)?;
                }
            }
        }
    }
    for record in &records {
        counts::update(&mut builder, record, scalars.goes_on)?;
    }
    let stmts = builder.stmts;
    block[SectionKind::U] = Section { stmts, ret: vec![squares], args: Vec::new() };
    Ok(())
}

/// The update rule of a parameter.
enum Rule {
    AdamW(AdamW),
    Sgd(Sgd),
    Orthogonal(Orthogonal),
}

/// A matrix, or a part of one, whose update is its momentum, made orthogonal.
struct Orthogonal {
    matrix: Matrix,
    /// The matrix to whose other parts it is joined.
    part_of: Option<String>,
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
}

impl Orthogonal {
    /// Moves a mean to the clipped gradient, `m = m + (1 - momentum) (clip g - m)`, and gives it, or the mean after one more such
    /// move (Nesterov's momentum). Each is a step of gradient descent with the rate `momentum - 1` and the decay -1: no scalar is
    /// multiplied with a tensor, so flat shards stay flat.
    fn moved(
        &self,
        builder: &mut Builder<'_>,
        m: Value,
        gradient: Value,
        scalars: &Scalars,
    ) -> Result<Value, BuildError> {
        let zero = builder.one(Unary(UnaryKind::Scale(0.0)), &[scalars.lr])?;
        let rate = builder.one(Unary(UnaryKind::Shift(self.momentum - 1.0)), &[zero])?;
        let (op, operands) = (descent(-1.0), [m, gradient, scalars.clip, rate]);
        store(builder, op.clone(), &operands, &[m])?;
        Ok(if self.nesterov { builder.one(op, &operands)? } else { m })
    }

    /// True for another part of the same matrix.
    fn is_joined(&self, part: &Orthogonal) -> bool {
        self.part_of.is_some() && self.part_of == part.part_of
    }
    /// The parameters that are joined to this one, itself among them, in their order.
    fn parts<'a>(&self, param: Value, owned: &[Binding], rules: &'a [Rule]) -> Vec<(Value, &'a Orthogonal)> {
        let parts = owned.iter().zip(rules).filter_map(|(binding, rule)| match rule {
            Rule::Orthogonal(part) => Some((binding.param, part)),
            Rule::AdamW(_) | Rule::Sgd(_) => None,
        });
        parts.filter(|(other, part)| *other == param || self.is_joined(part)).collect()
    }
}

impl Rule {
    fn of(block: &Block, binding: &Binding, kind: &OptimizerKind, dims: &Dims) -> Rule {
        match *kind {
            OptimizerKind::AdamW { beta1, beta2, eps, weight_decay } => {
                Rule::AdamW(AdamW { beta1, beta2, eps, weight_decay: binding.decayed(weight_decay) })
            }
            OptimizerKind::Sgd { momentum, nesterov, weight_decay } => {
                Rule::Sgd(Sgd { momentum, nesterov, weight_decay: binding.decayed(weight_decay) })
            }
            OptimizerKind::Muon { momentum, nesterov, matrices, beta1, beta2, eps, weight_decay } => {
                let weight_decay = binding.decayed(weight_decay);
                let part_of = binding.part_of.clone().filter(|_| matrices == Matrices::Whole);
                match Matrix::of(block, binding.param, dims) {
                    Some(matrix) => Rule::Orthogonal(Orthogonal { matrix, part_of, momentum, nesterov, weight_decay }),
                    None => Rule::AdamW(AdamW { beta1, beta2, eps, weight_decay }),
                }
            }
        }
    }
}

/// The run's scalars that an update reads.
struct Scalars {
    clip: Value,
    lr: Value,
    /// Counts from 1.
    step: Option<Value>,
    /// The reciprocal of the loss scale, where the loss is scaled: gradients of f16 activations would vanish otherwise.
    inv_scale: Option<Value>,
    /// 1, or 0 in a step that is skipped; for updates that are not clipped.
    goes_on: Option<Value>,
}

impl Scalars {
    fn add(block: &mut Block, rules: &[Rule], is_scaled: bool) -> Result<Scalars, BuildError> {
        let (clip, lr) = (scalar(block, "clip")?, scalar(block, "lr")?);
        let counts = rules.iter().any(|rule| matches!(rule, Rule::AdamW(_)));
        let step = counts.then(|| scalar(block, "step")).transpose()?;
        let inv_scale = is_scaled.then(|| scalar(block, "inv_scale")).transpose()?;
        Ok(Scalars { clip, lr, step, inv_scale, goes_on: None })
    }
}

fn scalar(block: &mut Block, name: &str) -> Result<Value, BuildError> {
    add_arg(block, name.to_string(), ArgKind::Const, Type::scalar(DType::F32))
}

/// 1 if the factor of gradients is above 0, else 0.
fn goes_on(builder: &mut Builder<'_>, clip: Value) -> Result<Value, BuildError> {
    let zero = builder.one(Unary(UnaryKind::Scale(0.0)), &[clip])?;
    let is_above = builder.one(Compare(CompareKind::Less), &[zero, clip])?;
    Ok(builder.one(Unary(UnaryKind::Cast(DType::F32)), &[is_above])?)
}

/// Adds an argument after those of its kind: values and inputs, constants, parameters, states.
///
/// # Errors
/// The name is taken.
pub(crate) fn add_arg(block: &mut Block, name: String, kind: ArgKind, ty: Type) -> Result<Value, BuildError> {
    let name = free(block, name)?;
    let value = block.add_value(&name, ty);
    let behind = block.args.iter().position(|arg| place_of(arg.kind) > place_of(kind));
    let place = behind.unwrap_or(block.args.len());
    block.args.insert(place, Arg { value, kind });
    Ok(value)
}

/// The place of a kind among the arguments of a block.
fn place_of(kind: ArgKind) -> u8 {
    match kind {
        ArgKind::Value | ArgKind::Input => 0,
        ArgKind::Const => 1,
        ArgKind::Param => 2,
        ArgKind::State => 3,
    }
}

/// `%w.sq = sum_squares(%w.grad)` for every parameter, and their sum, without the loss scale.
fn sum_squares(builder: &mut Builder<'_>, owned: &[Binding], inv_scale: Option<Value>) -> Result<Value, BuildError> {
    let mut squares = Vec::new();
    for binding in owned {
        let gradient = gradient(builder.block, binding.param)?;
        let name = free(builder.block, format!("{}.sq", builder.block.value_name(binding.param)))?;
        squares.push(builder.named(&name, SumSquares, &[gradient])?);
    }
    let mut sum = squares[0];
    for &square in &squares[1..] {
        sum = builder.one(Binary::of(BinaryKind::Add), &[sum, square])?;
    }
    // One factor after the other: the square of the reciprocal could vanish.
    for factor in inv_scale.into_iter().chain(inv_scale) {
        sum = builder.one(Binary::of(BinaryKind::Mul), &[sum, factor])?;
    }
    if let (2.., Ok(name)) = (squares.len() + usize::from(inv_scale.is_some()), free(builder.block, "sq".to_string())) {
        builder.block.values[sum].name = name;
    }
    Ok(sum)
}

/// The gradient of a parameter that has one.
pub(super) fn gradient(block: &Block, param: Value) -> Result<Value, BuildError> {
    block.gradient_of(param).ok_or_else(|| BuildError::NoGradient(block.value_name(param).to_string()))
}

/// Updates a parameter in place. One in less than 32 bits has a master copy in f32, which is updated and rounded.
fn adamw(builder: &mut Builder<'_>, param: Value, scalars: &Scalars, op: &AdamW) -> Result<(), BuildError> {
    let (gradient, master) = (gradient(builder.block, param)?, master(builder.block, param)?);
    let (m, v) = (state(builder.block, param, "m")?, state(builder.block, param, "v")?);
    let operands = [master, gradient, m, v, scalars.clip, scalars.lr].into_iter().chain(scalars.step);
    store(builder, op.clone(), &operands.collect::<Vec<Value>>(), &[master, m, v])?;
    round(builder, master, param)
}

/// The same by gradient descent.
fn sgd(builder: &mut Builder<'_>, param: Value, scalars: &Scalars, op: &Sgd) -> Result<(), BuildError> {
    let (gradient, master) = (gradient(builder.block, param)?, master(builder.block, param)?);
    let m = op.has_momentum().then(|| state(builder.block, param, "m")).transpose()?;
    let operands = [master, gradient].into_iter().chain(m).chain([scalars.clip, scalars.lr]);
    let into: Vec<Value> = [master].into_iter().chain(m).collect();
    store(builder, op.clone(), &operands.collect::<Vec<Value>>(), &into)?;
    round(builder, master, param)
}

/// The tensor that an update changes: the parameter, or its copy in f32.
pub(super) fn master(block: &mut Block, param: Value) -> Result<Value, BuildError> {
    if block.ty(param).dtype == DType::F32 { Ok(param) } else { state(block, param, "master") }
}

/// Rounds the copy of a parameter in f32, if it has one.
pub(super) fn round(builder: &mut Builder<'_>, master: Value, param: Value) -> Result<(), BuildError> {
    if master == param {
        return Ok(());
    }
    let dtype = builder.ty(param).dtype;
    store(builder, Unary(UnaryKind::Cast(dtype)), &[master], &[param])
}

/// Updates a matrix whose momentum is made orthogonal, or all parts of one, whose momenta are joined for it along their last dim.
fn update_matrix(
    builder: &mut Builder<'_>,
    parts: &[(Value, &Orthogonal)],
    scalars: &Scalars,
) -> Result<(), BuildError> {
    let (mut masters, mut momenta) = (Vec::new(), Vec::new());
    for &(param, rule) in parts {
        masters.push(master(builder.block, param)?);
        let gradient = gradient(builder.block, param)?;
        let m = state(builder.block, param, "m")?;
        momenta.push(rule.moved(builder, m, gradient, scalars)?);
    }
    let updates = orthogonal(builder, parts, &momenta)?;
    let goes_on = scalars.goes_on.unwrap_or(scalars.clip);
    for ((&(param, rule), update), master) in parts.iter().zip(updates).zip(masters) {
        store(builder, descent(rule.weight_decay), &[master, update, goes_on, scalars.lr], &[master])?;
        round(builder, master, param)?;
    }
    Ok(())
}

/// The orthogonal matrix of the momenta of its parts, in these parts.
fn orthogonal(
    builder: &mut Builder<'_>,
    parts: &[(Value, &Orthogonal)],
    momenta: &[Value],
) -> Result<Vec<Value>, BuildError> {
    let matrices: Vec<&Matrix> = parts.iter().map(|(_, rule)| &rule.matrix).collect();
    if let ([matrix], [momentum]) = (matrices.as_slice(), momenta) {
        return Ok(vec![matrix.orthogonal(builder, *momentum)?]);
    }
    let whole = Matrix::joined(&matrices).ok_or(BuildError::PartsDiffer)?;
    let dim = builder.ty(momenta[0]).rank() - 1;
    let joined = builder.one(Concat { dim }, momenta)?;
    let update = whole.orthogonal(builder, joined)?;
    let (mut start, mut updates) = (0, Vec::new());
    for &momentum in momenta {
        let length = builder.ty(momentum).dims[dim].size;
        updates.push(builder.one(Slice { dim, start, length }, &[update])?);
        start += length;
    }
    Ok(updates)
}

/// Gradient descent without a velocity.
fn descent(weight_decay: f64) -> Sgd {
    Sgd { momentum: 0.0, nesterov: false, weight_decay }
}

/// Adds the state `%w.<suffix>`: of the parameter's dims, in f32.
fn state(block: &mut Block, param: Value, suffix: &str) -> Result<Value, BuildError> {
    let name = format!("{}.{suffix}", block.value_name(param));
    let ty = Type { dtype: DType::F32, ..block.ty(param).clone() };
    add_arg(block, name, ArgKind::State, ty)
}

/// Appends a statement that stores into arguments.
pub(super) fn store(
    builder: &mut Builder<'_>,
    op: impl Into<Op>,
    operands: &[Value],
    into: &[Value],
) -> Result<(), BuildError> {
    let op = op.into();
    let types: Vec<&Type> = operands.iter().map(|&value| builder.ty(value)).collect();
    op.infer(&types).map_err(|why| format!("`{}`: {why}", op.name()))?;
    builder.stmts.push(Stmt {
        results: into.to_vec(),
        accumulate: false,
        op,
        operands: operands.to_vec(),
        comments: Vec::new(),
        span: Span::default(),
    });
    Ok(())
}

/// From the sum of all squared gradients to the norm and the clip factor.
///
/// # Errors
/// None on these operands.
pub(super) fn step(optimizer: &Optimizer) -> Result<Step, BuildError> {
    let mut graph = Block::default();
    let squares = graph.add_value("sq", Type::scalar(DType::F32));
    let mut builder = Builder::new(&mut graph);
    let norm = builder.named("norm", Unary(UnaryKind::Sqrt), &[squares])?;
    let clip = match optimizer.clip {
        Some(max) => builder.named("clip", ClipFactor { max }, &[norm])?,
        // 0 norm + 1: one for every finite norm, and no number for others, as of which updates are skipped.
        None => {
            let zero = builder.one(Unary(UnaryKind::Scale(0.0)), &[norm])?;
            builder.named("clip", Unary(UnaryKind::Shift(1.0)), &[zero])?
        }
    };
    let stmts = builder.stmts;
    graph.args = vec![Arg { value: squares, kind: ArgKind::Value }];
    graph.results = vec![ResultKind::Value; 2];
    graph[SectionKind::F] = Section { stmts, ret: vec![norm, clip], args: Vec::new() };
    Ok(Step { graph })
}
