//! The blocks of an encoder: `patches` makes rows of pixels the stream, `vision` is a layer, and `project` gives the rows of tokens.

use super::deep::{ARRAY, projectors, rows_of};
use super::project::{self, ReadLayer};
use super::turns::turns;
use super::{LAYERS, Stem, Vision};
use crate::graph::{ArgKind, ResultKind};
use crate::ids::BlockId;
use crate::models::draft::{Body, Draft, DraftError, Linear, Weight};
use crate::models::rotation::GRID;
use crate::ops::{Attention, AttentionSettings, Binary, BinaryKind, Einsum, Embedding, RmsNorm, Selected, Take};
use crate::types::{DType, Type};
use std::ops::Range;

/// The value of the rows of images, and the input that says which row each token takes; -1: none.
pub(in crate::models) const ROWS: [&str; 2] = ["rows", "slot"];

/// The inputs of each patch: its numbers, the row and the column in its image, and the number of its image.
const PATCH: [&str; 4] = ["patch", "row", "col", "image"];

/// The inputs of each patch where positions are a table: four rows of the table, and the share that each has in the patch's position.
const TAPS: [&str; 2] = ["tap", "share"];

/// Declares the inputs of images, and adds the blocks and their calls, which give `rows`, and those of inner layers. `norm_eps` is that of
/// the text model.
pub(in crate::models) fn build(vision: &Vision, norm_eps: f64, draft: &mut Draft) -> Result<(), DraftError> {
    let pixels = draft.ty(&format!("b ps {}", vision.pixel_dims()));
    let places = Type { dtype: DType::I32, ..draft.ty("b ps") };
    draft.take(PATCH[0], pixels.clone());
    PATCH[1..].iter().for_each(|name| draft.take(name, places.clone()));
    draft.input(ROWS[1]);
    if vision.sections.is_some() {
        GRID.into_iter().for_each(|name| draft.input(name));
    }
    patches(vision, draft, pixels)?;
    let layer = layer(vision, draft, &places)?;
    let inner = projectors(vision, norm_eps, draft)?;
    let last = layers(vision, draft, layer, inner);
    project(vision, norm_eps, draft, &last)
}

/// The block that makes the stream of patches, and its call.
fn patches(vision: &Vision, draft: &mut Draft, pixels: Type) -> Result<(), DraftError> {
    let mut weights = vec![Weight::normal("patch_proj", &format!("{} he", vision.pixel_dims()), vision.deviation)];
    let mut args = vec![(PATCH[0], ArgKind::Input, pixels)];
    match vision.stem {
        Stem::Norm => weights.push(Weight::constant("patch_norm", "he", 1.0)),
        Stem::Positions { side } => {
            weights.push(Weight::constant("patch_bias", "he", 0.0));
            weights.push(Weight::normal("positions", &format!("{} he", side.saturating_mul(side)), vision.deviation));
            let shares = draft.ty("b ps 4");
            draft.take(TAPS[0], Type { dtype: DType::I32, ..shares.clone() });
            draft.take(TAPS[1], shares.clone());
            args.push((TAPS[0], ArgKind::Input, Type { dtype: DType::I32, ..shares.clone() }));
            args.push((TAPS[1], ArgKind::Input, shares));
        }
    }
    draft.declare(&weights);
    let block = draft.block("patches", &args, &weights, &[ResultKind::Value], |b| {
        stem(vision, b)?;
        Ok(vec![b.value("y")?])
    })?;
    let operands: Vec<&str> = args.iter().map(|(name, ..)| *name).collect();
    let params: Vec<&str> = weights.iter().map(|weight| &*weight.name).collect();
    draft.call("v", block, None, &operands, &params);
    Ok(())
}

