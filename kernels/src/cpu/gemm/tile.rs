//! Micro-kernel: a tile of the result that stays in registers during the loop over `k`.

use super::Matrix;
use super::vector::Vector;
use super::word::Word;

/// The elements of the largest tile.
const LARGEST: usize = 32 * 32;

/// One tile to compute: `out = scale a b`, or that added.
pub(super) struct Tile {
    /// Words of each sum.
    pub(super) words: usize,
    /// The first word of `a`, and its strides along rows and words.
    pub(super) a: *const f32,
    pub(super) a_strides: [usize; 2],
    /// The first row of `b`, of neighbouring words, and the distance between rows.
    pub(super) b: *const f32,
    pub(super) b_stride: usize,
    /// The first row of the result, of neighbouring elements, and the distance between rows.
    pub(super) out: *mut f32,
    pub(super) out_stride: usize,
    pub(super) scale: f32,
    pub(super) accumulate: bool,
}

/// A tile of so many rows, and columns of so many vectors.
///
/// # Safety
/// The processor has the instructions of `V` and `W`, and all elements that the tile names may be read, and written in `out`.
#[inline(always)]
pub(super) unsafe fn compute<V: Vector, W: Word<V>, const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
    // SAFETY: as the caller promises.
    unsafe {
        if tile.accumulate {
            // What is added to arrives while the sums go on.
            for (i, j) in (0..ROWS).flat_map(|i| (0..VECTORS).map(move |j| (i, j))) {
                V::prefetch(tile.out.add(i * tile.out_stride + j * V::LANES));
            }
        }
        let acc = match tile.a_strides {
            [1, along] => sums::<V, W, ROWS, VECTORS>(tile, 1, along),
            [down, 1] => sums::<V, W, ROWS, VECTORS>(tile, down, 1),
            [down, along] => sums::<V, W, ROWS, VECTORS>(tile, down, along),
        };
        for (i, row) in acc.into_iter().enumerate() {
            for (j, sum) in row.into_iter().enumerate() {
                put(tile, [i, j], sum);
            }
        }
    }
}

/// Computes a tile of `width` columns whose result has fewer, or whose elements are apart, through a buffer.
///
/// # Safety
/// As for `compute`, whose result is `out`.
pub(super) unsafe fn compute_buffered(
    compute: unsafe fn(&Tile),
    mut tile: Tile,
    [rows, columns, width]: [usize; 3],
    out: Matrix<*mut f32>,
) {
    let mut values = [0.0; LARGEST];
    (tile.out, tile.out_stride) = (values.as_mut_ptr(), width);
    let places = || (0..rows).flat_map(|i| (0..columns).map(move |j| [i, j]));
    // SAFETY: as the caller promises.
    unsafe {
        if tile.accumulate {
            places().for_each(|[i, j]| values[i * width + j] = *out.at([i, j]).data);
        }
        compute(&tile);
        places().for_each(|[i, j]| *out.at([i, j]).data = values[i * width + j]);
    }
}

/// Writes a vector of the sums of a tile, scaled, or adds it.
///
/// # Safety
/// As for [`compute`].
#[inline(always)]
pub(super) unsafe fn put<V: Vector>(tile: &Tile, [i, j]: [usize; 2], sum: V) {
    // SAFETY: as the caller promises.
    unsafe {
        let to = tile.out.add(i * tile.out_stride + j * V::LANES);
        let before = if tile.accumulate { V::load(to) } else { V::zero() };
        sum.mul_add(V::splat(tile.scale), before).store(to);
    }
}

/// The sums of a tile, for `a` with strides `down` along rows and `along` along words.
#[inline(always)]
unsafe fn sums<V: Vector, W: Word<V>, const ROWS: usize, const VECTORS: usize>(
    tile: &Tile,
    down: usize,
    along: usize,
) -> [[V; VECTORS]; ROWS] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut acc = [[V::zero(); VECTORS]; ROWS];
        let (mut a, mut b) = (tile.a, tile.b);
        for _ in 0..tile.words {
            let mut line = [V::zero(); VECTORS];
            for (j, v) in line.iter_mut().enumerate() {
                *v = V::load(b.add(j * V::LANES));
            }
            for (i, row) in acc.iter_mut().enumerate() {
                let x = V::splat(*a.add(i * down));
                for (sum, &v) in row.iter_mut().zip(&line) {
                    *sum = W::add_products(x, v, *sum);
                }
            }
            a = a.add(along);
            b = b.add(tile.b_stride);
        }
        acc
    }
}

/// `out[j] = sum a[q, j] b[q, j]` for rows of `columns` elements, whole vectors. Terms are added as a tile adds them.
///
/// # Safety
/// As for [`compute`].
#[inline(always)]
pub(super) unsafe fn column_products<V: Vector>([a, b]: [*const f32; 2], [k, columns]: [usize; 2], out: *mut f32) {
    for j in (0..columns).step_by(V::LANES) {
        // SAFETY: as the caller promises.
        unsafe {
            let mut sum = V::zero();
            for q in 0..k {
                let at = q * columns + j;
                sum = V::load(a.add(at)).mul_add(V::load(b.add(at)), sum);
            }
            sum.store(out.add(j));
        }
    }
}
