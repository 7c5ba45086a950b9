//! Measurement of matrix products as the backend runs them: f32 operands without TF32, bf16 operands, and operands of 8 bits.

use super::bench::Bench;
use super::{GpuProduct, Product};
use crate::{Error, has_eight_bits};
use ir::types::DType;

/// Number of products, rows, columns and depth: large squares; 4096 tokens through a layer of Llama 3.2 1B and of Llama 3 8B; few
/// rows or columns, and little depth; a batch. The largest comes first, so that the clock of an idle device has risen.
const SHAPES: [[usize; 4]; 16] = [
    [1, 8192, 8192, 8192],
    [1, 4096, 4096, 4096],
    [1, 2048, 2048, 2048],
    [1, 1024, 1024, 1024],
    [1, 4096, 2048, 2048],
    [1, 4096, 512, 2048],
    [1, 4096, 8192, 2048],
    [1, 4096, 2048, 8192],
    [1, 4096, 1024, 4096],
    [1, 4096, 14336, 4096],
    [1, 4096, 4096, 14336],
    [1, 128, 4096, 4096],
    [1, 4096, 64, 4096],
    [1, 4096, 4096, 64],
    [1, 512, 256, 256],
    [32, 1024, 1024, 128],
];

/// The same of weight gradients, whose depth is the tokens.
const ADDED: [[usize; 4]; 3] = [[1, 2048, 8192, 4096], [1, 4096, 4096, 4096], [1, 4096, 14336, 4096]];

/// Small sizes.
const QUICK: [[usize; 4]; 3] = [[1, 64, 64, 64], [1, 128, 64, 32], [3, 32, 32, 48]];
const QUICK_ADDED: [[usize; 4]; 1] = [[1, 48, 64, 96]];

/// All shapes in f32 and bf16, and in 8 bits where tensor cores take them.
pub(super) fn all(bench: &mut Bench) -> Result<Vec<GpuProduct>, Error> {
    let (shapes, added): (&[_], &[_]) =
        if bench.clock.extent.quick { (&QUICK, &QUICK_ADDED) } else { (&SHAPES, &ADDED) };
    let all = shapes.iter().map(|&shape| (shape, false)).chain(added.iter().map(|&shape| (shape, true)));
    let has_eight_bits = has_eight_bits(bench.device.properties().capability);
    let types = [DType::F32, DType::BF16, DType::F8E4M3];
    let each = all.flat_map(|(shape, adds)| types.map(|dtype| (dtype, shape, adds)));
    let is_run =
        |(dtype, [batch, ..], _): &(DType, [usize; 4], bool)| *dtype != DType::F8E4M3 || has_eight_bits && *batch == 1;
    each.filter(is_run).map(|(dtype, shape, adds)| product(bench, dtype, shape, adds)).collect()
}

/// A batch of products of these sizes.
pub(super) fn product(
    bench: &mut Bench,
    dtype: DType,
    [batch, m, n, k]: [usize; 4],
    adds: bool,
) -> Result<GpuProduct, Error> {
    let text = if dtype == DType::F8E4M3 { scaled([m, n, k], adds) } else { text(dtype, [batch, m, n, k], adds) };
    let seconds = bench.group(&text, adds)?.seconds;
    Ok(GpuProduct { dtype, batch, product: Product { m, n, k, seconds }, adds })
}

/// A product as a block. A weight gradient is in f32, and sums over the rows of both operands.
fn text(dtype: DType, [batch, m, n, k]: [usize; 4], adds: bool) -> String {
    let from = dtype.name();
    let (left, to) = if adds { (["z", "k", "m"], "f32") } else { (["z", "m", "k"], from) };
    let tensors = [left, ["z", "k", "n"], ["z", "m", "n"]];
    let join = |between: &str| tensors.map(|names| names[usize::from(batch == 1)..].join(between));
    let ([x, y, p], [a, b, c]) = (join(", "), join(" "));
    format!(
        "mesh @m = [dp=1]\ndims [z={batch}, m={m}, n={n}, k={k}]\n\
         block @b(%x: {from}[{x}], %y: {from}[{y}]) -> {to}[{p}] {{\n\
         %p: {to}[{p}] = einsum(%x, %y, eq=\"{a}, {b} -> {c}\")\nreturn %p\n}}"
    )
}

/// A product of operands of 8 bits, each of one scale, whose terms are neighbours: no copy is measured with it.
fn scaled([m, n, k]: [usize; 3], adds: bool) -> String {
    let to = if adds { "f32" } else { "bf16" };
    format!(
        "mesh @m = [dp=1]\ndims [m={m}, n={n}, k={k}]\n\
         block @b(%x: f8e4m3[m, k], %y: f8e4m3[n, k], %s: f32[1, 1], %t: f32[1, 1]) -> {to}[m, n] {{\n\
         %p: {to}[m, n] = einsum(%x, %y, %s, %t, eq=\"m k, n k -> m n\", to={to})\nreturn %p\n}}"
    )
}
