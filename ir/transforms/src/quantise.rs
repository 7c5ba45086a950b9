//! Quantisation: the products with parameters take 8-bit operands, in the forward and in both of its gradients.
//!
//! Of `y = einsum(x, w)`, its `dx = einsum(dy, w)` and `dw = einsum(dy, x)`, each operand is measured (`absmax`), divided by scales
//! (`quantise`), and multiplied by them again in the product. Recipes differ in the blocks that share a scale:
//!
//! - blocks (DeepSeek-V3, section 3.3.2): 128 x 128 elements of a parameter, and 128 elements of activations and cotangents along
//!   the dim that the product sums. `x` is thus quantised twice: along the dim that `w` shares for `y`, along tokens for `dw`.
//! - tensors: one scale for each tensor, from its elements as they are (current scaling); an expert has its own.
//!
//! Heads and routers stay as they are: their products have a dim of the vocabulary or of the router's experts.
//!
//! Where the backward reads `x` for `dw` alone, F quantises it, and its 8-bit copy is saved in its place.

use crate::renumber::renumber;
use ir::dim_role::DimRole;
use ir::graph::{ArgKind, Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{AbsMax, Builder, Einsum, Equation, KernelOp, Op, Quantise, ScaleFor};
use ir::options::{Quantisation, Scales};
use ir::types::{DType, Dims};
use std::collections::HashMap;

/// The shortest block of a dim, as a part of the size asked for: shorter ones have more scales than are worth it.
const SHORTEST: u64 = 4;

/// Quantises the products with parameters of a differentiated model, and returns their number, a forward and its gradients counted as one.
///
/// # Errors
/// A product is none: its statement does not hold in the block.
pub fn quantise(model: &mut Model, recipe: &Quantisation) -> Result<usize, String> {
    let (dims, has_mesh) = (&model.dims, model.has_mesh);
    model.blocks.values_mut().map(|block| quantise_block(block, dims, has_mesh, recipe)).sum()
}

fn quantise_block(block: &mut Block, dims: &Dims, has_mesh: bool, recipe: &Quantisation) -> Result<usize, String> {
    let stmts = &block[SectionKind::F].stmts;
    let forwards: Vec<Forward> = stmts.iter().filter_map(|stmt| Forward::of(stmt, block, dims, recipe)).collect();
    let (first_new, saved) = (block.values.len(), saved_narrow(block, &forwards));
    let mut rewriter = Rewriter { recipe, forwards: &forwards, saved, scales: HashMap::new(), narrow: HashMap::new() };
    for kind in [SectionKind::F, SectionKind::I, SectionKind::W] {
        let stmts = std::mem::take(&mut block[kind].stmts);
        let mut builder = Builder::new(block);
        stmts.into_iter().try_for_each(|stmt| rewriter.statement(&mut builder, stmt))?;
        block[kind].stmts = builder.stmts;
        if kind == SectionKind::F {
            rewriter.forget_unsaved();
        }
    }
    if has_mesh {
        // The planner decides the shardings of new values.
        let new = block.values.values_mut().skip(first_new);
        new.for_each(|value| value.ty.dims.iter_mut().for_each(|dim| dim.open = true));
    }
    renumber(block);
    Ok(forwards.len())
}

/// A product of F with a parameter.
struct Forward {
    x: Value,
    w: Value,
    x_labels: Vec<String>,
    w_labels: Vec<String>,
    y_labels: Vec<String>,
    x_is_first: bool,
    cuts: Option<Cuts>,
}

/// The labels with blocks, and the sizes of the blocks.
struct Cuts {
    /// Of x and w, summed in y.
    inner: (String, u64),
    /// Of w and y, summed in dx.
    outer: (String, u64),
    /// Of x and y, summed in dw.
    tokens: (String, u64),
}

impl Forward {
    /// The product that a statement is, if it can be quantised.
    fn of(stmt: &Stmt, block: &Block, dims: &Dims, recipe: &Quantisation) -> Option<Forward> {
        let Op::Kernel(KernelOp::Einsum(Einsum { equation, scaled: None })) = &stmt.op else { return None };
        let &[a, b] = stmt.operands.as_slice() else { return None };
        let is_param = |value: Value| block.args_of(ArgKind::Param).any(|param| param == value);
        let (x_at, w_at) = match (is_param(a), is_param(b)) {
            (false, true) => (0, 1),
            (true, false) => (1, 0),
            _ => return None,
        };
        let (x, w) = (stmt.operands[x_at], stmt.operands[w_at]);
        let is_exempt = |role| matches!(role, DimRole::Vocabulary | DimRole::RouterLogits);
        if block.ty(w).dims.iter().filter_map(|dim| dim.role(dims)).any(is_exempt) {
            return None;
        }
        let [x_labels, w_labels] = [x_at, w_at].map(|at| equation.operands[at].clone());
        let y_labels = equation.result.clone();
        let last = |labels: &[String], with: &[String], without: &[String], size: u64| {
            let label = labels.iter().rfind(|label| with.contains(label) && !without.contains(label))?;
            let dim = equation.dim(label, &[block.ty(a), block.ty(b)])?;
            Some((label.clone(), cut(dim.size, size)?))
        };
        let cuts = match recipe.scales {
            Scales::Tensor => None,
            Scales::Blocks(size) => Some(Cuts {
                inner: last(&x_labels, &w_labels, &y_labels, size)?,
                outer: last(&w_labels, &y_labels, &x_labels, size)?,
                tokens: last(&x_labels, &y_labels, &w_labels, size)?,
            }),
        };
        Some(Forward { x, w, x_labels, w_labels, y_labels, x_is_first: x_at == 0, cuts })
    }

    /// True if the statement is this product itself.
    fn is(&self, stmt: &Stmt, equation: &Equation) -> bool {
        let [x, w] = [&self.x_labels, &self.w_labels];
        let (operands, labels) = if self.x_is_first { ([self.x, self.w], [x, w]) } else { ([self.w, self.x], [w, x]) };
        stmt.operands == operands && equation.operands.iter().eq(labels) && equation.result == self.y_labels
    }

    /// True if an equation gives the gradient of one operand: it multiplies the cotangent of y by the other.
    fn is_gradient(&self, equation: &Equation, to: &[String], other: &[String]) -> bool {
        equation.operands == [self.y_labels.as_slice(), other] && equation.result == to
    }

    /// The indices of a block along each dim of an operand of one of the three products.
    fn block(&self, labels: &[String], part: Part) -> Vec<Option<u64>> {
        let Some(cuts) = &self.cuts else {
            // Only what all three tensors have, as the experts, has a scale for each index.
            let is_batch = |label| [&self.x_labels, &self.w_labels, &self.y_labels].iter().all(|of| of.contains(label));
            return labels.iter().map(|label| is_batch(label).then_some(1)).collect();
        };
        let is_param = *labels == self.w_labels;
        let size = |label: &String| {
            let along = |cut: &(String, u64)| (cut.0 == *label).then_some(cut.1);
            match part {
                Part::Weight => along(&cuts.tokens),
                _ if is_param => along(&cuts.inner).or_else(|| along(&cuts.outer)),
                Part::Forward => along(&cuts.inner),
                Part::Input => along(&cuts.outer),
            }
        };
        labels.iter().map(|label| Some(size(label).unwrap_or(1))).collect()
    }
}

/// The largest divisor of a dim up to a size, if it is large enough: no block then crosses the end of a dim or is shorter than others.
fn cut(dim: u64, size: u64) -> Option<u64> {
    let block = (1..=size.min(dim)).rfind(|block| dim.is_multiple_of(*block))?;
    (block * SHORTEST >= size || block == dim).then_some(block)
}

/// The values of F that the backward reads for gradients of parameters alone: their 8-bit copies are saved.
fn saved_narrow(block: &Block, forwards: &[Forward]) -> Vec<Value> {
    let backward = || [SectionKind::I, SectionKind::W].into_iter().flat_map(|kind| &block[kind].stmts);
    let is_only_for_gradients = |x: Value| {
        let readers: Vec<&Stmt> = backward().filter(|stmt| stmt.operands.contains(&x)).collect();
        let is_gradient = |stmt: &&Stmt| matches!(part(stmt, forwards, block), Some((_, Part::Weight)));
        !readers.is_empty() && readers.iter().all(is_gradient)
    };
    forwards.iter().map(|forward| forward.x).filter(|&x| is_only_for_gradients(x)).collect()
}

/// One of the three products that a parameter takes part in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Forward,
    Input,
    Weight,
}

