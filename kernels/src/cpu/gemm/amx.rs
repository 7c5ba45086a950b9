//! Micro-kernel of AMX: the result's tiles are registers of 16 rows of 16 sums, and one instruction adds 32 terms to each of them.
//!
//! The words of the right operand lie in its panels as the registers need them: the columns of 16 pairs. Those of the left operand
//! are rows of neighbouring words. Numbers of terms, and of rows, that fill no register are filled up: terms with zeros, rows with
//! what is there, whose sums are dropped.
//!
//! Registers of sums that are not scaled begin with what they are added to, and are stored where the result is. Others go through a
//! buffer.
//!
//! An instruction sums the first terms of its 16 pairs and the second ones apart, and adds both sums, added, to the result. Each
//! addition rounds to f32, products are exact, and numbers below the least normal one count as zero (Intel, "Instruction Set
//! Extensions Programming Reference", TDPBF16PS).

use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::{MaybeUninit, transmute};
use std::sync::OnceLock;

use super::Matrix;
use super::elements::Elements;
use super::tile::{Tile, put};
use super::units::{self, UNIT};
use super::vector::Vector;

/// Columns of the sums of the largest tile.
const COLUMNS: usize = 2 * UNIT;

/// The shapes of the registers, as `ldtilecfg` reads them.
#[derive(PartialEq)]
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

/// All eight are full.
static SHAPES: Shapes = Shapes {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// True if the processor multiplies tiles of bf16, and the system saves their registers.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        // Bits of leaf 7: AMX-BF16 and AMX-TILE.
        let wanted = 1 << 22 | 1 << 24;
        __cpuid_count(7, 0).edx & wanted == wanted && is_permitted()
    })
}

/// Asks the system for the registers, for all threads of the process.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    // `ARCH_REQ_XCOMP_PERM` of the component `XTILEDATA` (the kernel's documentation, "Using XSTATE features in user space").
    let (mut result, request, tiles) = (158_i64, 0x1023_i64, 18_i64);
    // SAFETY: the system call `arch_prctl` writes no memory for this request.
    unsafe {
        asm!("syscall", inlateout("rax") result, in("rdi") request, in("rsi") tiles, out("rcx") _, out("r11") _);
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// Gives the registers of this thread their shapes, unless they have them: another library may have taken them since. Only called
/// where [`is_available`] is true.
pub(super) fn prepare() {
    let mut shapes = MaybeUninit::<Shapes>::uninit();
    // SAFETY: the processor has the instructions. The first writes 64 bytes; those that the second reads are valid for palette 1.
    unsafe {
        asm!("sttilecfg [{}]", in(reg) shapes.as_mut_ptr(), options(nostack));
        if shapes.assume_init() != SHAPES {
            asm!("ldtilecfg [{}]", in(reg) &raw const SHAPES, options(nostack));
        }
    }
}

/// The sums of the largest tile.
#[repr(align(64))]
struct Sums(MaybeUninit<[f32; COLUMNS * COLUMNS]>);

/// A tile of `ROWS` rows, and columns of `VECTORS` registers. Four registers have sums: two of rows by two of columns. A tile that
/// has one of rows or of columns computes that twice.
///
/// # Safety
/// As for [`compute`](super::tile::compute); the registers have their shapes, words of a unit of `a` are contiguous, and all
/// rows of its registers may be read.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn compute<const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
    let (is_scaled, places) = (tile.scale != 1.0, || (0..ROWS).flat_map(|i| (0..VECTORS).map(move |j| [i, j])));
    // SAFETY: as the caller promises; the sums of the tile are written before they are read, and whole registers are in the result.
    unsafe {
        if ROWS.is_multiple_of(UNIT) && !is_scaled {
            return multiply::<ROWS, VECTORS>(tile, tile.out, tile.out_stride, tile.accumulate);
        }
        let mut sums = Sums(MaybeUninit::uninit());
        let sums = sums.0.as_mut_ptr().cast::<f32>();
        let (sum, out) = (
            |[i, j]: [usize; 2]| sums.add(i * COLUMNS + j * UNIT),
            |[i, j]: [usize; 2]| tile.out.add(i * tile.out_stride + j * UNIT),
        );
        let adds = tile.accumulate && !is_scaled;
        if adds {
            places().for_each(|at| __m512::load(out(at)).store(sum(at)));
        }
        multiply::<ROWS, VECTORS>(tile, sums, COLUMNS, adds);
        for at in places() {
            let found = __m512::load(sum(at));
            if is_scaled { put(tile, at, found) } else { found.store(out(at)) }
        }
    }
}

