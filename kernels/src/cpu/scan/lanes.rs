//! Selective scans, token by token: each row of a state has a factor of its own for each head, so that no product of matrices does it.
//! The columns of all heads are lanes, and a block of them goes through the sequence.

use super::chunk::take;
use super::{Head, Inputs, Scan, Slopes, Targets};
use crate::cpu::math::exp;
use crate::cpu::matrix::Target;
use crate::cpu::simd::{simd, sum2};

/// Lanes of a block, or the columns of a head if these are more.
const LANES: usize = 64;

/// Elements of scratch memory of a scan.
pub(super) fn scratch(scan: &Scan) -> usize {
    let lanes = heads(scan) * scan.c;
    let states = scan.s.div_ceil(scan.chunk) + scan.rows() + 4;
    states * scan.k * lanes + 6 * lanes
}

/// The heads of a block.
fn heads(scan: &Scan) -> usize {
    (LANES / scan.c.max(1)).clamp(1, scan.r.max(1))
}

/// A block of heads of a sequence.
struct Block<'a> {
    scan: &'a Scan,
    x: &'a Inputs<'a>,
    /// The first of the heads.
    head: Head,
    /// The number of heads.
    heads: usize,
    /// Lanes.
    lanes: usize,
}

/// The values of a row: the logarithms of decay of each lane, and what is added.
struct Row<'s> {
    decay: &'s mut [f32],
    v: &'s mut [f32],
}

impl<'a> Block<'a> {
    fn all(scan: &'a Scan, x: &'a Inputs<'a>, place: [usize; 2]) -> impl Iterator<Item = Block<'a>> {
        let (step, [b, g]) = (heads(scan), place);
        (0..scan.r).step_by(step).map(move |r| {
            let heads = step.min(scan.r - r);
            Block { scan, x, head: Head { b, g, r }, heads, lanes: heads * scan.c }
        })
    }

    /// The rates of all rows of the state, a lane for each column.
    fn rates(&self, rates: &mut [f32]) {
        let Scan { r, k, c, .. } = *self.scan;
        for (i, row) in rates.chunks_exact_mut(self.lanes).take(k).enumerate() {
            for (lane, rate) in row.iter_mut().enumerate() {
                *rate = self.x.further[(self.head.g * r + self.head.r + lane / c) * k + i];
            }
        }
    }

    /// The state of each lane among those of all heads, which are 0 if there are none.
    fn state_of(&self, states: &[f32], state: &mut [f32]) {
        if states.is_empty() {
            return state.fill(0.0);
        }
        for (i, row) in state.chunks_exact_mut(self.lanes).enumerate() {
            row.iter_mut().enumerate().for_each(|(lane, x)| *x = states[self.place(i, lane)]);
        }
    }

    /// The place of row i of the state of a lane among those of all heads.
    fn place(&self, i: usize, lane: usize) -> usize {
        let Scan { k, c, .. } = *self.scan;
        ((self.scan.number(self.head) + lane / c) * k + i) * c + lane % c
    }

    /// Reads a row, and returns whether it continues what is before it.
    fn load(&self, t: usize, row: &mut Row<'_>) -> bool {
        let (at, c) = (self.scan.of_values(self.head, t), self.scan.c);
        for (lane, decay) in row.decay[..self.lanes].iter_mut().enumerate() {
            *decay = self.x.decay[at + lane / c];
        }
        row.v[..self.lanes].copy_from_slice(&self.x.v[at * c..][..self.lanes]);
        self.x.pos[self.head.b * self.scan.s + t] != 0
    }

    fn keys<'x>(&self, of: &'x [f32], t: usize) -> &'x [f32] {
        &of[self.scan.of_keys(self.head, t)..][..self.scan.k]
    }

    /// The state of a row from that before it.
    fn step(&self, t: usize, rates: &[f32], row: &mut Row<'_>, state: &mut [f32]) {
        let continues = self.load(t, row);
        step(state, rates, &row.decay[..self.lanes], &row.v[..self.lanes], self.keys(self.x.k, t), continues);
    }
}

/// Writes the results of the heads of a head of queries.
///
/// # Safety
/// `out` must have the sizes of the values, and nobody else may touch the rows of these heads.
pub(super) unsafe fn forward(scan: &Scan, x: &Inputs<'_>, place: [usize; 2], out: Target, scratch: &mut [f32]) {
    for block in Block::all(scan, x, place) {
        let (size, mut rest) = (scan.k * block.lanes, &mut scratch[..]);
        let (rates, state) = (take(&mut rest, size), take(&mut rest, size));
        let mut row = Row { decay: take(&mut rest, block.lanes), v: take(&mut rest, block.lanes) };
        block.rates(rates);
        block.state_of(x.start, state);
        for t in 0..scan.s {
            block.step(t, rates, &mut row, state);
            let to = out.0.wrapping_add(scan.of_values(block.head, t) * scan.c);
            // SAFETY: the row is in the results, as the caller promises, and is these heads'.
            let out = unsafe { std::slice::from_raw_parts_mut(to, block.lanes) };
            out.fill(0.0);
            read(state, block.keys(x.q, t), scan.scale, out);
        }
    }
}