/// The product that a statement is, if it is quantised.
fn part<'a>(stmt: &Stmt, forwards: &'a [Forward], block: &Block) -> Option<(&'a Forward, Part)> {
    let Op::Kernel(KernelOp::Einsum(Einsum { equation, scaled: None })) = &stmt.op else { return None };
    let second = stmt.operands.get(1).copied();
    forwards.iter().find_map(|forward| {
        let (x, w) = (&forward.x_labels, &forward.w_labels);
        let gradient = block.gradient_of(forward.w);
        let is_weight = second == Some(forward.x) || gradient.is_some_and(|gradient| stmt.results == [gradient]);
        let part = if forward.is(stmt, equation) {
            Part::Forward
        } else if second == Some(forward.w) && forward.is_gradient(equation, x, w) {
            Part::Input
        } else if is_weight && forward.is_gradient(equation, w, x) {
            Part::Weight
        } else {
            return None;
        };
        Some((forward, part))
    })
}

/// A tensor with the blocks and the format in which it is quantised.
type Key = (Value, Vec<Option<u64>>, DType);

struct Rewriter<'a> {
    recipe: &'a Quantisation,
    forwards: &'a [Forward],
    /// Values whose 8-bit copies the backward reads.
    saved: Vec<Value>,
    /// Scales that exist.
    scales: HashMap<Key, Value>,
    /// 8-bit copies that exist.
    narrow: HashMap<Key, Value>,
}

