//! Random zeros.

use crate::models::draft::{Body, DraftError};
use crate::ops::Dropout;

/// Drops elements of a value, if any; gives the name of what comes out.
pub(super) fn build(b: &mut Body<'_>, p: f64, value: &str, path: &str) -> Result<String, DraftError> {
    if p == 0.0 {
        return Ok(value.to_string());
    }
    let name = format!("{value}_dropped");
    b.op(&[&name], Dropout { p, path: path.to_string(), piece: None }, &[value])?;
    Ok(name)
}
