//! The examples of a folder.

use super::super::DataError;
use super::file::ExampleFile;
use ir::models::Vision;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A half of the examples of a folder, in the order of the names of their files.
#[derive(Debug)]
pub struct ImageExamples {
    path: PathBuf,
    /// The examples.
    pub(super) files: Vec<ExampleFile>,
}

impl ImageExamples {
    /// Opens the examples of a folder for an encoder: those to train on, and the last ones, which are held out, a share of them and at
    /// least one. Without a share none is held out.
    ///
    /// # Errors
    /// There is no folder of such files, or one of them is damaged or no example for the encoder.
    pub fn open(folder: &Path, vision: &Vision, share: Option<f64>) -> Result<[ImageExamples; 2], DataError> {
        let names = names(folder).map_err(|source| match source.kind() {
            ErrorKind::NotFound => DataError::Missing { path: folder.into() },
            _ => DataError::Unreadable { path: folder.into(), source },
        })?;
        let mut files = names.iter().map(|path| ExampleFile::open(path, vision)).collect::<Result<Vec<_>, _>>()?;
        let held_out = share.map_or(0, |share| ((files.len() as f64 * share).ceil() as usize).max(1));
        if files.len() <= held_out {
            return Err(DataError::FewExamples { path: folder.into(), files: files.len() });
        }
        let valid = files.split_off(files.len() - held_out);
        Ok([files, valid].map(|files| ImageExamples { path: folder.into(), files }))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of examples.
    pub fn examples(&self) -> usize {
        self.files.len()
    }

    /// The number of tokens.
    pub fn tokens(&self) -> usize {
        self.files.iter().map(|file| file.ids.len()).sum()
    }

    /// Checksum of all but the pixels.
    pub fn checksum(&self) -> u32 {
        let mut hash = crc32fast::Hasher::new();
        self.files.iter().for_each(|file| hash.update(&file.crc.to_le_bytes()));
        hash.finalize()
    }

    /// Checks that a model has the tokens.
    ///
    /// # Errors
    /// It does not.
    pub fn check_vocabulary(&self, vocabulary: u64) -> Result<(), DataError> {
        for (document, file) in self.files.iter().enumerate() {
            let labels = file.labels.iter().flatten().filter(|label| **label >= 0);
            let mut ids = file.ids.iter().chain(labels);
            if let Some(&id) = ids.find(|id| u64::try_from(**id).map_or(true, |id| id >= vocabulary)) {
                let (path, document, id) = (file.path.clone(), document as u64, id.cast_unsigned());
                return Err(DataError::OutOfRange { path, document, id, vocabulary });
            }
        }
        Ok(())
    }
}

/// The safetensors files of a folder, by name.
fn names(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().and_then(OsStr::to_str) == Some("safetensors") {
            names.push(path);
        }
    }
    names.sort();
    Ok(names)
}
