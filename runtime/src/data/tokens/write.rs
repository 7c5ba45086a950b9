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
    tokens: u64,
}

impl<W: Write> TokenWriter<W> {
    /// A writer of ids below `vocabulary`.
    pub fn new(ids: W, vocabulary: u64) -> TokenWriter<W> {
        let ids = BufWriter::with_capacity(1 << 20, ids);
        TokenWriter { ids, vocabulary, lengths: Vec::new(), tokens: 0 }
    }

    /// Adds a document.
    ///
    /// # Errors
    /// The system refuses, an id is not below the vocabulary, or the document has more than 2 G ids.
    pub fn document(&mut self, ids: &[u32]) -> io::Result<()> {
        // Megatron reads lengths with a sign.
        let length =
            i32::try_from(ids.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?.cast_unsigned();
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
        self.lengths.push(length);
        self.tokens += u64::from(length);
        Ok(())
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
