//! Element types, functions and numbers as CUDA C spells them.

use crate::functions::{binary_functions, unary_functions};
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

macro_rules! unary_texts {
    ($($(#[$doc:meta])*
       $kind:ident $(($constant:ident: $ty:ty = $some:expr))? $name:literal: $run:tt, $body:literal, $bound:expr;)*
    ) => {
        /// The definitions of the functions of one number.
        pub(super) const UNARY: &str = concat!($(
            "FUNCTION float unary_", $name, "(float x", $(", float ", stringify!($constant),)? ") { ", $body, " }\n",
        )*);

        /// A call of a function of one number.
        pub(super) fn unary(op: Unary, x: &str) -> String {
            match op {
                $(Unary::$kind $(($constant))? => [
                    concat!("unary_", $name, "("), x, $(", ", &literal($constant),)? ")",
                ].concat()),*
            }
        }
    };
}
unary_functions!(unary_texts);

macro_rules! binary_texts {
    ($($(#[$doc:meta])* $kind:ident $name:literal: |$a:ident, $b:ident| $value:expr, $body:literal, $bound:expr;)*) => {
        /// The definitions of the functions of two numbers.
        pub(super) const BINARY: &str = concat!($(
            "FUNCTION float binary_", $name, "(float ", stringify!($a), ", float ", stringify!($b), ") { ", $body, " }\n",
        )*);

        /// The name of a function of two numbers.
        pub(super) fn binary(op: Binary) -> &'static str {
            match op { $(Binary::$kind => concat!("binary_", $name)),* }
        }
    };
}
binary_functions!(binary_texts);

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
