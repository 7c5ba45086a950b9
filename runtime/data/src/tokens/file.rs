//! A file of ids and the places of its documents.

use super::super::DataError;
use super::forms;
use super::labels::LabelFile;
use super::record::TokenRecord;
use std::ops::Range;
use std::path::{Path, PathBuf};
use support::positioned::{PositionedFile, ReadError};

/// The form of a file that does not say its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Ids of 16 bits.
    Raw16,
    /// Ids of 32 bits.
    Raw32,
}

/// The bytes of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    Two,
    Four,
}

impl Width {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Width::Two => 2,
            Width::Four => 4,
        }
    }

    /// The ids of some bytes.
    fn ids(self, bytes: &[u8]) -> impl Iterator<Item = u32> {
        bytes
            .chunks_exact(self.bytes() as usize)
            .map(|id| id.iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte)))
    }
}

/// An open file with its name, which errors state.
pub(super) struct NamedFile {
    pub(super) path: PathBuf,
    file: PositionedFile,
}

impl NamedFile {
    /// Opens a file.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub(super) fn open(path: &Path) -> Result<NamedFile, DataError> {
        let file = PositionedFile::open(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => DataError::Missing { path: path.into() },
            _ => DataError::Unreadable { path: path.into(), source },
        })?;
        Ok(NamedFile { path: path.to_path_buf(), file })
    }

    /// The number of its bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// The bytes of a range.
    pub(super) fn read(&self, range: Range<u64>) -> Result<Vec<u8>, DataError> {
        self.file.read(range).map_err(|why| self.fault(why))
    }

    /// The first bytes, at most this many.
    pub(super) fn head(&self, most: u64) -> Result<Vec<u8>, DataError> {
        self.read(0..self.bytes().min(most))
    }

    /// The number of 64 bits at a byte.
    fn number(&self, at: u64) -> Result<u64, DataError> {
        let mut bytes = [0; 8];
        self.file.read_at(at, &mut bytes).map_err(|why| self.fault(why))?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn fault(&self, why: ReadError) -> DataError {
        let path = self.path.clone();
        match why {
            ReadError::CutShort { now, opened } => DataError::CutShort { path, now, opened },
            ReadError::System(source) => DataError::Unreadable { path, source },
        }
    }
}

/// The documents of a file of ids.
pub(super) enum Documents {
    /// The end of each, in ids.
    Ends(Vec<u64>),
    /// The end of each, in ids, as a number of 64 bits in a file.
    Index(NamedFile),
    /// Lengths of 32 bits and places of 64 bits in a file of Megatron's form, which begin at these bytes.
    Megatron { index: NamedFile, lengths: u64, pointers: u64, count: u64 },
}

/// The place of a document in a file of ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DocumentPlace {
    /// The byte of its first id, counted from the first of the file.
    pub(super) byte: u64,
    /// The number of its ids.
    pub(super) ids: u64,
}

/// Documents whose places are read at once.
const AT_ONCE: usize = 1 << 14;

/// A file of ids.
pub struct TokenFile {
    pub(super) ids: NamedFile,
    /// The byte of the first id.
    pub(super) first: u64,
    pub(super) width: Width,
    pub(super) documents: Documents,
    /// The record next to it, if there is one.
    pub(super) record: Option<TokenRecord>,
    /// The labels of ids, if they have labels of their own.
    pub(super) labels: Option<LabelFile>,
}

impl TokenFile {
    /// Opens tokenised data: a prefix, or one of its files. None where there is none, so that the path is one of text.
    ///
    /// # Errors
    /// A file is not as its own records say.
    pub fn open(path: &Path, layout: Option<Layout>, eos: Option<u32>) -> Result<Option<TokenFile>, DataError> {
        forms::open(path, layout, eos)
    }

    /// The file of the ids.
    pub(super) fn path(&self) -> &Path {
        &self.ids.path
    }

    /// The number of documents.
    pub fn documents(&self) -> usize {
        match &self.documents {
            Documents::Ends(ends) => ends.len(),
            Documents::Index(index) => (index.bytes() / 8) as usize,
            Documents::Megatron { count, .. } => *count as usize,
        }
    }

    /// The ids of a document.
    ///
    /// # Errors
    /// The file has become shorter, or cannot be read.
    pub fn document(&self, number: usize) -> Result<Vec<u32>, DataError> {
        let DocumentPlace { byte, ids } = self.place(number)?;
        let mut found = Vec::new();
        self.read_ids(byte, ids as usize, &mut found)?;
        Ok(found)
    }

