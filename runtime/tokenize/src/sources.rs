//! Files of text under the paths that are named.

use super::error::Error;
use super::packed::{Packing, open};
use data::DataError;
use data::text::{HEAD, find_files, is_text};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Documents of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Documents {
    /// The whole file is one.
    Whole,
    /// Each line is an object of JSON with one.
    Lines,
}

/// The kind of documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DocumentForm {
    /// Text, of which all tokens count.
    Text,
    /// Examples, which say what of them counts.
    Examples,
}

/// A file of text.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) documents: Documents,
    pub(crate) packing: Packing,
    /// The bytes of the file as it is.
    pub(crate) bytes: u64,
}

/// The files of text, in the order of the paths, and for a folder in the order of its paths. In a folder, binary and empty files are
/// left out.
pub(crate) fn find(inputs: &[PathBuf]) -> Result<Vec<Source>, Error> {
    let (mut sources, mut looked_at) = (Vec::new(), 0);
    for input in inputs {
        let is_folder = input.is_dir();
        for path in find_files(input)? {
            looked_at += 1;
            let (documents, packing) = kind(&path);
            if documents == Documents::Lines || has_text(&path, packing)? {
                let bytes = fs::metadata(&path).map_err(|source| unreadable(&path, source))?.len();
                sources.push(Source { path, documents, packing, bytes });
            } else if !is_folder {
                return Err(DataError::NoText { path, files: 1 }.into());
            }
        }
    }
    match (sources.is_empty(), inputs.first()) {
        (true, Some(input)) => Err(DataError::NoText { path: input.clone(), files: looked_at }.into()),
        _ => Ok(sources),
    }
}

/// The kind of a file by its name: `.jsonl` and `.ndjson` have JSON lines, as have `.json.gz` and `.json.zst`.
fn kind(path: &Path) -> (Documents, Packing) {
    let extension = |path: &Path| path.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase);
    let packing = match extension(path).as_deref() {
        Some("gz") => Packing::Gzip,
        Some("zst") => Packing::Zstandard,
        _ => Packing::None,
    };
    let inner = if packing == Packing::None { path.to_path_buf() } else { path.with_extension("") };
    let documents = match extension(&inner).as_deref() {
        Some("jsonl" | "ndjson") => Documents::Lines,
        Some("json") if packing != Packing::None => Documents::Lines,
        _ => Documents::Whole,
    };
    (documents, packing)
}

fn has_text(path: &Path, packing: Packing) -> Result<bool, Error> {
    let mut head = Vec::new();
    let read = open(path, packing, &Arc::default()).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.map_err(|source| unreadable(path, source))?;
    Ok(!head.is_empty() && is_text(&head))
}

pub(crate) fn unreadable(path: &Path, source: std::io::Error) -> Error {
    DataError::Unreadable { path: path.to_path_buf(), source }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_files_are() {
        for (name, documents, packing) in [
            ("a.txt", Documents::Whole, Packing::None),
            ("a.jsonl", Documents::Lines, Packing::None),
            ("a.json", Documents::Whole, Packing::None),
            ("c4.00.json.gz", Documents::Lines, Packing::Gzip),
            ("a.JSONL.zst", Documents::Lines, Packing::Zstandard),
            ("a.txt.gz", Documents::Whole, Packing::Gzip),
            ("README", Documents::Whole, Packing::None),
        ] {
            assert_eq!(kind(Path::new(name)), (documents, packing), "{name}");
        }
    }
}
