//! Recipes trained: by the program of a file, on a mesh, and each on one device.

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
