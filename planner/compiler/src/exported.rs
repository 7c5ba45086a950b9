//! Graphs of `torch.export`, where a build reads them: with the feature `pt2`.

use crate::error::Error;
#[cfg(not(feature = "pt2"))]
use ir::catalogue::Code;
use ir::models::ImportedModel;
use std::path::Path;
use std::sync::Arc;

/// Opens an archive.
///
/// # Errors
/// It cannot be read, or has a graph that is no language model.
#[cfg(feature = "pt2")]
pub(super) fn open_exported(path: &Path) -> Result<Arc<dyn ImportedModel>, Error> {
    let template = pt2::Export::open(path).and_then(|export| export.template()).map_err(Error::of)?;
    Ok(Arc::new(template))
}

/// Refuses an archive.
///
/// # Errors
/// Always.
#[cfg(not(feature = "pt2"))]
pub(super) fn open_exported(path: &Path) -> Result<Arc<dyn ImportedModel>, Error> {
    let message = format!("{}: this build reads no archives of torch.export", path.display());
    Err(Error::input(Code::UnknownModel, message).help("build it with cargo build --release --features pt2"))
}
