//! A tokenizer as the hub has it, for whole documents.

use super::documents::Document;
use super::error::Error;
use super::sources::{Source, unreadable};
use std::path::{Path, PathBuf};
use support::files;
use tokenizers::Tokenizer;

/// No tokenizer is larger: those of 256k tokens have some 30 MiB.
const MOST_BYTES: u64 = 1 << 30;

/// A tokenizer, without what it adds to a document or cuts off it.
pub(crate) struct Encoder {
    tokenizer: Tokenizer,
    pub(crate) path: PathBuf,
    /// The CRC-32 of its file.
    pub(crate) crc32: u32,
    /// All ids are below.
    pub(crate) vocabulary: u64,
    /// The token that ends each document.
    pub(crate) end: Option<u32>,
}

impl Encoder {
    /// Reads a `tokenizer.json`, or that of a folder.
    pub(crate) fn open(path: &Path, end: Option<&str>) -> Result<Encoder, Error> {
        let path = if path.is_dir() { path.join("tokenizer.json") } else { path.to_path_buf() };
        let bytes = files::read(&path, MOST_BYTES).map_err(|why| unreadable(&path, why))?;
        let invalid = |why: String| Error::Tokenizer { path: path.clone(), why };
        let mut tokenizer = Tokenizer::from_bytes(&bytes).map_err(|why| invalid(why.to_string()))?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|why| invalid(why.to_string()))?;
        let last = tokenizer.get_vocab(true).into_values().max();
        let vocabulary = 1 + u64::from(last.ok_or_else(|| invalid("it has no tokens".into()))?);
        let end = end.map(|token| end_of(&tokenizer, token).ok_or_else(|| (token.to_string(), vocabulary)));
        let end =
            end.transpose().map_err(|(token, vocabulary)| Error::End { token, path: path.clone(), vocabulary })?;
        Ok(Encoder { tokenizer, path, crc32: crc32fast::hash(&bytes), vocabulary, end })
    }

    /// The ids of each document, without the token at its end. All cores work on them.
    pub(crate) fn encode(&self, documents: &[Document], sources: &[Source]) -> Result<Vec<Vec<u32>>, Error> {
        let texts = documents.iter().map(|document| document.text.as_str()).collect();
        match self.tokenizer.encode_batch_fast::<&str>(texts, false) {
            Ok(encodings) => Ok(encodings.into_iter().map(|encoding| encoding.get_ids().to_vec()).collect()),
            Err(_) => documents.iter().map(|document| self.encode_one(document, sources)).collect(),
        }
    }

    /// The ids of a document, or an error with its place.
    fn encode_one(&self, document: &Document, sources: &[Source]) -> Result<Vec<u32>, Error> {
        let encoding = self.tokenizer.encode_fast(document.text.as_str(), false);
        encoding.map(|encoding| encoding.get_ids().to_vec()).map_err(|why| {
            let path = sources[document.source].path.clone();
            Error::Line { path, line: document.line, why: format!("the tokenizer refuses the text: {why}") }
        })
    }
}

/// The id of a token, which is named by its id or its text.
fn end_of(tokenizer: &Tokenizer, token: &str) -> Option<u32> {
    match token.parse() {
        Ok(id) => tokenizer.id_to_token(id).map(|_| id),
        Err(_) => tokenizer.token_to_id(token),
    }
}
