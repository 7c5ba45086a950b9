//! Verifiers of every level. A verifier shares no code with the producer of its level, and reports all errors.

mod calls;
mod compound;
mod graph;
pub mod program;
mod ragged;
mod rules;
mod sharding;
mod sizes;

use crate::diag::Diagnostics;
use crate::graph::Model;
use crate::ops::Op;

/// Checks a model after any pass: its blocks, its calls, and that every type is valid on the mesh.
///
/// # Errors
/// All that is wrong with it.
pub fn verify(model: &Model) -> Result<(), Diagnostics> {
    well_formed(model).into_result(())
}

/// Checks a model that a user has written. In addition to [`verify`], it checks the shardings that no pass can repair: those
/// of collectives and, if no dim is open, those where blocks meet.
///
/// # Errors
/// All that is wrong with it.
pub fn verify_stated(model: &Model) -> Result<(), Diagnostics> {
    let mut found = well_formed(model);
    if found.is_empty() && model.has_mesh {
        rules::check(model, &mut found, |stmt| matches!(stmt.op, Op::Collective(_)));
        if model.is_fully_specified() {
            sharding::check_boundaries(model, &mut found);
        }
    }
    found.into_result(())
}

/// Checks a model with explicit collectives (after the pass `reshard`). In addition to [`verify`], every statement without
/// open dims obeys its op's sharding rule, and shardings agree where blocks meet.
///
/// # Errors
/// All that is wrong with it.
pub fn verify_planned(model: &Model) -> Result<(), Diagnostics> {
    let mut found = well_formed(model);
    // The shardings of an invalid graph would only give follow-up errors.
    if found.is_empty() && model.has_mesh {
        sharding::check_boundaries(model, &mut found);
        rules::check(model, &mut found, |_| true);
    }
    found.into_result(())
}

/// Checks that no size of a model overflows, before any other pass computes with sizes.
///
/// # Errors
/// The model has a size above its limit; all such sizes are reported.
pub fn verify_sizes(model: &Model) -> Result<(), Diagnostics> {
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
