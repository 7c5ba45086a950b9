//! The parameter update, once a step: each block's `U`, which sums squared gradients and updates the parameters that the
//! block owns, and the step graph, which computes the norm and the clip factor from those sums.

use super::muon::Matrix;
use super::{DifferentiateError, free};
use ir::entity::{EntitySet, SecondaryMap};
use ir::graph::{Arg, ArgKind, Block, Call, Model, ParamInstance, ResultKind, Section, SectionKind, Span, Step, Stmt};
use ir::ids::{BlockId, Value};
use ir::ops::{
    AdamW, Binary, BinaryKind, Builder, ClipFactor, Compare, CompareKind, Op, Sgd, SumSquares, Unary, UnaryKind,
};
use ir::optimizer::{Optimizer, OptimizerKind};
use ir::types::{DType, Dims, Type};
use std::collections::HashSet;

/// The binding of a parameter argument of a block, from the calls of the block.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Binding {
    /// The argument.
    param: Value,
    /// True if the block updates it. If several calls pass a parameter, the block of the first one updates it.
    owned: bool,
    /// Weight decay applies.
    decay: bool,
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
                let what = "are updated by an earlier call or decay";
                return Err(disagreement(&model.blocks[call.block], other.param, what));
            }
        }
    }
    for (id, block) in &model.blocks {
        if !model.calls.iter().any(|call| call.block == id) {
            let trained = block.args_of(ArgKind::Param).filter(|&param| block.gradient_of(param).is_some());
            bindings[id] = trained.map(|param| Binding { param, owned: true, decay: false }).collect();
        }
    }
    Ok(bindings)
}

fn run_bindings(model: &Model, call: &Call, instance: u32, owned: &mut HashSet<ParamInstance>) -> Vec<Binding> {
    let block = &model.blocks[call.block];
    let bound = block.args_of(ArgKind::Param).zip(model.call_params(call, instance));
    let trained = bound.filter(|&(param, _)| block.gradient_of(param).is_some());
    trained
        .map(|(param, bound)| Binding { param, owned: owned.insert(bound), decay: model.params[bound.0].decay })
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
) -> Result<(), String> {
    let owned: Vec<Binding> = bindings.iter().filter(|binding| binding.owned).copied().collect();
    if owned.is_empty() {
        return Ok(());
    }
    let is_scaled = owned.iter().any(|binding| block.ty(binding.param).dtype == DType::F16);
    let rules: Vec<Rule> = owned.iter().map(|binding| Rule::of(block, *binding, &optimizer.kind, dims)).collect();
    let mut scalars = Scalars::add(block, &rules, is_scaled)?;
    let mut builder = Builder::new(block);
    let squares = sum_squares(&mut builder, &owned, scalars.inv_scale)?;
    if let Some(inv_scale) = scalars.inv_scale {
        scalars.clip = builder.one(Binary::of(BinaryKind::Mul), &[scalars.clip, inv_scale])?;
    }
    if rules.iter().any(|rule| matches!(rule, Rule::Orthogonal { .. })) {
        scalars.goes_on = Some(goes_on(&mut builder, scalars.clip)?);
    }
    for (binding, rule) in owned.iter().zip(&rules) {
        update_parameter(&mut builder, binding.param, &scalars, rule)?;
    }
    let stmts = builder.stmts;
    block[SectionKind::U] = Section { stmts, ret: vec![squares], args: Vec::new() };
    Ok(())
}

/// The update rule of a parameter.
enum Rule {
    AdamW(AdamW),
    Sgd(Sgd),
    /// A matrix whose update is its momentum, made orthogonal.
    Orthogonal {
        matrix: Matrix,
        momentum: f64,
        weight_decay: f64,
    },
}

