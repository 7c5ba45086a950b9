//! Labels of tokens, which documents have if not all of their tokens count in the loss: a number of 32 bits for each id, in the order of the ids.
//!
//! The label of an id is what the tokens before it are to predict: the id itself, or [`NO_LABEL`]. That of the first id of a document counts
//! nowhere.

use super::super::DataError;
use super::file::NamedFile;
use super::record::TokenRecord;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The label of a token that does not count.
pub const NO_LABEL: i32 = -1;

/// Bytes of a label.
const WIDTH: u64 = 4;

/// A file of labels.
pub(super) struct LabelFile(NamedFile);

impl LabelFile {
    /// Opens the labels of ids, if their record says that there are some.
    ///
    /// # Errors
    /// There is no such file, or it has not a label for each id.
    pub(super) fn open(ids: &Path, record: Option<&TokenRecord>) -> Result<Option<LabelFile>, DataError> {
        let Some(record) = record.filter(|record| record.counted.is_some()) else { return Ok(None) };
        let file = NamedFile::open(&of_ids(ids))?;
        if Some(file.bytes()) == record.tokens.checked_mul(WIDTH) {
            return Ok(Some(LabelFile(file)));
        }
        let why = format!("has {} bytes, but {} tokens have labels of 32 bits", file.bytes(), record.tokens);
        Err(DataError::Damaged { path: file.path, why })
    }

    /// Appends labels by the places of their ids in the file of ids.
    ///
    /// # Errors
    /// The file has become shorter, cannot be read, or has a number that is no label.
    pub(super) fn read(&self, places: Range<u64>, into: &mut Vec<i32>) -> Result<(), DataError> {
        let bytes = self.0.read(places.start * WIDTH..places.end * WIDTH)?;
        let (labels, _) = bytes.as_chunks::<4>();
        for (place, label) in places.zip(labels) {
            let label = i32::from_le_bytes(*label);
            if label < NO_LABEL {
                let why = format!("has the number {label} for token {place}, which is no label");
                return Err(DataError::Damaged { path: self.0.path.clone(), why });
            }
            into.push(label);
        }
        Ok(())
    }
}

/// The file of the labels of a file of ids.
fn of_ids(ids: &Path) -> PathBuf {
    ids.with_extension("labels")
}
