//! Updates of parameters, and numbers of whole tensors.

use super::{At, Steps, of_operand, result_len, threads, warps};
use crate::lower::len;
use device::backend::KernelSite;
use device::host::narrow;
use device::region::row_major;
use ir::ops::{AdamW, DelayedScale, KernelOp, ScaleFor, Sgd};
use ir::types::DType;
use kernels::cuda::written::{Definitions, texts};
use kernels::scalar::{Element, Strides};

/// Elements of a chunk whose squares a block sums, whose exponents it counts, or of which a warp takes the largest: with some thousands of
/// chunks the sums of those are short.
const CHUNK: usize = 1 << 14;

/// An update that also leaves a copy of the updated weights in a format, as the result behind its own. `None`: the op is no update.
pub(in super::super) fn update(op: &KernelOp, site: &KernelSite<'_>, copy: Option<Element>) -> Option<Steps> {
    let n = result_len(site, 0);
    let define = Definitions::new().size("N", n).flag("COPIES", copy.is_some());
    let define = copy.into_iter().fold(define, |define, format| define.tensor("COPY", format));
    let (define, text, name, operands) = match op {
        KernelOp::AdamW(op) => (adamw(op, define), texts::ADAMW, "adamw", &[1, 4, 5, 6][..]),
        KernelOp::Sgd(op) if op.has_momentum() => {
            let name = if op.nesterov { "sgd_nesterov" } else { "sgd_momentum" };
            (sgd(op, define), texts::SGD, name, &[1, 3, 4][..])
        }
        KernelOp::Sgd(op) => (sgd(op, define), texts::SGD, "sgd", &[1, 2, 3][..]),
        _ => return None,
    };
    // A copy is one result more, and results come before what they are added to.
    let last = "unsigned long long adds";
    let text = if copy.is_some() { text.replace(last, &format!("T_COPY* copy, {last}")) } else { text.to_string() };
    let work = define.kernel(&text, name, threads(n));
    let results = site.results.len() + usize::from(copy.is_some());
    Some(Steps::one(work, operands.iter().copied().map(At::Operand).collect(), (0..results).map(At::Result).collect()))
}

/// Operands w, g, m, v, clip, lr, step. The results hold the old w, m and v.
fn adamw(op: &AdamW, define: Definitions) -> Definitions {
    let numbers = [("FIRST", op.beta1), ("SECOND", op.beta2), ("EPS", op.eps), ("WEIGHT_DECAY", op.weight_decay)];
    let define = define.double("BETA1", op.beta1).double("BETA2", op.beta2);
    numbers.into_iter().fold(define, |define, (name, number)| define.number(name, number as f32))
}

/// Operands w, g, clip, lr, or with momentum w, g, m, clip, lr. The results hold the old w and m.
fn sgd(op: &Sgd, define: Definitions) -> Definitions {
    define.number("MOMENTUM", op.momentum as f32).number("WEIGHT_DECAY", op.weight_decay as f32)
}

/// The definitions of the chunks of the first operand, and their number.
fn chunks(site: &KernelSite<'_>) -> Result<(Definitions, usize), String> {
    let n = len(site.operands[0], site);
    let chunks = n.div_ceil(CHUNK);
    let define = Definitions::new().tensor("X", of_operand(site, 0));
    Ok((define.size("N", n).size("CHUNK", CHUNK).size("CHUNKS", chunks), chunks))
}

pub(super) fn sum_squares(site: &KernelSite<'_>) -> Result<Steps, String> {
    let ((define, count), (again, _)) = (chunks(site)?, chunks(site)?);
    let partials = Steps { scratch: vec![count * size_of::<f64>()], ..Steps::default() };
    let parts = define.kernel(texts::SQUARES, "square_chunks", count);
    let sum = again.kernel(texts::SQUARES, "square_sum", 1);
    Ok(partials.then(parts, vec![At::Operand(0)], vec![At::Scratch(0)]).then(
        sum,
        vec![At::Scratch(0)],
        vec![At::Result(0)],
    ))
}

