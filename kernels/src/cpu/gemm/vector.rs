//! Vector types of the micro-kernels, one per instruction set.

/// A row of neighbouring floats.
///
/// # Safety
/// For all functions: the processor has the instruction set, and the named elements are in memory that may be read or
/// written.
pub(super) trait Vector: Copy {
    /// Elements.
    const LANES: usize;

    /// All zeros.
    unsafe fn zero() -> Self;
    /// `x` in all lanes.
    unsafe fn splat(x: f32) -> Self;
    /// All lanes from memory.
    unsafe fn load(from: *const f32) -> Self;
    /// The first `n` lanes from memory, the others zero.
    unsafe fn load_first(from: *const f32, n: usize) -> Self;
    /// All lanes to memory.
    unsafe fn store(self, to: *mut f32);
    /// Asks for the cache line of an element.
    unsafe fn prefetch(at: *const f32);
    /// `self b + c`
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// Writes the first `depth` columns of up to `LANES` lines, `from` and following at distance `stride`, as rows of
    /// `LANES` elements at distance `to_stride`. Elements beyond the last line are zeros.
    unsafe fn transpose(from: *const f32, stride: usize, lines: usize, depth: usize, to: *mut f32, to_stride: usize);
}

/// Vector of the portable kernel: two SSE or NEON registers.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(super) struct Array([f32; 8]);