/// Adds the gradients of the heads of a head of queries to those of queries, keys and rates, and writes the others.
///
/// # Safety
/// The gradients must have the sizes of the operands, and nobody else may touch the rows of these heads.
pub(super) unsafe fn backward(
    scan: &Scan,
    x: &Inputs<'_>,
    place: [usize; 2],
    by: &Slopes<'_>,
    to: Targets,
    scratch: &mut [f32],
) {
    let dout = by.out;
    for block in Block::all(scan, x, place) {
        let (size, lanes, mut rest) = (scan.k * block.lanes, block.lanes, &mut scratch[..]);
        let (rates, by_state) = (take(&mut rest, size), take(&mut rest, size));
        let by_rates = take(&mut rest, size);
        let firsts = take(&mut rest, scan.s.div_ceil(scan.chunk) * size);
        // The state before each row of a chunk, and behind the last.
        let states = take(&mut rest, (scan.rows() + 1) * size);
        let mut row = Row { decay: take(&mut rest, lanes), v: take(&mut rest, lanes) };
        let (by_v, by_decay) = (take(&mut rest, lanes), take(&mut rest, lanes));
        block.rates(rates);
        block.state_of(by.end, by_state);
        by_rates.fill(0.0);
        block.state_of(x.start, &mut states[..size]);
        for (number, first) in firsts.chunks_exact_mut(size).enumerate() {
            first.copy_from_slice(&states[..size]);
            let from = number * scan.chunk;
            (from..scan.s.min(from + scan.chunk)).for_each(|t| block.step(t, rates, &mut row, &mut states[..size]));
        }
        for (number, first) in firsts.chunks_exact(size).enumerate().rev() {
            let from = number * scan.chunk;
            let n = scan.chunk.min(scan.s - from);
            states[..size].copy_from_slice(first);
            for i in 0..n {
                let (before, state) = states.split_at_mut((i + 1) * size);
                state[..size].copy_from_slice(&before[i * size..]);
                block.step(from + i, rates, &mut row, &mut state[..size]);
            }
            for i in (0..n).rev() {
                let t = from + i;
                let continues = block.load(t, &mut row);
                let at = scan.of_values(block.head, t);
                let (before, behind) = (&states[i * size..][..size], &states[(i + 1) * size..][..size]);
                let dout = &dout[at * scan.c..][..lanes];
                let (key, query) = (block.keys(x.k, t), block.keys(x.q, t));
                by_v.fill(0.0);
                by_decay.fill(0.0);
                let of_keys = scan.of_keys(block.head, t);
                // SAFETY: the rows are in the gradients, as the caller promises, and are these heads'.
                unsafe {
                    let [q, k] = [to.q, to.k].map(|to| std::slice::from_raw_parts_mut(to.0.add(of_keys), scan.k));
                    for (i, (q, k)) in q.iter_mut().zip(k).enumerate() {
                        let rows = i * lanes..(i + 1) * lanes;
                        *q += scan.scale * dot(dout, &behind[rows.clone()]);
                        let by_state = &mut by_state[rows.clone()];
                        add(by_state, scan.scale * query[i], dout);
                        *k += dot(by_state, &row.v[..lanes]);
                        add(by_v, key[i], by_state);
                        let factors = (&rates[rows.clone()], &row.decay[..lanes]);
                        let sums = (&mut *by_decay, &mut by_rates[rows.clone()]);
                        step_back(by_state, &before[rows], factors, sums, continues);
                    }
                    std::slice::from_raw_parts_mut(to.v.0.add(at * scan.c), lanes).copy_from_slice(by_v);
                    let decay = std::slice::from_raw_parts_mut(to.decay.0.add(at), block.heads);
                    let sums = by_decay.chunks_exact(scan.c).map(|columns| columns.iter().sum());
                    for (decay, sum) in decay.iter_mut().zip(sums) {
                        *decay = sum;
                    }
                }
            }
        }
        let first = (block.head.g * scan.r + block.head.r) * scan.k;
        for (i, by_rate) in by_rates.chunks_exact(lanes).enumerate() {
            for (lane, &x) in by_rate.iter().enumerate() {
                // SAFETY: as above.
                unsafe { *to.further.0.add(first + lane / scan.c * scan.k + i) += x };
            }
        }
    }
}

