//! Writing of Megatron's form: ids go to `PREFIX.bin` as they come, and `PREFIX.idx` is written at the end.

use super::forms::MAGIC;
use std::io::{self, BufWriter, Write};

/// Vocabularies below this have ids of 16 bits, as in Megatron.
pub const NARROW: u64 = 65_500;

/// A writer of ids, document by document.
pub struct TokenWriter<W: Write> {
    ids: BufWriter<W>,
    vocabulary: u64,
    lengths: Vec<u32>,
    /// Ids of documents that have ended.
    tokens: u64,
    /// Ids of the document that has not.
    under_way: u64,
}

impl<W: Write> TokenWriter<W> {
    /// A writer of ids below `vocabulary`.
    pub fn new(ids: W, vocabulary: u64) -> TokenWriter<W> {
        let ids = BufWriter::with_capacity(1 << 20, ids);
        TokenWriter { ids, vocabulary, lengths: Vec::new(), tokens: 0, under_way: 0 }
    }

    /// Adds a document.
    ///
    /// # Errors
    /// The system refuses, an id is not below the vocabulary, or the document has more than 2 G ids.
    pub fn document(&mut self, ids: &[u32]) -> io::Result<()> {
        self.ids(ids)?;
        self.end()
    }

    /// Adds ids to the document under way.
    ///
    /// # Errors
    /// The system refuses, an id is not below the vocabulary, or the document has more than 2 G ids.
    pub fn ids(&mut self, ids: &[u32]) -> io::Result<()> {
        let is_narrow = self.is_narrow();
        for &id in ids {
            if u64::from(id) >= self.vocabulary {
                let why = format!("the id {id} is not below {}", self.vocabulary);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            match is_narrow {
                true => self.ids.write_all(&(id as u16).to_le_bytes())?,
                false => self.ids.write_all(&id.to_le_bytes())?,
            }
        }
        self.under_way += ids.len() as u64;
        self.length().map(drop)
    }

    /// Ends the document under way.
    ///
    /// # Errors
    /// The document has more than 2 G ids.
    pub fn end(&mut self) -> io::Result<()> {
        let length = self.length()?;
        self.lengths.push(length);
        self.tokens += std::mem::take(&mut self.under_way);
        Ok(())
    }

    /// The ids of the document under way. Megatron reads lengths with a sign.
    fn length(&self) -> io::Result<u32> {
        let length = i32::try_from(self.under_way).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        Ok(length.cast_unsigned())
    }

    fn is_narrow(&self) -> bool {
        self.vocabulary < NARROW
    }

    /// The numbers of documents and of ids so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.lengths.len() as u64, self.tokens)
    }

    /// Writes the index.
    ///
    /// # Errors
    /// The system refuses.
    pub fn finish(mut self, index: &mut impl Write) -> io::Result<()> {
        self.ids.flush()?;
        let count = self.lengths.len() as u64;
        index.write_all(MAGIC)?;
        index.write_all(&1u64.to_le_bytes())?;
        index.write_all(&[if self.is_narrow() { 8 } else { 4 }])?;
        index.write_all(&count.to_le_bytes())?;
        index.write_all(&(count + 1).to_le_bytes())?;
        for length in &self.lengths {
            index.write_all(&length.to_le_bytes())?;
        }
        let (width, mut at) = (if self.is_narrow() { 2 } else { 4 }, 0u64);
        for length in &self.lengths {
            index.write_all(&at.to_le_bytes())?;
            at += width * u64::from(*length);
        }
        (0..=count).try_for_each(|document| index.write_all(&document.to_le_bytes()))?;
        index.flush()
    }
}
