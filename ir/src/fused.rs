//! Fused groups: statements that one kernel runs, some rows at a time, so that values which only the group reads stay in the cache.
//!
//! A group means its statements in order: it changes no number. All its statements treat the same rows alike
//! ([`OpDef::rows`](crate::ops::OpDef::rows)). Or it begins with a product, and the others work on single elements of its result, or sum
//! them over its rows. A value that is not among its `outs` is *interior*: it has no place in the frame and is never freed.

use crate::graph::Stmt;
use crate::ids::Value;
use crate::ops::{KernelOp, Op};

/// The most bytes that the interior values of one row may have.
pub const ROW_BYTES: u64 = 1 << 18;

/// A group of statements.
#[derive(Clone, PartialEq, Debug)]
pub struct Fused {
    /// Its statements, in order.
    pub stmts: Vec<Stmt>,
    /// The values that it leaves.
    pub outs: Vec<Value>,
}

/// True if an op may follow a product in a group: it works on single elements, adds a bias to them, or sums them over the rows. A bias has
/// the last dims of the elements, so that it is the same for each row.
pub fn follows_product(op: &Op) -> bool {
    match op {
        Op::Kernel(KernelOp::Unary(_) | KernelOp::Reduce(_)) => true,
        Op::Kernel(KernelOp::Binary(op)) => op
            .equation
            .as_ref()
            .is_none_or(|equation| equation.operands.iter().all(|operand| equation.result.ends_with(operand))),
        _ => false,
    }
}

impl Fused {
    /// The product that it begins with.
    pub fn product(&self) -> Option<&Stmt> {
        self.stmts.first().filter(|stmt| matches!(stmt.op, Op::Kernel(KernelOp::Einsum(_))))
    }

    /// The values from elsewhere that its statements read, in order of first use.
    pub fn reads(&self) -> Vec<Value> {
        let (mut made, mut reads) = (Vec::new(), Vec::new());
        for stmt in &self.stmts {
            for &value in &stmt.operands {
                if !made.contains(&value) && !reads.contains(&value) {
                    reads.push(value);
                }
            }
            made.extend(&stmt.results);
        }
        reads
    }

    /// The values that it does not leave, in order of their definition.
    pub fn interior(&self) -> impl Iterator<Item = Value> + '_ {
        self.stmts.iter().flat_map(|stmt| &stmt.results).copied().filter(|value| !self.outs.contains(value))
    }
}
