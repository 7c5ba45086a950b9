//! The projector, which makes rows of the text model's size of patches.

use super::{Square, Vision};
use crate::models::draft::{Body, DraftError, Linear, Weight};
use crate::ops::{Einsum, Reshape, RmsNorm};

/// The layer that a projector reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadLayer {
    /// The last layer.
    Last,
    /// An inner one. A norm of its joined squares is behind the join, not in front of it.
    Inner,
}

/// The parameters.
pub(super) fn weights(vision: &Vision, layer: ReadLayer) -> Vec<Weight> {
    let (deviation, merged) = (vision.deviation, vision.merged());
    let square = vision.square().to_string();
    let mut weights = Vec::new();
    let mut from = "he".to_string();
    match (vision.projector.merge, vision.projector.square, layer) {
        (None, ..) => {}
        (Some(_), Square::Matrix, _) => {
            weights.push(Weight::constant("merge_norm", "he", 1.0));
            weights.push(Weight::normal("merge", &format!("he {merged} he"), deviation));
        }
        (Some(_), Square::Joined, ReadLayer::Last) => {
            weights.extend(vision.norm.weights("merge_norm", "he"));
            from = format!("{merged} he");
        }
        (Some(_), Square::Joined, ReadLayer::Inner) => {
            weights.extend(vision.norm.weights("merge_norm", &square));
            from = square;
        }
    }
    for (number, from, to) in [(1, &*from, "fp"), (2, "fp", "h")] {
        weights.push(Weight::normal(format!("project{number}"), &format!("{from} {to}"), deviation));
        let bias = vision.projector.bias.then(|| Weight::constant(format!("project{number}_bias"), to, 0.0));
        weights.extend(bias);
    }
    weights
}

/// The rows of `x`, by their name; `norm_eps` is that of the text model.
pub(super) fn build(
    vision: &Vision,
    layer: ReadLayer,
    norm_eps: f64,
    b: &mut Body<'_>,
) -> Result<&'static str, DraftError> {
    let (first, from) = operand(vision, layer, norm_eps, b)?;
    product(vision, b, Product { number: 1, x: first, from, to: "f" })?;
    vision.projector.activation.build(b, "active", "y1", "b i fp")?;
    product(vision, b, Product { number: 2, x: "active", from: "f", to: "h" })?;
    Ok("y2")
}

/// The name of the operand of the first product, and the labels of its dims behind those of rows.
fn operand(
    vision: &Vision,
    layer: ReadLayer,
    norm_eps: f64,
    b: &mut Body<'_>,
) -> Result<(&'static str, &'static str), DraftError> {
    let squares = Reshape { dims: b.dims(&format!("b i {} he", vision.merged())) };
    match (vision.projector.merge, vision.projector.square, layer) {
        (None, ..) => Ok(("x", "c")),
        (Some(_), Square::Matrix, _) => {
            b.op(&["n", "n_rstd"], RmsNorm { eps: norm_eps }, &["x", "merge_norm"])?;
            b.op(&["squares"], squares, &["n"])?;
            b.op(&["merged"], Einsum::new("b i k c, c k u -> b i u")?, &["squares", "merge"])?;
            Ok(("merged", "c"))
        }
        (Some(_), Square::Joined, ReadLayer::Last) => {
            vision.norm.build(vision.norm_eps, b, "he", "n", "x", "merge_norm")?;
            b.op(&["squares"], squares, &["n"])?;
            Ok(("squares", "k c"))
        }
        (Some(_), Square::Joined, ReadLayer::Inner) => {
            let square = vision.square().to_string();
            b.op(&["squares"], squares, &["x"])?;
            b.op(&["joined"], Reshape { dims: b.dims(&format!("b i {square}")) }, &["squares"])?;
            vision.norm.build(vision.norm_eps, b, &square, "n", "joined", "merge_norm")?;
            Ok(("n", "c"))
        }
    }
}

/// A product of the projector.
struct Product<'a> {
    /// Its number, from 1.
    number: u32,
    /// The operand.
    x: &'a str,
    /// The labels of its dims behind those of rows.
    from: &'a str,
    /// That of the result.
    to: &'a str,
}

/// `y1` or `y2`, the product of the matrix of this number, with its bias.
fn product(vision: &Vision, b: &mut Body<'_>, product: Product<'_>) -> Result<(), DraftError> {
    let Product { number, x, from, to } = product;
    let [y, w, bias] = ["y", "project", "project"].map(|name| format!("{name}{number}"));
    let bias = vision.projector.bias.then(|| format!("{bias}_bias"));
    b.linear_of("b i", &Linear { y: &y, x, w: &w, bias: bias.as_deref(), from, to })
}
