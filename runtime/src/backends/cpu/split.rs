//! Launches in parts: ops that treat rows alike run on some rows at a time, so that narrow tensors are widened in the cache and not in
//! copies of their size.

use crate::backend::{KernelSite, Span};
use crate::comm::local_len;
use crate::host::narrow;
use ir::ops::{KernelOp, Rows};
use ir::types::Type;

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
        let mut types = site.operands.iter().chain(site.results);
        types.find(|ty| narrow(ty.dtype).is_some())?;
        let sums = matches!(op, KernelOp::CrossEntropy(_));
        // Its loss is one number, the sum over the rows.
        let law = if sums {
            Rows::last(site.operands, &[true; 2])
        } else {
            op.def().rows(site.operands).filter(|law| !law.sums && law.product.is_none())?
        };
        let first = law.operands.iter().position(|has_rows| *has_rows)?;
        let rows = site.rows(site.operands[first], law.dims).ok().filter(|rows| *rows > 0)?;
        let share = |ty: &Type| Share::Rows(local_len(ty, site.mesh, site.coordinates) / rows);
        let operand = |(ty, has_rows): (&&Type, &bool)| if *has_rows { share(ty) } else { Share::Whole };
        let operands: Vec<Share> = site.operands.iter().zip(&law.operands).map(operand).collect();
        let result = |ty: &&Type| if sums && ty.rank() == 0 { Share::Sum } else { share(ty) };
        let results: Vec<Share> = site.results.iter().map(result).collect();
        let parts = [operands.len(), results.len()].map(Vec::with_capacity);
        Some(Split { rows, operands, results, parts })
    }

    /// Runs a launch part by part, for a number of threads. `launch` is told the elements of the first operand before the part, and gives
    /// the scalar at a place, if any. Gives the place of a result that is the sum of those, with the sum.
    pub(super) fn run(
        &mut self,
        [operands, results]: [&[Span]; 2],
        threads: usize,
        mut launch: impl FnMut([&[Span]; 2], usize, Option<Span>) -> f32,
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
            let skipped = start * of_operands.first().map_or(0, size);
            sum += f64::from(launch([&parts[0], &parts[1]], skipped, summed));
        }
        summed.map(|span| (span, sum as f32))
    }
}