    /// True if another file has the ends of documents, so that no token needs to.
    pub(super) fn is_indexed(&self) -> bool {
        !matches!(self.documents, Documents::Ends(_))
    }

    /// The place of a document.
    pub(super) fn place(&self, document: usize) -> Result<DocumentPlace, DataError> {
        let at = document as u64;
        let (start, end) = match &self.documents {
            Documents::Ends(ends) => (if document == 0 { 0 } else { ends[document - 1] }, ends[document]),
            Documents::Index(index) => {
                (if document == 0 { 0 } else { index.number(8 * (at - 1))? }, index.number(8 * at)?)
            }
            Documents::Megatron { index, lengths, pointers, .. } => {
                let length = index.read(lengths + 4 * at..lengths + 4 * (at + 1))?;
                let ids = Width::Four.ids(&length).map(u64::from).sum();
                return Ok(DocumentPlace { byte: index.number(pointers + 8 * at)?, ids });
            }
        };
        Ok(DocumentPlace { byte: start * self.width.bytes(), ids: end.saturating_sub(start) })
    }

    /// Gives the places of all documents in their order.
    ///
    /// # Errors
    /// The index has become shorter, or cannot be read; or an error of `give`.
    pub(super) fn places(
        &self,
        give: &mut dyn FnMut(usize, DocumentPlace) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let Documents::Megatron { index, lengths, pointers, count } = &self.documents else {
            let mut start = 0;
            return self.ends(&mut |document, end| {
                let place = DocumentPlace { byte: start * self.width.bytes(), ids: end.saturating_sub(start) };
                start = end;
                give(document, place)
            });
        };
        for first in (0..*count).step_by(AT_ONCE) {
            let end = (first + AT_ONCE as u64).min(*count);
            let bytes = numbers(&index.read(pointers + 8 * first..pointers + 8 * end)?);
            let ids = index.read(lengths + 4 * first..lengths + 4 * end)?;
            let mut places = bytes.into_iter().zip(Width::Four.ids(&ids)).zip(first as usize..);
            places
                .try_for_each(|((byte, ids), document)| give(document, DocumentPlace { byte, ids: u64::from(ids) }))?;
        }
        Ok(())
    }

    /// Gives the end of each document, in ids, but of none of Megatron's form.
    ///
    /// # Errors
    /// The index has become shorter, or cannot be read; or an error of `give`.
    pub(super) fn ends(&self, give: &mut dyn FnMut(usize, u64) -> Result<(), DataError>) -> Result<(), DataError> {
        match &self.documents {
            Documents::Ends(ends) => ends.iter().enumerate().try_for_each(|(document, &end)| give(document, end)),
            Documents::Index(index) => (0..self.documents()).step_by(AT_ONCE).try_for_each(|first| {
                let end = self.documents().min(first + AT_ONCE);
                let ends = numbers(&index.read(8 * first as u64..8 * end as u64)?);
                (first..).zip(ends).try_for_each(|(document, end)| give(document, end))
            }),
            Documents::Megatron { .. } => Ok(()),
        }
    }

    /// Appends ids, of which the first begins at a byte that a place states.
    ///
    /// # Errors
    /// The file has become shorter, or cannot be read.
    pub(super) fn read_ids(&self, byte: u64, count: usize, into: &mut Vec<u32>) -> Result<(), DataError> {
        let from = self.first + byte;
        let bytes = self.ids.read(from..from + count as u64 * self.width.bytes())?;
        into.extend(self.width.ids(&bytes));
        Ok(())
    }

    /// Gives all ids in their order.
    ///
    /// # Errors
    /// The file has become shorter, or cannot be read.
    pub(super) fn each_id(&self, mut give: impl FnMut(u32)) -> Result<(), DataError> {
        let (all, width) = (self.first..self.ids.bytes(), self.width.bytes() as usize);
        let read = self.ids.file.pieces(all, width, |piece| {
            self.width.ids(piece).for_each(&mut give);
            Ok::<(), ReadError>(())
        });
        read.map_err(|why| self.ids.fault(why))
    }

    /// The number of ids in the file.
    pub(super) fn count(&self) -> u64 {
        (self.ids.bytes() - self.first) / self.width.bytes()
    }
}

/// Numbers of 64 bits.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    let (numbers, _) = bytes.as_chunks::<8>();
    numbers.iter().map(|&number| u64::from_le_bytes(number)).collect()
}
