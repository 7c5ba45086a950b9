//! Attention on tensor cores: which attentions run there, and by which tiles.

use super::attend::{self, Sizes};
use super::{At, Steps, of_operand, warps};
use device::backend::KernelSite;
use ir::ops::AttentionSettings;
use kernels::cuda::kernel::WARP;
use kernels::cuda::written::{Definitions, Written, texts};
use kernels::scalar::Element;
use std::f64::consts::LOG2_E;
use std::fmt;

/// Rows that the products of a warp have.
const ROWS: usize = 16;
/// The most warps of a block. A multiprocessor has registers for two such blocks, of 255 registers a thread: measured on an H100, they are 11
/// to 33 % faster than one block of eight warps (docs/benchmarks.md).
const WARPS: usize = 4;
/// The largest head whose kernels need no memory for registers.
const HEAD: usize = 128;
/// The most rows of a step: half of them are a lane's numbers, of which each has a bit in a word.
const STEP: usize = 64;
/// Steps in shared memory: one is read while the next one comes.
const STAGES: usize = 2;
/// Others that can be compiled, for measurements: the most warps of a block, the rows of a step, and the steps in shared memory.
const OTHERS: [[usize; 3]; 8] =
    [[4, 32, 2], [4, 64, 2], [4, 32, 3], [4, 64, 3], [8, 32, 2], [8, 64, 2], [8, 32, 3], [8, 64, 3]];
/// Bytes of an element.
const BYTES: usize = 2;
/// Bytes of the bounds of a step, and of the sums of a query.
const BOUNDS: usize = 4 * size_of::<i32>();
const SUMS: usize = 2 * size_of::<f32>();
/// Multiprocessors of an A100 (its data sheet). Blocks are smaller where there would be fewer of them.
const MULTIPROCESSORS: usize = 108;

/// The tiles of an attention, or of its gradient.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tiles {
    /// Warps of a block that has queries.
    queries: usize,
    /// Warps of a block that has keys.
    keys: usize,
    /// Rows of a step. The rows of a block are a multiple.
    step: usize,
    /// Steps in shared memory.
    stages: usize,
}

/// The numbers of tiles: `8 warps, steps of 64, 2 stages`.
impl fmt::Display for Tiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tiles { queries, keys, step, stages } = self;
        let warps = if queries == keys { queries.to_string() } else { format!("{queries} and {keys}") };
        write!(f, "{warps} warps, steps of {step}, {stages} stages")
    }
}

impl Tiles {
    /// Other tiles of an attention whose blocks have as many warps as these may.
    pub(crate) fn others() -> impl Iterator<Item = Tiles> {
        OTHERS.into_iter().map(|[warps, step, stages]| Tiles { queries: warps, keys: warps, step, stages })
    }

    /// The tiles of an attention, if it runs on tensor cores.
    pub(super) fn forward(settings: &AttentionSettings, sizes: Sizes, element: Element) -> Option<Tiles> {
        if !fits(settings, sizes, element) {
            return None;
        }
        let queries = warps_of(sizes.b * sizes.g * sizes.r, sizes.s);
        // Sums of large heads and random numbers leave registers for half as many scores.
        let most = if sizes.d + sizes.c > HEAD && settings.dropout.is_some() { STEP / 2 } else { STEP };
        Some(Tiles { queries, keys: queries, step: most.min(ROWS * queries), stages: STAGES })
    }

    /// The tiles of its gradient.
    pub(super) fn backward(settings: &AttentionSettings, sizes: Sizes, element: Element) -> Option<Tiles> {
        if !fits(settings, sizes, element) {
            return None;
        }
        let (queries, keys) = (warps_of(sizes.b * sizes.g * sizes.r, sizes.s), warps_of(sizes.b * sizes.g, sizes.t));
        // With large heads a thread keeps up to 192 bytes in memory; half as many rows a step, without, are slower: 148 against 168 TFLOP/s on
        // an H100.
        Some(Tiles { queries, keys, step: STEP.min(ROWS * queries.min(keys)), stages: STAGES })
    }

    fn steps(&self, rows: usize) -> usize {
        rows.div_ceil(self.step)
    }

    /// Steps of all queries and keys, which have bounds.
    fn bounds(&self, sizes: Sizes) -> usize {
        sizes.b * (self.steps(sizes.s) + self.steps(sizes.t))
    }

    /// Bytes of shared memory of a block that goes through keys and values.
    fn shared_of_keys(&self, sizes: Sizes) -> usize {
        self.stages * self.step * row(sizes)
    }

