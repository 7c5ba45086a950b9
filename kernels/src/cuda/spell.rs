//! Element types, functions and numbers as CUDA C spells them.

use crate::group::Comparison;
use crate::scalar::{Binary, Element, Unary};

/// An element type in C.
pub(super) struct Spelling {
    /// The type of an element in memory.
    pub(super) scalar: &'static str,
    /// The type of four of them.
    pub(super) four: &'static str,
    /// The type in which elements are computed.
    pub(super) number: &'static str,
    /// The suffix of `load_`, `store_` and `round_`.
    pub(super) suffix: &'static str,
}

pub(super) fn spelling(element: Element) -> Spelling {
    let [scalar, four, number, suffix] = match element {
        Element::F32 => ["float", "float4", "float", "f32"],
        Element::Bf16 => ["unsigned short", "ushort4", "float", "bf16"],
        Element::F16 => ["unsigned short", "ushort4", "float", "f16"],
        Element::I32 => ["int", "int4", "int", "i32"],
        Element::F8E4M3 => ["unsigned char", "uchar4", "float", "f8e4m3"],
        Element::F8E5M2 => ["unsigned char", "uchar4", "float", "f8e5m2"],
    };
    Spelling { scalar, four, number, suffix }
}

pub(super) fn unary(op: Unary, x: &str) -> String {
    let (function, constant) = match op {
        Unary::Neg => ("neg", None),
        Unary::Exp => ("exp", None),
        Unary::Log => ("log", None),
        Unary::Sqrt => ("sqrt", None),
        Unary::Rsqrt => ("rsqrt", None),
        Unary::Recip => ("recip", None),
        Unary::Square => ("square", None),
        Unary::Tanh => ("tanh", None),
        Unary::Erf => ("erf", None),
        Unary::Sin => ("sin", None),
        Unary::Cos => ("cos", None),
        Unary::Floor => ("floor", None),
        Unary::Sigmoid => ("sigmoid", None),
        Unary::Silu => ("silu", None),
        Unary::Gelu => ("gelu", None),
        Unary::GeluErf => ("gelu_erf", None),
        Unary::ReluSquared => ("relu_squared", None),
        Unary::Scale(by) => ("scale", Some(by)),
        Unary::Shift(by) => ("shift", Some(by)),
        Unary::AtMost(max) => ("at_most", Some(max)),
        Unary::AtLeast(min) => ("at_least", Some(min)),
    };
    match constant {
        None => format!("unary_{function}({x})"),
        Some(constant) => format!("unary_{function}({x}, {})", literal(constant)),
    }
}

pub(super) fn binary(op: Binary) -> &'static str {
    match op {
        Binary::Add => "binary_add",
        Binary::Sub => "binary_sub",
        Binary::Mul => "binary_mul",
        Binary::Div => "binary_div",
        Binary::Max => "binary_max",
        Binary::Min => "binary_min",
        Binary::SigmoidGrad => "binary_sigmoid_grad",
        Binary::SiluGrad => "binary_silu_grad",
        Binary::GeluGrad => "binary_gelu_grad",
        Binary::GeluErfGrad => "binary_gelu_erf_grad",
        Binary::ReluSquaredGrad => "binary_relu_squared_grad",
    }
}

pub(super) fn relation(kind: Comparison) -> &'static str {
    match kind {
        Comparison::Less => "<",
        Comparison::LessEqual => "<=",
        Comparison::Equal => "==",
    }
}

/// The very bits of a number: Rust prints the shortest decimal that reads back as the same float.
pub(super) fn literal(x: f32) -> String {
    if x.is_finite() { format!("{x:?}f") } else { format!("__uint_as_float({:#x}u)", x.to_bits()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_keep_their_bits() {
        assert_eq!([0.1, -3.0, 1e-30, 16_777_216.0].map(literal), ["0.1f", "-3.0f", "1e-30f", "16777216.0f"]);
        assert_eq!(literal(f32::INFINITY), "__uint_as_float(0x7f800000u)");
    }
}
