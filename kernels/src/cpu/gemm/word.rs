//! The 32-bit words of which micro-kernels multiply vectors.

use super::vector::Vector;

/// Meaning of the words of a vector.
pub(super) trait Word<V: Vector> {
    /// `sum + a b` in each lane, for all terms of a word.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn add_products(a: V, b: V, sum: V) -> V;
}

/// A term in f32.
pub(super) struct Single;

impl<V: Vector> Word<V> for Single {
    #[inline(always)]
    unsafe fn add_products(a: V, b: V, sum: V) -> V {
        // SAFETY: as the caller promises.
        unsafe { a.mul_add(b, sum) }
    }
}

/// Two terms in bf16, the first one in the lower half. Products are exact; each sum is rounded to f32, that with the second
/// product before that with the first. Numbers below the least normal one count as zero.
pub(super) struct Pair;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m512, __m512bh, _mm512_dpbf16_ps};
    use std::mem::transmute;

    use super::{Pair, Word};

    impl Word<__m512> for Pair {
        #[inline(always)]
        unsafe fn add_products(a: __m512, b: __m512, sum: __m512) -> __m512 {
            // SAFETY: the two types are the same register; the rest is as the caller promises.
            unsafe { _mm512_dpbf16_ps(sum, transmute::<__m512, __m512bh>(a), transmute::<__m512, __m512bh>(b)) }
        }
    }
}
