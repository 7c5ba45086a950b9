//! Contraction of two tensors, which covers every matrix product.
//!
//! A contraction is planned once for its index labels and sizes. Each index label has one role:
//!
//! | in `a` | in `b` | in `out` | part |
//! |---|---|---|---|
//! | yes | yes | yes | batch: the products are repeated |
//! | yes | | yes | `m`, rows of the product |
//! | | yes | yes | `n`, columns of the product |
//! | yes | yes | | `k`, contracted |
//! | one of them | | | summed before the product |
//!
//! Labels of one role that are contiguous in memory are merged into one dimension with one stride, so transposed and
//! strided operands are multiplied in place. Labels that cannot be merged, but leave a large dimension, become loops. Every
//! other operand is copied into scratch memory in a contiguous order.
//!
//! Operands in narrow formats are widened part by part inside the matrix product, and copied as they are. Those that are
//! summed or multiplied otherwise are widened into scratch memory first. Either way, the result has the bits of the same
//! contraction of their f32 numbers, unless the processor multiplies pairs of bf16 (`gemm`).

use super::elementwise::{Binary, Strided, add_assign, broadcast_binary};
use super::matrix::{Loops, Matrices};
use super::nd::{Dims, merge, row_major};
use super::par::Par;
use super::reduce::{Reduction, reduce};
use super::shape::{View, add_strided, copy_strided};
use crate::cpu::narrow::{Floats, Narrow, bytes_of, widen};
use std::collections::BTreeSet;

/// A dimension of this length fills a matrix product, so that other labels are looped over and nothing is copied.
const LOOP_ABOVE: usize = 48;

/// A planned contraction of `a` and `b` to `out`.
#[derive(Clone, Debug)]
pub struct Einsum {
    a: Operand,
    b: Operand,
    out: Packing,
    sizes: [usize; 3],
    product: Product,
    flops: u64,
}

/// Preparation of an operand before the product.
#[derive(Clone, Debug)]
struct Operand {
    /// Dimensions, and which of them survive; none if all do.
    summed: Option<(Dims, Vec<bool>)>,
    summed_len: usize,
    packing: Packing,
}

/// A copy into the order of the product: its dimensions and their strides in the original.
type Packing = Option<(Dims, Dims)>;

#[derive(Clone, Debug)]
enum Product {
    /// Nothing is contracted: the dimensions of `out`.
    Outer(Box<Loops>),
    /// Matrix products.
    Matrices(Box<Matrices>),
}

/// The sizes of the labels of a contraction.
pub(super) struct LabelSizes(Vec<(char, usize)>);

impl LabelSizes {
    /// The sizes of the labels of two operands.
    pub(super) fn of(a: &[char], b: &[char], a_dims: &[usize], b_dims: &[usize]) -> LabelSizes {
        let labels = a.iter().zip(a_dims).chain(b.iter().zip(b_dims));
        LabelSizes(labels.map(|(&letter, &size)| (letter, size)).collect())
    }

    /// The size of a label; 1 if neither operand has it.
    pub(super) fn size(&self, letter: char) -> usize {
        self.0.iter().find(|(known, _)| *known == letter).map_or(1, |(_, size)| *size)
    }

    /// The sizes of several labels.
    pub(super) fn dims(&self, letters: &[char]) -> Dims {
        letters.iter().map(|&letter| self.size(letter)).collect()
    }

    /// Elements of a tensor of these labels.
    pub(super) fn count(&self, letters: &[char]) -> usize {
        letters.iter().map(|&letter| self.size(letter)).product()
    }
}

/// The labels of `letters` that `others` has, or else lacks.
fn only(letters: &[char], others: &[char], has: bool) -> Vec<char> {
    letters.iter().copied().filter(|letter| others.contains(letter) == has).collect()
}

/// The letters of a tensor with their strides.
#[derive(Clone, Default)]
pub(super) struct Layout {
    letters: Vec<char>,
    strides: Dims,
}