    /// Bytes of shared memory of a block that has keys and values, and goes through queries, gradients and sums.
    fn shared_of_queries(&self, sizes: Sizes) -> usize {
        ROWS * self.keys * row(sizes) + self.stages * self.step * (row(sizes) + SUMS)
    }
}

/// Bytes of a row of a key and of one of its value.
fn row(sizes: Sizes) -> usize {
    (sizes.d + sizes.c) * BYTES
}

/// True if products on tensor cores take heads of these sizes and elements, and the numbers of rows fit 32 bits.
fn fits(settings: &AttentionSettings, Sizes { b, s, t, g, r, d, c }: Sizes, element: Element) -> bool {
    let has_products = matches!(element, Element::Bf16 | Element::F16);
    let fits_head = |size: usize| size.is_multiple_of(ROWS) && (ROWS..=HEAD).contains(&size);
    let fits_rows = |rows: usize| rows > 0 && rows < 1 << 30;
    // The greatest score is that of the greatest product.
    let is_positive = settings.scale > 0.0 && settings.scale.is_finite();
    has_products && is_positive && fits_head(d) && fits_head(c) && fits_rows(s * r) && fits_rows(t) && b * g > 0
}

/// The most warps of a block with which there is a block of a head for each multiprocessor.
fn warps_of(heads: usize, rows: usize) -> usize {
    let mut warps = WARPS;
    while warps > 1 && heads * rows.div_ceil(ROWS * warps) < MULTIPROCESSORS {
        warps /= 2;
    }
    warps
}

/// The definitions of a text, for blocks of a number of warps.
fn define(
    settings: &AttentionSettings,
    site: &KernelSite<'_>,
    tiles: Tiles,
    warps: usize,
) -> Result<Definitions, String> {
    let suffix = if of_operand(site, 0) == Element::F16 { "f16" } else { "bf16" };
    let (define, _) = attend::define(settings, site)?;
    let numbers = [("WARPS", warps), ("STEP", tiles.step), ("STAGES", tiles.stages)];
    let define = define.number("SCALE_TO_BASE_2", (settings.scale * LOG2_E) as f32);
    let define = define.name("MULTIPLY", &format!("mma_{suffix}")).name("PACK", &format!("pack_{suffix}"));
    Ok(numbers.into_iter().fold(define, |define, (name, number)| define.name(name, &number.to_string())))
}

/// A kernel of which each warp has a row of something. All kernels of a text contract alike, since it is compiled once.
fn by_warps(define: Definitions, text: &str, name: &'static str, rows: usize) -> Written {
    Written { is_random: false, contracts: true, ..define.kernel(text, name, warps(rows)) }
}

