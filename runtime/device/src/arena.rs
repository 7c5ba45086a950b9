//! Host memory of one rank: one block, in which the program assigns every tensor its offset.

use crate::backend::Span;
use crate::memory;
use ir::arena::ALIGNMENT;
use ir::types::DType;
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

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// The elements at a place.
    ///
    /// # Safety
    /// Nobody writes them while the slice lives.
    ///
    /// # Panics
    /// If they are of another type, or the place is not within the arena.
    pub unsafe fn elements<T: Stored>(&self, span: Span) -> &[T] {
        assert!(T::stores(span.dtype), "elements are read as what they are, not as {span:?}");
        // SAFETY: they are within the block, every bit pattern is an element, and by the caller's contract nobody writes them.
        unsafe { std::slice::from_raw_parts(self.at(span).cast(), span.len) }
    }

    /// The elements at a place, to be written.
    ///
    /// # Safety
    /// Nobody else reads or writes them while the slice lives.
    ///
    /// # Panics
    /// As [`elements`](Arena::elements).
    #[allow(clippy::mut_from_ref, reason = "the caller answers for exclusion")]
    pub unsafe fn elements_mut<T: Stored>(&self, span: Span) -> &mut [T] {
        assert!(T::stores(span.dtype), "elements are written as what they are, not as {span:?}");
        // SAFETY: they are within the block, and by the caller's contract nobody else touches them.
        unsafe { std::slice::from_raw_parts_mut(self.at(span).cast(), span.len) }
    }

    /// The bytes of a place.
    ///
    /// # Safety
    /// Nobody writes them while the slice lives.
    ///
    /// # Panics
    /// If the place is not within the arena.
    pub unsafe fn bytes(&self, span: Span) -> &[u8] {
        // SAFETY: as in `elements`.
        unsafe { std::slice::from_raw_parts(self.at(span), span.bytes()) }
    }

    /// The bytes of a place, to be written.
    ///
    /// # Safety
    /// Nobody else reads or writes them while the slice lives.
    ///
    /// # Panics
    /// If the place is not within the arena.
    #[allow(clippy::mut_from_ref, reason = "the caller answers for exclusion")]
    pub unsafe fn bytes_mut(&self, span: Span) -> &mut [u8] {
        // SAFETY: as in `elements_mut`.
        unsafe { std::slice::from_raw_parts_mut(self.at(span), span.bytes()) }
    }

    /// The bytes from an offset on, for those who answer for exclusion themselves.
    ///
    /// # Panics
    /// If they are not within the arena.
    pub fn place(&self, offset: usize, len: usize) -> *mut [u8] {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.size());
        assert!(is_inside, "{len} bytes at {offset} do not lie in an arena of {} bytes", self.size());
        // SAFETY: the offset is within the block.
        std::ptr::slice_from_raw_parts_mut(unsafe { self.start.as_ptr().add(offset) }, len)
    }

    /// The address of a place, aligned to its elements.
    pub fn at(&self, span: Span) -> *mut u8 {
        let size = span.dtype.bytes() as usize;
        let end = span.len.checked_mul(size).and_then(|bytes| bytes.checked_add(span.offset));
        let inside = span.offset.is_multiple_of(size) && end.is_some_and(|end| end <= self.size());
        assert!(inside, "{span:?} does not lie in an arena of {} bytes", self.size());
        // SAFETY: the offset is within the block.
        unsafe { self.start.as_ptr().add(span.offset) }
    }
}

/// Elements as the arena has them, all of whose bit patterns are values.
pub trait Stored: Copy {
    /// True if it is what tensors of a type have.
    fn stores(dtype: DType) -> bool;
}

impl Stored for f32 {
    fn stores(dtype: DType) -> bool {
        dtype == DType::F32
    }
}

impl Stored for i32 {
    fn stores(dtype: DType) -> bool {
        dtype == DType::I32
    }
}

macro_rules! bits {
    ($($bits:ident),*) => {$(
        impl Stored for $bits {
            fn stores(dtype: DType) -> bool {
                dtype.bytes() as usize == size_of::<$bits>()
            }
        }
    )*};
}

// Elements that are only moved.
bits!(u8, u16, u32);

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the block was allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lie_within_and_keep_their_bits() {
        let arena = Arena::new(100).unwrap();
        assert_eq!(arena.size(), 128);
        let span = Span::new(DType::I32, 64, 3);
        // SAFETY: nobody else has the arena.
        unsafe { arena.elements_mut(span) }.copy_from_slice(&[-1, 0, i32::MAX]);
        // SAFETY: as above.
        assert_eq!(unsafe { arena.elements::<i32>(span) }, [-1, 0, i32::MAX]);
        // SAFETY: as above.
        assert_eq!(unsafe { arena.bytes(Span::new(DType::BF16, 64, 1)) }, [0xff, 0xff]);
        let outside =
            [(4, 0, 33), (4, 66, 1), (4, 128, 1), (4, usize::MAX - 3, 2), (4, 0, usize::MAX), (2, 1, 1), (2, 0, 65)];
        for (bytes, offset, len) in outside {
            let span = Span::new(if bytes == 4 { DType::F32 } else { DType::F16 }, offset, len);
            // SAFETY: as above.
            let outside = || unsafe { arena.bytes(span).len() };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(outside)).is_err(), "{offset} {len}");
        }
        // SAFETY: as above.
        let other = || unsafe { arena.elements::<f32>(span).len() };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(other)).is_err());
        assert!(Arena::new(usize::MAX).is_err());
    }
}
