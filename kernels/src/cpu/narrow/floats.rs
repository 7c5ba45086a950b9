//! Operands and results of any format.

use std::slice::from_raw_parts_mut;

use super::{Narrow, round_part};
use crate::cpu::prefetch::prefetch;

/// Numbers in memory, as f32 or in a narrower format.
#[derive(Clone, Copy, Debug)]
pub enum Floats<'a> {
    /// Numbers that kernels read as they are.
    Wide(&'a [f32]),
    /// Whole elements of a format, little-endian, that kernels widen as they read.
    Narrow(Narrow, &'a [u8]),
}

impl<'a> Floats<'a> {
    /// The number of elements.
    pub fn len(self) -> usize {
        match self {
            Floats::Wide(x) => x.len(),
            Floats::Narrow(format, bytes) => bytes.len() / format.bytes(),
        }
    }

    /// True if there are no elements.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The elements from the `n`-th on.
    pub(crate) fn skip(self, n: usize) -> Floats<'a> {
        match self {
            Floats::Wide(x) => Floats::Wide(&x[n..]),
            Floats::Narrow(format, bytes) => Floats::Narrow(format, &bytes[n * format.bytes()..]),
        }
    }

    /// The numbers where a kernel reads f32 alone.
    ///
    /// # Panics
    /// If they are narrow.
    pub(crate) fn wide(self) -> &'a [f32] {
        match self {
            Floats::Wide(x) => x,
            Floats::Narrow(format, _) => panic!("{format:?} where f32 is read"),
        }
    }
}

impl<'a, T: AsRef<[f32]> + ?Sized> From<&'a T> for Floats<'a> {
    fn from(numbers: &'a T) -> Floats<'a> {
        Floats::Wide(numbers.as_ref())
    }
}

impl<'a, T: AsRef<[f32]> + ?Sized> From<&'a mut T> for Floats<'a> {
    fn from(numbers: &'a mut T) -> Floats<'a> {
        Floats::Wide((*numbers).as_ref())
    }
}

/// Numbers to write, in f32 or in a narrower format.
#[derive(Debug)]
pub enum FloatsMut<'a> {
    /// Numbers of f32.
    Wide(&'a mut [f32]),
    /// Whole elements of a format, little-endian, to which kernels round as they write.
    Narrow(Narrow, &'a mut [u8]),
}

impl<'a> FloatsMut<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            FloatsMut::Wide(x) => x.len(),
            FloatsMut::Narrow(format, bytes) => bytes.len() / format.bytes(),
        }
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers where a kernel writes f32 alone.
    ///
    /// # Panics
    /// If they are narrow.
    pub fn wide(self) -> &'a mut [f32] {
        match self {
            FloatsMut::Wide(x) => x,
            FloatsMut::Narrow(format, _) => panic!("{format:?} where f32 is written"),
        }
    }

    /// Makes all of them zero.
    pub(crate) fn clear(&mut self) {
        match self {
            FloatsMut::Wide(x) => x.fill(0.0),
            FloatsMut::Narrow(_, bytes) => bytes.fill(0),
        }
    }

    /// These numbers, for several threads.
    pub(crate) fn shared(&mut self) -> SharedFloats {
        match self {
            FloatsMut::Wide(x) => SharedFloats { format: None, start: x.as_mut_ptr().cast() },
            FloatsMut::Narrow(format, bytes) => SharedFloats { format: Some(*format), start: bytes.as_mut_ptr() },
        }
    }
}

impl<'a, T: AsMut<[f32]> + ?Sized> From<&'a mut T> for FloatsMut<'a> {
    fn from(numbers: &'a mut T) -> FloatsMut<'a> {
        FloatsMut::Wide(numbers.as_mut())
    }
}

/// Numbers that several threads write, each elements of its own.
#[derive(Clone, Copy)]
pub(crate) struct SharedFloats {
    /// None for f32.
    format: Option<Narrow>,
    start: *mut u8,
}

// SAFETY: whoever writes sees to it that threads write to different elements.
unsafe impl Send for SharedFloats {}
// SAFETY: as above.
unsafe impl Sync for SharedFloats {}

impl SharedFloats {
    fn bytes(self) -> usize {
        self.format.map_or(size_of::<f32>(), Narrow::bytes)
    }

    /// The elements from the `n`-th on.
    pub(crate) fn skip(self, n: usize) -> SharedFloats {
        SharedFloats { start: self.start.wrapping_add(n * self.bytes()), ..self }
    }

    /// Asks for a number of elements from one on, which are to be written.
    pub(crate) fn prefetch(self, at: usize, count: usize) {
        prefetch(self.skip(at).start, count * self.bytes());
    }

    /// Writes numbers from an element on, rounded to the format.
    ///
    /// # Safety
    /// The elements must be there, and no one else touch them now.
    pub(crate) unsafe fn write(self, at: usize, numbers: &[f32]) {
        let to = self.skip(at).start;
        // SAFETY: as the caller promises; elements of f32 are aligned, since they were a slice.
        unsafe {
            match self.format {
                None => std::ptr::copy_nonoverlapping(numbers.as_ptr(), to.cast(), numbers.len()),
                Some(format) => round_part(format, numbers, from_raw_parts_mut(to, numbers.len() * format.bytes())),
            }
        }
    }
}
