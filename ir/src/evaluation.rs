//! The model that an evaluation runs: its forwards without what only training does.

use crate::graph::{Model, SectionKind};
use crate::ops::OpDef;

/// The model with each op of its forwards as it is in an evaluation ([`OpDef::in_evaluation`]): dropout keeps every element.
/// Values, types and statements are those of the model, so that a plan of it holds. Backward sections stay as they are.
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
