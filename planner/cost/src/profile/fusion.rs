//! Which ops a stack runs in one kernel.

use crate::stack::Stack;
use ir::graph::{ArgKind, Block, Stmt};
use ir::ops::{BinaryKind, KernelOp, Op, UnaryKind};

/// What a stack's `fused` may name, and what each means.
pub const FUSED: [(&str, &str); 10] = [
    ("swiglu", "the activation of a gated feed-forward net and its product with the other half"),
    ("bias_gelu", "a bias and the activation behind it"),
    ("dropout_add", "a bias, dropout and the sum with the residual stream"),
    ("norm", "an RMS norm; a layer norm is one kernel everywhere"),
    ("rope", "the rotation of queries and keys"),
    ("loss", "cross-entropy straight from logits in half precision"),
    ("attention", "scores stay on the chip (Dao et al. 2022)"),
    ("qkv", "the products of queries, keys and values are one"),
    ("gate_up", "the products of a gated feed-forward net's two halves are one"),
    ("accumulate", "the product of a weight gradient adds to the sum over micro-batches"),
];

/// The name that a compiler has: all neighbouring pointwise ops are one kernel, norms among them.
const COMPILED: &str = "elementwise";

/// A stack's kernels.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fusion {
    pub(super) swiglu: bool,
    pub(super) bias_gelu: bool,
    pub(super) dropout_add: bool,
    pub(super) norm: bool,
    pub(super) rope: bool,
    pub(super) loss: bool,
    pub(super) attention: bool,
    pub(super) qkv: bool,
    pub(super) gate_up: bool,
    pub(super) accumulate: bool,
    pub(super) elementwise: bool,
}

/// What a pointwise statement is in a transformer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// A function of one value, and its cotangent.
    Activation,
    /// A product.
    Gate,
    /// The sum with a parameter.
    Bias,
    /// Another sum.
    Sum,
    /// Dropout.
    Dropout,
    /// A norm, and its cotangents.
    Norm,
    /// A rotation.
    Rope,
    /// All else that goes from element to element.
    Other,
}

impl Fusion {
    pub(super) fn of(stack: &Stack) -> Fusion {
        let has = |name: &str| stack.facts.fused.iter().any(|fused| fused == name);
        let elementwise = has(COMPILED);
        Fusion {
            swiglu: elementwise || has("swiglu"),
            bias_gelu: elementwise || has("bias_gelu"),
            dropout_add: elementwise || has("dropout_add"),
            norm: elementwise || has("norm"),
            rope: elementwise || has("rope"),
            loss: has("loss"),
            attention: has("attention"),
            qkv: has("qkv"),
            gate_up: has("gate_up"),
            accumulate: has("accumulate"),
            elementwise,
        }
    }

    /// Whether two neighbours are one kernel.
    pub(super) fn joins(&self, a: Role, b: Role) -> bool {
        use Role::{Activation, Bias, Dropout, Gate, Sum};
        let both = |roles: &[Role]| roles.contains(&a) && roles.contains(&b);
        self.elementwise
            || (self.swiglu && both(&[Activation, Gate]))
            || (self.bias_gelu && both(&[Bias, Activation]))
            || (self.dropout_add && both(&[Bias, Dropout, Sum]))
    }
}

/// The role of a statement; `None`: it is no pointwise op.
pub(super) fn role(block: &Block, stmt: &Stmt) -> Option<Role> {
    let Op::Kernel(op) = &stmt.op else { return None };
    Some(match op {
        KernelOp::Unary(unary) => match unary.0 {
            UnaryKind::Cast(_) => Role::Other,
            _ => Role::Activation,
        },
        KernelOp::Binary(binary) => match binary.kind {
            BinaryKind::Add if block.arg_kind(stmt.operands[1]) == Some(ArgKind::Param) => Role::Bias,
            BinaryKind::Add => Role::Sum,
            BinaryKind::Mul => Role::Gate,
            BinaryKind::Sub | BinaryKind::Div | BinaryKind::Max => Role::Other,
            _ => Role::Activation,
        },
        KernelOp::Dropout(_) => Role::Dropout,
        KernelOp::Rope(_) => Role::Rope,
        KernelOp::RmsNorm(_)
        | KernelOp::RmsNormDx(_)
        | KernelOp::RmsNormDgamma(_)
        | KernelOp::LayerNorm(_)
        | KernelOp::LayerNormDx(_)
        | KernelOp::LayerNormDgamma(_) => Role::Norm,
        _ => return None,
    })
}
