//! The number of a layer, which layers pass on: one block serves them all.

use crate::models::draft::{Body, DraftError};
use crate::ops::{Binary, BinaryKind, Iota, Reshape, UnaryKind};
use crate::types::DType;

/// The number of a layer, from 0, in f32.
pub(in crate::models) const NUMBER: &str = "layer_number";

/// What a layer takes, its number.
pub(super) const TAKEN: &str = "layer_taken";

/// What a layer passes on, the number of the next one.
pub(super) const NEXT: &str = "layer_next";

/// The number of the first layer.
pub(super) fn first(b: &mut Body<'_>) -> Result<(), DraftError> {
    b.op(&["layer_place"], Iota { dim: 0, dims: b.dims("1"), dtype: DType::F32 }, &[])?;
    b.op(&[NUMBER], Reshape { dims: Vec::new() }, &["layer_place"])
}

/// The number of a layer, and of the next one. Neither has a gradient.
pub(super) fn count(b: &mut Body<'_>) -> Result<(), DraftError> {
    b.unary(NUMBER, UnaryKind::Stop, TAKEN)?;
    b.unary(NEXT, UnaryKind::Shift(1.0), NUMBER)
}

/// The factors of the two sides of sum `n = 2 l + before` of a model, `sqrt((n - 1) / n)` and `1 / sqrt(n)`, where `l` is the number of
/// the layer: both sides times these, by their names.
pub(super) fn sides(b: &mut Body<'_>, before: u32, [stream, added]: [&str; 2]) -> Result<[String; 2], DraftError> {
    let name = |end: &str| format!("{added}_{end}");
    let [twice, count, own, share, rest, kept] = ["twice", "count", "own", "share", "rest", "kept"].map(name);
    b.scale(&twice, 2.0, NUMBER)?;
    b.unary(&count, UnaryKind::Shift(f64::from(before)), &twice)?;
    b.unary(&own, UnaryKind::Rsqrt, &count)?;
    b.unary(&share, UnaryKind::Square, &own)?;
    let negative = format!("{share}_less");
    b.scale(&negative, -1.0, &share)?;
    b.unary(&rest, UnaryKind::Shift(1.0), &negative)?;
    b.unary(&kept, UnaryKind::Sqrt, &rest)?;
    Ok([times(b, stream, &kept)?, times(b, added, &own)?])
}

/// A value of the stream times a number in f32, by the name that it gives.
pub(super) fn times(b: &mut Body<'_>, x: &str, number: &str) -> Result<String, DraftError> {
    let (y, narrow) = (format!("{x}_by_{number}"), format!("{number}_narrow"));
    let dtype = b.dtype(x)?;
    b.unary(&narrow, UnaryKind::Cast(dtype), number)?;
    b.op(&[&y], Binary::spread(BinaryKind::Mul, "b s h, () -> b s h")?, &[x, &narrow])?;
    Ok(y)
}
