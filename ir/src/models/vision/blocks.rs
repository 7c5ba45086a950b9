//! The blocks of an encoder: `patches` makes rows of pixels the stream, `vision` is a layer, and `project` gives the rows of tokens.

use super::turns::turns;
use super::{ENCODER_LAYERS, Vision};
use crate::graph::{ArgKind, ResultKind};
use crate::models::draft::{Body, Draft, DraftError, Weight};
use crate::models::feed_forward::Gated;
use crate::ops::{Attention, AttentionSettings, Binary, BinaryKind, Einsum, Reshape, RmsNorm, Selected, Take};
use crate::types::{DType, Type};

/// The value of the rows of images, and the input that says which row each token takes; -1: none.
pub(in crate::models) const ROWS: [&str; 2] = ["rows", "slot"];

/// The inputs of each patch: its numbers, the row and the column in its image, and the number of its image.
const PATCH: [&str; 4] = ["patch", "row", "col", "image"];

/// Declares the inputs of images, and adds the blocks and their calls, which give `rows`. `norm_eps` is that of the text model.
pub(in crate::models) fn build(vision: &Vision, norm_eps: f64, draft: &mut Draft) -> Result<(), DraftError> {
    let pixels = draft.ty(&format!("b ps {}", vision.pixel_dims()));
    let places = Type { dtype: DType::I32, ..draft.ty("b ps") };
    draft.take(PATCH[0], pixels.clone());
    PATCH[1..].iter().for_each(|name| draft.take(name, places.clone()));
    draft.input(ROWS[1]);
    patches(vision, draft, pixels)?;
    layers(vision, draft, &places)?;
    project(vision, norm_eps, draft)
}

/// The call of the block that makes the stream of patches.
fn patches(vision: &Vision, draft: &mut Draft, pixels: Type) -> Result<(), DraftError> {
    let weights = [
        Weight::normal("patch_proj", &format!("{} he", vision.pixel_dims()), vision.deviation),
        Weight::constant("patch_norm", "he", 1.0),
    ];
    draft.declare(&weights);
    let args = [(PATCH[0], ArgKind::Input, pixels)];
    let block = draft.block("patches", &args, &weights, &[ResultKind::Value], |b| {
        b.op(&["x"], Einsum::new("b p c y x, c y x h -> b p h")?, &[PATCH[0], "patch_proj"])?;
        b.op(&["y", "y_rstd"], RmsNorm { eps: vision.norm_eps }, &["x", "patch_norm"])?;
        Ok(vec![b.value("y")?])
    })?;
    draft.call("v", block, None, &PATCH[..1], &["patch_proj", "patch_norm"]);
    Ok(())
}

/// The calls of the layers.
fn layers(vision: &Vision, draft: &mut Draft, places: &Type) -> Result<(), DraftError> {
    let deviation = vision.deviation;
    let weights = [
        Weight::constant("norm1", "he", 1.0),
        Weight::normal("wq", "he ge 1 de", deviation),
        Weight::normal("wk", "he ge de", deviation),
        Weight::normal("wv", "he ge de", deviation),
        Weight::normal("wo", "ge 1 de he", deviation),
        Weight::constant("norm2", "he", 1.0),
        Weight::normal("gate", "he fe", deviation),
        Weight::normal("up", "he fe", deviation),
        Weight::normal("down", "fe he", deviation),
    ];
    draft.declare_array(ENCODER_LAYERS, vision.layers, &weights);
    let mut args = vec![("x", ArgKind::Value, draft.ty("b ps he"))];
    args.extend(PATCH[1..].iter().map(|name| (*name, ArgKind::Input, places.clone())));
    let block = draft.block(ENCODER_LAYERS, &args, &weights, &[ResultKind::Value], |b| {
        let (norm, add) = (RmsNorm { eps: vision.norm_eps }, Binary::of(BinaryKind::Add));
        b.op(&["a", "a_rstd"], norm.clone(), &["x", "norm1"])?;
        attention(vision, b)?;
        b.op(&["x1"], add.clone(), &["x", "o_sum"])?;
        b.op(&["n", "n_rstd"], norm, &["x1", "norm2"])?;
        let net = Gated { values: "f", matrices: "", rows: "b p", shared: "", outer: "he", inner: "fe", clamp: None };
        net.build(b, "n", vision.activation)?;
        b.op(&["y"], add, &["x1", "fd"])?;
        Ok(vec![b.value("y")?])
    })?;
    let operands = [&["v"], &PATCH[1..]].concat();
    draft.call("w", block, Some(0..vision.layers), &operands, &[ENCODER_LAYERS]);
    Ok(())
}

