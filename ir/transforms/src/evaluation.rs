//! The model of an evaluation: the forward sections without training-only ops.

use ir::graph::{Model, SectionKind};
use ir::ops::OpDef;

/// The model with each forward op replaced by its evaluation form ([`OpDef::in_evaluation`]): dropout retains every element.
/// Values, types and statements do not change, so a plan of the model stays valid. Backward sections do not change.
#[must_use]
pub fn evaluation(model: &Model) -> Model {
    let mut model = model.clone();
    for block in model.blocks.values_mut() {
        for stmt in &mut block[SectionKind::F].stmts {
            if let Some(op) = stmt.op.def().and_then(OpDef::in_evaluation) {
                stmt.op = op;
            }
        }
    }
    model
}
