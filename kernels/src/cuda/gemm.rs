//! Lowering of a contraction to cuBLASLt: `D = op(A) op(B)` on column-major matrices, optionally a batch at one stride.
//!
//! Index labels have the roles of [`crate::cpu::einsum`]: batch, `m` (rows of the result), `n` (its columns) and `k`
//! (contracted). Labels of one role that are contiguous in memory form one dimension. A row-major matrix is a column-major
//! one transposed, so a row-major result `C = A B` is requested as `C' = B' A'`, with the operands swapped. An operand in
//! the other order is read transposed. An operand without unit stride is first copied into an order that has one
//! ([`Contraction::pack`]), and so is a result ([`Contraction::unpack`]).

use crate::scalar::{Access, Strides};

/// A column-major matrix, as cuBLASLt describes it: element (row, column) of batch `i` is at
/// `i * batch_stride + column * leading + row`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Matrix {
    /// Rows in memory.
    pub rows: usize,
    /// Columns in memory.
    pub columns: usize,
    /// Elements from one column to the next, at least `rows`.
    pub leading: usize,
    /// Elements from one matrix of the batch to the next.
    pub batch_stride: usize,
    /// True if the product takes its transpose.
    pub transposed: bool,
}

/// A batch of products.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gemm {
    /// Matrices in the batch.
    pub batch: usize,
    /// Rows of `op(A)` and `D`.
    pub m: usize,
    /// Columns of `op(B)` and `D`.
    pub n: usize,
    /// Columns of `op(A)`, rows of `op(B)`.
    pub k: usize,
    /// The left matrix.
    pub a: Matrix,
    /// The right matrix.
    pub b: Matrix,
    /// The result, never transposed.
    pub d: Matrix,
    /// True if `A` is the contraction's second operand and `B` its first.
    pub swapped: bool,
}

impl Gemm {
    /// Floating-point operations, a multiplication and an addition for each term.
    pub fn flops(&self) -> u64 {
        2 * [self.batch, self.m, self.n, self.k].iter().map(|&size| size as u64).product::<u64>()
    }

    /// Two things of the contraction's operands, in the order of `A` and `B`.
    pub fn ordered<T>(&self, mut operands: [T; 2]) -> [T; 2] {
        if self.swapped {
            operands.reverse();
        }
        operands
    }
}

/// A contraction of two tensors as one batch of products, and the copies around it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contraction {
    /// The product.
    pub gemm: Gemm,
    /// Elements of the two operands and the result.
    pub sizes: [usize; 3],
    /// For an operand that must be copied first: how the copy, as long as the operand, walks it.
    pub pack: [Option<Access>; 2],
    /// If the product gives the result in another order: how the result walks the product.
    pub unpack: Option<Access>,
}

/// A tensor's labels in memory order, with their sizes.
type Letters = Vec<(char, usize)>;

/// A matrix within a tensor: strides of batch, rows and columns.
#[derive(Clone, Copy)]
struct MatrixPlace {
    batch: usize,
    rows: Line,
    columns: Line,
}

/// A dimension of a tensor, or several that run on into one another.
#[derive(Clone, Copy)]
struct Line {
    size: usize,
    stride: usize,
}

impl Line {
    /// True if the dimension is contiguous. One of a single element has whatever stride is wanted of it.
    fn is_unit(self) -> bool {
        self.size <= 1 || self.stride == 1
    }
}

impl Contraction {
    /// Plans the contraction of `a` and `b`, given by labels and sizes, to `out`.
    ///
    /// # Errors
    /// A label appears twice in a tensor, has two sizes, is in the result alone, or is summed from one operand alone; or
    /// the numbers of labels and sizes differ.
    pub fn new(
        a: &[char],
        b: &[char],
        out: &[char],
        a_dims: &[usize],
        b_dims: &[usize],
    ) -> Result<Contraction, String> {
        Contraction::of(a, b, out, a_dims, b_dims, false)
    }