impl Rule {
    fn of(block: &Block, binding: Binding, kind: &OptimizerKind, dims: &Dims) -> Rule {
        let decay = |weight_decay: f64| if binding.decay { weight_decay } else { 0.0 };
        match *kind {
            OptimizerKind::AdamW { beta1, beta2, eps, weight_decay } => {
                Rule::AdamW(AdamW { beta1, beta2, eps, weight_decay: decay(weight_decay) })
            }
            OptimizerKind::Sgd { momentum, weight_decay } => {
                Rule::Sgd(Sgd { momentum, weight_decay: decay(weight_decay) })
            }
            OptimizerKind::Muon { momentum, weight_decay } => match Matrix::of(block, binding.param, dims) {
                Some(matrix) => Rule::Orthogonal { matrix, momentum, weight_decay: decay(weight_decay) },
                None => Rule::of(block, binding, &OptimizerKind::adamw(weight_decay), dims),
            },
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
    fn add(block: &mut Block, rules: &[Rule], is_scaled: bool) -> Result<Scalars, String> {
        let mut scalar = |name: &str| add_arg(block, name.to_string(), ArgKind::Const, Type::scalar(DType::F32));
        let (clip, lr) = (scalar("clip")?, scalar("lr")?);
        let counts = rules.iter().any(|rule| matches!(rule, Rule::AdamW(_)));
        let step = counts.then(|| scalar("step")).transpose()?;
        let inv_scale = is_scaled.then(|| scalar("inv_scale")).transpose()?;
        Ok(Scalars { clip, lr, step, inv_scale, goes_on: None })
    }
}

/// 1 if the factor of gradients is above 0, else 0.
fn goes_on(builder: &mut Builder<'_>, clip: Value) -> Result<Value, String> {
    let zero = builder.one(Unary(UnaryKind::Scale(0.0)), &[clip])?;
    let is_above = builder.one(Compare(CompareKind::Less), &[zero, clip])?;
    builder.one(Unary(UnaryKind::Cast(DType::F32)), &[is_above])
}

/// Adds an argument after those of its kind: values and inputs, constants, parameters, states.
///
/// # Errors
/// The name is taken.
pub(crate) fn add_arg(block: &mut Block, name: String, kind: ArgKind, ty: Type) -> Result<Value, String> {
    let rank = |kind: ArgKind| match kind {
        ArgKind::Value | ArgKind::Input => 0,
        ArgKind::Const => 1,
        ArgKind::Param => 2,
        ArgKind::State => 3,
    };
    let name = free(block, name)?;
    let value = block.add_value(&name, ty);
    let place = block.args.iter().position(|arg| rank(arg.kind) > rank(kind)).unwrap_or(block.args.len());
    block.args.insert(place, Arg { value, kind });
    Ok(value)
}

/// `%w.sq = sum_squares(%w.grad)` for every parameter, and their sum, without the loss scale.
fn sum_squares(builder: &mut Builder<'_>, owned: &[Binding], inv_scale: Option<Value>) -> Result<Value, String> {
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

fn gradient(block: &Block, param: Value) -> Result<Value, String> {
    block.gradient_of(param).ok_or_else(|| format!("`%{}` has no gradient", block.value_name(param)))
}

/// Updates a parameter in place. One in less than 32 bits has a master copy in f32, which is updated and rounded.
fn update_parameter(builder: &mut Builder<'_>, param: Value, scalars: &Scalars, rule: &Rule) -> Result<(), String> {
    let gradient = gradient(builder.block, param)?;
    let dtype = builder.ty(param).dtype;
    let master = if dtype == DType::F32 { param } else { state(builder.block, param, "master")? };
    let Scalars { clip, lr, step, .. } = *scalars;
    match rule {
        Rule::AdamW(op) => {
            let (m, v) = (state(builder.block, param, "m")?, state(builder.block, param, "v")?);
            let operands: Vec<Value> = [master, gradient, m, v, clip, lr].into_iter().chain(step).collect();
            store(builder, op.clone(), &operands, &[master, m, v])?;
        }
        Rule::Sgd(op) if op.has_momentum() => {
            let m = state(builder.block, param, "m")?;
            store(builder, op.clone(), &[master, gradient, m, clip, lr], &[master, m])?;
        }
        Rule::Sgd(op) => store(builder, op.clone(), &[master, gradient, clip, lr], &[master])?,
        Rule::Orthogonal { matrix, momentum, weight_decay } => {
            let m = state(builder.block, param, "m")?;
            let update = momentum_of(builder, [m, gradient], scalars, *momentum)?;
            let update = matrix.orthogonal(builder, update)?;
            let step = Sgd { momentum: 0.0, weight_decay: *weight_decay };
            let goes_on = scalars.goes_on.unwrap_or(clip);
            store(builder, step, &[master, update, goes_on, lr], &[master])?;
        }
    }
    if master != param {
        store(builder, Unary(UnaryKind::Cast(dtype)), &[master], &[param])?;
    }
    Ok(())
}

/// Moves a mean to the clipped gradient, `m = m + (1 - momentum) (clip g - m)`, and gives the mean after one more such move
/// (Nesterov's momentum). Each is a step of gradient descent with the rate `momentum - 1` and the decay -1: no scalar is
/// multiplied with a tensor, so flat shards stay flat.
fn momentum_of(
    builder: &mut Builder<'_>,
    [m, gradient]: [Value; 2],
    scalars: &Scalars,
    momentum: f64,
) -> Result<Value, String> {
    let zero = builder.one(Unary(UnaryKind::Scale(0.0)), &[scalars.lr])?;
    let rate = builder.one(Unary(UnaryKind::Shift(momentum - 1.0)), &[zero])?;
    let (op, operands) = (Sgd { momentum: 0.0, weight_decay: -1.0 }, [m, gradient, scalars.clip, rate]);
    store(builder, op.clone(), &operands, &[m])?;
    builder.one(op, &operands)
}

/// Adds the state `%w.<suffix>`: of the parameter's dims, in f32.
fn state(block: &mut Block, param: Value, suffix: &str) -> Result<Value, String> {
    let name = format!("{}.{suffix}", block.value_name(param));
    let ty = Type { dtype: DType::F32, ..block.ty(param).clone() };
    add_arg(block, name, ArgKind::State, ty)
}

/// Appends a statement that stores into arguments.
fn store(builder: &mut Builder<'_>, op: impl Into<Op>, operands: &[Value], into: &[Value]) -> Result<(), String> {
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
pub(super) fn step(optimizer: &Optimizer) -> Result<Step, String> {
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
