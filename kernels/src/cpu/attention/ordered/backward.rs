//! Backward pass: weights and gradients by scores of all queries of a block are rounded, then multiplied once for a block of keys.

use super::super::super::gemm::ordered::{Left, Registers, left_size, right_size};
use super::super::super::matrix::Matrix;
use super::super::backward::{log_sums, row_products, weights_of};
use super::super::tile::{Block, KEYS, PART, QUERIES, factors_size};
use super::super::{Attention, Saved};
use super::{
    Columns, Held, WEIGHTS, carve, columns_size, in_tiles, largest_space, scale_parts, slot_of, total, whole_block,
    write_rows,
};
use crate::cpu::narrow::SharedFloats;

/// Sizes of the slices of scratch memory.
fn sizes(attention: &Attention) -> [usize; 19] {
    let (Attention { t, d, c, .. }, held) = (*attention, Held::count(attention));
    [
        t * d,
        t * c,
        columns_size(d),
        columns_size(c),
        right_size(QUERIES, d),
        right_size(QUERIES, c),
        largest_space([d, c]),
        held * left_size(KEYS, d),
        held * left_size(KEYS, c),
        held * left_size(d, KEYS),
        KEYS * PART,
        KEYS * PART,
        KEYS * WEIGHTS,
        KEYS * WEIGHTS,
        right_size(KEYS, PART),
        d * QUERIES,
        2 * QUERIES,
        factors_size(attention, PART),
        d.next_multiple_of(16) * PART,
    ]
}

/// Elements of scratch memory that [`blocks`] needs.
pub(in super::super) fn scratch(attention: &Attention) -> usize {
    total(sizes(attention))
}

/// The gradients of blocks of queries, and of the keys and values that these see. All operands are in bf16.
///
/// # Safety
/// The gradients must have the sizes of the attention, and the rows of these blocks' key heads be written by no one else.
pub(in super::super) unsafe fn blocks<'a>(
    blocks: impl Iterator<Item = Block<'a>>,
    registers: Registers,
    saved: &Saved<'_>,
    gradients: [SharedFloats; 3],
    scratch: &mut [f32],
) {
    let (mut held, mut blocks) = (Held::default(), blocks.peekable());
    let mut is_first = true;
    registers.prepare();
    while let Some(block) = blocks.next() {
        let is_last = blocks.peek().is_none_or(|next| next.key_head() != block.key_head());
        let output = Output { gradients, is_first, is_last };
        // SAFETY: as the caller promises; the registers are prepared.
        unsafe { one(&block, registers, &mut held, saved, output, scratch) };
        is_first = is_last;
    }
}

/// The gradients, and the place of a block of queries among those of its key head.
struct Output {
    gradients: [SharedFloats; 3],
    is_first: bool,
    is_last: bool,
}