/// `y`, the stream of patches.
fn stem(vision: &Vision, b: &mut Body<'_>) -> Result<(), DraftError> {
    let labels = if vision.frames.is_some() { "c t y x" } else { "c y x" };
    let map = Linear { y: "x", x: PATCH[0], w: "patch_proj", bias: None, from: labels, to: "h" };
    match vision.stem {
        Stem::Norm => {
            b.linear_of("b p", &map)?;
            b.op(&["y", "y_rstd"], RmsNorm { eps: vision.norm_eps }, &["x", "patch_norm"])
        }
        Stem::Positions { .. } => {
            b.linear_of("b p", &Linear { bias: Some("patch_bias"), ..map })?;
            b.op(&["taps"], Embedding::default(), &[TAPS[0], "positions"])?;
            b.op(&["position"], Einsum::new("b p n h, b p n -> b p h")?, &["taps", TAPS[1]])?;
            b.op(&["y"], Binary::of(BinaryKind::Add), &["x", "position"])
        }
    }
}

/// The parameters of a layer.
fn layer_weights(vision: &Vision) -> Vec<Weight> {
    let deviation = vision.deviation;
    let mut weights = vision.norm.weights("norm1", "he");
    weights.push(Weight::normal("wq", "he ge 1 de", deviation));
    weights.push(Weight::normal("wk", "he ge de", deviation));
    weights.push(Weight::normal("wv", "he ge de", deviation));
    weights.push(Weight::normal("wo", "ge 1 de he", deviation));
    weights.extend(vision.norm.weights("norm2", "he"));
    weights.extend(vision.gated.then(|| Weight::normal("gate", "he fe", deviation)));
    weights.push(Weight::normal("up", "he fe", deviation));
    weights.push(Weight::normal("down", "fe he", deviation));
    if vision.biased {
        let biases = [
            ("bq", "ge 1 de"),
            ("bk", "ge de"),
            ("bv", "ge de"),
            ("bo", "he"),
            ("gate_bias", "fe"),
            ("up_bias", "fe"),
            ("down_bias", "he"),
        ];
        let biases = biases.into_iter().filter(|(name, _)| vision.gated || *name != "gate_bias");
        weights.extend(biases.map(|(name, dims)| Weight::constant(name, dims, 0.0)));
    }
    weights
}

/// The block of a layer, whose parameters it declares.
fn layer(vision: &Vision, draft: &mut Draft, places: &Type) -> Result<BlockId, DraftError> {
    let weights = layer_weights(vision);
    draft.declare_array(LAYERS, vision.layers, &weights);
    let mut args = vec![("x", ArgKind::Value, draft.ty("b ps he"))];
    args.extend(PATCH[1..].iter().map(|name| (*name, ArgKind::Input, places.clone())));
    draft.block(LAYERS, &args, &weights, &[ResultKind::Value], |b| {
        let add = Binary::of(BinaryKind::Add);
        vision.norm.build(vision.norm_eps, b, "he", "a", "x", "norm1")?;
        attention(vision, b)?;
        b.op(&["x1"], add.clone(), &["x", "o_sum"])?;
        vision.norm.build(vision.norm_eps, b, "he", "n", "x1", "norm2")?;
        net(vision, b)?;
        b.op(&["y"], add, &["x1", "fd"])?;
        Ok(vec![b.value("y")?])
    })
}

/// A linear map of patches, with its bias where the layers have biases.
fn map(vision: &Vision, b: &mut Body<'_>, map: Linear<'_>) -> Result<(), DraftError> {
    b.linear_of("b p", &Linear { bias: map.bias.filter(|_| vision.biased), ..map })
}