/// Writes the sums of the registers of a tile into rows of `stride` elements, or adds them to what is there.
///
/// # Safety
/// As for [`compute`]; the rows may be written, and read to be added to.
#[inline(always)]
unsafe fn multiply<const ROWS: usize, const VECTORS: usize>(tile: &Tile, to: *mut f32, stride: usize, add: bool) {
    let second = if ROWS > UNIT { UNIT } else { 0 };
    // SAFETY: as the caller promises; registers of sums are loaded only if they are added to.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "test {add}, {add}",
            "jz 2f",
            "tileloadd tmm0, [{to} + {stride}]",
            "tileloadd tmm1, [{to} + {stride} + {beside}]",
            "tileloadd tmm2, [{below} + {stride}]",
            "tileloadd tmm3, [{below} + {stride} + {beside}]",
            "2:",
            "tileloadd tmm4, [{upper} + {down}]",
            "tileloadd tmm6, [{left} + {across}]",
            "tileloadd tmm7, [{left} + {across} + {beside}]",
            "tileloadd tmm5, [{lower} + {down}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {upper}, {unit}",
            "add {lower}, {unit}",
            "add {left}, {panel}",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{to} + {stride}], tmm0",
            "tilestored [{to} + {stride} + {beside}], tmm1",
            "tilestored [{below} + {stride}], tmm2",
            "tilestored [{below} + {stride} + {beside}], tmm3",
            upper = inout(reg) tile.a => _,
            lower = inout(reg) tile.a.add(second * tile.a_strides[0]) => _,
            left = inout(reg) tile.b => _,
            steps = inout(reg) tile.words / UNIT => _,
            unit = in(reg) 4 * UNIT * tile.a_strides[1],
            down = in(reg) 4 * tile.a_strides[0],
            across = in(reg) 4 * tile.b_stride,
            panel = in(reg) 4 * UNIT * tile.b_stride,
            to = in(reg) to,
            below = in(reg) to.add(second * stride),
            stride = in(reg) 4 * stride,
            add = in(reg) usize::from(add),
            beside = const 4 * UNIT * (VECTORS - 1),
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack)
        );
    }
}

/// Rows of the left operand as the registers need them.
///
/// # Safety
/// As for [`units::write`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn write_units(a: Matrix<Elements>, size: [usize; 2], to: *mut f32, apart: usize) {
    // SAFETY: as the caller promises.
    unsafe { units::write::<__m512>(a, size, to, apart) }
}

/// Rounds pairs of rows of `lanes` numbers to the words of a right operand. Words beyond the last row, up to `words`, are zeros.
///
/// # Safety
/// The processor has the instructions. `lanes` is a multiple of 16; the rows may be read, and rows of words be written.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub(super) unsafe fn round_pairs(rows: *const f32, [m, lanes]: [usize; 2], to: *mut f32, words: usize) {
    // Terms of the first row and of the second one, in turns.
    let turns: [u16; 32] = std::array::from_fn(|i| (i / 2 + i % 2 * UNIT) as u16);
    // SAFETY: as the caller promises.
    unsafe {
        let turns = _mm512_loadu_si512(turns.as_ptr().cast());
        for q in 0..words {
            for j in (0..lanes).step_by(UNIT) {
                let (mut first, mut second) = (__m512::zero(), __m512::zero());
                if 2 * q < m {
                    first = __m512::load(rows.add(2 * q * lanes + j));
                }
                if 2 * q + 1 < m {
                    second = __m512::load(rows.add((2 * q + 1) * lanes + j));
                }
                let pair: __m512i = transmute(_mm512_cvtne2ps_pbh(second, first));
                _mm512_storeu_si512(to.add(q * lanes + j).cast(), _mm512_permutexvar_epi16(turns, pair));
            }
        }
    }
}

/// Rounds rows of `lanes` numbers to rows of words, `stride` apart.
///
/// # Safety
/// As for [`round_pairs`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub(super) unsafe fn round_rows(rows: *const f32, [m, lanes]: [usize; 2], to: *mut f32, stride: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        for i in 0..m {
            for j in (0..lanes).step_by(UNIT) {
                let rounded: __m256i = transmute(_mm512_cvtneps_pbh(__m512::load(rows.add(i * lanes + j))));
                _mm256_storeu_si256(to.add(i * stride + j / 2).cast(), rounded);
            }
        }
    }
}
