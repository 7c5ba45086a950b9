//! The settings of attention: which are refused, and what they leave to compute.

use meshwright_ir::ops::{Attention, AttentionSettings, OpDef, Piece};
use meshwright_ir::types::{DType, Type};

/// Operands of 2 sequences with 4 queries and 6 keys, of 2 key heads with 3 query heads of 8 elements; values have 10.
fn operands() -> Vec<Type> {
    let (f, i) = (|dims: &[u64]| Type::of(DType::F32, dims), |dims: &[u64]| Type::of(DType::I32, dims));
    let heads = [f(&[2, 4, 2, 3, 8]), f(&[2, 6, 2, 8]), f(&[2, 6, 2, 10])];
    heads.into_iter().chain([i(&[2, 4]), i(&[2, 6]), i(&[2, 4]), i(&[2, 6])]).collect()
}

fn causal() -> AttentionSettings {
    AttentionSettings::new(1.0, true)
}

/// With six keys, queries see 1, 2, 3 and then 4: up to the last, half of 2 x 4 x 6 - 4 x 4.
#[test]
fn a_window_leaves_fewer_pairs() {
    let operands = operands();
    let operands: Vec<&Type> = operands.iter().collect();
    let flops = |window, piece| Attention(AttentionSettings { window, piece, ..causal() }).work(&operands, &[]).flops;
    let queries = 2 * 4 * 2 * 3;
    assert_eq!(flops(Some(4), None), queries * (2 * 4 * 6 - 4 * 4) / (2 * 6) * 2 * (8 + 10));
    assert_eq!([flops(Some(6), None), flops(Some(u64::MAX), None)], [flops(None, None); 2]);
    // Queries that begin behind the window see all of it.
    assert_eq!(flops(Some(2), Some(Piece { origin: 2, whole: 9 })), queries * 2 * 2 * (8 + 10));
}

/// Queries see 4 x 4 / 2 and 2 x 2 / 2 of six keys in chunks of four; behind the first two, 4 x 4 - 2 x 2 and 2 x 2, halved.
#[test]
fn chunks_leave_fewer_pairs() {
    let operands = operands();
    let operands: Vec<&Type> = operands.iter().collect();
    let flops = |chunk, piece| Attention(AttentionSettings { chunk, piece, ..causal() }).work(&operands, &[]).flops;
    let queries = 2 * 4 * 2 * 3;
    assert_eq!(flops(Some(4), None), queries * (4 * 4 + 2 * 2) / (2 * 6) * 2 * (8 + 10));
    assert_eq!([flops(Some(6), None), flops(Some(u64::MAX), None)], [flops(None, None); 2]);
    assert_eq!(flops(Some(4), Some(Piece { origin: 2, whole: 9 })), queries * (16 - 4 + 4) / (2 * 4) * 2 * (8 + 10));
}

#[test]
fn windows_and_bounds_have_their_sizes() {
    let operands = operands();
    let operands: Vec<&Type> = operands.iter().collect();
    let refused = |settings: AttentionSettings, part: &str| {
        let why = Attention(settings).infer(&operands).unwrap_err();
        assert!(why.contains(part), "{why}");
    };
    refused(AttentionSettings { window: Some(0), ..causal() }, "at least 1");
    refused(AttentionSettings { window: Some(4), ..AttentionSettings::new(1.0, false) }, "causal=true");
    refused(AttentionSettings { chunk: Some(0), ..causal() }, "at least 1");
    refused(AttentionSettings { chunk: Some(4), ..AttentionSettings::new(1.0, false) }, "causal=true");
    refused(AttentionSettings { chunk: Some(4), window: Some(4), ..causal() }, "exclude each other");
    for softcap in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        refused(AttentionSettings { softcap: Some(softcap), ..causal() }, "above 0");
    }
}
