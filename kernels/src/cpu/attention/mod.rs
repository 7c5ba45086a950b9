//! Blockwise attention, which never materialises the matrix of scores.
//!
//! The forward pass is the online softmax of Dao, Fu, Ermon, Rudra and Ré, "FlashAttention" (2022). The backward pass
//! recomputes the probabilities from the saved log-sum-exp. A block of queries is transposed once and visits the keys block
//! by block. Scores are stored with keys down and queries across, so the softmax statistics of all queries are computed in
//! parallel vector lanes. Blocks of keys that no query attends to are skipped. Where some query does not attend to some key,
//! the block is split into parts of few queries, each with the keys from the first to the last that one of these attends to.
//! With dropout, the backward pass draws the factors of each part of the weights again. The product of a result and its
//! gradient is the same as without dropout. A bound of scores is part of them; gradients by scores have its slope.
//!
//! Narrow tensors are widened as their blocks are read. Where the processor has products in bf16, those of tensors in bf16 are such, and
//! weights and gradients by scores are rounded for them. Elsewhere these stay in f32. With AMX, operands are written in the order of
//! its registers (`ordered`).
//!
//! | tensor | shape | |
//! |---|---|---|
//! | q, dq | `[b, s, g, r, d]` | queries; `r` query heads share one of `g` key heads |
//! | k, dk | `[b, t, g, d]` | keys |
//! | v, dv | `[b, t, g, c]` | values |
//! | out, dout | `[b, s, g, r, c]` | |
//! | lse | `[b, s, g, r]` | natural logarithm of the sum of `e^score` over visible keys |
//! | positions, segments | `[b, s]`, `[b, t]` | |

mod backward;
mod forward;
mod ordered;
mod tile;

use std::iter::StepBy;
use std::ops::Range;

use self::tile::{Block, Reach};
use super::gemm::multiplies_pairs;
use super::gemm::ordered::Registers;
use super::matrix::Target;
use super::par::{FLOPS, Par, Rows};
use crate::cpu::narrow::{Floats, FloatsMut, Narrow};

/// The sizes and settings of an attention. Scores are `scale q.k`. Query and key see each other if they are of the same segment and,
/// with `causal`, the key's position is not behind the query's. A window or chunks limit the keys further: to positions not too far before
/// the query's, or in the same chunk. `s` and `t` may differ, and be parts of longer sequences.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Sequences.
    pub b: usize,
    /// Queries per sequence.
    pub s: usize,
    /// Keys per sequence.
    pub t: usize,
    /// Key heads.
    pub g: usize,
    /// Query heads per key head.
    pub r: usize,
    /// Size of a query and of a key.
    pub d: usize,
    /// Size of a value.
    pub c: usize,
    /// Factor of the scores, usually `1 / sqrt d`.
    pub scale: f32,
    /// True if a query sees only keys up to its own position.
    pub causal: bool,
    /// The positions that a query sees, its own and those before it; `None`: all. Only with `causal`.
    pub window: Option<u64>,
    /// The positions of a chunk: a query sees those of its own, up to itself; `None`: all. Only with `causal`, without a window.
    pub chunk: Option<u64>,
    /// The bound `c` of scores, which become `c tanh(score / c)`; `None`: no bound.
    pub softcap: Option<f32>,
    /// Dropout of the softmax, if any.
    pub dropout: Option<Dropout>,
}

/// Dropout of the weights `[b, s, g, r, t]`: after the softmax, each is set to 0 with probability `p` and the others are
/// divided by `1 - p`. A weight stays if the [`uniform`](super::dropout::uniform) number at its linear index in the whole
/// tensor is not below `p`. The log-sum-exp does not know of it.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// Probability of a zero, below 1.
    pub p: f32,
    /// The key of the numbers.
    pub key: [u32; 2],
    /// Index of the first of these weights in the whole.
    pub origin: [u64; 5],
    /// Shape of the whole.
    pub global_dims: [u64; 5],
}

impl Dropout {
    /// The linear index in the whole of the weight of some indices in this part.
    fn counter(&self, indices: [usize; 5]) -> u64 {
        let sizes = self.origin.iter().zip(&self.global_dims).zip(indices);
        sizes.fold(0, |sum, ((origin, size), index)| sum * size + origin + index as u64)
    }
}

