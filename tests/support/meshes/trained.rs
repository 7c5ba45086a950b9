//! Recipes trained: by the program of a file, on a mesh, and each on one device.

use super::compare::differences;
use super::record::{Record, train};
use super::training::{Recipe, compiled, inputs};
use ir::text::File;

/// Record of the program of a file on a recipe, which is compiled for a mesh.
pub(crate) fn trained(file: &File, recipe: &Recipe, mesh: &str) -> Record {
    let program = file.program.as_ref().expect("a program");
    train(&file.model, program, inputs(&file.model, recipe, mesh)).unwrap_or_else(|why| panic!("{mesh}: {why}"))
}

/// Record of a mesh on a recipe, with micro-batches of `sequences` sequences.
pub(crate) fn trained_on(recipe: &Recipe, mesh: &str, sequences: u64) -> Record {
    trained(&compiled(recipe, mesh, sequences), recipe, mesh)
}

/// Every recipe on one device.
pub(crate) fn alone(recipes: impl IntoIterator<Item = Recipe>, sequences: u64) -> Vec<(Recipe, Record)> {
    let on_one = |recipe: Recipe| {
        let record = trained_on(&recipe, "", sequences);
        (recipe, record)
    };
    recipes.into_iter().map(on_one).collect()
}

/// Trains every recipe on each mesh; the numbers are those on one device.
pub(crate) fn trains_as_alone(alone: &[(Recipe, Record)], meshes: &[&str], sequences: u64) {
    for mesh in meshes {
        for (which, (recipe, alone)) in alone.iter().enumerate() {
            let found = differences(&trained_on(recipe, mesh, sequences), alone, &recipe.optimizer);
            assert!(found.is_empty(), "recipe {which} on {mesh}: {found:#?}");
        }
    }
}