impl Layout {
    /// Layout of a dense tensor.
    pub(super) fn dense(letters: &[char], sizes: &LabelSizes) -> Layout {
        Layout { letters: letters.to_vec(), strides: row_major(&sizes.dims(letters)) }
    }

    /// The strides of `letters`; 0 for those it has not.
    pub(super) fn strides(&self, letters: &[char]) -> Dims {
        let places = letters.iter().map(|letter| self.letters.iter().position(|own| own == letter));
        places.map(|place| place.map_or(0, |place| self.strides[place])).collect()
    }

    /// The stride of `letters` as one dimension, if they run on into one another.
    pub(super) fn stride(&self, letters: &[char], sizes: &LabelSizes) -> Option<usize> {
        let (dims, [strides]) = merge(&sizes.dims(letters), [&self.strides(letters)]);
        (dims.len() <= 1).then(|| strides.first().copied().unwrap_or(1))
    }
}

/// The letters of a contraction by their part in it.
struct Parts {
    batch: Vec<char>,
    m: Vec<char>,
    n: Vec<char>,
    k: Vec<char>,
}

impl Einsum {
    /// Plans the contraction of `a` and `b`, given by labels and sizes, to `out`.
    ///
    /// # Errors
    /// If a label appears twice in one tensor, has two sizes, or is in `out` alone, or if a tensor has not one
    /// size per letter.
    pub fn new(a: &[char], b: &[char], out: &[char], a_dims: &[usize], b_dims: &[usize]) -> Result<Einsum, String> {
        check(a, b, out, a_dims, b_dims)?;
        let sizes = LabelSizes::of(a, b, a_dims, b_dims);
        let a_left: Vec<char> = a.iter().copied().filter(|l| b.contains(l) || out.contains(l)).collect();
        let b_left: Vec<char> = b.iter().copied().filter(|l| a.contains(l) || out.contains(l)).collect();
        let (a_out, contracted) = (only(out, a, true), only(&only(&a_left, &b_left, true), out, false));
        let parts = Parts {
            batch: only(&a_out, b, true),
            m: only(&a_out, b, false),
            n: only(out, a, false),
            k: if a_dims.len() >= b_dims.len() { contracted } else { only(&only(&b_left, &a_left, true), out, false) },
        };

        let mut layouts = [&a_left[..], &b_left, out].map(|letters| Layout::dense(letters, &sizes));
        let mut packings = [None, None, None];
        let product = if sizes.count(&parts.k) == 1 && !out.is_empty() {
            let dims = sizes.dims(out);
            Product::Outer(Box::new(Loops { dims, strides: layouts.each_ref().map(|x| x.strides(out)) }))
        } else {
            let (matrices, packed) = parts.product(&mut layouts, &sizes);
            packings = packed;
            Product::Matrices(Box::new(matrices))
        };
        let [a_packing, b_packing, out_packing] = packings;
        let all = [&parts.batch, &parts.m, &parts.n, &parts.k].map(|letters| sizes.count(letters) as u64);
        Ok(Einsum {
            a: Operand { summed: summed(a, a_dims, &a_left), summed_len: sizes.count(&a_left), packing: a_packing },
            b: Operand { summed: summed(b, b_dims, &b_left), summed_len: sizes.count(&b_left), packing: b_packing },
            out: out_packing,
            sizes: [a, b, out].map(|letters| sizes.count(letters)),
            product,
            flops: 2 * all.iter().product::<u64>(),
        })
    }

    /// Floating-point operations of the product, a multiplication and an addition for each term.
    pub fn flops(&self) -> u64 {
        self.flops
    }

    /// Computes the contraction into `out`, or adds it if `accumulate`. `scratch` grows as needed and may be reused for
    /// the next call.
    ///
    /// # Panics
    /// If an operand or `out` has not the size planned for.
    pub fn run<'a, 'b>(
        &self,
        a: impl Into<Floats<'a>>,
        b: impl Into<Floats<'b>>,
        out: &mut [f32],
        accumulate: bool,
        par: Par,
        scratch: &mut Vec<f32>,
    ) {
        self.contract(a.into(), b.into(), out, accumulate, par, scratch);
    }