/// Adds what one block of queries contributes: the first one of a key head begins its gradients, and the last one writes them.
///
/// # Safety
/// As for [`blocks`]; the registers are prepared, and the scratch memory has what is held, and sums of the key head.
unsafe fn one(
    block: &Block<'_>,
    registers: Registers,
    held: &mut Held,
    saved: &Saved<'_>,
    output: Output,
    scratch: &mut [f32],
) {
    let attention = block.attention;
    let Attention { d, c, scale, .. } = *attention;
    let slices = carve(scratch, sizes(attention));
    let [dk, dv, queries, douts, q, dout, space, keys, values, key_columns, weights @ ..] = slices;
    let [p, dp, rounded, ds, ds_pairs, dq_columns, sums, factors, rows] = weights;
    if output.is_first {
        [&mut *dk, &mut *dv].into_iter().for_each(|sums| sums.fill(0.0));
    }
    let (lse, delta) = sums.split_at_mut(QUERIES);
    let n = block.queries.len();
    row_products(block, saved, delta);
    log_sums(block, saved.lse, lse);
    let [q_rows, dout_rows] = [(block.x.q, d), (saved.dout, c)].map(|(x, width)| block.of_queries(0, x, width));
    registers.order_right(q_rows, [n, d], q, space);
    registers.order_right(dout_rows, [n, c], dout, space);
    let queries = Columns::write(registers, q_rows, [n, d], queries, space);
    let douts = Columns::write(registers, dout_rows, [n, c], douts, space);
    dq_columns.fill(0.0);
    for (index, seen) in block.key_blocks().enumerate() {
        let (whole, m) = whole_block(seen, attention);
        let (slot, is_there) = held.slot(block, &whole);
        let keys = slot_of(keys, slot, left_size(KEYS, d));
        let values = slot_of(values, slot, left_size(KEYS, c));
        let key_columns = slot_of(key_columns, slot, left_size(d, KEYS));
        if !is_there {
            let (k, v) = (block.of_keys(&whole, block.x.k, d), block.of_keys(&whole, block.x.v, c));
            registers.order_left(k, [m, d], keys);
            registers.order_left(v, [m, c], values);
            registers.order_left(k.transposed(), [d, m], key_columns);
        }
        if index == 0 || !whole.is_seen() {
            // Weights of queries and keys of no part.
            [&mut *rounded, &mut *ds].into_iter().for_each(|weights| weights.fill(0.0));
        }
        for part in block.parts(&whole) {
            let (part, before) = in_tiles(part, &whole);
            let (n, lanes, first) = (part.keys.len(), part.lanes.len(), part.lanes.start);
            let (p, dp) = (&mut p[..n * lanes], &mut dp[..n * lanes]);
            queries.products(registers, Left::tiles(keys, d).skip_rows(before), &part, p);
            let stored = block.bound_and_hide(&part, scale, p);
            douts.products(registers, Left::tiles(values, c).skip_rows(before), &part, dp);
            weights_of(block, &part, stored, [p, dp], [&*lse, &*delta].map(|x| &x[part.lanes.clone()]), factors);
            registers.round_left(p, lanes, &mut rounded[before * WEIGHTS..], [first, WEIGHTS]);
            registers.round_left(dp, lanes, &mut ds[before * WEIGHTS..], [first, WEIGHTS]);
            let ds_pairs = &mut ds_pairs[..right_size(n, lanes)];
            registers.round_right(dp, lanes, ds_pairs);
            let (to, keys) = (&mut dq_columns[d * first..d * (first + lanes)], Left::tiles(key_columns, m));
            let to = Matrix::rows(to.as_mut_ptr(), lanes);
            // SAFETY: the slice has `d` rows of `lanes`, and is borrowed for writing; the registers are prepared.
            unsafe { registers.multiply([d, lanes, n], keys.skip_terms(before), ds_pairs, to, 1.0, true) };
        }
        let [p, ds] = [&*rounded, &*ds].map(|weights| Left::rows(weights, WEIGHTS));
        let (dk, dv) = (&mut dk[whole.keys.start * d..][..whole.keys.len() * d], &mut dv[whole.keys.start * c..]);
        let (dk, dv) = (Matrix::rows(dk.as_mut_ptr(), d), Matrix::rows(dv[..whole.keys.len() * c].as_mut_ptr(), c));
        // SAFETY: the slices have the rows, and are borrowed for writing; the registers are prepared.
        unsafe {
            let m = whole.keys.len();
            registers.multiply([m, c, n], p, dout, dv, 1.0, true);
            registers.multiply([m, d, n], ds, q, dk, scale, true);
        }
    }
    scale_parts(dq_columns, &[scale; QUERIES][..block.lanes]);
    let [dq_rows, dk_rows, dv_rows] = output.gradients;
    // SAFETY: as the caller promises.
    unsafe {
        write_rows(block, dq_columns, d, dq_rows, rows);
        if output.is_last {
            block.write_keys(dk, d, dk_rows);
            block.write_keys(dv, c, dv_rows);
        }
    }
}
