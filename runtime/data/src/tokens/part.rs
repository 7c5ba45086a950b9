//! Parts of tokenised data: the documents for training and those that are held out.

use super::super::{DataError, Role, mix};
use super::file::{Layout, TokenFile};
use super::record::TokenRecord;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The documents of one side, one after the other.
#[derive(Clone)]
pub struct TokenPart {
    role: Role,
    file: Arc<TokenFile>,
    /// The numbers of the documents.
    documents: Vec<u32>,
    /// The end of each, in the stream.
    ends: Vec<u64>,
}

/// Tokenised data, split for training and validation.
#[derive(Clone)]
pub struct TokenData {
    /// The documents to train on.
    pub train: TokenPart,
    /// The documents held out.
    pub valid: TokenPart,
}

impl TokenPart {
    fn new(role: Role, file: &Arc<TokenFile>, is_in: impl Fn(usize) -> bool) -> Result<TokenPart, DataError> {
        // Lists that grow would take twice their size for a while. What is reserved and not written takes no memory.
        let most = file.documents();
        let (documents, ends) = (Vec::with_capacity(most), Vec::with_capacity(most));
        let (mut part, mut end) = (TokenPart { role, file: file.clone(), documents, ends }, 0);
        file.places(&mut |document, place| {
            if place.ids > 0 && is_in(document) {
                end += place.ids;
                part.documents.push(document as u32);
                part.ends.push(end);
            }
            Ok(())
        })?;
        Ok(part)
    }

    /// The number of ids.
    pub fn tokens(&self) -> usize {
        self.ends.last().copied().unwrap_or(0) as usize
    }

    /// The number of documents.
    pub fn documents(&self) -> usize {
        self.documents.len()
    }

    /// The end of each document, in the stream.
    pub(super) fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// The record of the file, if there is one.
    pub fn record(&self) -> Option<&TokenRecord> {
        self.file.record.as_ref()
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// The file of the ids.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Number, in the part, of the document that holds the id at `at`.
    pub(crate) fn segment_of(&self, at: usize) -> usize {
        self.ends.partition_point(|&end| end <= at as u64)
    }

    /// The first id of a document of the part in the stream, and how many it has.
    pub(crate) fn segment(&self, number: usize) -> (usize, usize) {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        (start as usize, (self.ends[number] - start) as usize)
    }

    /// Appends the ids at these places of a document of the part.
    ///
    /// # Errors
    /// The file has become shorter, or cannot be read.
    pub(crate) fn read(&self, number: usize, places: Range<usize>, into: &mut Vec<u32>) -> Result<(), DataError> {
        let start = self.file.place(self.documents[number] as usize)?.byte;
        self.file.read_ids(start + places.start as u64 * self.file.width.bytes(), places.len(), into)
    }

    /// True if its documents are examples, which have labels of their own.
    pub fn has_labels(&self) -> bool {
        self.file.labels.is_some()
    }

    /// Appends the labels of the ids at these places of a document; none where ids have none of their own.
    ///
    /// # Errors
    /// The file has become shorter, or cannot be read.
    pub(crate) fn read_labels(
        &self,
        number: usize,
        places: Range<usize>,
        into: &mut Vec<i32>,
    ) -> Result<(), DataError> {
        let Some(labels) = &self.file.labels else { return Ok(()) };
        let first = self.file.place(self.documents[number] as usize)?.byte / self.file.width.bytes();
        labels.read(first + places.start as u64..first + places.end as u64, into)
    }

    /// The number, in the file, of a document of the part.
    pub(crate) fn document(&self, number: usize) -> u64 {
        u64::from(self.documents[number])
    }
}

/// Returns whether a document is among the `fraction` of them that is held out.
fn is_held_out(document: usize, fraction: f64) -> bool {
    (mix(document as u64) as f64) < fraction * (u64::MAX as f64)
}

impl TokenData {
    /// Opens tokenised data and holds out about `fraction` of the documents, by a hash of their numbers. None where there is
    /// none, so that the path is one of text. `valid` is held out instead, if it is given.
    ///
    /// # Errors
    /// A file is not as its own records say, or a side has no document.
    pub fn open(
        path: &Path,
        valid: Option<&Path>,
        layout: Option<Layout>,
        eos: Option<u32>,
        fraction: f64,
    ) -> Result<Option<TokenData>, DataError> {
        let Some(file) = numbered(TokenFile::open(path, layout, eos)?)? else { return Ok(None) };
        if let Some(valid) = valid {
            let Some(held_out) = numbered(TokenFile::open(valid, layout, eos)?)? else {
                return Err(no_tokens(valid));
            };
            let train = TokenPart::new(Role::Training, &file, |_| true)?;
            let valid = TokenPart::new(Role::HeldOut, &held_out, |_| true)?;
            return Ok(Some(TokenData { train, valid }));
        }
        if !(0.0..1.0).contains(&fraction) {
            return Err(DataError::Fraction { fraction });
        }
        let train = TokenPart::new(Role::Training, &file, |document| !is_held_out(document, fraction))?;
        let valid = TokenPart::new(Role::HeldOut, &file, |document| is_held_out(document, fraction))?;
        Ok(Some(TokenData { train, valid }))
    }

