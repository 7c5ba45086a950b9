//! Host memory of one rank: one block, in which the program assigns every tensor its offset.

use crate::backend::Span;
use crate::memory;
use ir::arena::ALIGNMENT;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// The memory of one rank. Its threads and, in collectives, those of its peers share it; which of them may read or write a
/// tensor at a time is settled by the program and its checker.
pub struct Arena {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its block, and hands out references only in unsafe functions whose callers answer for exclusion.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Memory of `bytes` bytes, all zero.
    ///
    /// # Errors
    /// There is not so much.
    pub fn new(bytes: usize) -> Result<Arena, String> {
        let alignment = ALIGNMENT as usize;
        let layout = bytes.max(1).checked_next_multiple_of(alignment);
        let layout = layout.and_then(|bytes| Layout::from_size_align(bytes, alignment).ok());
        let layout = layout.ok_or_else(|| format!("{bytes} bytes are more than can be addressed"))?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(memory::granted(|| unsafe { alloc_zeroed(layout) }));
        let start = start.ok_or_else(|| format!("there is no memory for {bytes} bytes"))?;
        Ok(Arena { start, layout })
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// The elements at a place, as floats.
    ///
    /// # Safety
    /// Nobody writes them while the slice lives.
    ///
    /// # Panics
    /// If the place is not within the arena.
    pub(crate) unsafe fn floats(&self, span: Span) -> &[f32] {
        // SAFETY: they are within the block, every bit pattern is a float, and by the caller's contract nobody writes them.
        unsafe { std::slice::from_raw_parts(self.at(span), span.len) }
    }

    /// The elements at a place, to be written.
    ///
    /// # Safety
    /// Nobody else reads or writes them while the slice lives.
    ///
    /// # Panics
    /// If the place is not within the arena.
    #[allow(clippy::mut_from_ref, reason = "the caller answers for exclusion")]
    pub(crate) unsafe fn floats_mut(&self, span: Span) -> &mut [f32] {
        // SAFETY: they are within the block, and by the caller's contract nobody else touches them.
        unsafe { std::slice::from_raw_parts_mut(self.at(span), span.len) }
    }

    fn at(&self, span: Span) -> *mut f32 {
        let end = span.len.checked_mul(4).and_then(|bytes| bytes.checked_add(span.offset));
        let inside = span.offset.is_multiple_of(4) && end.is_some_and(|end| end <= self.bytes());
        assert!(inside, "{span:?} does not lie in an arena of {} bytes", self.bytes());
        // SAFETY: the offset is within the block.
        unsafe { self.start.as_ptr().add(span.offset).cast() }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the block was allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Floats seen as integers, bit by bit.
pub fn as_ints(floats: &[f32]) -> &[i32] {
    // SAFETY: the element types have the same size and alignment, and every bit pattern is a value of both.
    unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), floats.len()) }
}

/// Floats to be written as integers, bit by bit.
pub fn as_ints_mut(floats: &mut [f32]) -> &mut [i32] {
    // SAFETY: as in `as_ints`.
    unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), floats.len()) }
}

/// Integers seen as floats, bit by bit.
pub fn as_floats(ints: &[i32]) -> &[f32] {
    // SAFETY: as in `as_ints`.
    unsafe { std::slice::from_raw_parts(ints.as_ptr().cast(), ints.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lie_within_and_keep_their_bits() {
        let arena = Arena::new(100).unwrap();
        assert_eq!(arena.bytes(), 128);
        let span = Span { offset: 64, len: 3 };
        // SAFETY: nobody else has the arena.
        unsafe { arena.floats_mut(span) }.copy_from_slice(as_floats(&[-1, 0, i32::MAX]));
        // SAFETY: as above.
        assert_eq!(as_ints(unsafe { arena.floats(span) }), [-1, 0, i32::MAX]);
        for (offset, len) in [(0, 33), (66, 1), (128, 1), (usize::MAX - 3, 2), (0, usize::MAX)] {
            // SAFETY: as above.
            let outside = || unsafe { arena.floats(Span { offset, len }).len() };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(outside)).is_err(), "{offset} {len}");
        }
        assert!(Arena::new(usize::MAX).is_err());
    }
}
