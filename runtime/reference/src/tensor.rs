//! Dense row-major arrays.

use super::real::Real;

/// A dense row-major array.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<T> {
    /// The sizes, slowest first.
    pub dims: Vec<usize>,
    /// The elements.
    pub data: Vec<T>,
}

impl<T: Copy> Tensor<T> {
    /// The same element everywhere.
    pub fn filled(dims: &[usize], element: T) -> Tensor<T> {
        Tensor { dims: dims.to_vec(), data: vec![element; dims.iter().product()] }
    }

    /// A scalar.
    pub fn scalar(element: T) -> Tensor<T> {
        Tensor::filled(&[], element)
    }

    /// Element by element, from the linear index.
    pub fn from_fn(dims: &[usize], element: impl FnMut(usize) -> T) -> Tensor<T> {
        Tensor { dims: dims.to_vec(), data: (0..dims.iter().product()).map(element).collect() }
    }

    /// A function of each element.
    pub fn map<U>(&self, f: impl FnMut(T) -> U) -> Tensor<U> {
        Tensor { dims: self.dims.clone(), data: self.data.iter().copied().map(f).collect() }
    }

    /// The size of the last dim; 1 for a scalar.
    pub fn columns(&self) -> usize {
        self.dims.last().copied().unwrap_or(1)
    }

    /// The runs along the last dim.
    pub fn rows(&self) -> impl Iterator<Item = &[T]> {
        self.data.chunks_exact(self.columns().max(1))
    }

    /// Distance between neighbours along each dim.
    pub fn strides(&self) -> Vec<usize> {
        strides(&self.dims)
    }
}

impl<R: Real> Tensor<R> {
    /// Zeros.
    pub fn zeros(dims: &[usize]) -> Tensor<R> {
        Tensor::filled(dims, R::zero())
    }

    /// `self += other`, of the same dims.
    pub fn add(&mut self, other: &Tensor<R>) {
        self.data.iter_mut().zip(&other.data).for_each(|(a, &b)| *a += b);
    }
}

/// Row-major strides of the sizes.
pub fn strides(dims: &[usize]) -> Vec<usize> {
    (0..dims.len()).map(|dim| dims[dim + 1..].iter().product()).collect()
}

/// Calls `visit` for every index of a box, in row-major order, with its place in each of `N` arrays. `strides[n][d]` is
/// how far array `n` moves along dim `d` of the box, `at` where each starts.
pub fn walk<const N: usize>(
    dims: &[usize],
    strides: [&[usize]; N],
    mut at: [usize; N],
    visit: &mut impl FnMut([usize; N]),
) {
    let Some((&size, inner)) = dims.split_first() else { return visit(at) };
    for _ in 0..size {
        if inner.is_empty() {
            visit(at);
        } else {
            walk(inner, strides.map(|s| &s[1..]), at, visit);
        }
        for (at, strides) in at.iter_mut().zip(strides) {
            *at += strides[0];
        }
    }
}

/// A value of the IR: float of whatever width, or i32.
#[derive(Clone, Debug, PartialEq)]
pub enum Array<R> {
    /// Floats.
    Real(Tensor<R>),
    /// Integers.
    Int(Tensor<i32>),
}

impl<R> Array<R> {
    /// The sizes.
    pub fn dims(&self) -> &[usize] {
        match self {
            Array::Real(tensor) => &tensor.dims,
            Array::Int(tensor) => &tensor.dims,
        }
    }

    /// The floats.
    ///
    /// # Errors
    /// They are integers.
    pub fn real(&self) -> Result<&Tensor<R>, String> {
        match self {
            Array::Real(tensor) => Ok(tensor),
            Array::Int(_) => Err("integers stand where floats are wanted".to_string()),
        }
    }

    /// The integers.
    ///
    /// # Errors
    /// They are floats.
    pub fn int(&self) -> Result<&Tensor<i32>, String> {
        match self {
            Array::Int(tensor) => Ok(tensor),
            Array::Real(_) => Err("floats stand where integers are wanted".to_string()),
        }
    }

    /// The floats, taken.
    ///
    /// # Errors
    /// They are integers.
    pub fn into_real(self) -> Result<Tensor<R>, String> {
        match self {
            Array::Real(tensor) => Ok(tensor),
            Array::Int(_) => Err("integers stand where floats are wanted".to_string()),
        }
    }
}

impl<R> From<Tensor<R>> for Array<R>
where
    R: Real,
{
    fn from(tensor: Tensor<R>) -> Array<R> {
        Array::Real(tensor)
    }
}
