//! Recipes on meshes beside the same ones on one device.

use crate::meshes::compare::differences;
use crate::meshes::record::Record;
use crate::meshes::trained::trained_on;
use crate::meshes::training::Recipe;

/// Trains every recipe on each mesh; the numbers are those on one device.
pub(crate) fn trains_as_alone(alone: &[(Recipe, Record)], meshes: &[&str], sequences: u64) {
    for mesh in meshes {
        for (which, (recipe, alone)) in alone.iter().enumerate() {
            let found = differences(&trained_on(recipe, mesh, sequences), alone, &recipe.optimizer);
            assert!(found.is_empty(), "recipe {which} on {mesh}: {found:#?}");
        }
    }
}
