//! Ops that a stack fuses into one kernel.

use crate::enum_set::EnumSet;
use crate::traits::FusedKernel;
use ir::graph::{ArgKind, Block, Stmt};
use ir::ops::{BinaryKind, KernelOp, Op, UnaryKind};

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

/// Returns whether neighbours with these roles share a kernel.
pub(super) fn share_kernel(fused: EnumSet<FusedKernel>, a: Role, b: Role) -> bool {
    use Role::{Activation, Bias, Dropout, Gate, Norm, Sum};
    let groups: [(FusedKernel, &[Role]); 5] = [
        (FusedKernel::Swiglu, &[Activation, Gate]),
        (FusedKernel::ClampedSwiglu, &[Bias, Activation, Gate]),
        (FusedKernel::BiasGelu, &[Bias, Activation]),
        (FusedKernel::DropoutAdd, &[Bias, Dropout, Sum]),
        (FusedKernel::AddNorm, &[Norm, Sum]),
    ];
    groups.iter().any(|(kernel, roles)| fused.contains(*kernel) && roles.contains(&a) && roles.contains(&b))
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
