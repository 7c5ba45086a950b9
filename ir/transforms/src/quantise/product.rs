//! The products that are quantised, and the blocks of their operands.

use ir::dim_role::DimRole;
use ir::graph::{ArgKind, Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::Equation;
use ir::options::{Quantisation, Scales};
use ir::types::Dims;

/// The shortest block of a dim, as a part of the size asked for: shorter ones have more scales than are worth it.
const SHORTEST: u64 = 4;

/// A product of F with a parameter.
pub(super) struct Forward {
    pub(super) x: Value,
    w: Value,
    pub(super) x_labels: Vec<String>,
    w_labels: Vec<String>,
    y_labels: Vec<String>,
    x_is_first: bool,
    cuts: Option<Cuts>,
    is_delayed: bool,
}

/// The labels with blocks.
struct Cuts {
    /// The label of x and w that y sums.
    inner: Cut,
    /// The label of w and y that dx sums.
    outer: Cut,
    /// The label of x and y that dw sums.
    tokens: Cut,
}

/// A label with blocks.
struct Cut {
    label: String,
    /// The indices of a block.
    size: u64,
}

impl Cut {
    /// The size of the blocks, if this is the label.
    fn along(&self, label: &str) -> Option<u64> {
        (self.label == label).then_some(self.size)
    }
}

impl Forward {
    /// The product that a statement is, if it can be quantised.
    pub(super) fn of(stmt: &Stmt, block: &Block, dims: &Dims, recipe: &Quantisation) -> Option<Forward> {
        let equation = stmt.op.extras().contraction?.equation();
        let &[a, b] = stmt.operands.as_slice() else { return None };
        let [a_is_param, b_is_param] = [a, b].map(|value| block.arg_kind(value) == Some(ArgKind::Param));
        let (x_at, w_at) = match (a_is_param, b_is_param) {
            (false, true) => (0, 1),
            (true, false) => (1, 0),
            _ => return None,
        };
        let (x, w) = (stmt.operands[x_at], stmt.operands[w_at]);
        if [DimRole::Vocabulary, DimRole::RouterLogits].iter().any(|&role| block.ty(w).has_role(role, dims)) {
            return None;
        }
        let [x_labels, w_labels] = [x_at, w_at].map(|at| equation.operands[at].clone());
        let y_labels = equation.result.clone();
        // A product that sums nothing, as one with a gain, is no matrix product.
        let inner = last_common(&x_labels, &w_labels, &y_labels)?;
        let outer = last_common(&w_labels, &y_labels, &x_labels)?;
        let tokens = last_common(&x_labels, &y_labels, &w_labels)?;
        let cuts = match recipe.scales {
            Scales::Tensor | Scales::Delayed(_) => None,
            Scales::Blocks(size) => {
                let operands = [block.ty(a), block.ty(b)];
                let [inner, outer, tokens] = [inner, outer, tokens].map(|label| {
                    let dim = equation.dim(&label, &operands)?;
                    Some(Cut { size: cut(dim.size, size)?, label })
                });
                Some(Cuts { inner: inner?, outer: outer?, tokens: tokens? })
            }
        };
        let is_delayed = matches!(recipe.scales, Scales::Delayed(_));
        Some(Forward { x, w, x_labels, w_labels, y_labels, x_is_first: x_at == 0, cuts, is_delayed })
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
    pub(super) fn block(&self, labels: &[String], part: Part) -> Vec<Option<u64>> {
        let Some(Cuts { inner, outer, tokens }) = &self.cuts else {
            // Only what all three tensors have, as the experts, has a scale for each index. Records are of entire tensors.
            let shared = labels.iter().map(|label| self.is_batch(label) && !self.is_delayed);
            return shared.map(|is_shared| is_shared.then_some(1)).collect();
        };
        let is_param = *labels == self.w_labels;
        let mut sizes = Vec::new();
        for label in labels {
            let size = match part {
                Part::Weight => tokens.along(label),
                _ if is_param => inner.along(label).or_else(|| outer.along(label)),
                Part::Forward => inner.along(label),
                Part::Input => outer.along(label),
            };
            sizes.push(Some(size.unwrap_or(1)));
        }
        sizes
    }

    /// True for a label of all three tensors.
    fn is_batch(&self, label: &String) -> bool {
        [&self.x_labels, &self.w_labels, &self.y_labels].iter().all(|labels| labels.contains(label))
    }
}

/// The last of some labels that is among others, and not among a third list.
fn last_common(labels: &[String], with: &[String], without: &[String]) -> Option<String> {
    labels.iter().rfind(|label| with.contains(label) && !without.contains(label)).cloned()
}

/// The largest divisor of a dim up to a size, if it is large enough: no block then crosses the end of a dim or is shorter than others.
fn cut(dim: u64, size: u64) -> Option<u64> {
    let block = (1..=size.min(dim)).rfind(|block| dim.is_multiple_of(*block))?;
    (block * SHORTEST >= size || block == dim).then_some(block)
}

/// One of the three products that a parameter takes part in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Forward,
    Input,
    Weight,
}

/// The product that a statement of a section is, if it is quantised. A product of F can have the form of another's gradient.
pub(super) fn part<'a>(
    stmt: &Stmt,
    kind: SectionKind,
    forwards: &'a [Forward],
    block: &Block,
) -> Option<(&'a Forward, Part)> {
    let equation = stmt.op.extras().contraction?.equation();
    let second = stmt.operands.get(1).copied();
    forwards.iter().find_map(|forward| {
        let (x, w) = (&forward.x_labels, &forward.w_labels);
        let gradient = block.gradient_of(forward.w);
        let is_weight = second == Some(forward.x) || gradient.is_some_and(|gradient| stmt.results == [gradient]);
        let part = match kind {
            SectionKind::F => forward.is(stmt, equation).then_some(Part::Forward),
            _ if second == Some(forward.w) && forward.is_gradient(equation, x, w) => Some(Part::Input),
            _ => (is_weight && forward.is_gradient(equation, w, x)).then_some(Part::Weight),
        };
        Some((forward, part?))
    })
}
