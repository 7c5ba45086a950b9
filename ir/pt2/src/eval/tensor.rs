//! Tensors of the interpreter.

use crate::refusal::Refusal;
use std::rc::Rc;

/// The kind of a tensor's elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ElementKind {
    Float,
    Int,
    Bool,
}

impl ElementKind {
    /// The kind of an element type by its number in the schema. None for complex and quantised types.
    pub(crate) fn of(dtype: u64) -> Option<ElementKind> {
        match dtype {
            1..=5 => Some(ElementKind::Int),
            6..=8 | 13 => Some(ElementKind::Float),
            12 => Some(ElementKind::Bool),
            _ => None,
        }
    }

    /// An element as the kind stores it: floats as f32 rounds them, whatever the recorded format.
    pub(crate) fn round(self, x: f64) -> f64 {
        match self {
            ElementKind::Float => f64::from(x as f32),
            ElementKind::Int => x.trunc(),
            ElementKind::Bool => f64::from(x != 0.0),
        }
    }
}

/// A tensor in row-major order.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Tensor {
    pub(crate) kind: ElementKind,
    pub(crate) sizes: Vec<usize>,
    pub(crate) data: Vec<f64>,
}

/// The most elements of a tensor of the interpreter.
pub(crate) const MOST_ELEMENTS: usize = 1 << 27;

impl Tensor {
    /// A tensor of elements.
    pub(crate) fn new(kind: ElementKind, sizes: Vec<usize>, data: Vec<f64>) -> Tensor {
        Tensor { kind, sizes, data }
    }

    /// A tensor without dims.
    pub(crate) fn scalar(kind: ElementKind, x: f64) -> Tensor {
        Tensor { kind, sizes: Vec::new(), data: vec![kind.round(x)] }
    }

    /// The elements that `f` gives for each index.
    ///
    /// # Errors
    /// There are more than [`MOST_ELEMENTS`].
    pub(crate) fn from_fn(
        kind: ElementKind,
        sizes: &[usize],
        mut f: impl FnMut(&[usize]) -> f64,
    ) -> Result<Tensor, Refusal> {
        let count = elements(sizes)?;
        let mut index = vec![0; sizes.len()];
        let mut data = Vec::with_capacity(count);
        for _ in 0..count {
            data.push(kind.round(f(&index)));
            for d in (0..sizes.len()).rev() {
                index[d] += 1;
                if index[d] < sizes[d] {
                    break;
                }
                index[d] = 0;
            }
        }
        Ok(Tensor { kind, sizes: sizes.to_vec(), data })
    }

    /// The elements `f(x)`.
    pub(crate) fn map(&self, kind: ElementKind, f: impl Fn(f64) -> f64) -> Tensor {
        Tensor { kind, sizes: self.sizes.clone(), data: self.data.iter().map(|&x| kind.round(f(x))).collect() }
    }

    /// The element at an index; a dim of size 1 has the same element everywhere, and missing dims are in front.
    pub(crate) fn spread(&self, index: &[usize]) -> f64 {
        let skipped = index.len() - self.sizes.len();
        let at = self
            .sizes
            .iter()
            .zip(&index[skipped..])
            .fold(0, |at, (&size, &i)| at * size + if size == 1 { 0 } else { i });
        self.data[at]
    }

    /// The element at an index.
    pub(crate) fn at(&self, index: &[usize]) -> f64 {
        self.data[self.sizes.iter().zip(index).fold(0, |at, (&size, &i)| at * size + i)]
    }

    /// The size of the last dim, and the number of rows.
    pub(crate) fn rows(&self) -> (usize, usize) {
        let width = self.sizes.last().copied().unwrap_or(1);
        (width, self.data.len() / width.max(1))
    }

    /// The one number that all elements are.
    pub(crate) fn number(&self) -> Option<f64> {
        let first = *self.data.first()?;
        self.data.iter().all(|x| *x == first).then_some(first)
    }
}

/// The number of elements.
///
/// # Errors
/// There are more than [`MOST_ELEMENTS`].
pub(crate) fn elements(sizes: &[usize]) -> Result<usize, Refusal> {
    let count = sizes.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
    count
        .filter(|count| *count <= MOST_ELEMENTS)
        .ok_or_else(|| format!("a tensor of sizes {sizes:?} is too large").into())
}

/// A value of the interpreter.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Item {
    Tensor(Rc<Tensor>),
    /// Real and imaginary parts.
    Complex(Rc<[Tensor; 2]>),
    Int(i64),
}

impl From<Tensor> for Item {
    fn from(tensor: Tensor) -> Item {
        Item::Tensor(Rc::new(tensor))
    }
}
