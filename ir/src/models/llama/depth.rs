//! The number of a layer, which layers count: one block serves them all.
//!
//! A layer takes the numbers of all layers, its own first, and passes them on with its own last. They are integers, which have no gradient.

use super::config::LlamaConfig;
use crate::models::draft::{Body, DraftError};
use crate::ops::{Binary, BinaryKind, Concat, Iota, Reshape, Slice, UnaryKind};
use crate::types::{DType, Dim, Type};

/// The number of a layer, from 0, in f32.
pub(in crate::models) const NUMBER: &str = "layer_number";

/// The numbers of all layers, those of this layer and of later ones first.
pub(super) const NUMBERS: &str = "layers_from";

/// Numbers of layers, as a layer passes them on.
pub(super) const NEXT: &str = "layers_next";

/// The type of the numbers of all layers.
pub(super) fn numbers(config: &LlamaConfig) -> Type {
    Type::new(DType::I32, vec![Dim::sized(config.layers.into())])
}

/// The numbers that the first layer takes.
pub(super) fn first(config: &LlamaConfig, b: &mut Body<'_>) -> Result<(), DraftError> {
    b.op(&[NUMBERS], Iota { dim: 0, dims: numbers(config).dims, dtype: DType::I32 }, &[])
}

/// The number of a layer, and what it passes on.
pub(super) fn count(config: &LlamaConfig, b: &mut Body<'_>) -> Result<(), DraftError> {
    let others = u64::from(config.layers) - 1;
    b.op(&["layer_own"], Slice { dim: 0, start: 0, length: 1 }, &[NUMBERS])?;
    b.op(&["layer_place"], Reshape { dims: Vec::new() }, &["layer_own"])?;
    b.unary(NUMBER, UnaryKind::Cast(DType::F32), "layer_place")?;
    if others == 0 {
        return b.op(&[NEXT], Concat { dim: 0 }, &["layer_own"]);
    }
    b.op(&["layers_others"], Slice { dim: 0, start: 1, length: others }, &[NUMBERS])?;
    b.op(&[NEXT], Concat { dim: 0 }, &["layers_others", "layer_own"])
}

/// The factors of the two sides of sum `n = 2 l + before` of a model, `sqrt((n - 1) / n)` and `1 / sqrt(n)`, where `l` is the number of
/// the layer: both sides times these, by their names.
pub(super) fn sides(b: &mut Body<'_>, before: u32, stream: &str, added: &str) -> Result<[String; 2], DraftError> {
    let [twice, count, own, share, less, rest, old] =
        ["twice", "count", "own", "share", "less", "rest", "old"].map(|end| format!("{added}_{end}"));
    b.scale(&twice, 2.0, NUMBER)?;
    b.unary(&count, UnaryKind::Shift(f64::from(before)), &twice)?;
    b.unary(&own, UnaryKind::Rsqrt, &count)?;
    b.unary(&share, UnaryKind::Square, &own)?;
    b.scale(&less, -1.0, &share)?;
    b.unary(&rest, UnaryKind::Shift(1.0), &less)?;
    b.unary(&old, UnaryKind::Sqrt, &rest)?;
    Ok([times(b, stream, &old)?, times(b, added, &own)?])
}

/// A value of the stream times a number in f32, by the name that it gives.
pub(super) fn times(b: &mut Body<'_>, x: &str, number: &str) -> Result<String, DraftError> {
    let (y, narrow) = (format!("{x}_by_{number}"), format!("{number}_narrow"));
    let dtype = b.dtype(x)?;
    b.unary(&narrow, UnaryKind::Cast(dtype), number)?;
    b.op(&[&y], Binary::spread(BinaryKind::Mul, "b s h, () -> b s h")?, &[x, &narrow])?;
    Ok(y)
}
