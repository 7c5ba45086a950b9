//! Files whose bytes are read where they are: pages come from the disk when they are touched, and leave memory again.

use crate::files;
use memmap2::Mmap;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// The bytes of a file, mapped into memory.
pub struct Mapped(Mmap);

impl Mapped {
    /// Maps a regular file. Readers compare its size with what the file says of itself, and so find one that is cut off. If that
    /// happens while the file is mapped, SIGBUS ends the process, as in every program that maps files.
    ///
    /// # Errors
    /// The system refuses, or it is no regular file.
    pub fn open(path: &Path) -> io::Result<Mapped> {
        let file = files::open(path)?;
        // SAFETY: the mapping is read-only. A process that writes to the file meanwhile changes numbers and no memory of this
        // program: bytes have no invalid values.
        unsafe { Mmap::map(&file) }.map(Mapped)
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for bytes in [&b""[..], b"some bytes"] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(&*Mapped::open(&path).unwrap(), bytes);
        }
        assert!(Mapped::open(folder.path()).is_err());
    }
}
