//! Operands of any format.

use super::Narrow;

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
