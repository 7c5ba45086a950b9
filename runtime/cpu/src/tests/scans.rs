//! Scans and short convolutions of every kind, whole and in blocks.

use super::{Case, case};
use ir::ops::*;
use ir::types::Dim;

/// The sizes of decays of each kind, of heads and of keys, and of betas or rates.
fn kinds(heads: &'static [u64], by_key: &'static [u64], rates: &'static [u64]) -> [(ScanKind, Vec<&'static [u64]>); 5] {
    [
        (ScanKind::Linear, vec![heads]),
        (ScanKind::Linear, vec![by_key]),
        (ScanKind::Delta, vec![heads, heads]),
        (ScanKind::Delta, vec![by_key, heads]),
        (ScanKind::Selective, vec![heads, rates]),
    ]
}

/// Scans of each kind, with decays of heads and of keys, in chunks of which the last is short; and short convolutions.
pub(super) fn scans() -> Vec<Case> {
    let (keys, values): (&[u64], &[u64]) = (&[3, 7, 3, 4], &[3, 7, 3, 3, 6]);
    let (heads, by_key): (&[u64], &[u64]) = (&[3, 7, 3, 3], &[3, 7, 3, 3, 4]);
    let (rates, pos): (&[u64], &[u64]) = (&[3, 3, 4], &[3, 7]);
    let mut cases = Vec::new();
    for (kind, further) in kinds(heads, by_key, rates) {
        for chunk in [3, 64] {
            let settings = ScanSettings { kind, scale: 0.4, chunk, block: None };
            let forward = [&[keys, keys, values], &further[..], &[pos]].concat();
            let backward = [&forward[..], &[values]].concat();
            let place: &[usize] = if forward.len() == 5 { &[4] } else { &[5] };
            cases.push(case(Scan(settings), &forward, place));
            cases.push(case(ScanGrad(settings), &backward, place));
        }
    }
    let (x, w): (&[u64], &[u64]) = (&[3, 5, 3, 2], &[3, 2, 4]);
    cases.extend([
        case(ShortConv::default(), &[x, w, &[3, 5]], &[2]),
        case(ShortConvDx::default(), &[x, w, &[3, 5]], &[2]),
        case(ShortConvDw { taps: Dim::sized(4), block: None }, &[x, x, &[3, 5]], &[2]),
    ]);
    cases.extend(in_blocks());
    cases
}

/// Scans and convolutions in blocks, as many as ranks may share: with and without a gradient by what is behind blocks, and what blocks make
/// of states.
fn in_blocks() -> Vec<Case> {
    let (keys, values, pos): (&[u64], &[u64], &[u64]) = (&[3, 6, 3, 4], &[3, 6, 3, 3, 5], &[3, 6]);
    let (heads, by_key, rates): (&[u64], &[u64], &[u64]) = (&[3, 6, 3, 3], &[3, 6, 3, 3, 4], &[3, 3, 4]);
    let state: &[u64] = &[3, 3, 3, 3, 4, 5];
    let mut cases = Vec::new();
    for (kind, further) in kinds(heads, by_key, rates) {
        let settings = ScanSettings { kind, scale: 0.4, chunk: 64, block: Some(2) };
        let places = 3 + further.len();
        let forward = [&[keys, keys, values], &further[..], &[pos, state]].concat();
        let backward = [&forward[..], &[values]].concat();
        cases.push(case(Scan(settings), &forward, &[places]));
        cases.push(case(ScanGrad(settings), &backward, &[places]));
        cases.push(case(ScanGrad(settings), &[&backward[..], &[state]].concat(), &[places]));
        cases.push(case(ScanState(settings), &forward[1..=places], &[places - 1]));
        let dstart = [&[keys, keys], &further[..], &[pos, values]].concat();
        cases.push(case(ScanDstart(settings), &dstart, &[places - 1]));
    }
    for through in [&[3, 3, 3, 3][..], &[3, 3, 3, 3, 4], &[3, 3, 3, 3, 4, 4]] {
        cases.extend([false, true].map(|reverse| case(Carry { reverse }, &[state, through], &[])));
    }
    let (x, w, pos, before): (&[u64], &[u64], &[u64], &[u64]) =
        (&[3, 12, 3, 2], &[3, 2, 4], &[3, 12], &[3, 3, 3, 3, 2]);
    let (block, taps) = (Some(4), Dim::sized(4));
    cases.extend([
        case(ShortConv { block }, &[x, w, pos, before], &[2]),
        case(ShortConvDx { block }, &[x, w, pos, before], &[2]),
        case(ShortConvDx { block }, &[x, w, pos], &[2]),
        case(ShortConvDw { taps, block }, &[x, x, pos, before], &[2]),
        case(ShortConvDstart { block: 4 }, &[x, w, pos], &[2]),
    ]);
    cases
}
