//! Checkers of every level. Each shares no code with what makes its level, and reports all it finds.

mod calls;
mod graph;
pub mod program;
mod rules;
mod sharding;
mod sizes;

use crate::diag::Diagnostics;
use crate::graph::Model;
use crate::ops::Op;

/// Checks a model at any stage, whoever made it: its blocks, its calls, and that every type can lie on the mesh.
///
/// # Errors
/// All that is wrong with it.
pub fn verify(model: &Model) -> Result<(), Diagnostics> {
    well_formed(model).into_result(())
}

/// Checks a model that someone has written: besides [`verify`], what it states of layouts and no pass repairs. These are
/// its collectives and, where nothing is left open, the layouts at which blocks meet.
///
/// # Errors
/// All that is wrong with it.
pub fn verify_stated(model: &Model) -> Result<(), Diagnostics> {
    let mut found = well_formed(model);
    if found.is_empty() && model.has_mesh {
        rules::check(model, &mut found, |stmt| matches!(stmt.op, Op::Collective(_)));
        if model.is_settled() {
            sharding::check_boundaries(model, &mut found);
        }
    }
    found.into_result(())
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
        rules::check(model, &mut found, |_| true);
    }
    found.into_result(())
}

/// Checks that a model can be counted, before anything does.
///
/// # Errors
/// All that is too large.
pub(crate) fn verify_sizes(model: &Model) -> Result<(), Diagnostics> {
    let mut found = Diagnostics::default();
    sizes::check(model, &mut found);
    found.into_result(())
}

fn well_formed(model: &Model) -> Diagnostics {
    if let Err(found) = verify_sizes(model) {
        return found;
    }
    let mut found = Diagnostics::default();
    graph::check(model, &mut found);
    calls::check(model, &mut found);
    if found.is_empty() && model.has_mesh {
        sharding::check_types(model, &mut found);
    }
    found
}
