//! Elementwise ops of one operand (`silu`, `exp`, `scale`) and of two (`add`, `mul`, `silu_grad`), a row of a table for each.
//!
//! There is no implicit broadcasting: two operands have the same dims, or the statement has `eq="b s h, h -> b s h"`.

mod binary;
mod binary_table;
mod constant;
mod unary;
mod unary_table;

pub use binary::Binary;
pub use binary_table::BinaryKind;
pub use unary::Unary;
pub use unary_table::UnaryKind;
