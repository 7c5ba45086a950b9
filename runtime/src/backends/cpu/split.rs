//! Launches in parts: ops that treat rows alike run on some rows at a time, so that narrow tensors are widened in the cache and not in
//! copies of their size.

use crate::backend::{KernelSite, Span};
use crate::comm::local_len;
use crate::host::narrow;
use ir::ops::KernelOp;

/// Elements of a part for each thread: as many as a thread is worth waking for.
const PART: usize = 1 << 16;

/// Share of a part of a launch in an operand or in a result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    /// Rows of this number of elements.
    Rows(usize),
    /// All of it.
    Whole,
    /// A scalar that is the sum of those of the parts.
    Sum,
}

/// How a launch is divided into rows.
pub(super) struct Split {
    rows: usize,
    operands: Vec<Share>,
    results: Vec<Share>,
    /// The operands and results of a part.
    parts: [Vec<Span>; 2],
}

impl Split {
    /// The division of an op, if it treats rows alike and has a narrow operand or result.
    pub(super) fn of(op: &KernelOp, site: &KernelSite<'_>) -> Option<Split> {
        use KernelOp as Op;
        use Share::{Rows, Sum, Whole};
        let types = || site.operands.iter().chain(site.results);
        types().find(|ty| narrow(ty.dtype).is_some())?;
        let len = local_len(site.operands[0], site.mesh, site.coordinates);
        let last = || Some(*site.operand(0).ok()?.last()?);
        let (row, operands, results) = match op {
            Op::Unary(_) => (1, vec![Rows(1)], vec![Rows(1)]),
            Op::Binary(binary) if binary.equation.is_none() => (1, vec![Rows(1); 2], vec![Rows(1)]),
            Op::RmsNorm(_) => (last()?, vec![Rows(last()?), Whole], vec![Rows(last()?), Rows(1)]),
            Op::RmsNormDx(_) => (last()?, vec![Rows(last()?), Whole, Rows(1), Rows(last()?)], vec![Rows(last()?)]),
            Op::LayerNorm(_) => (last()?, vec![Rows(last()?), Whole, Whole], vec![Rows(last()?), Rows(1), Rows(1)]),
            Op::LayerNormDx(_) => {
                (last()?, vec![Rows(last()?), Whole, Rows(1), Rows(1), Rows(last()?)], vec![Rows(last()?)])
            }
            Op::Softmax(_) => (last()?, vec![Rows(last()?)], vec![Rows(last()?)]),
            Op::SoftmaxGrad(_) => (last()?, vec![Rows(last()?); 2], vec![Rows(last()?)]),
            Op::CrossEntropy(_) => (last()?, vec![Rows(last()?), Rows(1)], vec![Sum, Rows(1)]),
            Op::CrossEntropyGrad(_) => (last()?, vec![Rows(last()?), Rows(1), Rows(1), Whole], vec![Rows(last()?)]),
            Op::SumExp(_) => (last()?, vec![Rows(last()?), Rows(1)], vec![Rows(1)]),
            Op::Pick(_) => (last()?, vec![Rows(last()?), Rows(1)], vec![Rows(1)]),
            _ => return None,
        };
        let parts = [operands.len(), results.len()].map(Vec::with_capacity);
        (row > 0).then(|| Split { rows: len / row, operands, results, parts })
    }

    /// Runs a launch part by part, for a number of threads. `launch` gives the scalar at the place that it is told, if any. Gives the place of
    /// a result that is the sum of those, with the sum.
    pub(super) fn run(
        &mut self,
        [operands, results]: [&[Span]; 2],
        threads: usize,
        mut launch: impl FnMut([&[Span]; 2], Option<Span>) -> f32,
    ) -> Option<(Span, f32)> {
        let Split { rows, operands: of_operands, results: of_results, parts } = self;
        let size = |share: &Share| if let Share::Rows(size) = share { *size } else { 0 };
        let longest = of_operands.iter().chain(&*of_results).map(size).max().unwrap_or(0);
        let step = (PART * threads / longest.max(1)).max(1);
        let summed = of_results.iter().zip(results).find(|(share, _)| **share == Share::Sum).map(|(_, span)| *span);
        let mut sum = 0.0;
        for start in (0..*rows).step_by(step) {
            let count = step.min(*rows - start);
            let part = |(share, span): (&Share, &Span)| match share {
                Share::Rows(size) => span.part(start * size, count * size),
                Share::Whole | Share::Sum => *span,
            };
            parts.iter_mut().for_each(Vec::clear);
            parts[0].extend(of_operands.iter().zip(operands).map(part));
            parts[1].extend(of_results.iter().zip(results).map(part));
            sum += f64::from(launch([&parts[0], &parts[1]], summed));
        }
        summed.map(|span| (span, sum as f32))
    }
}