pub(super) fn exponents(site: &KernelSite<'_>) -> Result<Steps, String> {
    let ((define, count), (again, _)) = (chunks(site)?, chunks(site)?);
    let partials =
        Steps { scratch: vec![count * kernels::cpu::quantise::EXPONENTS * size_of::<u32>()], ..Steps::default() };
    let parts = define.kernel(texts::EXPONENTS, "exponent_chunks", count);
    let sum = again.kernel(texts::EXPONENTS, "exponent_counts", 1);
    Ok(partials.then(parts, vec![At::Operand(0)], vec![At::Scratch(0)]).then(
        sum,
        vec![At::Scratch(0)],
        vec![At::Result(0)],
    ))
}

/// Along each dim equally many indices have one scale.
pub(super) fn absmax(site: &KernelSite<'_>) -> Result<Steps, String> {
    let (sizes, counts) = (site.operand(0)?, site.result(0)?);
    let strides = row_major(&sizes);
    let blocks: Vec<usize> = sizes.iter().zip(&counts).map(|(size, count)| size / count.max(&1)).collect();
    let outer = counts.iter().zip(blocks.iter().zip(&strides)).map(|(&count, (block, stride))| (count, block * stride));
    let inner = blocks.iter().zip(&strides).map(|(&block, &stride)| (block, stride));
    let place = Strides { dims: outer.chain(inner).collect(), offset: 0 };
    let (scales, size): (usize, usize) = (counts.iter().product(), blocks.iter().product());
    let parts = size.div_ceil(CHUNK).max(1);
    let of_parts = |x: Element, place: &Strides, size: usize, parts: usize| {
        let define = Definitions::new().tensor("X", x).place("PLACE", place).size("SCALES", scales);
        let define = define.size("SIZE", size).size("PARTS", parts).size("PART", size.div_ceil(parts));
        define.kernel(texts::ABSMAX, "absmax", warps(scales * parts))
    };
    let first = of_parts(of_operand(site, 0), &place, size, parts);
    if parts == 1 {
        return Ok(Steps::one(first, vec![At::Operand(0)], vec![At::Result(0)]));
    }
    // The maxima of parts lie in order.
    let place = Strides { dims: vec![(scales * parts, 1)], offset: 0 };
    let last = of_parts(Element::F32, &place, parts, 1);
    let partials = Steps { scratch: vec![scales * parts * size_of::<f32>()], ..Steps::default() };
    Ok(partials.then(first, vec![At::Operand(0)], vec![At::Scratch(0)]).then(
        last,
        vec![At::Scratch(0)],
        vec![At::Result(0)],
    ))
}

/// The definition of a format's largest number, by its bits.
fn largest(format: DType) -> Result<Definitions, String> {
    let format = narrow(format).ok_or_else(|| format!("{} is no format to quantise to", format.name()))?;
    Ok(Definitions::new().integer("LARGEST", i64::from(format.largest().to_bits())))
}

pub(super) fn scale_for(op: &ScaleFor, site: &KernelSite<'_>) -> Result<Steps, String> {
    let n = result_len(site, 0);
    let define = largest(op.to)?.size("N", n).number("WITHIN", 0.0);
    let work = define.kernel(texts::SCALES, "scale_for", threads(n));
    Ok(Steps::one(work, vec![At::Operand(0)], vec![At::Result(0)]))
}

pub(super) fn delayed_scale(op: &DelayedScale) -> Result<Steps, String> {
    let define = largest(op.to)?.size("N", 1).number("WITHIN", op.within as f32);
    Ok(Steps::one(define.kernel(texts::SCALES, "delayed_scale", 1), vec![At::Operand(0)], vec![At::Result(0)]))
}

/// Operands ages, seen, clip. The result holds the old ages.
pub(super) fn ages(site: &KernelSite<'_>) -> Result<Steps, String> {
    let n = result_len(site, 0);
    let work = Definitions::new().size("N", n).kernel(texts::AGES, "age", threads(n));
    Ok(Steps::one(work, [1, 2].map(At::Operand).to_vec(), vec![At::Result(0)]))
}