impl Rewriter<'_> {
    /// Appends a statement, or its quantised form.
    fn statement(&mut self, builder: &mut Builder<'_>, stmt: Stmt) -> Result<(), String> {
        let forwards = self.forwards;
        let (Op::Kernel(KernelOp::Einsum(einsum)), Some((forward, part))) =
            (&stmt.op, part(&stmt, forwards, builder.block))
        else {
            builder.stmts.push(stmt);
            return Ok(());
        };
        let op = einsum.clone().scaled(builder.ty(stmt.operands[0]).dtype)?;
        let mut operand = |at: usize| {
            let labels = &einsum.equation.operands[at];
            let is_cotangent = part != Part::Forward && at == 0;
            let to = if is_cotangent { self.recipe.cotangents } else { DType::F8E4M3 };
            self.quantised(builder, (stmt.operands[at], forward.block(labels, part), to))
        };
        let [a, b] = [operand(0)?, operand(1)?];
        builder.stmts.push(Stmt { op: op.into(), operands: vec![a[0], b[0], a[1], b[1]], ..stmt });
        if part == Part::Forward && self.saved.contains(&forward.x) {
            self.quantised(builder, (forward.x, forward.block(&forward.x_labels, Part::Weight), DType::F8E4M3))?;
        }
        Ok(())
    }

    /// The 8-bit copy of a tensor, and its scales.
    fn quantised(&mut self, builder: &mut Builder<'_>, key: Key) -> Result<[Value; 2], String> {
        let (value, block, to) = &key;
        let scale = match self.scales.get(&key) {
            Some(&scale) => scale,
            None => {
                let max = builder.one(AbsMax { block: block.clone() }, &[*value])?;
                let scale = builder.one(ScaleFor { to: *to }, &[max])?;
                named(builder.block, scale, *value, "scale");
                scale
            }
        };
        let copy = match self.narrow.get(&key) {
            Some(&copy) => copy,
            None => {
                let copy = builder.one(Quantise { to: *to }, &[*value, scale])?;
                named(builder.block, copy, *value, "q");
                copy
            }
        };
        self.scales.insert(key.clone(), scale);
        self.narrow.insert(key, copy);
        Ok([copy, scale])
    }

    /// Forgets the copies that F makes for its own products: the backward makes them again, as it has what they are made of.
    fn forget_unsaved(&mut self) {
        let saved = &self.saved;
        self.narrow.retain(|(value, ..), _| saved.contains(value));
    }
}

/// Names a value after the one that it is made of, if the name is free.
fn named(block: &mut Block, value: Value, of: Value, suffix: &str) {
    let name = format!("{}.{suffix}", block.value_name(of));
    if block.find(&name).is_none() {
        block.values[value].name = name;
    }
}
