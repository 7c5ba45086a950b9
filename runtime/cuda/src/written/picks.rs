//! Sums of rows by the places that integers name, in the order of the rows.

use super::{At, Steps, of_operand, of_result, result_len, threads};
use crate::lower::len;
use device::backend::KernelSite;
use ir::ops::{EmbeddingGrad, ScatterAdd};
use kernels::cuda::written::{BLOCK, Definitions, Written, texts};

/// The most chunks that count their picks apart: each has a count for every place.
const CHUNKS: usize = 32;

/// Picks of batches by the places that they name.
pub(super) struct Picks {
    pub(super) batches: usize,
    /// Picks of a batch.
    pub(super) picks: usize,
    /// Places of a batch.
    pub(super) length: usize,
    /// The integer of the first place.
    pub(super) origin: i64,
    /// The integer that is left out.
    pub(super) pad: Option<i64>,
}

impl Picks {
    pub(super) fn places(&self) -> usize {
        self.batches * self.length
    }

    pub(super) fn all(&self) -> usize {
        self.batches * self.picks
    }

    fn chunk(&self) -> usize {
        self.all().div_ceil(CHUNKS).next_multiple_of(BLOCK).max(BLOCK)
    }

    fn chunks(&self) -> usize {
        self.all().div_ceil(self.chunk())
    }

    /// Blocks of places.
    fn blocks(&self) -> usize {
        self.places().div_ceil(BLOCK)
    }

    pub(super) fn define(&self, define: Definitions) -> Definitions {
        let define = define.size("PICKS", self.picks.max(1)).size("LENGTH", self.length.max(1));
        let define = define.size("ALL", self.all()).size("PLACES", self.places());
        let define = define.size("CHUNKS", self.chunks()).size("CHUNK", self.chunk()).integer("ORIGIN", self.origin);
        // No integer is that.
        define.integer("PAD", self.pad.unwrap_or(i64::MIN + 1))
    }

    /// Bytes of the scratch memory of [`Picks::count`]: counts, ranks, starts and bases.
    pub(super) fn scratch(&self) -> [usize; 4] {
        [self.chunks() * self.places(), self.all(), self.places(), self.blocks()].map(|words| words * size_of::<u32>())
    }

    /// Counts the picks of an operand by their places, and in all, with a text that has the kernels of it.
    pub(super) fn count(
        &self,
        steps: Steps,
        kernel: impl Fn(&'static str, usize) -> Written,
        index: At,
        [counts, ranks, starts, bases]: [At; 4],
        totals: At,
    ) -> Steps {
        steps.then(kernel("count_picks", self.chunks()), vec![index], vec![counts, ranks]).then(
            kernel("offset_picks", self.blocks()),
            vec![],
            vec![counts, starts, totals, bases],
        )
    }
}

/// Rows that are summed by the places that picks name.
struct Sums {
    picks: Picks,
    /// The operands of the rows and of the integers.
    operands: [usize; 2],
    /// Results of a batch that its picks are for, each of all places.
    outer: usize,
    /// Elements of a place.
    inner: usize,
    /// True if sums begin with what the results hold.
    on_top: bool,
}

impl Sums {
    fn steps(&self, site: &KernelSite<'_>) -> Result<Steps, String> {
        let (n, picks, [x, index]) = (result_len(site, 0), &self.picks, self.operands);
        let types = [of_operand(site, x), of_result(site, 0)];
        let kernel = |name, blocks| {
            let define = Definitions::new().tensor("X", types[0]).tensor("OUT", types[1]).size("N", n);
            let define = define.size("INNER", self.inner.max(1)).size("OUTER", self.outer.max(1));
            picks.define(define).flag("ON_TOP", self.on_top).kernel(texts::PICKS, name, blocks)
        };
        let [counts, ranks, starts, bases, totals, order] = [0, 1, 2, 3, 4, 5].map(At::Scratch);
        let more = [picks.places(), picks.all()].map(|words| words * size_of::<u32>());
        let steps = Steps { scratch: [&picks.scratch()[..], &more].concat(), ..Steps::default() };
        let (rows, index) = (At::Operand(x), At::Operand(index));
        Ok(picks
            .count(steps, kernel, index, [counts, ranks, starts, bases], totals)
            .then(kernel("base_picks", 1), vec![], vec![bases])
            .then(kernel("order_picks", threads(picks.all())), vec![index, counts, ranks, starts, bases], vec![order])
            .then(kernel("add_picks", threads(n)), vec![rows, starts, totals, bases, order], vec![At::Result(0)]))
    }
}

pub(super) fn scatter_add(op: &ScatterAdd, site: &KernelSite<'_>) -> Result<Steps, String> {
    let (whole, index) = (site.result(0)?, site.operand(1)?);
    let (dim, batch) = (op.at.dim, op.at.batch);
    let product = |sizes: &[usize]| sizes.iter().product::<usize>();
    let picks = Picks {
        batches: product(&whole[..batch]),
        picks: product(&index[batch..]),
        length: whole[dim],
        origin: site.origin(site.results[0], dim),
        pad: None,
    };
    let (outer, inner) = (product(&whole[batch..dim]), product(&whole[dim + 1..]));
    Sums { picks, operands: [0, 1], outer, inner, on_top: false }.steps(site)
}

pub(super) fn embedding_grad(op: &EmbeddingGrad, site: &KernelSite<'_>) -> Result<Steps, String> {
    let table = site.result(0)?;
    let [length, inner] = table[..] else { return Err("the table needs dims v and h".to_string()) };
    let picks = Picks {
        batches: 1,
        picks: len(site.operands[0], site),
        length,
        origin: site.origin(site.results[0], 0),
        // No id is beyond the integers.
        pad: op.pad.and_then(|pad| i32::try_from(pad).ok()).map(i64::from),
    };
    Sums { picks, operands: [1, 0], outer: 1, inner, on_top: true }.steps(site)
}
