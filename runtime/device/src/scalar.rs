//! Mapping of the IR's elementwise ops to the kernels' functions.

use ir::ops::{BinaryKind, UnaryKind};
use kernels::scalar::{Binary, Unary};

/// The kernels' op; none for a cast, which computes nothing.
pub fn unary(kind: UnaryKind) -> Option<Unary> {
    Some(match kind {
        UnaryKind::Neg => Unary::Neg,
        UnaryKind::Exp => Unary::Exp,
        UnaryKind::Log => Unary::Log,
        UnaryKind::Sqrt => Unary::Sqrt,
        UnaryKind::Rsqrt => Unary::Rsqrt,
        UnaryKind::Recip => Unary::Recip,
        UnaryKind::Square => Unary::Square,
        UnaryKind::Tanh => Unary::Tanh,
        UnaryKind::Erf => Unary::Erf,
        UnaryKind::Sin => Unary::Sin,
        UnaryKind::Cos => Unary::Cos,
        UnaryKind::Stop => Unary::Scale(1.0),
        UnaryKind::Floor => Unary::Floor,
        UnaryKind::Sigmoid => Unary::Sigmoid,
        UnaryKind::Softplus => Unary::Softplus,
        UnaryKind::Silu => Unary::Silu,
        UnaryKind::Gelu => Unary::Gelu,
        UnaryKind::GeluErf => Unary::GeluErf,
        UnaryKind::ReluSquared => Unary::ReluSquared,
        UnaryKind::Scale(by) => Unary::Scale(by as f32),
        UnaryKind::Shift(by) => Unary::Shift(by as f32),
        UnaryKind::AtMost(max) => Unary::AtMost(max as f32),
        UnaryKind::AtLeast(min) => Unary::AtLeast(min as f32),
        UnaryKind::Cast(_) => return None,
    })
}

/// The kernels' op.
pub fn binary(kind: BinaryKind) -> Binary {
    match kind {
        BinaryKind::Add => Binary::Add,
        BinaryKind::Sub => Binary::Sub,
        BinaryKind::Mul => Binary::Mul,
        BinaryKind::Div => Binary::Div,
        BinaryKind::Max => Binary::Max,
        BinaryKind::Min => Binary::Min,
        BinaryKind::SigmoidGrad => Binary::SigmoidGrad,
        BinaryKind::SiluGrad => Binary::SiluGrad,
        BinaryKind::GeluGrad => Binary::GeluGrad,
        BinaryKind::GeluErfGrad => Binary::GeluErfGrad,
        BinaryKind::ReluSquaredGrad => Binary::ReluSquaredGrad,
    }
}
