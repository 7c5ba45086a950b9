//! Single elements: the functions of them, the types that store them, and the ways to find them.

use crate::cpu::narrow::Narrow;

pub use crate::functions::{Binary, Unary};

/// The element type of a tensor. Floats are computed in f32, and rounded to nearest, ties to even; those of 8 bits saturate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Element {
    /// 4 bytes.
    F32,
    /// 2 bytes, the upper half of an f32.
    Bf16,
    /// 2 bytes, IEEE half.
    F16,
    /// An integer of 4 bytes.
    I32,
    /// A byte, with 3 bits of mantissa.
    F8E4M3,
    /// A byte, with 2 bits of mantissa.
    F8E5M2,
}

impl Element {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Element::F32 | Element::I32 => 4,
            Element::Bf16 | Element::F16 => 2,
            Element::F8E4M3 | Element::F8E5M2 => 1,
        }
    }

    /// The format, if it is narrower than f32.
    pub fn narrow(self) -> Option<Narrow> {
        match self {
            Element::F32 | Element::I32 => None,
            Element::Bf16 => Some(Narrow::Bf16),
            Element::F16 => Some(Narrow::F16),
            Element::F8E4M3 => Some(Narrow::F8E4M3),
            Element::F8E5M2 => Some(Narrow::F8E5M2),
        }
    }

    /// The nearest number of the type.
    pub fn nearest(self, x: f32) -> f32 {
        self.narrow().map_or(x, |format| format.nearest(x))
    }
}

/// Map from element `i` of the result to an element of an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// Element `i`.
    Same,
    /// The first one, for all `i`.
    One,
    /// The result is a dense row-major tensor; along each of its dims the input is walked by a stride.
    Strided(Strides),
}

/// A walk over an input along the dims of the result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Strides {
    /// Size of each dim of the result and the input's stride in it, in elements; 0 where the input repeats.
    pub dims: Vec<(usize, usize)>,
    /// The input's element that belongs to element 0.
    pub offset: usize,
}

impl Strides {
    /// The input's element that belongs to element `i` of the result.
    pub fn at(&self, i: usize) -> usize {
        let (mut rest, mut place) = (i, self.offset);
        for &(size, stride) in self.dims.iter().rev() {
            place += rest % size * stride;
            rest /= size;
        }
        place
    }

    /// The walk over any tensor of as many elements, in the fewest dims.
    #[must_use]
    pub fn merged(&self) -> Strides {
        let mut dims: Vec<(usize, usize)> = Vec::new();
        for &(size, stride) in self.dims.iter().filter(|dim| dim.0 != 1) {
            match dims.last_mut() {
                Some(outer) if outer.1 == size * stride => *outer = (outer.0 * size, stride),
                _ => dims.push((size, stride)),
            }
        }
        Strides { dims, offset: self.offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_walk_a_transposed_tensor() {
        // x is 2 x 3, the result its transpose, 3 x 2.
        let strides = Strides { dims: vec![(3, 1), (2, 3)], offset: 0 };
        assert_eq!([0, 1, 2, 3, 4, 5].map(|i| strides.at(i)), [0, 3, 1, 4, 2, 5]);
    }

    #[test]
    fn merged_strides_walk_alike() {
        let cases = [
            (vec![(2, 15), (3, 5), (5, 1)], vec![(30, 1)]),
            (vec![(2, 0), (1, 7), (3, 0), (5, 1)], vec![(6, 0), (5, 1)]),
            (vec![(3, 1), (2, 0), (5, 0)], vec![(3, 1), (10, 0)]),
            (vec![(3, 1), (2, 3)], vec![(3, 1), (2, 3)]),
        ];
        for (dims, want) in cases {
            let (strides, want) = (Strides { dims, offset: 4 }, Strides { dims: want, offset: 4 });
            assert_eq!(strides.merged(), want);
            assert!((0..30).all(|i| strides.at(i) == want.at(i) || i >= 6));
        }
    }
}