    /// As [`Contraction::new`], with operands in which the terms of a sum are neighbours: cuBLASLt takes operands of 8 bits so, `A` transposed
    /// and `B` not. An operand that lies otherwise is copied first.
    ///
    /// # Errors
    /// As [`Contraction::new`].
    pub fn by_terms(
        a: &[char],
        b: &[char],
        out: &[char],
        a_dims: &[usize],
        b_dims: &[usize],
    ) -> Result<Contraction, String> {
        Contraction::of(a, b, out, a_dims, b_dims, true)
    }

    fn of(
        a: &[char],
        b: &[char],
        out: &[char],
        a_dims: &[usize],
        b_dims: &[usize],
        by_terms: bool,
    ) -> Result<Contraction, String> {
        let sizes = sizes(a, b, out, a_dims, b_dims)?;
        let batch: Vec<char> = out.iter().copied().filter(|l| a.contains(l) && b.contains(l)).collect();
        let m: Vec<char> = out.iter().copied().filter(|l| !b.contains(l)).collect();
        let n: Vec<char> = out.iter().copied().filter(|l| !a.contains(l)).collect();
        let k: Vec<char> = a.iter().copied().filter(|l| b.contains(l) && !out.contains(l)).collect();

        let a = Tensor::new(with_sizes(a, &sizes), [&batch, &m, &k], by_terms);
        // A copy has the last part inside.
        let b = match by_terms {
            true => Tensor::new(with_sizes(b, &sizes), [&batch, &n, &k], true).flipped(),
            false => Tensor::new(with_sizes(b, &sizes), [&batch, &k, &n], false),
        };
        let d = Tensor::new(with_sizes(out, &sizes), [&batch, &m, &n], false);
        // A row-major result swaps the operands. Of one row or one column, the longer dimension shall be the contiguous one.
        let swapped = d.place.columns.is_unit() && !(d.place.rows.size > 1 && d.place.rows.is_unit());
        let (left, right, result) = if swapped {
            (b.place.flipped(), a.place.flipped(), d.place.flipped())
        } else {
            (a.place, b.place, d.place)
        };
        let [batch, k] = [batch, k].map(|letters| letters.iter().map(|&letter| size_of(letter, &sizes)).product());
        let gemm = Gemm {
            batch,
            m: result.rows.size,
            n: result.columns.size,
            k,
            a: left.matrix(),
            b: right.matrix(),
            d: result.matrix(),
            swapped,
        };
        Ok(Contraction { gemm, sizes: [&a, &b, &d].map(|tensor| tensor.len), pack: [a.pack, b.pack], unpack: d.unpack })
    }
}

/// The size of a letter; 1 if no tensor has it.
fn size_of(letter: char, sizes: &Letters) -> usize {
    sizes.iter().find(|known| known.0 == letter).map_or(1, |known| known.1)
}

fn with_sizes(letters: &[char], sizes: &Letters) -> Letters {
    letters.iter().map(|&letter| (letter, size_of(letter, sizes))).collect()
}

/// Every letter with its size.
fn sizes(a: &[char], b: &[char], out: &[char], a_dims: &[usize], b_dims: &[usize]) -> Result<Letters, String> {
    let mut known = Letters::new();
    for (letters, dims) in [(a, a_dims), (b, b_dims)] {
        if letters.len() != dims.len() {
            return Err(format!("{} labels for {} dimensions", letters.len(), dims.len()));
        }
        for (&letter, &size) in letters.iter().zip(dims) {
            match known.iter().find(|other| other.0 == letter) {
                Some(other) if other.1 != size => {
                    return Err(format!("label {letter} has size {} and size {size}", other.1));
                }
                _ => known.push((letter, size)),
            }
        }
    }
    for letters in [a, b, out] {
        if let Some((_, l)) = letters.iter().enumerate().find(|(i, l)| letters[..*i].contains(l)) {
            return Err(format!("label {l} appears twice in one tensor"));
        }
    }
    if let Some(l) = out.iter().find(|l| !a.contains(l) && !b.contains(l)) {
        return Err(format!("label {l} of the result is in neither operand"));
    }
    // A sum over one element is that element.
    let mut summed = known.iter().filter(|(l, size)| *size != 1 && !out.contains(l));
    match summed.find(|(l, _)| !(a.contains(l) && b.contains(l))) {
        Some((l, _)) => Err(format!("label {l} is summed over one operand alone")),
        None => Ok(known),
    }
}