impl Vector for Array {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> Array {
        Array([0.0; 8])
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Array {
        Array([x; 8])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Array {
        // SAFETY: as the caller promises.
        Array(unsafe { from.cast::<[f32; 8]>().read() })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, n: usize) -> Array {
        let mut lanes = [0.0; 8];
        // SAFETY: as the caller promises.
        (0..n.min(8)).for_each(|i| lanes[i] = unsafe { *from.add(i) });
        Array(lanes)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as the caller promises.
        unsafe { to.cast::<[f32; 8]>().write(self.0) }
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}

    #[inline(always)]
    unsafe fn mul_add(self, b: Array, c: Array) -> Array {
        let mut lanes = c.0;
        for (lane, (a, b)) in lanes.iter_mut().zip(self.0.iter().zip(&b.0)) {
            *lane += a * b;
        }
        Array(lanes)
    }

    #[inline(always)]
    unsafe fn transpose(from: *const f32, stride: usize, lines: usize, depth: usize, to: *mut f32, to_stride: usize) {
        for q in 0..depth.min(8) {
            for i in 0..8 {
                // SAFETY: as the caller promises.
                unsafe { *to.add(q * to_stride + i) = if i < lines { *from.add(i * stride + q) } else { 0.0 } };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use std::arch::x86_64::*;

    use super::Vector;

    impl Vector for __m512 {
        const LANES: usize = 16;

        #[inline(always)]
        unsafe fn zero() -> __m512 {
            // SAFETY: as the caller promises.
            unsafe { _mm512_setzero_ps() }
        }

        #[inline(always)]
        unsafe fn splat(x: f32) -> __m512 {
            // SAFETY: as the caller promises.
            unsafe { _mm512_set1_ps(x) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m512 {
            // SAFETY: as the caller promises.
            unsafe { _mm512_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, n: usize) -> __m512 {
            let mask = if n < 16 { (1 << n) - 1 } else { u16::MAX };
            // SAFETY: as the caller promises; lanes outside the mask are not read.
            unsafe { _mm512_maskz_loadu_ps(mask, from) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: as the caller promises.
            unsafe { _mm512_storeu_ps(to, self) }
        }

        #[inline(always)]
        unsafe fn prefetch(at: *const f32) {
            // SAFETY: an address that cannot be read is left alone.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }

        #[inline(always)]
        unsafe fn mul_add(self, b: __m512, c: __m512) -> __m512 {
            // SAFETY: as the caller promises.
            unsafe { _mm512_fmadd_ps(self, b, c) }
        }

        #[inline(always)]
        unsafe fn transpose(
            from: *const f32,
            stride: usize,
            lines: usize,
            depth: usize,
            to: *mut f32,
            to_stride: usize,
        ) {
            // SAFETY: as the caller promises.
            unsafe {
                let mut x = [_mm512_setzero_ps(); 16];
                for (i, x) in x.iter_mut().enumerate() {
                    if i < lines {
                        *x = Self::load_first(from.add(i * stride), depth);
                    }
                }
                // Pairs of lines, then fours, then quarters of the registers.
                for i in (0..16).step_by(2) {
                    [x[i], x[i + 1]] = [_mm512_unpacklo_ps(x[i], x[i + 1]), _mm512_unpackhi_ps(x[i], x[i + 1])];
                }
                let mut y = x;
                for i in (0..16).step_by(4) {
                    let (a, b) = (_mm512_castps_pd(x[i]), _mm512_castps_pd(x[i + 1]));
                    let (c, d) = (_mm512_castps_pd(x[i + 2]), _mm512_castps_pd(x[i + 3]));
                    let four = [
                        _mm512_unpacklo_pd(a, c),
                        _mm512_unpackhi_pd(a, c),
                        _mm512_unpacklo_pd(b, d),
                        _mm512_unpackhi_pd(b, d),
                    ];
                    for j in 0..4 {
                        y[i + j] = _mm512_castpd_ps(four[j]);
                    }
                }
                for j in 0..4 {
                    let [a, b, c, d] = [y[j], y[4 + j], y[8 + j], y[12 + j]];
                    let (low, high) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0x88>(c, d));
                    x[j] = _mm512_shuffle_f32x4::<0x88>(low, high);
                    x[8 + j] = _mm512_shuffle_f32x4::<0xdd>(low, high);
                    let (low, high) = (_mm512_shuffle_f32x4::<0xdd>(a, b), _mm512_shuffle_f32x4::<0xdd>(c, d));
                    x[4 + j] = _mm512_shuffle_f32x4::<0x88>(low, high);
                    x[12 + j] = _mm512_shuffle_f32x4::<0xdd>(low, high);
                }
                for (q, x) in x.into_iter().enumerate() {
                    if q < depth {
                        x.store(to.add(q * to_stride));
                    }
                }
            }
        }
    }

    impl Vector for __m256 {
        const LANES: usize = 8;

        #[inline(always)]
        unsafe fn zero() -> __m256 {
            // SAFETY: as the caller promises.
            unsafe { _mm256_setzero_ps() }
        }

        #[inline(always)]
        unsafe fn splat(x: f32) -> __m256 {
            // SAFETY: as the caller promises.
            unsafe { _mm256_set1_ps(x) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m256 {
            // SAFETY: as the caller promises.
            unsafe { _mm256_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, n: usize) -> __m256 {
            // SAFETY: as the caller promises; lanes outside the mask are not read.
            unsafe {
                let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                _mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32(n.min(8) as i32), lanes))
            }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: as the caller promises.
            unsafe { _mm256_storeu_ps(to, self) }
        }

        #[inline(always)]
        unsafe fn prefetch(at: *const f32) {
            // SAFETY: an address that cannot be read is left alone.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }

        #[inline(always)]
        unsafe fn mul_add(self, b: __m256, c: __m256) -> __m256 {
            // SAFETY: as the caller promises.
            unsafe { _mm256_fmadd_ps(self, b, c) }
        }

        #[inline(always)]
        unsafe fn transpose(
            from: *const f32,
            stride: usize,
            lines: usize,
            depth: usize,
            to: *mut f32,
            to_stride: usize,
        ) {
            // SAFETY: as the caller promises.
            unsafe {
                let mut x = [_mm256_setzero_ps(); 8];
                for (i, x) in x.iter_mut().enumerate() {
                    if i < lines {
                        *x = Self::load_first(from.add(i * stride), depth);
                    }
                }
                for i in (0..8).step_by(2) {
                    [x[i], x[i + 1]] = [_mm256_unpacklo_ps(x[i], x[i + 1]), _mm256_unpackhi_ps(x[i], x[i + 1])];
                }
                let mut y = x;
                for i in (0..8).step_by(4) {
                    let (a, b) = (_mm256_castps_pd(x[i]), _mm256_castps_pd(x[i + 1]));
                    let (c, d) = (_mm256_castps_pd(x[i + 2]), _mm256_castps_pd(x[i + 3]));
                    let four = [
                        _mm256_unpacklo_pd(a, c),
                        _mm256_unpackhi_pd(a, c),
                        _mm256_unpacklo_pd(b, d),
                        _mm256_unpackhi_pd(b, d),
                    ];
                    for j in 0..4 {
                        y[i + j] = _mm256_castpd_ps(four[j]);
                    }
                }
                for j in 0..4 {
                    x[j] = _mm256_permute2f128_ps::<0x20>(y[j], y[4 + j]);
                    x[4 + j] = _mm256_permute2f128_ps::<0x31>(y[j], y[4 + j]);
                }
                for (q, x) in x.into_iter().enumerate() {
                    if q < depth {
                        x.store(to.add(q * to_stride));
                    }
                }
            }
        }
    }
}
