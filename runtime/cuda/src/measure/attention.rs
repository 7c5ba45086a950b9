//! Measurement of causal attention by head size and sequence length.

use super::AttentionTime;
use super::bench::{Bench, LONGEST};
use crate::Error;
use ir::types::DType;

/// Sizes of a head, and lengths of a sequence, with numbers of heads: 65536 rows fill any device.
const HEADS: [usize; 2] = [64, 128];
const LENGTHS: [(usize, usize); 3] = [(512, 128), (2048, 32), (LONGEST, 8)];
/// The lengths in f32, whose rate is a share of that in bf16.
const LENGTHS_F32: [(usize, usize); 1] = [(2048, 32)];

/// Small sizes.
const QUICK_HEADS: [usize; 2] = [16, 32];
const QUICK_LENGTHS: [(usize, usize); 2] = [(32, 2), (64, 1)];
const QUICK_LENGTHS_F32: [(usize, usize); 1] = [(64, 1)];

/// All sizes and lengths in a type.
pub(super) fn all(bench: &mut Bench, dtype: DType) -> Result<Vec<AttentionTime>, Error> {
    let (heads, lengths): (_, &[_]) = match (bench.clock.extent.quick, dtype) {
        (false, DType::F32) => (HEADS, &LENGTHS_F32),
        (false, _) => (HEADS, &LENGTHS),
        (true, DType::F32) => (QUICK_HEADS, &QUICK_LENGTHS_F32),
        (true, _) => (QUICK_HEADS, &QUICK_LENGTHS),
    };
    let all = heads.into_iter().flat_map(|head| lengths.iter().map(move |&(length, heads)| (head, length, heads)));
    all.map(|(head, length, heads)| time(bench, dtype, [heads, length, head])).collect()
}

fn time(bench: &mut Bench, dtype: DType, [heads, length, head]: [usize; 3]) -> Result<AttentionTime, Error> {
    let scale = 1.0 / (head as f64).sqrt();
    let settings = format!("%p, %p, %i, %i, scale={scale}, causal=true");
    let block = |operands: &str, results: &str, body: &str| {
        let text = format!(
            "mesh @m = [dp=1]\ndims [b=1, s={length}, g={heads}, r=1, d={head}]\n\
             block @b(%q: Q, %k: K, %v: K, {operands}%p: i32[b, s], %i: i32[b, s]) -> {results} {{\n{body}\n}}"
        );
        let [q, k, l] = ["[b, s, g, r, d]", "[b, s, g, d]", "[b, s, g, r]"];
        let named = [("Q", dtype.name(), q), ("K", dtype.name(), k), ("L", "f32", l)];
        named.iter().fold(text, |text, (name, format, dims)| text.replace(name, &format!("{format}{dims}")))
    };
    let forward = block("", "Q, L", &format!("%o: Q, %l: L = attention(%q, %k, %v, {settings})\nreturn %o, %l"));
    let backward = block(
        "%o: Q, %l: L, %y: Q, ",
        "Q, K, K",
        &format!("%a: Q, %b: K, %c: K = attention_grad(%q, %k, %v, %o, %l, %y, {settings})\nreturn %a, %b, %c"),
    );
    let [forward_s, backward_s] = [forward, backward].map(|text| bench.group(&text, false).map(|timed| timed.seconds));
    Ok(AttentionTime { heads, length, head, forward_s: forward_s?, backward_s: backward_s? })
}
