//! The model of an evaluation: the forward sections without training-only ops.

use ir::graph::{Model, SectionKind};

/// The model with each forward op that draws random numbers replaced by its evaluation form, in which dropout retains every
/// element: [`Random::in_evaluation`](ir::ops::Random::in_evaluation).
/// Values, types and statements do not change, so a plan of the model stays valid. Backward sections do not change.
#[must_use]
pub fn evaluation(model: &Model) -> Model {
    let mut model = model.clone();
    for block in model.blocks.values_mut() {
        for stmt in &mut block[SectionKind::F].stmts {
            if let Some(op) = stmt.op.extras().random.map(|op| op.in_evaluation()) {
                stmt.op = op;
            }
        }
    }
    model
}