/// Inputs of an attention.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Queries.
    pub q: Floats<'a>,
    /// Keys.
    pub k: Floats<'a>,
    /// Values.
    pub v: Floats<'a>,
    /// Positions of the queries.
    pub qpos: &'a [i32],
    /// Positions of the keys.
    pub kpos: &'a [i32],
    /// Segments of the queries.
    pub qseg: &'a [i32],
    /// Segments of the keys.
    pub kseg: &'a [i32],
    /// A further score of each query of a head, of no value: `[g, r]`. Only the forward pass reads it.
    pub sink: Option<Floats<'a>>,
}

/// Values of the forward that the backward reads, and the gradient of the result.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a> {
    /// The result.
    pub out: Floats<'a>,
    /// The log-sum-exp.
    pub lse: &'a [f32],
    /// The gradient by the result.
    pub dout: Floats<'a>,
}

/// The gradients.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// By the queries.
    pub dq: FloatsMut<'a>,
    /// By the keys.
    pub dk: FloatsMut<'a>,
    /// By the values.
    pub dv: FloatsMut<'a>,
}

/// True if this processor rounds weights, and gradients by scores, to the format of the operands.
pub fn rounds_weights(format: Narrow) -> bool {
    format == Narrow::Bf16 && multiplies_pairs()
}