    /// Checks before any id is read that a model of `vocabulary` tokens knows all of them, as far as records have the largest id.
    ///
    /// # Errors
    /// [`DataError::Vocabulary`].
    pub fn check_vocabulary(&self, vocabulary: u64) -> Result<(), DataError> {
        for part in [&self.train, &self.valid] {
            if let Some(largest) = part.record().map(|record| record.largest).filter(|&id| u64::from(id) >= vocabulary)
            {
                return Err(DataError::Vocabulary { path: part.path().to_path_buf(), largest, vocabulary });
            }
        }
        Ok(())
    }

    /// True if an index next to each file has the ends of its documents, so that no token needs to.
    pub fn is_indexed(&self) -> bool {
        self.train.file.is_indexed() && self.valid.file.is_indexed()
    }

    /// The bytes of memory that the documents' places take. Ids take none.
    pub fn bytes(&self) -> u64 {
        let documents = self.train.documents() + self.valid.documents();
        (documents * (size_of::<u32>() + size_of::<u64>())) as u64
    }

    /// The CRC-32 of the places of all documents, and of ids and labels spread over them: identity of the data, wherever the files are.
    ///
    /// # Errors
    /// A file has become shorter, or cannot be read.
    pub fn checksum(&self) -> Result<u32, DataError> {
        let (mut hasher, mut ids, mut labels) = (crc32fast::Hasher::new(), Vec::new(), Vec::new());
        for part in [&self.train, &self.valid] {
            hasher.update(&(part.tokens() as u64).to_le_bytes());
            part.ends.iter().for_each(|end| hasher.update(&end.to_le_bytes()));
            // At most this many documents are looked at, so that a large file is not read.
            let step = part.documents().div_ceil(SAMPLED).max(1);
            for number in (0..part.documents()).step_by(step) {
                let (_, length) = part.segment(number);
                ids.clear();
                part.read(number, 0..length.min(HEAD), &mut ids)?;
                ids.iter().for_each(|id| hasher.update(&id.to_le_bytes()));
                labels.clear();
                part.read_labels(number, 0..length.min(HEAD), &mut labels)?;
                labels.iter().for_each(|label| hasher.update(&label.to_le_bytes()));
            }
        }
        Ok(hasher.finalize())
    }
}

/// A file whose documents have numbers of 32 bits.
fn numbered(file: Option<TokenFile>) -> Result<Option<Arc<TokenFile>>, DataError> {
    let Some(file) = file else { return Ok(None) };
    if u32::try_from(file.documents()).is_err() {
        let why = format!("has {} documents; at most {} are read", file.documents(), u32::MAX);
        return Err(DataError::Damaged { path: file.path().to_path_buf(), why });
    }
    Ok(Some(Arc::new(file)))
}

/// The error for a path that is to have tokenised data.
fn no_tokens(path: &Path) -> DataError {
    let path = path.to_path_buf();
    match path.exists() {
        true => {
            DataError::Damaged { path, why: "is no tokenised data: it has neither `.bin` and `.idx` nor `.ds`".into() }
        }
        false => DataError::Missing { path },
    }
}

/// Documents whose first ids the checksum has.
const SAMPLED: usize = 1024;

/// First ids of a document that the checksum has.
const HEAD: usize = 64;