    /// Elements of the result.
    pub(super) fn len(&self) -> usize {
        self.sizes[2]
    }

    /// The product, if its elements can be finished as they are completed.
    pub(super) fn finishing(&self) -> Option<&Matrices> {
        let Product::Matrices(matrices) = &self.product else { return None };
        let fits = matrices.can_finish() && self.out.is_none() && self.flops > 0;
        fits.then_some(matrices)
    }

    /// True if the contraction can be [rounded](Einsum::run_rounded) without its result in f32.
    pub fn can_round(&self) -> bool {
        let matrices = if let Product::Matrices(matrices) = &self.product { matrices.can_round() } else { false };
        matrices && self.flops > 0
    }

    /// Computes the contraction in f32, row by row, and rounds it into narrow elements. `scratch` is as for [`run`](Einsum::run).
    ///
    /// # Panics
    /// If an operand or `out` has not the size planned for, or the contraction [cannot](Einsum::can_round) be rounded.
    pub fn run_rounded<'a, 'b>(
        &self,
        a: impl Into<Floats<'a>>,
        b: impl Into<Floats<'b>>,
        (format, out): (Narrow, &mut [u8]),
        par: Par,
        scratch: &mut Vec<f32>,
    ) {
        let (a, b) = (a.into(), b.into());
        assert_eq!([a.len(), b.len(), out.len() / format.bytes()], self.sizes, "sizes of a, b and out");
        let Product::Matrices(matrices) = &self.product else { panic!("a contraction of matrices") };
        let result = if self.out.is_some() { wide_len(format, self.len()) } else { 0 };
        let ([a, b], result) = self.prepare([a, b], false, result, scratch, par);
        let Some((dims, strides)) = &self.out else {
            return matrices.run_rounded(a, b, format, out, par);
        };
        let result = &mut bytes_of(result)[..out.len()];
        matrices.run_rounded(a, b, format, result, par);
        let (from, to) = (row_major(dims), View { offset: 0, strides });
        copy_narrow(format, result, View { offset: 0, strides: &from }, out, to, dims);
    }

