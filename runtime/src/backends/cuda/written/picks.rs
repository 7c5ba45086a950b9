//! Sums of rows by the places that integers name, in the order of the rows.

use super::moves::tensors;
use super::{At, Steps, result_len, threads};
use crate::backend::KernelSite;
use crate::backends::cuda::lower::len;
use ir::ops::{EmbeddingGrad, ScatterAdd};
use kernels::cuda::written::{BLOCK, Definitions, texts};

/// The most chunks that count their picks apart: each has a count for every place.
const CHUNKS: usize = 32;

/// The picks of an op and its places.
struct Picks {
    /// The operands of the rows and of the integers.
    operands: [usize; 2],
    batches: usize,
    /// Results of a batch that its picks are for, each of all places.
    outer: usize,
    /// Places of a batch.
    length: usize,
    /// Picks of a batch.
    picks: usize,
    /// Elements of a place.
    inner: usize,
    /// The integer of the first place.
    origin: i64,
    /// The integer that is left out.
    pad: Option<i64>,
    /// True if sums begin with what the results hold.
    on_top: bool,
}

impl Picks {
    fn steps(&self, site: &KernelSite<'_>) -> Result<Steps, String> {
        let (places, all, [x, index]) = (self.batches * self.length, self.batches * self.picks, self.operands);
        let chunk = all.div_ceil(CHUNKS).next_multiple_of(BLOCK).max(BLOCK);
        let (chunks, groups) = (all.div_ceil(chunk), places.div_ceil(BLOCK));
        let define = || -> Result<Definitions, String> {
            let define = tensors(site, x)?.size("N", result_len(site, 0)).size("INNER", self.inner.max(1));
            let define = define.size("OUTER", self.outer.max(1)).size("LENGTH", self.length.max(1));
            let define = define.size("PICKS", self.picks.max(1)).size("PLACES", places).size("ALL", all);
            let define = define.size("CHUNKS", chunks).size("CHUNK", chunk).integer("ORIGIN", self.origin);
            // No integer is that.
            Ok(define.integer("PAD", self.pad.unwrap_or(i64::MIN + 1)).flag("ON_TOP", self.on_top))
        };
        let kernel = |name, blocks| Ok::<_, String>(define()?.kernel(texts::PICKS, name, blocks));
        let words = [chunks * places, all, places, places, groups, all];
        let [counts, ranks, starts, totals, bases, order] = [0, 1, 2, 3, 4, 5].map(At::Scratch);
        let (rows, index) = (At::Operand(x), At::Operand(index));
        let steps = Steps { scratch: words.map(|words| words * size_of::<u32>()).to_vec(), ..Steps::default() };
        Ok(steps
            .then(kernel("count_picks", chunks)?, vec![index], vec![counts, ranks])
            .then(kernel("offset_picks", groups)?, vec![], vec![counts, starts, totals, bases])
            .then(kernel("base_picks", 1)?, vec![], vec![bases])
            .then(kernel("order_picks", threads(all))?, vec![index, counts, ranks, starts, bases], vec![order])
            .then(
                kernel("add_picks", threads(result_len(site, 0)))?,
                vec![rows, starts, totals, bases, order],
                vec![At::Result(0)],
            ))
    }
}

pub(super) fn scatter_add(op: &ScatterAdd, site: &KernelSite<'_>) -> Result<Steps, String> {
    let (whole, index) = (site.result(0)?, site.operand(1)?);
    let (dim, batch) = (op.at.dim, op.at.batch);
    let product = |sizes: &[usize]| sizes.iter().product::<usize>();
    let picks = Picks {
        operands: [0, 1],
        batches: product(&whole[..batch]),
        outer: product(&whole[batch..dim]),
        length: whole[dim],
        picks: product(&index[batch..]),
        inner: product(&whole[dim + 1..]),
        origin: site.origin(site.results[0], dim),
        pad: None,
        on_top: false,
    };
    picks.steps(site)
}

pub(super) fn embedding_grad(op: &EmbeddingGrad, site: &KernelSite<'_>) -> Result<Steps, String> {
    let table = site.result(0)?;
    let [length, inner] = table[..] else { return Err("the table needs dims v and h".to_string()) };
    let picks = Picks {
        operands: [1, 0],
        batches: 1,
        outer: 1,
        length,
        picks: len(site.operands[0], site),
        inner,
        origin: site.origin(site.results[0], 0),
        // No id is beyond the integers.
        pad: op.pad.and_then(|pad| i32::try_from(pad).ok()).map(i64::from),
        on_top: true,
    };
    picks.steps(site)
}