/// A kernel with tiles in shared memory.
fn by_blocks(
    define: Definitions,
    (text, name): (&str, &'static str),
    warps: usize,
    blocks: usize,
    shared: usize,
) -> Written {
    Written { threads: warps * WARP, shared, contracts: true, ..define.kernel(text, name, blocks) }
}

/// As `attend::attention`.
pub(super) fn attention(settings: &AttentionSettings, site: &KernelSite<'_>, tiles: Tiles) -> Result<Steps, String> {
    let define = || Ok::<_, String>(define(settings, site, tiles, tiles.queries)?.flag("SINK", attend::has_sink(site)));
    let sizes = attend::define(settings, site)?.1;
    let bounds = by_warps(define()?, texts::ATTENTION_TILES, "attention_bounds", tiles.bounds(sizes));
    let blocks = sizes.b * sizes.g * sizes.r * sizes.s.div_ceil(ROWS * tiles.queries);
    let forward = by_blocks(
        define()?,
        (texts::ATTENTION_TILES, "attention_tiles"),
        tiles.queries,
        blocks,
        tiles.shared_of_keys(sizes),
    );
    let operands = attend::operands(site).chain([At::Scratch(0)]).collect();
    let steps = Steps { scratch: vec![BOUNDS * tiles.bounds(sizes)], ..Steps::default() };
    Ok(steps.then(bounds, (3..7).map(At::Operand).collect(), vec![At::Scratch(0)]).then(
        forward,
        operands,
        vec![At::Result(0), At::Result(1)],
    ))
}

/// As `attend::attention_grad`.
pub(super) fn attention_grad(
    settings: &AttentionSettings,
    site: &KernelSite<'_>,
    tiles: Tiles,
) -> Result<Steps, String> {
    let Tiles { queries, keys, step, .. } = tiles;
    let sizes = attend::define(settings, site)?.1;
    let heads = sizes.b * sizes.g;
    let summed = heads * sizes.r * tiles.steps(sizes.s) * step;
    let text = texts::ATTENTION_TILES_GRAD;
    let of_warps = |name, rows| Ok::<_, String>(by_warps(define(settings, site, tiles, queries)?, text, name, rows));
    let bounds = of_warps("attention_bounds", tiles.bounds(sizes))?;
    let sums = of_warps("attention_sums", summed)?;
    let blocks = heads * sizes.r * sizes.s.div_ceil(ROWS * queries);
    let of_queries = define(settings, site, tiles, queries)?;
    let dq = by_blocks(of_queries, (text, "attention_tiles_dq"), queries, blocks, tiles.shared_of_keys(sizes));
    let blocks = heads * sizes.t.div_ceil(ROWS * keys);
    let of_keys = define(settings, site, tiles, keys)?;
    let dkv = by_blocks(of_keys, (text, "attention_tiles_dkv"), keys, blocks, tiles.shared_of_queries(sizes));
    let of_sums = [0, 1, 2, 5].map(At::Operand).into_iter().chain([At::Scratch(1)]);
    let operands: Vec<At> = of_sums.chain((6..10).map(At::Operand)).chain([At::Scratch(0)]).collect();
    let steps = Steps { scratch: vec![BOUNDS * tiles.bounds(sizes), SUMS * summed], ..Steps::default() };
    Ok(steps
        .then(bounds, (6..10).map(At::Operand).collect(), vec![At::Scratch(0)])
        .then(sums, [3, 5, 4].map(At::Operand).to_vec(), vec![At::Scratch(1)])
        .then(dq, operands.clone(), vec![At::Result(0)])
        .then(dkv, operands, vec![At::Result(1), At::Result(2)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of shared memory that a block may have on compute capability 8.6, the least from 8.0 on (CUDA C++ Programming Guide,
    /// "Technical Specifications per Compute Capability").
    const SHARED: usize = 99 << 10;
    const LONG: Sizes = Sizes { b: 1, s: 4096, t: 4096, g: 8, r: 4, d: 128, c: 128 };

    fn settings(scale: f64) -> AttentionSettings {
        AttentionSettings::new(scale, true)
    }

    #[test]
    fn long_sequences_have_large_tiles_and_few_rows_small_ones() {
        let tiles =
            |sizes| [Tiles::forward, Tiles::backward].map(|of| of(&settings(0.1), sizes, Element::Bf16).unwrap());
        let large = Tiles { queries: 4, keys: 4, step: 64, stages: 2 };
        assert_eq!(tiles(LONG), [large, large]);
        assert_eq!(tiles(Sizes { d: 64, c: 64, ..LONG }), [large, large]);
        let small = Tiles { queries: 1, keys: 1, step: 16, stages: 2 };
        assert_eq!(tiles(Sizes { s: 60, t: 60, g: 2, ..LONG }), [small, small]);
        // 4 x 17 blocks of 64 keys are too few, and 4 x 33 of 32 keys are enough.
        let keys = Tiles { queries: 4, keys: 2, step: 32, stages: 2 };
        assert_eq!(tiles(Sizes { t: 1025, g: 4, ..LONG })[1], keys);
    }

    #[test]
    fn other_attentions_run_on_other_kernels() {
        let tiles = |scale, sizes, element| Tiles::forward(&settings(scale), sizes, element);
        assert!(tiles(0.1, LONG, Element::Bf16).is_some() && tiles(0.1, LONG, Element::F16).is_some());
        assert_eq!([tiles(0.1, LONG, Element::F32), tiles(-0.1, LONG, Element::Bf16)], [None, None]);
        for (d, c) in [(8, 64), (64, 24), (144, 64), (64, 256)] {
            assert_eq!(tiles(0.1, Sizes { d, c, ..LONG }, Element::Bf16), None, "{d}, {c}");
        }
    }

    #[test]
    fn every_tile_fits_in_the_shared_memory_of_every_device() {
        let of_head = |d, c| {
            let sizes = Sizes { d, c, ..LONG };
            let forward = Tiles::forward(&settings(0.1), sizes, Element::Bf16).unwrap();
            let backward = Tiles::backward(&settings(0.1), sizes, Element::Bf16).unwrap();
            [forward.shared_of_keys(sizes), backward.shared_of_keys(sizes), backward.shared_of_queries(sizes)]
        };
        let heads = (1..=8).flat_map(|d| (1..=8).map(move |c| (ROWS * d, ROWS * c)));
        let most = heads.flat_map(|(d, c)| of_head(d, c)).max();
        assert!(most <= Some(SHARED), "{most:?}");
    }
}