    /// The operands as the product reads them, in f32 if they must be `wide`, and scratch memory for a number of elements.
    pub(super) fn prepare<'s>(
        &self,
        operands: [Floats<'s>; 2],
        wide: bool,
        count: usize,
        scratch: &'s mut Vec<f32>,
        par: Par,
    ) -> ([Floats<'s>; 2], &'s mut [f32]) {
        let [a, b] = operands;
        let needed = self.a.scratch(a, wide) + self.b.scratch(b, wide) + count;
        if scratch.len() < needed {
            scratch.resize(needed, 0.0);
        }
        let mut free = &mut scratch[..];
        let operands = [self.a.prepare(a, wide, &mut free, par), self.b.prepare(b, wide, &mut free, par)];
        (operands, take(&mut free, count))
    }

    fn contract(&self, a: Floats, b: Floats, out: &mut [f32], accumulate: bool, par: Par, scratch: &mut Vec<f32>) {
        assert_eq!([a.len(), b.len(), out.len()], self.sizes, "sizes of a, b and out");
        if self.flops == 0 {
            if !accumulate {
                out.fill(0.0);
            }
            return;
        }
        let direct = match self.product {
            Product::Outer(_) => !accumulate,
            Product::Matrices(_) => self.out.is_none(),
        };
        let result = if direct { 0 } else { out.len() };
        let ([a, b], result) = self.prepare([a, b], self.product.reads_wide(), result, scratch, par);
        if direct {
            return self.product.run(a, b, out, accumulate, par);
        }
        self.product.run(a, b, result, false, par);
        match &self.out {
            None => add_assign(out, result, par),
            Some((dims, strides)) => {
                let (from, to) = (row_major(dims), View { offset: 0, strides });
                let from = View { offset: 0, strides: &from };
                let put = if accumulate { add_strided } else { copy_strided };
                put(result, from, out, to, dims);
            }
        }
    }
}

/// The dims of an operand of which only some labels are `left`, and which of them; none if all are.
fn summed(letters: &[char], dims: &[usize], left: &[char]) -> Option<(Dims, Vec<bool>)> {
    (left.len() < letters.len()).then(|| (dims.into(), letters.iter().map(|letter| left.contains(letter)).collect()))
}

fn check(a: &[char], b: &[char], out: &[char], a_dims: &[usize], b_dims: &[usize]) -> Result<(), String> {
    for (letters, dims) in [(a, a_dims), (b, b_dims)] {
        if letters.len() != dims.len() {
            return Err(format!("{} labels for {} dimensions", letters.len(), dims.len()));
        }
    }
    for letters in [a, b, out] {
        if let Some(l) = letters.iter().enumerate().find(|(i, l)| letters[..*i].contains(l)) {
            return Err(format!("label {} appears twice in one tensor", l.1));
        }
    }
    if let Some(l) = out.iter().find(|l| !a.contains(l) && !b.contains(l)) {
        return Err(format!("label {l} of the result is in neither operand"));
    }
    for (l, size) in a.iter().zip(a_dims) {
        if let Some(i) = b.iter().position(|x| x == l).filter(|&i| b_dims[i] != *size) {
            return Err(format!("label {l} has size {size} and size {}", b_dims[i]));
        }
    }
    Ok(())
}

impl Parts {
    /// Finds the product for tensors of these layouts, changing those that must be packed.
    fn product(&self, layouts: &mut [Layout; 3], sizes: &LabelSizes) -> (Matrices, [Packing; 3]) {
        let mut packings = [None, None, None];
        let orders = [
            [&self.batch[..], &self.m, &self.k].concat(),
            [&self.batch[..], &self.k, &self.n].concat(),
            [&self.batch[..], &self.m, &self.n].concat(),
        ];
        loop {
            let (found, pack) = self.fit(layouts, sizes);
            for &t in &pack {
                packings[t] = Some((sizes.dims(&orders[t]), layouts[t].strides(&orders[t])));
                layouts[t] = Layout::dense(&orders[t], sizes);
            }
            if pack.is_empty() {
                return (found, packings);
            }
        }
    }

    /// The product for these layouts, and the tensors that must be packed for it to hold.
    fn fit(&self, layouts: &[Layout; 3], sizes: &LabelSizes) -> (Matrices, BTreeSet<usize>) {
        let mut found =
            Matrices { size: [1; 3], strides: [[1; 2]; 3], batch: Loops::default(), inner: Loops::default() };
        let mut pack = BTreeSet::new();
        let (dims, strides) = merged(&self.batch, layouts, sizes);
        found.batch = Loops { dims, strides };
        // For each of m, n, k: its place in the strides of the two tensors that have it.
        let places = [[(0, 0), (2, 0)], [(1, 1), (2, 1)], [(0, 1), (1, 0)]];
        for (i, letters) in [&self.m, &self.n, &self.k].into_iter().enumerate() {
            let (dims, strides) = merged(letters, layouts, sizes);
            let Some(longest) = (0..dims.len()).max_by_key(|&j| (dims[j], j)) else {
                continue;
            };
            if dims.len() > 1 && dims[longest] < LOOP_ABOVE {
                pack.extend(places[i].map(|(t, _)| t).into_iter().filter(|&t| merge(&dims, [&strides[t]]).0.len() > 1));
            }
            found.size[i] = dims[longest];
            for (t, place) in places[i] {
                found.strides[t][place] = strides[t][longest];
            }
            let loops = if i == 2 { &mut found.inner } else { &mut found.batch };
            for j in (0..dims.len()).filter(|&j| j != longest) {
                loops.dims.push(dims[j]);
                (0..3).for_each(|t| loops.strides[t].push(strides[t][j]));
            }
        }
        (found, pack)
    }
}

/// The dims of labels in all three tensors, merged where they run on into one another.
fn merged(letters: &[char], layouts: &[Layout; 3], sizes: &LabelSizes) -> (Dims, [Dims; 3]) {
    let [a, b, out] = layouts.each_ref().map(|layout| layout.strides(letters));
    merge(&sizes.dims(letters), [&a, &b, &out])
}

impl Operand {
    /// True if [`Operand::prepare`] writes `x` into scratch memory in f32 as it is.
    fn widens(&self, x: Floats, wide: bool) -> bool {
        matches!(x, Floats::Narrow(..)) && (wide || self.summed.is_some())
    }

