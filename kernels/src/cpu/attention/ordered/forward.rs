//! Forward pass: the online softmax, of values as rows and queries as columns.

use super::super::super::gemm::ordered::{Left, Registers, left_size, right_size};
use super::super::super::matrix::{Matrix, Target};
use super::super::Attention;
use super::super::forward::{finish, online_softmax, sum_sink};
use super::super::tile::{Block, KEYS, PART, QUERIES, factors_size, multiply_by};
use super::{
    Columns, Held, carve, columns_size, in_tiles, largest_space, scale_columns, scale_parts, slot_of, total,
    whole_block, write_rows,
};
use crate::cpu::narrow::SharedFloats;

/// Sizes of the slices of scratch memory.
fn sizes(attention: &Attention) -> [usize; 12] {
    let (Attention { d, c, .. }, held) = (*attention, Held::count(attention));
    [
        columns_size(d),
        largest_space([d, PART]),
        held * left_size(KEYS, d),
        held * left_size(c, KEYS),
        KEYS * PART,
        right_size(KEYS, PART),
        c * QUERIES,
        QUERIES,
        QUERIES,
        QUERIES,
        factors_size(attention, PART),
        c.next_multiple_of(16) * PART,
    ]
}

/// Elements of scratch memory that [`blocks`] needs.
pub(in super::super) fn scratch(attention: &Attention) -> usize {
    total(sizes(attention))
}

/// The attention of blocks of queries, one after the other.
///
/// # Safety
/// `out` and `lse` must have the sizes of the attention, and the rows of these blocks be written by no one else.
pub(in super::super) unsafe fn blocks<'a>(
    blocks: impl Iterator<Item = Block<'a>>,
    registers: Registers,
    out: SharedFloats,
    lse: Target,
    scratch: &mut [f32],
) {
    let mut held = Held::default();
    registers.prepare();
    for block in blocks {
        // SAFETY: as the caller promises; the registers are prepared.
        unsafe { one(&block, registers, &mut held, out, lse, scratch) };
    }
}

/// The attention of one block of queries.
///
/// # Safety
/// As for [`blocks`]; the registers are prepared, and the scratch memory has what is held.
unsafe fn one(
    block: &Block<'_>,
    registers: Registers,
    held: &mut Held,
    out: SharedFloats,
    lse: Target,
    scratch: &mut [f32],
) {
    let attention = block.attention;
    let Attention { d, c, scale, .. } = *attention;
    let slices = carve(scratch, sizes(attention));
    let [queries, space, keys, values, scores, weights, acc, max, sum, shrink, factors, rows] = slices;
    let queries =
        Columns::write(registers, block.of_queries(0, block.x.q, d), [block.queries.len(), d], queries, space);
    max.fill(f32::NEG_INFINITY);
    sum.fill(0.0);
    acc.fill(0.0);
    for seen in block.key_blocks() {
        let (whole, m) = whole_block(seen, attention);
        let (slot, is_there) = held.slot(block, &whole);
        let keys = slot_of(keys, slot, left_size(KEYS, d));
        let values = slot_of(values, slot, left_size(c, KEYS));
        if !is_there {
            registers.order_left(block.of_keys(&whole, block.x.k, d), [m, d], keys);
            registers.order_left(block.of_keys(&whole, block.x.v, c).transposed(), [c, m], values);
        }
        for part in block.parts(&whole) {
            let (part, before) = in_tiles(part, &whole);
            let (n, lanes, at) = (part.keys.len(), part.lanes.len(), part.lanes.clone());
            let scores = &mut scores[..n * lanes];
            queries.products(registers, Left::tiles(keys, d).skip_rows(before), &part, scores);
            let scale = block.bound_and_hide(&part, scale, scores);
            let shrink = &mut shrink[at.clone()];
            online_softmax(scores, scale, &mut max[at.clone()], &mut sum[at.clone()], shrink);
            let acc = &mut acc[c * at.start..c * at.end];
            scale_columns(acc, shrink);
            if let Some(dropout) = &attention.dropout {
                multiply_by(scores, block.factors(&part, dropout, factors));
            }
            let weights = &mut weights[..right_size(n, lanes)];
            registers.round_right(scores, lanes, weights);
            let (values, to) = (Left::tiles(values, m).skip_terms(before), Matrix::rows(acc.as_mut_ptr(), lanes));
            // SAFETY: `acc` is a slice of `c` rows of `lanes`, borrowed for writing; the registers are prepared.
            unsafe { registers.multiply([c, lanes, n], values, weights, to, 1.0, true) };
        }
    }
    if let Some(sink) = block.sink() {
        sum_sink(max, sum, shrink, sink);
        scale_parts(acc, &shrink[..block.lanes]);
    }
    finish(max, sum, shrink);
    scale_parts(acc, &shrink[..block.lanes]);
    // SAFETY: as the caller promises.
    unsafe {
        write_rows(block, acc, c, out, rows);
        (0..block.queries.len()).for_each(|i| *lse.0.add(block.row(i)) = max[i]);
    }
}
