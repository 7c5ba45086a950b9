//! Files that are read by place: bytes come from the disk when they are asked for, and take no memory before.
//!
//! No file is mapped into memory. A mapped file that another program cuts short ends the process by SIGBUS, and so does a disk that
//! fails; here both are errors.

use crate::files;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;

/// The most bytes that readers of a whole range take at a time.
pub const PIECE: usize = 1 << 20;

/// A regular file, with its size when it was opened.
#[derive(Debug)]
pub struct PositionedFile {
    file: File,
    bytes: u64,
}

/// Why bytes of a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file has become shorter.
    #[error("it was cut short while it was in use: it has {now} bytes, and had {opened} when it was opened")]
    CutShort {
        /// Its bytes now.
        now: u64,
        /// Its bytes when it was opened.
        opened: u64,
    },
    /// The system refuses.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> io::Error {
        match error {
            ReadError::CutShort { .. } => io::Error::new(ErrorKind::UnexpectedEof, error),
            ReadError::System(why) => why,
        }
    }
}

impl PositionedFile {
    /// Opens a regular file. Readers compare its size with what the file says of itself, and so find one that was cut off before.
    ///
    /// # Errors
    /// The system refuses, or it is no regular file.
    pub fn open(path: &Path) -> io::Result<PositionedFile> {
        let file = files::open(path)?;
        let bytes = file.metadata()?.len();
        Ok(PositionedFile { file, bytes })
    }

    /// The number of bytes when it was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file, for readers that go from place to place themselves.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Fills `into` with the bytes from `at` on. Threads may read at once.
    ///
    /// # Errors
    /// The file has become shorter, or the system refuses.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), ReadError> {
        read_exact_at(&self.file, into, at).map_err(|why| self.fault(why))
    }

    /// The bytes of a range.
    ///
    /// # Errors
    /// The file has become shorter, or the system refuses.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; range.end.saturating_sub(range.start) as usize];
        self.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Gives the bytes of a range in pieces of at most [`PIECE`] bytes, each a multiple of `unit` but for the last.
    ///
    /// # Errors
    /// The file has become shorter, or the system refuses; or an error of `give`.
    pub fn pieces<E: From<ReadError>>(
        &self,
        range: Range<u64>,
        unit: usize,
        mut give: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let most = PIECE.max(unit) / unit * unit;
        let mut piece = vec![0; most.min(range.end.saturating_sub(range.start) as usize)];
        let mut at = range.start;
        while at < range.end {
            let own = piece.len().min((range.end - at) as usize);
            self.read_at(at, &mut piece[..own])?;
            give(&piece[..own])?;
            at += own as u64;
        }
        Ok(())
    }

    /// The error of a read: a file that ends early has become shorter.
    fn fault(&self, why: io::Error) -> ReadError {
        match (why.kind(), self.file.metadata()) {
            (ErrorKind::UnexpectedEof, Ok(found)) => ReadError::CutShort { now: found.len(), opened: self.bytes },
            _ => ReadError::System(why),
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut into: &mut [u8], mut at: u64) -> io::Result<()> {
    while !into.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, into, at)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => (into, at) = (&mut into[read..], at + read as u64),
        }
    }
    Ok(())
}

/// Without reads by place, one thread at a time moves the place of the file.
#[cfg(not(any(unix, windows)))]
fn read_exact_at(mut file: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn bytes_are_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..PIECE + 5).map(|at| at as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let file = PositionedFile::open(&path).unwrap();
        assert_eq!((file.bytes(), file.read(2..4).unwrap()), (bytes.len() as u64, vec![2, 3]));
        let (mut all, mut sizes) = (Vec::new(), Vec::new());
        let mut add = |piece: &[u8]| -> Result<(), ReadError> {
            all.extend_from_slice(piece);
            sizes.push(piece.len());
            Ok(())
        };
        file.pieces(0..file.bytes(), 3, &mut add).unwrap();
        assert_eq!((all == bytes, sizes), (true, vec![PIECE / 3 * 3, 6]));
        assert!(PositionedFile::open(folder.path()).is_err());
    }

    #[test]
    fn a_file_that_becomes_shorter_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"some bytes").unwrap();
        let file = PositionedFile::open(&path).unwrap();
        fs::write(&path, b"some").unwrap();
        assert_eq!(file.read(0..4).unwrap(), b"some");
        let why = file.read(2..6).unwrap_err();
        assert!(matches!(why, ReadError::CutShort { now: 4, opened: 10 }), "{why}");
        assert_eq!(io::Error::from(why).kind(), ErrorKind::UnexpectedEof);
    }
}