    /// Elements of scratch memory that [`Operand::prepare`] takes.
    fn scratch(&self, x: Floats, wide: bool) -> usize {
        let copies = usize::from(self.summed.is_some()) + usize::from(self.packing.is_some());
        self.summed_len * copies + if self.widens(x, wide) { x.len() } else { 0 }
    }

    /// The operand in the layout of the product, in f32 if it is summed for that or must be `wide`.
    fn prepare<'s>(&self, x: Floats<'s>, wide: bool, free: &mut &'s mut [f32], par: Par) -> Floats<'s> {
        let mut x = x;
        if let (Floats::Narrow(format, bytes), true) = (x, self.widens(x, wide)) {
            let widened = take(free, x.len());
            widen(format, bytes, widened, par);
            x = Floats::Wide(widened);
        }
        if let Some((dims, keep)) = &self.summed {
            let sum = take(free, self.summed_len);
            reduce(Reduction::Sum, x.wide(), dims, keep, sum, par);
            x = Floats::Wide(sum);
        }
        if let Some((dims, strides)) = &self.packing {
            let to = row_major(dims);
            let (from, to) = (View { offset: 0, strides }, View { offset: 0, strides: &to });
            x = match x {
                Floats::Wide(x) => {
                    let packed = take(free, self.summed_len);
                    copy_strided(x, from, packed, to, dims);
                    Floats::Wide(packed)
                }
                Floats::Narrow(format, bytes) => {
                    let packed = bytes_of(take(free, wide_len(format, x.len())));
                    let packed = &mut packed[..bytes.len()];
                    copy_narrow(format, bytes, from, packed, to, dims);
                    Floats::Narrow(format, packed)
                }
            };
        }
        x
    }
}

/// Elements of f32 that take the memory of narrow ones.
fn wide_len(format: Narrow, elements: usize) -> usize {
    (elements * format.bytes()).div_ceil(size_of::<f32>())
}

/// Copies a view of narrow elements of shape `dims`.
fn copy_narrow(format: Narrow, from: &[u8], a: View<'_>, to: &mut [u8], b: View<'_>, dims: &[usize]) {
    match format.bytes() {
        2 => copy_strided(from.as_chunks::<2>().0, a, to.as_chunks_mut::<2>().0, b, dims),
        _ => copy_strided(from, a, to, b, dims),
    }
}

/// Takes the first `n` elements off `free`.
fn take<'s>(free: &mut &'s mut [f32], n: usize) -> &'s mut [f32] {
    let (taken, rest) = std::mem::take(free).split_at_mut(n);
    *free = rest;
    taken
}

impl Product {
    /// True if the operands must be f32.
    fn reads_wide(&self) -> bool {
        match self {
            Product::Outer(_) => true,
            Product::Matrices(matrices) => matrices.are_dots(),
        }
    }

    fn run(&self, a: Floats, b: Floats, out: &mut [f32], accumulate: bool, par: Par) {
        match self {
            Product::Outer(outer) => {
                let Loops { dims, strides: [a_strides, b_strides, _] } = &**outer;
                let (a, b) = (Strided(a.wide().into(), a_strides), Strided(b.wide().into(), b_strides));
                broadcast_binary(Binary::Mul, a, b, out, dims, par);
            }
            Product::Matrices(matrices) => matrices.run(a, b, out, accumulate, par),
        }
    }
}

#[cfg(test)]
#[path = "einsum_tests.rs"]
mod tests;
