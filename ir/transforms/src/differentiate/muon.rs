//! Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"): the update of a matrix is its momentum, made
//! nearly orthogonal by Newton-Schulz iterations.
//!
//! The update is multiplied by `0.2 sqrt(max(rows, columns))`, which gives it the root mean square of AdamW's updates: one
//! learning rate serves both (Liu et al. 2025, "Muon is scalable for LLM training", section 2.2).

use crate::build_error::BuildError;
use ir::dim_role::DimRole;
use ir::graph::{Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{Binary, BinaryKind, Builder, Einsum, Unary, UnaryKind};
use ir::types::{Dims, Type};

/// Coefficients of `a x + b x^3 + c x^5`, which moves singular values from 0..1 to about 0.7..1.2 in five steps (Jordan et al. 2024).
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// Iterations (Jordan et al. 2024).
const STEPS: usize = 5;

/// Keeps the division by the norm finite (Jordan et al. 2024).
const EPSILON: f64 = 1e-7;

/// Root mean square of AdamW's updates (Liu et al. 2025, section 2.2).
const RMS: f64 = 0.2;

/// A parameter as a matrix, or as one matrix for each of its experts, by the places of its dims.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Matrix {
    rank: usize,
    /// Dims of which every element has a matrix.
    many: Vec<usize>,
    /// The side that products sum.
    rows: Side,
    columns: Side,
}

/// A side of a matrix.
#[derive(Clone, PartialEq, Debug)]
struct Side {
    dims: Vec<usize>,
    size: u64,
}

impl Side {
    /// The side of these dims of a type.
    fn new(ty: &Type, dims: Vec<usize>) -> Side {
        Side { size: dims.iter().map(|&place| ty.dims[place].size).product(), dims }
    }

    /// The order of the sides of a matrix.
    fn order(&self) -> (u64, usize) {
        (self.size, self.dims.len())
    }
}

impl Matrix {
    /// The matrix that the products of the forward read; `None` if other ops read the parameter, or if it is a table of a
    /// vocabulary.
    pub(super) fn of(block: &Block, param: Value, dims: &Dims) -> Option<Matrix> {
        if block.ty(param).has_role(DimRole::Vocabulary, dims) {
            return None;
        }
        let reads = block[SectionKind::F].stmts.iter().filter(|stmt| stmt.operands.contains(&param));
        let mut matrices = reads.map(|stmt| Matrix::in_product(block, stmt, param));
        let first = matrices.next()??;
        matrices.all(|other| other.as_ref() == Some(&first)).then_some(first)
    }

    fn in_product(block: &Block, stmt: &Stmt, param: Value) -> Option<Matrix> {
        let equation = stmt.op.extras().contraction?.equation();
        let [a, b] = stmt.operands.as_slice() else { return None };
        let at = usize::from(*a != param);
        if a == b {
            return None;
        }
        let (own, other) = (&equation.operands[at], &equation.operands[1 - at]);
        let (mut rows, mut columns, mut many) = (Vec::new(), Vec::new(), Vec::new());
        for (place, label) in own.iter().enumerate() {
            match (equation.result.contains(label), other.contains(label)) {
                (false, true) => rows.push(place),
                (true, false) => columns.push(place),
                (true, true) => many.push(place),
                (false, false) => return None,
            }
        }
        if rows.is_empty() || columns.is_empty() {
            return None;
        }
        let ty = block.ty(param);
        Some(Matrix { rank: own.len(), many, rows: Side::new(ty, rows), columns: Side::new(ty, columns) })
    }

    /// The matrix of these parts, which are joined along their last dim; `None` if that is none of the columns, or if the parts differ
    /// in another dim.
    pub(super) fn joined(parts: &[&Matrix]) -> Option<Matrix> {
        let first = *parts.first()?;
        let Matrix { rank, many, rows, columns } = first;
        // They may differ in the size of their columns alone.
        let are_alike = parts.iter().all(|part| {
            part.rank == *rank && part.many == *many && part.rows == *rows && part.columns.dims == columns.dims
        });
        let size = parts.iter().map(|part| part.columns.size).sum();
        (are_alike && columns.dims.contains(&(rank - 1)))
            .then(|| Matrix { columns: Side { size, ..columns.clone() }, ..first.clone() })
    }

    /// The smaller side and the larger one.
    fn sides(&self) -> [&Side; 2] {
        let (rows, columns) = (&self.rows, &self.columns);
        if rows.order() <= columns.order() { [rows, columns] } else { [columns, rows] }
    }

    /// Labels of all dims, those of the smaller side with another letter.
    fn labels(&self, small: char) -> String {
        let [smaller, _] = self.sides();
        let letters = (0..self.rank).map(|place| if smaller.dims.contains(&place) { small } else { 'x' });
        letters.enumerate().map(|(place, letter)| format!("{letter}{place}")).collect::<Vec<_>>().join(" ")
    }

    /// Labels of the products of the smaller side with itself.
    fn square(&self, letters: [char; 2]) -> String {
        let small = letters
            .into_iter()
            .flat_map(|letter| self.sides()[0].dims.iter().map(move |place| format!("{letter}{place}")));
        self.many.iter().map(|place| format!("x{place}")).chain(small).collect::<Vec<_>>().join(" ")
    }

    /// The update of these matrices: nearly orthogonal ones with the singular vectors of `x`.
    ///
    /// # Errors
    /// None on a value of the parameter's dims.
    pub(super) fn orthogonal(&self, b: &mut Builder<'_>, x: Value) -> Result<Value, BuildError> {
        let (own, other) = (self.labels('i'), self.labels('j'));
        let many = self.many.iter().map(|place| format!("x{place}")).collect::<Vec<_>>().join(" ");
        let squares = b.one(Einsum::new(&format!("{own}, {own} -> {many}"))?, &[x, x])?;
        let mut factor = squares;
        for kind in [UnaryKind::Sqrt, UnaryKind::Shift(EPSILON), UnaryKind::Recip] {
            factor = b.one(Unary(kind), &[factor])?;
        }
        let mut x = b.one(Binary::spread(BinaryKind::Mul, &format!("{own}, {many} -> {own}"))?, &[x, factor])?;
        let [ij, jk, ik] = [['i', 'j'], ['j', 'k'], ['i', 'k']].map(|letters| self.square(letters));
        let gram = Einsum::new(&format!("{own}, {other} -> {ij}"))?;
        let square = Einsum::new(&format!("{ij}, {jk} -> {ik}"))?;
        let product = Einsum::new(&format!("{ij}, {other} -> {own}"))?;
        let [first, third, fifth] = COEFFICIENTS.map(|by| Unary(UnaryKind::Scale(by)));
        for _ in 0..STEPS {
            let a = b.one(gram.clone(), &[x, x])?;
            let squared = b.one(square.clone(), &[a, a])?;
            let terms = [b.one(third.clone(), &[a])?, b.one(fifth.clone(), &[squared])?];
            let polynomial = b.one(Binary::of(BinaryKind::Add), &terms)?;
            let terms = [b.one(first.clone(), &[x])?, b.one(product.clone(), &[polynomial, x])?];
            x = b.one(Binary::of(BinaryKind::Add), &terms)?;
        }
        Ok(b.one(Unary(UnaryKind::Scale(RMS * (self.sides()[1].size as f64).sqrt())), &[x])?)
    }
}