/// A tensor as matrices, in place or as a copy.
struct Tensor {
    place: MatrixPlace,
    len: usize,
    /// From the order of memory to that of the parts.
    pack: Option<Access>,
    /// From the order of the parts to that of memory.
    unpack: Option<Access>,
}

impl Tensor {
    /// `parts`: batch, rows, columns. If asked for, columns are contiguous.
    fn new(letters: Letters, parts: [&Vec<char>; 3], by_columns: bool) -> Tensor {
        let len = letters.iter().map(|letter| letter.1).product();
        if let Some(place) = MatrixPlace::of(&letters, parts)
            && (!by_columns || place.columns.is_unit())
        {
            return Tensor { place, len, pack: None, unpack: None };
        }
        let ordered: Letters = parts.iter().flat_map(|part| with_sizes(part, &letters)).collect();
        let place = MatrixPlace::of(&ordered, parts).expect("parts that lie in order are a matrix");
        Tensor { place, len, pack: Some(walk(&ordered, &letters)), unpack: Some(walk(&letters, &ordered)) }
    }

    fn flipped(self) -> Tensor {
        Tensor { place: self.place.flipped(), ..self }
    }
}

/// How a dense tensor of some letters walks a dense tensor of the same letters in another order.
fn walk(to: &Letters, from: &Letters) -> Access {
    let dims = to.iter().map(|&(letter, size)| (size, stride(from, letter))).collect();
    Access::Strided(Strides { dims, offset: 0 })
}

/// The stride of a letter in a dense row-major tensor.
fn stride(letters: &Letters, letter: char) -> usize {
    letters.iter().rev().take_while(|l| l.0 != letter).map(|l| l.1).product()
}

impl MatrixPlace {
    /// The tensor as it is, if it is a batch of matrices with a unit stride.
    fn of(letters: &Letters, parts: [&Vec<char>; 3]) -> Option<MatrixPlace> {
        let [batch, rows, columns] = parts.map(|part| merged(letters, part));
        let place = MatrixPlace { batch: batch?.stride, rows: rows?, columns: columns? };
        (place.rows.is_unit() || place.columns.is_unit()).then_some(place)
    }

    fn flipped(self) -> MatrixPlace {
        MatrixPlace { rows: self.columns, columns: self.rows, ..self }
    }

    /// The matrix, as cuBLASLt describes it.
    fn matrix(self) -> Matrix {
        let transposed = !self.rows.is_unit();
        let (fast, slow) = if transposed { (self.columns, self.rows) } else { (self.rows, self.columns) };
        Matrix {
            rows: fast.size,
            columns: slow.size,
            leading: if slow.size <= 1 { fast.size } else { slow.stride },
            batch_stride: self.batch,
            transposed,
        }
    }
}

/// A part's letters as one dimension, if they run on into one another.
fn merged(letters: &Letters, part: &[char]) -> Option<Line> {
    let mut found: Option<Line> = None;
    for &letter in part.iter().rev() {
        let size = size_of(letter, letters);
        if size == 1 {
            continue;
        }
        let step = stride(letters, letter);
        found = match found {
            None => Some(Line { size, stride: step }),
            Some(inner) if step == inner.size * inner.stride => Some(Line { size: size * inner.size, ..inner }),
            Some(_) => return None,
        };
    }
    Some(found.unwrap_or(Line { size: 1, stride: 1 }))
}

#[cfg(test)]
#[path = "gemm_tests.rs"]
mod tests;
