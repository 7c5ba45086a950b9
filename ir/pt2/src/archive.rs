//! The container: a zip of stored files below one folder, read by place.
//!
//! ```text
//! NAME/archive_format                           "pt2"
//! NAME/byteorder                                "little"
//! NAME/models/model.json                        the graph
//! NAME/data/weights/model_weights_config.json   names, types and files of parameters and persistent buffers
//! NAME/data/weights/weight_0                    raw elements
//! NAME/data/constants/...                       the same for other buffers and constants
//! ```

use crate::error::Error;
use crate::fault::Fault;
use std::collections::BTreeMap;
use std::io::BufReader;
use std::ops::Range;
use std::path::{Path, PathBuf};
use support::positioned::{PositionedFile, ReadError};
use zip::read::{ArchiveOffset, Config};
use zip::{CompressionMethod, ZipArchive};

/// The most files of an archive.
const MOST_FILES: usize = 1 << 20;

/// An open archive.
pub(crate) struct Archive {
    path: PathBuf,
    file: PositionedFile,
    /// The files, by their names below the folder.
    files: BTreeMap<String, Member>,
}

/// A file of an archive.
struct Member {
    place: Range<u64>,
    /// Checksum that the archive states.
    crc32: u32,
}

impl Archive {
    /// Opens an archive and reads its directory.
    ///
    /// # Errors
    /// It cannot be read, is no zip, or has compressed files.
    pub(crate) fn open(path: &Path) -> Result<Archive, Error> {
        let file = PositionedFile::open(path).map_err(|why| Error::File { path: path.into(), why: why.to_string() })?;
        let files = directory(&file).map_err(|why| Error::Damaged { path: path.into(), why: why.to_string() })?;
        let archive = Archive { path: path.to_path_buf(), file, files };
        match archive.file("byteorder")? {
            Some(order) if order != b"little" => {
                Err(archive.damaged(format!("its numbers are {}-endian, not little", String::from_utf8_lossy(&order))))
            }
            _ => Ok(archive),
        }
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The place of a file.
    pub(crate) fn range(&self, name: &str) -> Option<Range<u64>> {
        self.files.get(name).map(|member| member.place.clone())
    }

    /// The bytes of a file, if there is one.
    ///
    /// # Errors
    /// The archive has become shorter, or cannot be read.
    pub(crate) fn file(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        self.range(name).map(|place| self.bytes(place)).transpose()
    }

    /// The bytes at a place that [`range`](Self::range) gave.
    ///
    /// # Errors
    /// The archive has become shorter, or cannot be read.
    pub(crate) fn bytes(&self, range: Range<u64>) -> Result<Vec<u8>, Error> {
        self.file.read(range).map_err(|why| self.unread(&why))
    }

    /// The names of the files that begin so, without the folder.
    pub(crate) fn names<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.files.keys().map(String::as_str).filter(move |name| name.starts_with(prefix))
    }

    /// Reads all files and compares them with their checksums.
    ///
    /// # Errors
    /// A file has other bytes than were written.
    pub(crate) fn check_sums(&self) -> Result<(), Error> {
        for (name, member) in &self.files {
            let mut hasher = crc32fast::Hasher::new();
            let read = self.file.pieces(member.place.clone(), 1, |piece| {
                hasher.update(piece);
                Ok::<(), ReadError>(())
            });
            read.map_err(|why| self.unread(&why))?;
            if hasher.finalize() != member.crc32 {
                return Err(self.damaged(format!("`{name}` has other bytes than its checksum says")));
            }
        }
        Ok(())
    }

    fn unread(&self, why: &ReadError) -> Error {
        Error::File { path: self.path.clone(), why: why.to_string() }
    }

    /// The error of a defect.
    pub(crate) fn damaged(&self, why: String) -> Error {
        Error::Damaged { path: self.path.clone(), why }
    }
}

/// The files of a zip, without the first folder of their names.
fn directory(file: &PositionedFile) -> Result<BTreeMap<String, Member>, Fault> {
    // Inner archives, such as that of sample inputs, are not to be taken for the end of this one.
    let config = Config { archive_offset: ArchiveOffset::Known(0) };
    let zip = ZipArchive::with_config(config, BufReader::new(file.file()));
    let mut zip = zip.map_err(|why| format!("is no zip archive: {why}"))?;
    if zip.len() > MOST_FILES {
        return Err(format!("has {} files, more than any export", zip.len()).into());
    }
    let mut files = BTreeMap::new();
    for at in 0..zip.len() {
        let member = zip.by_index_raw(at).map_err(|why| format!("file {at} of the archive cannot be read: {why}"))?;
        let whole = member.name().map_err(|why| format!("the name of file {at} cannot be read: {why}"))?;
        let name = whole.split_once('/').map_or(&*whole, |(_, name)| name).to_string();
        if member.compression() != CompressionMethod::Stored {
            return Err(format!("`{name}` is compressed; torch.export.save stores files as they are").into());
        }
        let start = member.data_start().ok_or_else(|| format!("`{name}` has no data"))?;
        let end = start.checked_add(member.size()).filter(|end| *end <= file.bytes());
        let end = end.ok_or_else(|| format!("is cut off: `{name}` reaches beyond its {} bytes", file.bytes()))?;
        files.insert(name, Member { place: start..end, crc32: member.crc32() });
    }
    Ok(files)
}