/// True if all operands are of a format for which weights are rounded.
fn multiply_in_bf16<const N: usize>(operands: [Floats<'_>; N]) -> bool {
    operands.iter().all(|x| matches!(x, Floats::Narrow(format, _) if rounds_weights(*format)))
}

/// The place of a head: sequence, key head, query head of that.
#[derive(Clone, Copy)]
struct Head([usize; 3]);

impl Attention {
    /// Computes the attention. A query that sees no key gets zeros and a log-sum-exp of negative infinity. `scratch`
    /// grows as needed and may be reused for the next call.
    ///
    /// # Panics
    /// If a slice has not its size, or `out` is narrow where it is [not written so](Attention::writes).
    pub fn forward<'a>(
        &self,
        x: &Inputs<'_>,
        out: impl Into<FloatsMut<'a>>,
        lse: &mut [f32],
        par: Par,
        scratch: &mut Vec<f32>,
    ) {
        let mut out = out.into();
        self.check(x, out.len(), lse.len());
        let blocks = self.s.div_ceil(tile::QUERIES);
        let heads = self.g * self.r;
        let lse = Target(lse.as_mut_ptr());
        let block = |unit: usize| {
            let (head, index) = (unit / blocks, unit % blocks);
            Block::new(self, x, Head([head / heads, head % heads / self.r, head % self.r]), index)
        };
        let units = self.b * heads * blocks;
        if let Some(registers) = self.registers([x.q, x.k, x.v]) {
            let out = out.shared();
            return self.share(units, ordered::forward::scratch(self), par, scratch, &|units, scratch| {
                // SAFETY: `check` has found both slices long enough; no other unit has these blocks of queries.
                unsafe { ordered::forward::blocks(units.map(block), registers, out, lse, scratch) };
            });
        }
        let (in_bf16, out) = (multiply_in_bf16([x.v]), Target(out.wide().as_mut_ptr()));
        self.share(units, forward::scratch(self, in_bf16), par, scratch, &|units, scratch| {
            // SAFETY: as above.
            units.map(block).for_each(|block| unsafe { forward::block(&block, in_bf16, out, lse, scratch) });
        });
    }

    /// Computes the gradients. `out` and `lse` may be those over more keys than are given, as when keys and values go
    /// round a ring: the gradients are then this part's share. Threads share the key heads of all sequences.
    ///
    /// # Panics
    /// If a slice has not its size, or a gradient is narrow where it is [not written so](Attention::writes).
    pub fn backward(
        &self,
        x: &Inputs<'_>,
        saved: &Saved<'_>,
        gradients: Gradients<'_>,
        par: Par,
        scratch: &mut Vec<f32>,
    ) {
        self.check(x, saved.out.len(), saved.lse.len());
        assert_eq!(saved.dout.len(), saved.out.len(), "size of dout");
        let Gradients { mut dq, mut dk, mut dv } = gradients;
        assert_eq!([dq.len(), dk.len(), dv.len()], [x.q.len(), x.k.len(), x.v.len()], "sizes of dq, dk and dv");
        let queries = self.s.div_ceil(tile::QUERIES);
        let blocks = |unit: usize| {
            let places = (0..self.r).flat_map(move |r| (0..queries).map(move |index| (r, index)));
            places.map(move |(r, index)| Block::new(self, x, Head([unit / self.g, unit % self.g, r]), index))
        };
        let (units, operands) = (self.b * self.g, [x.q, x.k, x.v, saved.out, saved.dout]);
        // Without queries, no block writes what is not seen.
        if let Some(registers) = self.registers(operands).filter(|_| self.s > 0) {
            let gradients = [&mut dq, &mut dk, &mut dv].map(FloatsMut::shared);
            return self.share(units, ordered::backward::scratch(self), par, scratch, &|units, scratch| {
                // SAFETY: the gradients have been found long enough; no other unit has these key heads.
                unsafe { ordered::backward::blocks(units.flat_map(blocks), registers, saved, gradients, scratch) };
            });
        }
        [&mut dq, &mut dk, &mut dv].into_iter().for_each(FloatsMut::clear);
        if self.s == 0 {
            return;
        }
        let in_bf16 = multiply_in_bf16(operands);
        let targets = [dq, dk, dv].map(|gradient| Target(gradient.wide().as_mut_ptr()));
        self.share(units, backward::scratch(self, in_bf16), par, scratch, &|units, scratch| {
            for block in units.flat_map(blocks) {
                // SAFETY: as above.
                unsafe { backward::block(&block, in_bf16, saved, targets, scratch) };
            }
        });
    }

    /// Floating-point operations of forward if every query sees every key; backward has 2.5 times that number.
    pub fn flops(&self) -> u64 {
        let scores = [self.b, self.g, self.r, self.s, self.t].map(|n| n as u64).iter().product::<u64>();
        2 * scores * (self.d + self.c) as u64
    }

    /// Gives each thread every n-th unit of work (n threads), since later queries see more keys.
    fn share(
        &self,
        units: usize,
        scratch_size: usize,
        par: Par,
        scratch: &mut Vec<f32>,
        work: &(impl Fn(StepBy<Range<usize>>, &mut [f32]) + Sync),
    ) {
        let threads = par.threads(self.flops() as usize / FLOPS).min(units);
        if scratch.len() < threads * scratch_size {
            scratch.resize(threads * scratch_size, 0.0);
        }
        let scratch = Rows(&mut scratch[..threads * scratch_size], scratch_size);
        Par(threads).rows(threads, usize::MAX, scratch, &|range, scratch| {
            for (thread, scratch) in range.zip(scratch.0.chunks_exact_mut(scratch_size)) {
                work((thread..units).step_by(threads), scratch);
            }
        });
    }

    fn check(&self, x: &Inputs<'_>, out: usize, lse: usize) {
        let Attention { b, s, t, g, r, d, c, .. } = *self;
        assert_eq!([x.q.len(), x.k.len(), x.v.len()], [b * s * g * r * d, b * t * g * d, b * t * g * c], "q, k, v");
        assert_eq!([x.qpos.len(), x.qseg.len()], [b * s; 2], "positions and segments of queries");
        assert_eq!([x.kpos.len(), x.kseg.len()], [b * t; 2], "positions and segments of keys");
        assert!(x.sink.is_none_or(|sink| sink.len() == g * r), "size of sink");
        assert_eq!([out, lse], [b * s * g * r * c, b * s * g * r], "out and lse");
    }

    /// True if results of a format are written as they are, where all operands are of it.
    pub fn writes(&self, format: Narrow) -> bool {
        // Rows are not empty, and larger products are larger scores.
        format == Narrow::Bf16 && Registers::find().is_some() && self.scale > 0.0 && self.d > 0 && self.c > 0
    }

    /// The registers of AMX, if they multiply the operands.
    fn registers<const N: usize>(&self, operands: [Floats<'_>; N]) -> Option<Registers> {
        Registers::find().filter(|_| multiply_in_bf16(operands) && self.writes(Narrow::Bf16))
    }

    /// How far queries see back.
    fn reach(&self) -> Reach {
        match (self.window, self.chunk) {
            (Some(window), _) => Reach::Window(i32::try_from(window.saturating_sub(1)).unwrap_or(i32::MAX)),
            (None, Some(chunk)) => Reach::Chunk(i32::try_from(chunk.max(1)).unwrap_or(i32::MAX)),
            (None, None) => Reach::All,
        }
    }

    /// Index of the row of query `i` among rows of all query heads.
    fn query_row(&self, Head([b, g, r]): Head, i: usize) -> usize {
        ((b * self.s + i) * self.g + g) * self.r + r
    }

    /// Index of the row of key `j` among rows of all key heads.
    fn key_row(&self, Head([b, g, _]): Head, j: usize) -> usize {
        (b * self.t + j) * self.g + g
    }
}

#[cfg(test)]
mod tests;
