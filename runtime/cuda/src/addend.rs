//! Tensors that the library adds to a product: cuBLASLt computes `D = op(A) op(B) + C`, or adds a number to each row of `D`
//! (cuBLAS documentation, "cublasLtMatmul" and "cublasLtEpilogue_t"). In f32 the bits are those of a product and an addition. In a
//! narrow format the library rounds the product before the addition, or not (measured on an H100), and the sum once more.

use device::backend::{GroupStmt, GroupValue};
use ir::ops::{Binary, BinaryKind, KernelOp};

/// The tensor that a product adds, which has the result's format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Addend {
    /// Elements of the result's sizes: the matrix C.
    Same,
    /// Elements of the result's last dims, such as a bias: a number for each row of D.
    Row,
}

/// An addition that a product does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sum {
    /// The number of its statement.
    pub(super) stmt: usize,
    /// The kind of tensor that is added.
    pub(super) addend: Addend,
    /// That tensor.
    pub(super) with: GroupValue,
}

/// The addition that alone reads the result of a product, the statement of a number; none if there is another reader. The product's own
/// operands are not added: D may have the place of what is added, and must not have that of A or B.
pub(super) fn sum(stmts: &[GroupStmt<'_>], product: usize) -> Option<Sum> {
    let [value @ GroupValue::Interior(_)] = stmts[product].results[..] else { return None };
    let reads = |stmt: &GroupStmt<'_>| stmt.operands.iter().filter(|&&read| read == value).count();
    let mut readers = (product + 1..stmts.len()).filter(|&at| reads(&stmts[at]) > 0);
    let (Some(at), None) = (readers.next(), readers.next()) else { return None };
    let stmt = &stmts[at];
    let (KernelOp::Binary(op @ Binary { kind: BinaryKind::Add, .. }), false) = (stmt.op, stmt.accumulate) else {
        return None;
    };
    let place = stmt.operands.iter().position(|&read| read == value)?;
    let with = stmt.operands[1 - place];
    let dtype = stmts[product].site.results[0].dtype;
    let is_alike = stmt.site.operands.iter().chain(stmt.site.results).all(|ty| ty.dtype == dtype);
    if with == value || !is_alike || stmts[product].operands.contains(&with) {
        return None;
    }
    Some(Sum { stmt: at, addend: addend(op, place)?, with })
}

/// How an addition reads its other operand; none if the product is not read as it is.
fn addend(op: &Binary, product: usize) -> Option<Addend> {
    let Some(equation) = &op.equation else { return Some(Addend::Same) };
    let [of_product, of_other] = [product, 1 - product].map(|place| &equation.operands[place]);
    match *of_product == equation.result {
        true if *of_other == equation.result => Some(Addend::Same),
        true if equation.result.ends_with(of_other) && !of_other.is_empty() => Some(Addend::Row),
        _ => None,
    }
}
