//! Checkers of every level. Each shares no code with what makes its level, and reports all it finds.

mod calls;
mod graph;
pub mod program;
mod rules;
mod sharding;

use crate::diag::Diagnostics;
use crate::graph::Model;

/// Checks a model at any stage, whoever made it: its blocks, its calls, and that every type can lie on the mesh.
///
/// # Errors
/// All that is wrong with it.
pub fn verify(model: &Model) -> Result<(), Diagnostics> {
    well_formed(model).into_result(())
}

/// Checks a model whose layout changes are in place (after the pass `reshard`): besides [`verify`], that every statement
/// without open dims obeys its op's sharding rule, and that layouts agree where blocks meet.
///
/// # Errors
/// All that is wrong with it.
pub fn verify_planned(model: &Model) -> Result<(), Diagnostics> {
    let mut found = well_formed(model);
    // A layout of a graph that is wrong says nothing more.
    if found.is_empty() && model.has_mesh {
        sharding::check_boundaries(model, &mut found);
        rules::check(model, &mut found);
    }
    found.into_result(())
}

fn well_formed(model: &Model) -> Diagnostics {
    let mut found = Diagnostics::default();
    graph::check(model, &mut found);
    calls::check(model, &mut found);
    if found.is_empty() && model.has_mesh {
        sharding::check_types(model, &mut found);
    }
    found
}
