//! A file of ids and the places of its documents.

use super::super::DataError;
use super::forms;
use super::record::TokenRecord;
use std::path::{Path, PathBuf};
use support::mapped::Mapped;

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
    pub(super) fn bytes(self) -> usize {
        match self {
            Width::Two => 2,
            Width::Four => 4,
        }
    }
}

/// The documents of a file of ids.
pub(super) enum Documents {
    /// The end of each, in ids.
    Ends(Vec<u64>),
    /// The end of each, in ids, as a number of 64 bits in a mapped file.
    Mapped(Mapped),
    /// Lengths of 32 bits and places of 64 bits in a mapped file of Megatron's form, which begin at these bytes.
    Megatron { index: Mapped, lengths: usize, pointers: usize, count: usize },
}

/// A file of ids.
pub struct TokenFile {
    pub(super) path: PathBuf,
    pub(super) ids: Mapped,
    /// The byte of the first id.
    pub(super) first: usize,
    pub(super) width: Width,
    pub(super) documents: Documents,
    /// The record next to it, if there is one.
    pub(super) record: Option<TokenRecord>,
}

impl TokenFile {
    /// Opens tokenised data: a prefix, or one of its files. None where there is none, so that the path is one of text.
    ///
    /// # Errors
    /// A file is not as its own records say.
    pub fn open(path: &Path, layout: Option<Layout>, eos: Option<u32>) -> Result<Option<TokenFile>, DataError> {
        forms::open(path, layout, eos)
    }

    /// The number of documents.
    pub fn documents(&self) -> usize {
        match &self.documents {
            Documents::Ends(ends) => ends.len(),
            Documents::Mapped(index) => index.len() / 8,
            Documents::Megatron { count, .. } => *count,
        }
    }

    /// The ids of a document.
    pub fn document(&self, number: usize) -> Vec<u32> {
        let (start, length) = self.place(number);
        (start..start + length).map(|at| self.id(at)).collect()
    }

    /// True if another file has the ends of documents, so that no token needs to.
    pub(super) fn is_indexed(&self) -> bool {
        !matches!(self.documents, Documents::Ends(_))
    }

    /// The byte of the first id of a document, in an index of Megatron's form.
    pub(super) fn first_byte(&self, document: usize) -> u64 {
        match &self.documents {
            Documents::Megatron { index, pointers, .. } => number(index, pointers + 8 * document),
            _ => 0,
        }
    }

    /// The first id of a document, and how many it has.
    pub(super) fn place(&self, document: usize) -> (u64, u64) {
        match &self.documents {
            Documents::Ends(ends) => {
                let start = if document == 0 { 0 } else { ends[document - 1] };
                (start, ends[document] - start)
            }
            Documents::Mapped(index) => {
                let start = if document == 0 { 0 } else { number(index, 8 * (document - 1)) };
                (start, number(index, 8 * document) - start)
            }
            Documents::Megatron { index, lengths, .. } => {
                let at = lengths + 4 * document;
                let length = u32::from_le_bytes(index[at..at + 4].try_into().unwrap_or_default());
                (self.first_byte(document) / self.width.bytes() as u64, u64::from(length))
            }
        }
    }

    /// The id at a place.
    pub(super) fn id(&self, at: u64) -> u32 {
        let at = self.first + at as usize * self.width.bytes();
        match self.width {
            Width::Two => u32::from(u16::from_le_bytes([self.ids[at], self.ids[at + 1]])),
            Width::Four => u32::from_le_bytes([self.ids[at], self.ids[at + 1], self.ids[at + 2], self.ids[at + 3]]),
        }
    }

    /// The number of ids in the file.
    pub(super) fn ids(&self) -> u64 {
        ((self.ids.len() - self.first) / self.width.bytes()) as u64
    }
}

/// The number of 64 bits at a byte.
fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}
