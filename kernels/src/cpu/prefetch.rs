//! Requests for cache lines before they are used.

/// Asks for the cache lines of bytes that will be read or written soon. Nothing happens where an address is not mapped.
#[inline(always)]
pub fn prefetch(first: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..bytes).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a request neither reads nor writes, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (first, bytes);
}
