//! Clusters and stacks by preset or by file.

use crate::error::Error;
use crate::text_files::read_settings;
use cost::{BaseFile, Cluster, PresetError, Stack, StackExpression};
use std::fs;
use std::path::{Path, PathBuf};

/// The cluster of a name, or that of a TOML file, which may begin from a preset or from a file whose path counts from its own
/// folder.
///
/// # Errors
/// There is none of this name, or a file cannot be read or used.
pub fn cluster(name: &str) -> Result<Cluster, Error> {
    let mut open = opener(BaseFile::cluster);
    let file = open(name)?;
    Cluster::read(&file.text, &mut open).map_err(|why: Error| if is_path(name) { why.within(name) } else { why })
}

/// The stack of a name, or that of a TOML file, which may begin from a preset or from a file whose path counts from its own
/// folder; with the properties that the expression changes.
///
/// # Errors
/// There is none of this name, a file cannot be read or used, or there is no such property.
pub fn stack(expression: &str) -> Result<Stack, Error> {
    let expression = StackExpression::of(expression);
    let name = expression.base;
    let mut open = opener(BaseFile::stack);
    let file = open(name)?;
    let stack =
        Stack::read(&file.text, &mut open).map_err(|why: Error| if is_path(name) { why.within(name) } else { why })?;
    Ok(expression.applied(stack)?)
}

/// Opens presets by name, and files by paths that count from the folder of the file before.
fn opener(preset: fn(&str) -> Result<BaseFile, PresetError>) -> impl FnMut(&str) -> Result<BaseFile, Error> {
    let mut folder = PathBuf::new();
    move |name: &str| {
        if !is_path(name) {
            return Ok(preset(name)?);
        }
        let path = folder.join(name);
        let text = read_settings(&path)?;
        folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        // However one path says it.
        let place = fs::canonicalize(&path).unwrap_or(path);
        Ok(BaseFile { place: place.display().to_string(), text })
    }
}

fn is_path(name: &str) -> bool {
    name.ends_with(".toml") || name.contains(['/', '\\'])
}
