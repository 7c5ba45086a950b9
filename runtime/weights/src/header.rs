//! Headers of safetensors files: the length of the header, its JSON, then the elements of all tensors without gaps.

use crate::error::Error;
use crate::folder::{damaged, unread};
use safetensors::tensor::Metadata;
use std::path::Path;
use support::positioned::PositionedFile;

/// Bytes of the length of a header.
const LENGTH: u64 = 8;

/// No header is longer: the bound of the format's own reader.
const MOST_HEADER: u64 = 100_000_000;

/// The header of a file.
pub(crate) struct Header {
    /// The byte of the first element.
    pub(crate) start: usize,
    pub(crate) tensors: Metadata,
}

impl Header {
    /// Reads the header of a file, and compares the size of the file with it.
    ///
    /// # Errors
    /// The file cannot be read, is no safetensors file, or has another size.
    pub(crate) fn read(file: &PositionedFile, path: &Path) -> Result<Header, Error> {
        let bytes = file.bytes();
        if bytes < LENGTH {
            return Err(damaged(path, format!("is cut off: {bytes} bytes are no safetensors file")));
        }
        let mut length = [0; LENGTH as usize];
        file.read_at(0, &mut length).map_err(|why| unread(path, why))?;
        let length = u64::from_le_bytes(length);
        if length > MOST_HEADER {
            return Err(damaged(path, "is no safetensors file: no header is that long".to_string()));
        }
        let start = LENGTH + length;
        if start > bytes {
            return Err(damaged(path, format!("is cut off: the header reaches beyond its {bytes} bytes")));
        }
        let text = file.read(LENGTH..start).map_err(|why| unread(path, why))?;
        let tensors: Metadata =
            serde_json::from_slice(&text).map_err(|why| damaged(path, format!("is no safetensors file: {why}")))?;
        // Offsets ascend without gaps, which the format's own reader has checked.
        let end = tensors.tensors().values().map(|info| info.data_offsets.1 as u64).max().unwrap_or(0);
        if start.checked_add(end) != Some(bytes) {
            let why = format!("is cut off or too long: {bytes} bytes are not those that its header counts");
            return Err(damaged(path, why));
        }
        Ok(Header { start: start as usize, tensors })
    }
}
