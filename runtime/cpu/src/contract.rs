//! Contractions and reductions.

use super::KernelFn;
use super::call::Call;
use super::quantise::Dequantise;
use device::backend::KernelSite;
use ir::ops::{Einsum, OpDef, Reduce};
use ir::types::PartialKind;
use kernels::cpu::columns::column_sums;
use kernels::cpu::filled::{Chunks, Copied};
use kernels::cpu::narrow::Floats;
use kernels::cpu::{einsum, reduce};

/// The plan of a contraction.
pub(super) fn plan(op: &Einsum, site: &KernelSite<'_>) -> Result<einsum::Einsum, String> {
    let [a, b, out] = letters(op);
    let b_sizes = if op.equation.operands.len() > 1 { site.operand(1)? } else { Vec::new() };
    einsum::Einsum::new(&a, &b, &out, &site.operand(0)?, &b_sizes)
}

/// The factors of the operands and of the result as the planner of the kernel takes them: it goes by characters.
fn letters(op: &Einsum) -> [Vec<char>; 3] {
    let equation = &op.equation;
    let mut names: Vec<&String> = equation.operands.iter().flatten().collect();
    names.sort();
    names.dedup();
    let letter = |name: &String| names.iter().position(|n| *n == name).unwrap_or(0) as u32;
    let letters = |names: &[String]| names.iter().filter_map(|name| char::from_u32(letter(name))).collect::<Vec<_>>();
    let b = equation.operands.get(1).map_or(&[][..], |names| names);
    [&equation.operands[0], b, &equation.result].map(letters)
}

/// The kernel of a contraction of chunks of rows, by the filled ones.
fn of_chunks(op: &Einsum, rows: usize, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let letters = letters(op);
    let sizes = [site.operand(0)?, site.operand(1)?];
    let plan = Chunks::new(letters.each_ref().map(Vec::as_slice), sizes.each_ref().map(Vec::as_slice), rows)?;
    let mut copied = Copied::default();
    Ok(Box::new(move |call, par| {
        let (operands, counts, accumulate) = ([call.floats(0), call.floats(1)], call.int(2), call.accumulate);
        match &plan {
            Chunks::Filled(filled) => filled.run(operands, counts, call.out(), accumulate, par, &mut copied),
            Chunks::All(einsum) => {
                let ([a, b], [out]) = (operands, call.outs());
                einsum.run(a, b, out, accumulate, par, call.scratch);
            }
        }
    }))
}

/// The kernel, and whether it writes narrow results as they are.
pub(super) fn einsum(op: &Einsum, site: &KernelSite<'_>) -> Result<(KernelFn, bool), String> {
    if let Some(ragged) = op.ragged {
        return Ok((of_chunks(op, ragged.rows, site)?, false));
    }
    let plan = plan(op, site)?;
    let (is_unary, can_round) = (op.equation.operands.len() == 1, plan.can_round());
    let run = move |call: &mut Call<'_>, [a, b]: [Floats<'_>; 2], par| match call.narrow_out() {
        Some(out) => plan.run_rounded(a, b, out, par, call.scratch),
        None => {
            let [out] = call.outs();
            plan.run(a, b, out, call.accumulate, par, call.scratch);
        }
    };
    if op.scaled.is_none() {
        let run: KernelFn = Box::new(move |call, par| {
            let b = if is_unary { Floats::Wide(&[1.0]) } else { call.floats(1) };
            run(call, [call.floats(0), b], par);
        });
        return Ok((run, can_round));
    }
    let dequantise = Dequantise::of(site)?;
    let run: KernelFn = Box::new(move |call, par| {
        let mut wide = std::mem::take(call.dequantised);
        dequantise.run(call, &mut wide, par);
        run(call, [Floats::Wide(&wide[0]), Floats::Wide(&wide[1])], par);
        *call.dequantised = wide;
    });
    Ok((run, can_round))
}

pub(super) fn reduce(op: &Reduce, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    if op.rows(site.operands).is_some() {
        return Ok(Box::new(|call, par| {
            let (x, accumulate) = (call.float(0), call.accumulate);
            column_sums(x, call.out(), accumulate, par);
        }));
    }
    let sizes = site.operand(0)?;
    let keep: Vec<bool> = op.equation.operands[0].iter().map(|l| op.equation.result.contains(l)).collect();
    let kind = match op.kind {
        PartialKind::Sum => reduce::Reduction::Sum,
        PartialKind::Max => reduce::Reduction::Max,
    };
    Ok(Box::new(move |call, par| reduce::reduce(kind, call.float(0), &sizes, &keep, call.out(), par)))
}