/// `o_sum`, the attention of `a` among the patches of an image.
fn attention(vision: &Vision, b: &mut Body<'_>) -> Result<(), DraftError> {
    let [by_row, by_column] = turns(vision.theta, vision.head());
    for (side, heads) in [("q", "g r d"), ("k", "g d"), ("v", "g d")] {
        let product = Einsum::new(&format!("b p h, h {heads} -> b p {heads}"))?;
        let to = if side == "v" { "v".to_string() } else { format!("{side}0") };
        b.op(&[&to], product, &["a", &format!("w{side}")])?;
    }
    for side in ["q", "k"] {
        b.op(&[&format!("{side}1")], by_row.clone(), &[&format!("{side}0"), PATCH[1]])?;
        b.op(&[side], by_column.clone(), &[&format!("{side}1"), PATCH[2]])?;
    }
    let settings = AttentionSettings::new((vision.head() as f64).sqrt().recip(), false);
    let [_, row, _, image] = PATCH;
    b.op(&["o", "o_lse"], Attention(settings), &["q", "k", "v", row, row, image, image])?;
    b.op(&["o_sum"], Einsum::new("b p g r d, g r d h -> b p h")?, &["o", "wo"])
}

/// The call of the block that gives the rows of tokens.
fn project(vision: &Vision, norm_eps: f64, draft: &mut Draft) -> Result<(), DraftError> {
    let projector = &vision.projector;
    let mut weights = Vec::new();
    if projector.merge.is_some() {
        weights.push(Weight::constant("merge_norm", "he", 1.0));
        weights.push(Weight::normal("merge", &format!("he {} he", vision.merged()), vision.deviation));
    }
    for (number, from, to) in [(1, "he", "fp"), (2, "fp", "h")] {
        weights.push(Weight::normal(format!("project{number}"), &format!("{from} {to}"), vision.deviation));
        let bias = projector.bias.then(|| Weight::constant(format!("project{number}_bias"), to, 0.0));
        weights.extend(bias);
    }
    draft.declare(&weights);
    let args = [("x", ArgKind::Value, draft.ty("b ps he"))];
    let block = draft.block("project", &args, &weights, &[ResultKind::Value], |b| {
        let merged = merge(vision, norm_eps, b)?;
        let first = product(b, projector.bias, 1, merged)?;
        projector.activation.build(b, "active", &first, "b i fp")?;
        let rows = product(b, projector.bias, 2, "active")?;
        Ok(vec![b.value(&rows)?])
    })?;
    let params: Vec<&str> = weights.iter().map(|weight| &*weight.name).collect();
    draft.call(ROWS[0], block, None, &["w"], &params);
    Ok(())
}

/// The name of the rows of squares of patches; without a merger, of the patches.
fn merge(vision: &Vision, eps: f64, b: &mut Body<'_>) -> Result<&'static str, DraftError> {
    if vision.projector.merge.is_none() {
        return Ok("x");
    }
    b.op(&["n", "n_rstd"], RmsNorm { eps }, &["x", "merge_norm"])?;
    b.op(&["squares"], Reshape { dims: b.dims(&format!("b i {} he", vision.merged())) }, &["n"])?;
    b.op(&["merged"], Einsum::new("b i k c, c k u -> b i u")?, &["squares", "merge"])?;
    Ok("merged")
}

/// The name of the product of the projector's matrix of a number, with its bias.
fn product(b: &mut Body<'_>, has_bias: bool, number: u32, x: &str) -> Result<String, DraftError> {
    let (y, matrix) = (format!("y{number}"), format!("project{number}"));
    b.op(&[&y], Einsum::new("b i k, k h -> b i h")?, &[x, &matrix])?;
    if !has_bias {
        return Ok(y);
    }
    let biased = format!("{y}_biased");
    let add = Binary::spread(BinaryKind::Add, "b i h, h -> b i h")?;
    b.op(&[&biased], add, &[&y, &format!("{matrix}_bias")])?;
    Ok(biased)
}

/// The name of the embedding `x` with the rows of images at their tokens.
pub(in crate::models) fn put(b: &mut Body<'_>, x: &str) -> Result<&'static str, DraftError> {
    b.op(&["of_images"], Take { at: Selected { dim: 1, batch: 1 } }, &ROWS)?;
    b.op(&["mixed"], Binary::of(BinaryKind::Add), &[x, "of_images"])?;
    Ok("mixed")
}