/// `o_sum`, the attention of `a` among the patches of an image.
fn attention(vision: &Vision, b: &mut Body<'_>) -> Result<(), DraftError> {
    let [by_row, by_column] = turns(vision.frequencies, vision.theta, vision.head());
    for (y, w, bias, to) in [("q0", "wq", "bq", "g r d"), ("k0", "wk", "bk", "g d"), ("v", "wv", "bv", "g d")] {
        map(vision, b, Linear { y, x: "a", w, bias: Some(bias), from: "h", to })?;
    }
    for side in ["q", "k"] {
        b.op(&[&format!("{side}1")], by_row.clone(), &[&format!("{side}0"), PATCH[1]])?;
        b.op(&[side], by_column.clone(), &[&format!("{side}1"), PATCH[2]])?;
    }
    let settings = AttentionSettings::new((vision.head() as f64).sqrt().recip(), false);
    let [_, row, _, image] = PATCH;
    b.op(&["o", "o_lse"], Attention(settings), &["q", "k", "v", row, row, image, image])?;
    map(vision, b, Linear { y: "o_sum", x: "o", w: "wo", bias: Some("bo"), from: "g r d", to: "h" })
}

/// `fd`, the feed-forward net of `n`.
fn net(vision: &Vision, b: &mut Body<'_>) -> Result<(), DraftError> {
    let there = Linear { y: "fu", x: "n", w: "up", bias: Some("up_bias"), from: "h", to: "f" };
    if vision.gated {
        map(vision, b, Linear { y: "fg", w: "gate", bias: Some("gate_bias"), ..there })?;
    }
    map(vision, b, there)?;
    vision.activation.build(b, "fs", if vision.gated { "fg" } else { "fu" }, "b ps fe")?;
    if vision.gated {
        b.op(&["fp"], Binary::of(BinaryKind::Mul), &["fs", "fu"])?;
    }
    let product = if vision.gated { "fp" } else { "fs" };
    map(vision, b, Linear { y: "fd", x: product, w: "down", bias: Some("down_bias"), from: "f", to: "h" })
}

/// The calls of the layers, with those of the projectors of inner ones between them; the name of the last one's result.
fn layers(vision: &Vision, draft: &mut Draft, layer: BlockId, inner: Option<BlockId>) -> String {
    let (mut last, mut begin) = ("v".to_string(), 0);
    for (number, &at) in vision.deep.iter().enumerate() {
        last = consecutive(draft, layer, begin..at + 1, &last, &format!("w{number}"));
        begin = at + 1;
        if let Some(inner) = inner {
            let range = number as u32..number as u32 + 1;
            draft.call(&rows_of(number), inner, Some(range), &[&*last], &[ARRAY]);
        }
    }
    if begin == vision.layers { last } else { consecutive(draft, layer, begin..vision.layers, &last, "w") }
}

/// The call of consecutive layers on `x`, and the name of its result.
fn consecutive(draft: &mut Draft, layer: BlockId, range: Range<u32>, x: &str, y: &str) -> String {
    draft.call(y, layer, Some(range), &[&[x], &PATCH[1..]].concat(), &[LAYERS]);
    y.to_string()
}

/// The block that gives the rows of tokens, and its call.
fn project(vision: &Vision, norm_eps: f64, draft: &mut Draft, last: &str) -> Result<(), DraftError> {
    let weights = project::weights(vision, ReadLayer::Last);
    draft.declare(&weights);
    let args = [("x", ArgKind::Value, draft.ty("b ps he"))];
    let block = draft.block("project", &args, &weights, &[ResultKind::Value], |b| {
        let rows = project::build(vision, ReadLayer::Last, norm_eps, b)?;
        Ok(vec![b.value(rows)?])
    })?;
    let params: Vec<&str> = weights.iter().map(|weight| &*weight.name).collect();
    draft.call(ROWS[0], block, None, &[last], &params);
    Ok(())
}

/// The name of the embedding `x` with the rows of images at their tokens.
pub(in crate::models) fn put(b: &mut Body<'_>, x: &str) -> Result<&'static str, DraftError> {
    b.op(&["of_images"], Take { at: Selected { dim: 1, batch: 1 } }, &ROWS)?;
    b.op(&["mixed"], Binary::of(BinaryKind::Add), &[x, "of_images"])?;
    Ok("mixed")
}
