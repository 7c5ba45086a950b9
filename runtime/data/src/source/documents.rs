//! Documents of an iterator, one after the other, cut into samples wherever they end.

use super::{NextSample, SourceError, TokenPiece};

/// Tokens that an iterator gives at once.
pub(super) struct Chunk {
    pub(super) tokens: Vec<u32>,
    pub(super) ends_document: bool,
}

/// The documents that are still to come.
pub(super) struct Documents<I> {
    chunks: I,
    /// The rest of a document, as far as it was read.
    document: Vec<u32>,
    /// True if the document has no further tokens.
    is_whole: bool,
}

impl<I: Iterator<Item = Chunk>> Documents<I> {
    pub(super) fn new(chunks: I) -> Documents<I> {
        Documents { chunks, document: Vec::new(), is_whole: false }
    }

    /// Reads until the document has as many tokens or ends. One without tokens is left behind. The answer is false if nothing is left.
    fn read(&mut self, tokens: usize) -> bool {
        while self.document.len() < tokens && (!self.is_whole || self.document.is_empty()) {
            match self.chunks.next() {
                Some(chunk) => {
                    self.document.extend(chunk.tokens);
                    self.is_whole = chunk.ends_document;
                }
                None if self.document.is_empty() => return false,
                None => self.is_whole = true,
            }
        }
        true
    }
}

impl<I: Iterator<Item = Chunk>> NextSample for Documents<I> {
    fn sample(&mut self, tokens: usize) -> Result<Option<Vec<TokenPiece>>, SourceError> {
        let (mut left, mut sample) = (tokens, Vec::new());
        while left > 0 {
            if !self.read(left + 1) {
                return Ok(None);
            }
            let inputs = left.min(self.document.len());
            // The label of the last input begins the next sample.
            let piece = &self.document[..self.document.len().min(inputs + usize::from(inputs == left))];
            sample.push(piece.to_vec().into());
            self.document.drain(..inputs);
            left -= inputs;
        }
        Ok(Some(sample))
    }
}
