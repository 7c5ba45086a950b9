//! Clusters and stacks by preset or by file.

use crate::error::Error;
use cost::{Cluster, PresetError, Stack};
use std::fs;
use std::path::Path;

/// The cluster of a name, or that of a TOML file.
///
/// # Errors
/// There is none of this name, or the file cannot be read or used.
pub fn cluster(name: &str) -> Result<Cluster, Error> {
    open(name, Cluster::find, Cluster::parse)
}

/// The stack of a name, or that of a TOML file.
///
/// # Errors
/// There is none of this name, or the file cannot be read or used.
pub fn stack(name: &str) -> Result<Stack, Error> {
    open(name, Stack::find, Stack::parse)
}

fn open<T>(
    name: &str,
    find: fn(&str) -> Result<T, PresetError>,
    parse: fn(&str) -> Result<T, PresetError>,
) -> Result<T, Error> {
    let path = Path::new(name);
    if name.ends_with(".toml") || name.contains(['/', '\\']) {
        let text = fs::read_to_string(path).map_err(|why| Error::file("read", path, &why))?;
        return parse(&text).map_err(|why| Error::from(why).within(name));
    }
    Ok(find(name)?)
}
