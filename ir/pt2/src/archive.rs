//! The container: a zip of stored files below one folder, mapped into memory.
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
use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::Range;
use std::path::{Path, PathBuf};
use support::mapped::Mapped;
use zip::read::{ArchiveOffset, Config};
use zip::{CompressionMethod, ZipArchive};

/// The most files of an archive.
const MOST_FILES: usize = 1 << 20;

/// An open archive.
pub(crate) struct Archive {
    path: PathBuf,
    bytes: Mapped,
    /// The files, by their names below the folder.
    files: BTreeMap<String, Member>,
}

/// A file of an archive.
struct Member {
    place: Range<usize>,
    /// Checksum that the archive states.
    crc32: u32,
}

impl Archive {
    /// Maps an archive and reads its directory.
    ///
    /// # Errors
    /// It cannot be read, is no zip, or has compressed files.
    pub(crate) fn open(path: &Path) -> Result<Archive, Error> {
        let bytes = Mapped::open(path).map_err(|why| Error::File { path: path.into(), why: why.to_string() })?;
        let files = directory(&bytes).map_err(|why| Error::Damaged { path: path.into(), why })?;
        let archive = Archive { path: path.to_path_buf(), bytes, files };
        match archive.file("byteorder") {
            Some(b"little") | None => Ok(archive),
            Some(other) => {
                Err(archive.damaged(format!("its numbers are {}-endian, not little", String::from_utf8_lossy(other))))
            }
        }
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The place of a file.
    pub(crate) fn range(&self, name: &str) -> Option<Range<usize>> {
        self.files.get(name).map(|member| member.place.clone())
    }

    /// The bytes of a file.
    pub(crate) fn file(&self, name: &str) -> Option<&[u8]> {
        self.files.get(name).map(|member| &self.bytes[member.place.clone()])
    }

    /// The bytes at a place that [`range`](Self::range) gave.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
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
        let is_changed = |member: &Member| crc32fast::hash(&self.bytes[member.place.clone()]) != member.crc32;
        match self.files.iter().find(|(_, member)| is_changed(member)) {
            Some((name, _)) => Err(self.damaged(format!("`{name}` has other bytes than its checksum says"))),
            None => Ok(()),
        }
    }

    /// The error of a defect.
    pub(crate) fn damaged(&self, why: String) -> Error {
        Error::Damaged { path: self.path.clone(), why }
    }
}

/// The files of a zip, without the first folder of their names.
fn directory(bytes: &[u8]) -> Result<BTreeMap<String, Member>, String> {
    // Inner archives, such as that of sample inputs, are not to be taken for the end of this one.
    let config = Config { archive_offset: ArchiveOffset::Known(0) };
    let zip = ZipArchive::with_config(config, Cursor::new(bytes));
    let mut zip = zip.map_err(|why| format!("is no zip archive: {why}"))?;
    if zip.len() > MOST_FILES {
        return Err(format!("has {} files, more than any export", zip.len()));
    }
    let mut files = BTreeMap::new();
    for at in 0..zip.len() {
        let file = zip.by_index_raw(at).map_err(|why| format!("file {at} of the archive cannot be read: {why}"))?;
        let whole = file.name().map_err(|why| format!("the name of file {at} cannot be read: {why}"))?;
        let name = whole.split_once('/').map_or(&*whole, |(_, name)| name).to_string();
        if file.compression() != CompressionMethod::Stored {
            return Err(format!("`{name}` is compressed; torch.export.save stores files as they are"));
        }
        let start = file.data_start().ok_or_else(|| format!("`{name}` has no data"))?;
        let end = start.checked_add(file.size()).filter(|end| *end <= bytes.len() as u64);
        let end = end.ok_or_else(|| format!("is cut off: `{name}` reaches beyond its {} bytes", bytes.len()))?;
        files.insert(name, Member { place: start as usize..end as usize, crc32: file.crc32() });
    }
    Ok(files)
}
