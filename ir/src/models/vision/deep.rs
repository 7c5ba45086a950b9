//! Rows of inner layers of an encoder, which the first layers of the text model add to their results (Meng et al. 2024, DeepStack).

use super::Vision;
use super::blocks::ROWS;
use super::project::{self, ReadLayer};
use crate::graph::{ArgKind, ResultKind};
use crate::ids::BlockId;
use crate::models::draft::{Draft, DraftError};
use crate::ops::{Binary, BinaryKind, Selected, Take};

/// The array of the parameters of these projectors, and the name of their block.
pub(super) const ARRAY: &str = "deep";

/// Declares the projectors of inner layers, if there are any, and adds their block.
pub(super) fn projectors(vision: &Vision, norm_eps: f64, draft: &mut Draft) -> Result<Option<BlockId>, DraftError> {
    if vision.deep.is_empty() {
        return Ok(None);
    }
    let weights = project::weights(vision, ReadLayer::Inner);
    draft.declare_array(ARRAY, vision.deep.len() as u32, &weights);
    let args = [("x", ArgKind::Value, draft.ty("b ps he"))];
    let block = draft.block(ARRAY, &args, &weights, &[ResultKind::Value], |b| {
        let rows = project::build(vision, ReadLayer::Inner, norm_eps, b)?;
        Ok(vec![b.value(rows)?])
    })?;
    Ok(Some(block))
}

/// The name of the rows of an inner layer, by its number among them.
pub(super) fn rows_of(number: usize) -> String {
    format!("{ARRAY}{number}")
}

/// The block that adds rows of an inner layer to the stream of the text model.
pub(in crate::models) struct Added {
    block: Option<BlockId>,
    /// Number of inner layers, and of the layers of the text model that take their rows.
    pub(in crate::models) layers: u32,
}

impl Added {
    /// Adds the block, if the encoder has inner rows.
    pub(in crate::models) fn of(vision: Option<&Vision>, draft: &mut Draft) -> Result<Added, DraftError> {
        let layers = vision.map_or(0, |vision| vision.deep.len() as u32);
        if layers == 0 {
            return Ok(Added { block: None, layers });
        }
        let args = [
            ("x", ArgKind::Value, draft.ty("b s h")),
            (ROWS[0], ArgKind::Value, draft.ty("b i h")),
            (ROWS[1], ArgKind::Input, draft.ids()),
        ];
        let block = draft.block("stack", &args, &[], &[ResultKind::Value], |b| {
            b.op(&["of_images"], Take { at: Selected { dim: 1, batch: 1 } }, &ROWS)?;
            b.op(&["y"], Binary::of(BinaryKind::Add), &["x", "of_images"])?;
            Ok(vec![b.value("y")?])
        })?;
        Ok(Added { block: Some(block), layers })
    }

    /// The name of the stream behind the text model's first `done` layers, whose result is `last`.
    pub(in crate::models) fn call(&self, draft: &mut Draft, last: String, done: u32) -> String {
        let Some(block) = self.block.filter(|_| (1..=self.layers).contains(&done)) else { return last };
        let (number, sum) = (done as usize - 1, format!("stack{}", done - 1));
        draft.call(&sum, block, None, &[&*last, &rows_of(number), ROWS[1]], &[]);
        sum
    }
}
