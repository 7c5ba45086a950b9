//! Ops that a stack fuses into one kernel.

use crate::stack::Stack;
use ir::graph::{ArgKind, Block, Stmt};
use ir::ops::{BinaryKind, KernelOp, Op, UnaryKind};

/// Fused kernels of a stack, by the names of [`Stack::GROUPS`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fusion {
    pub(super) swiglu: bool,
    pub(super) bias_gelu: bool,
    pub(super) dropout_add: bool,
    pub(super) add_norm: bool,
    pub(super) norm: bool,
    pub(super) rope: bool,
    pub(super) softmax: bool,
    pub(super) loss: bool,
    pub(super) qkv: bool,
    pub(super) gate_up: bool,
    pub(super) accumulate: bool,
    pub(super) router: bool,
    pub(super) permute: bool,
    pub(super) groups: bool,
    pub(super) epilogue: bool,
    pub(super) product_sum: bool,
}

/// Role of a pointwise statement in a transformer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// A function of one value, or its gradient.
    Activation,
    /// A product.
    Gate,
    /// The sum with a parameter.
    Bias,
    /// Another sum.
    Sum,
    /// Dropout.
    Dropout,
    /// A norm, or its gradient.
    Norm,
    /// A rotary embedding.
    Rope,
    /// Any other pointwise op.
    Other,
}

impl Fusion {
    /// The part that decides about kernels behind products.
    pub(crate) fn of_products(stack: &Stack) -> Fusion {
        Fusion { epilogue: stack.fuses("epilogue"), product_sum: stack.fuses("product_sum"), ..Fusion::default() }
    }

    pub(super) fn of(stack: &Stack) -> Fusion {
        Fusion {
            swiglu: stack.fuses("swiglu"),
            bias_gelu: stack.fuses("bias_gelu"),
            dropout_add: stack.fuses("dropout_add"),
            add_norm: stack.fuses("add_norm"),
            norm: stack.fuses("norm"),
            rope: stack.fuses("rope"),
            softmax: stack.fuses("softmax"),
            loss: stack.fuses("loss"),
            qkv: stack.fuses("qkv"),
            gate_up: stack.fuses("gate_up"),
            accumulate: stack.fuses("accumulate"),
            router: stack.fuses("router"),
            permute: stack.fuses("permute"),
            groups: stack.fuses("groups"),
            epilogue: stack.fuses("epilogue"),
            product_sum: stack.fuses("product_sum"),
        }
    }

    /// Returns whether neighbours with these roles share a kernel.
    pub(super) fn joins(&self, a: Role, b: Role) -> bool {
        use Role::{Activation, Bias, Dropout, Gate, Norm, Sum};
        let both = |roles: &[Role]| roles.contains(&a) && roles.contains(&b);
        (self.swiglu && both(&[Activation, Gate]))
            || (self.bias_gelu && both(&[Bias, Activation]))
            || (self.dropout_add && both(&[Bias, Dropout, Sum]))
            || (self.add_norm && both(&[Norm, Sum]))
    }
}

/// Role of a statement; `None` if it is not a pointwise op.
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
