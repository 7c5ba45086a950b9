//! Checks of the ops on tensors of 8 bits, on integers with scales of powers of two: results that are not added to others are those of the
//! processor to the bit.

use super::groups::{Run, block};
use super::{Bench, Found, Rows};
use crate::backend::Cuda;

/// Sizes of which tensor cores take all products of whole tensors; blocks have 64 elements along a dim.
const DIMS: &str = "m=64, h=256, n=128, i=4, j=2";

/// Ops as blocks with one statement: their names, operands, results and calls.
const OPS: [(&str, &str, &str, &str); 7] = [
    ("quantise to e4m3", "%x: bf16[m, h], %s: f32[1, 1]", "f8e4m3[m, h]", "quantise(%x, %s, to=f8e4m3)"),
    ("quantise to e5m2", "%x: bf16[m, h], %s: f32[1, 1]", "f8e5m2[m, h]", "quantise(%x, %s, to=f8e5m2)"),
    ("quantise blocks", "%x: bf16[m, h], %s: f32[m, i]", "f8e4m3[m, h]", "quantise(%x, %s, to=f8e4m3)"),
    (
        "product of 8 bits",
        "%x: f8e4m3[m, h], %w: f8e4m3[h, n], %s: f32[1, 1], %t: f32[1, 1]",
        "bf16[m, n]",
        "einsum(%x, %w, %s, %t, eq=\"m h, h n -> m n\", to=bf16)",
    ),
    (
        "product of 8 bits, to the input",
        "%y: f8e5m2[m, n], %w: f8e4m3[h, n], %s: f32[1, 1], %t: f32[1, 1]",
        "bf16[m, h]",
        "einsum(%y, %w, %s, %t, eq=\"m n, h n -> m h\", to=bf16)",
    ),
    (
        "product of 8 bits, to the parameter",
        "%y: f8e5m2[m, n], %x: f8e4m3[m, h], %s: f32[1, 1], %t: f32[1, 1]",
        "f32[h, n]",
        "einsum(%y, %x, %s, %t, eq=\"m n, m h -> h n\", to=f32)",
    ),
    (
        "product of blocks of 8 bits",
        "%x: f8e4m3[m, h], %w: f8e4m3[h, n], %s: f32[m, i], %t: f32[i, j]",
        "bf16[m, n]",
        "einsum(%x, %w, %s, %t, eq=\"m h, h n -> m n\", to=bf16)",
    ),
];

pub(super) fn check(bench: &mut Bench, rows: &mut Rows<'_>) {
    let mut cuda = match Cuda::new(&bench.device) {
        Ok(cuda) => cuda,
        Err(why) => return rows.check("8 bits", "", "B/s", || Err(why)),
    };
    for (name, operands, result, call) in OPS {
        let first_scale = if call.starts_with("quantise") { 1 } else { 2 };
        let draw = |[side, at]: [usize; 2], i: u64| {
            // Integers from -3 to 3, which both formats have; most quotients by these scales are rounded.
            let integer = (i * i % 11 + i * 3) % 7;
            let scale = 2f32.powi((i % 5) as i32 - 2);
            Some(if side == 0 && at >= first_scale { scale } else { integer as f32 - 3.0 })
        };
        let text = format!(
            "mesh @m = [dp=1]\ndims [{DIMS}]\nblock @b({operands}) -> {result} {{\n  %r: {result} = {call}\n  return %r\n}}"
        );
        rows.check(name, DIMS, "B/s", || {
            let mut run = |adds| block(&text, &mut cuda, Run::Op(adds), &draw);
            // What is added to a number is within its bound, since the library rounds it before.
            run(true)?;
            run(false).map(|compared| Found::results(compared.error, 0.0))
        });
    }
}