/// Writes the states behind the rows of the heads of a head of queries from zero states, and the factors of their rows.
///
/// # Safety
/// The results must have the sizes of states and factors, and nobody else may touch those of these heads.
pub(super) unsafe fn end(scan: &Scan, x: &Inputs<'_>, place: [usize; 2], to: [Target; 2], scratch: &mut [f32]) {
    for block in Block::all(scan, x, place) {
        let (size, mut rest) = (scan.k * block.lanes, &mut scratch[..]);
        let (rates, state) = (take(&mut rest, size), take(&mut rest, size));
        let mut row = Row { decay: take(&mut rest, block.lanes), v: take(&mut rest, block.lanes) };
        // Sums of the logarithms of decay; none where a document begins.
        let sums = take(&mut rest, block.lanes);
        block.rates(rates);
        state.fill(0.0);
        sums.fill(0.0);
        let mut continues = true;
        for t in 0..scan.s {
            block.step(t, rates, &mut row, state);
            continues &= x.pos[place[0] * scan.s + t] != 0;
            sums.iter_mut().zip(&*row.decay).for_each(|(sum, x)| *sum += x);
        }
        for i in 0..scan.k {
            for lane in 0..block.lanes {
                let through = if continues { (sums[lane] * rates[i * block.lanes + lane]).exp() } else { 0.0 };
                // SAFETY: the places are in the results, as the caller promises, and are these heads'.
                unsafe {
                    *to[0].0.add(block.place(i, lane)) = state[i * block.lanes + lane];
                    *to[1].0.add((scan.number(block.head) + lane / scan.c) * scan.k + i) = through;
                }
            }
        }
    }
}

/// Writes the gradients by the states before the rows of the heads of a head of queries, of those by their results alone.
///
/// # Safety
/// `to` must have the sizes of states, and nobody else may touch those of these heads.
pub(super) unsafe fn back(
    scan: &Scan,
    x: &Inputs<'_>,
    place: [usize; 2],
    dout: &[f32],
    to: Target,
    scratch: &mut [f32],
) {
    for block in Block::all(scan, x, place) {
        let (size, lanes, mut rest) = (scan.k * block.lanes, block.lanes, &mut scratch[..]);
        let (rates, state) = (take(&mut rest, size), take(&mut rest, size));
        let mut row = Row { decay: take(&mut rest, lanes), v: take(&mut rest, lanes) };
        block.rates(rates);
        state.fill(0.0);
        for t in (0..scan.s).rev() {
            let continues = block.load(t, &mut row);
            let dout = &dout[scan.of_values(block.head, t) * scan.c..][..lanes];
            for (i, &query) in block.keys(x.q, t).iter().enumerate() {
                let rows = i * lanes..(i + 1) * lanes;
                let state = &mut state[rows.clone()];
                add(state, scan.scale * query, dout);
                decay(state, &rates[rows], &row.decay[..lanes], continues);
            }
        }
        for i in 0..scan.k {
            // SAFETY: the places are in the results, as the caller promises, and are these heads'.
            (0..lanes).for_each(|lane| unsafe { *to.0.add(block.place(i, lane)) = state[i * lanes + lane] });
        }
    }
}

simd! {
    /// Multiplies a row of the state by its factors, which are 0 where a document begins.
    fn decay(state: &mut [f32], rates: &[f32], decay: &[f32], continues: bool) {
        if !continues {
            state.fill(0.0);
            return;
        }
        for ((x, &rate), &decay) in state.iter_mut().zip(rates).zip(decay) {
            *x *= exp::<FMA>(decay * rate);
        }
    }

    fn step(state: &mut [f32], rates: &[f32], decay: &[f32], v: &[f32], key: &[f32], continues: bool) {
        let lanes = decay.len();
        for (i, &key) in key.iter().enumerate() {
            let (state, rates) = (&mut state[i * lanes..(i + 1) * lanes], &rates[i * lanes..(i + 1) * lanes]);
            if continues {
                for (((x, &rate), &decay), &v) in state.iter_mut().zip(rates).zip(decay).zip(v) {
                    *x = exp::<FMA>(decay * rate) * *x + key * v;
                }
            } else {
                for (x, &v) in state.iter_mut().zip(v) {
                    *x = key * v;
                }
            }
        }
    }

    fn read(state: &[f32], query: &[f32], scale: f32, out: &mut [f32]) {
        for (row, &query) in state.chunks_exact(out.len()).zip(query) {
            for (out, &x) in out.iter_mut().zip(row) {
                *out += scale * query * x;
            }
        }
    }

    /// The gradient by a row of the state before a token in place of that behind it. Adds the gradients by decays and rates.
    fn step_back(
        by_state: &mut [f32],
        before: &[f32],
        factors: (&[f32], &[f32]),
        sums: (&mut [f32], &mut [f32]),
        continues: bool,
    ) {
        let ((rates, decay), (by_decay, by_rates)) = (factors, sums);
        if !continues {
            by_state.fill(0.0);
            return;
        }
        for lane in 0..by_state.len() {
            let factor = exp::<FMA>(decay[lane] * rates[lane]);
            let by_before = factor * by_state[lane];
            let by_log = by_before * before[lane];
            by_decay[lane] += rates[lane] * by_log;
            by_rates[lane] += decay[lane] * by_log;
            by_state[lane] = by_before;
        }
    }

    fn add(x: &mut [f32], by: f32, y: &[f32]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x += by * y;
        }
    }

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        sum2(a, b, #[inline(always)] |a, b| a * b)
    }
}
