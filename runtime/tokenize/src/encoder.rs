//! A tokenizer as the hub has it, for whole texts and for pieces of documents.

use super::cuts::Cuts;
use super::error::Error;
use super::normal::changed;
use super::pieces::Piece;
use super::sources::Source;
use data::tokens::TokenizerRecord;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use support::{files, parallel};
use tokenizers::{PostProcessorWrapper, Tokenizer};

/// No tokenizer is larger: those of 256k tokens have some 30 MiB.
const MOST_BYTES: u64 = 1 << 30;

/// A tokenizer of the hub, without what it adds to a text or cuts off it.
pub struct TextCodec {
    tokenizer: Tokenizer,
    path: PathBuf,
    /// The CRC-32 of its file.
    crc32: u32,
    vocabulary: u64,
}

impl TextCodec {
    /// Reads a `tokenizer.json`, or that of a folder.
    ///
    /// # Errors
    /// There is none, or it is not understood.
    pub fn open(path: &Path) -> Result<TextCodec, Error> {
        let path = if path.is_dir() { path.join("tokenizer.json") } else { path.to_path_buf() };
        let invalid = |why: String| Error::Tokenizer { path: path.clone(), why };
        let bytes = files::read(&path, MOST_BYTES).map_err(|why| invalid(why.to_string()))?;
        let mut tokenizer = caught(|| Tokenizer::from_bytes(&bytes)).map_err(invalid)?;
        tokenizer.with_padding(None);
        // It adds tokens, which nothing here asks for, and leaves spaces out of the places of tokens.
        tokenizer.with_post_processor(None::<PostProcessorWrapper>);
        tokenizer.with_truncation(None).map_err(|why| invalid(why.to_string()))?;
        let last = tokenizer.get_vocab(true).into_values().max();
        let vocabulary = 1 + u64::from(last.ok_or_else(|| invalid("it has no tokens".into()))?);
        Ok(TextCodec { tokenizer, path, crc32: crc32fast::hash(&bytes), vocabulary })
    }

    /// All ids are below.
    pub fn vocabulary(&self) -> u64 {
        self.vocabulary
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// The tokenizer refuses it.
    pub fn ids(&self, text: &str) -> Result<Vec<u32>, Error> {
        let encoding = caught(|| self.tokenizer.encode_fast(text, false)).map_err(|why| self.refuses(&why))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The ids of a text, each with its bytes in it.
    ///
    /// # Errors
    /// The tokenizer refuses it.
    pub(crate) fn ids_with_places(&self, text: &str) -> Result<(Vec<u32>, Vec<Range<usize>>), Error> {
        let encoding = caught(|| self.tokenizer.encode(text, false)).map_err(|why| self.refuses(&why))?;
        let places = encoding.get_offsets().iter().map(|&(begin, end)| begin..end);
        Ok((encoding.get_ids().to_vec(), places.collect()))
    }

    /// The text of ids, without special tokens.
    ///
    /// # Errors
    /// The tokenizer refuses them.
    pub fn text(&self, ids: &[u32]) -> Result<String, Error> {
        caught(|| self.tokenizer.decode(ids, true)).map_err(|why| self.refuses(&why))
    }

    /// The text that `ids` add behind `given`, without special tokens. Decoders change the first token of a text, and join the bytes of
    /// several tokens to a character, so that both are decoded together.
    ///
    /// # Errors
    /// The tokenizer refuses them.
    pub fn continuation(&self, given: &[u32], ids: &[u32]) -> Result<String, Error> {
        let (before, mut whole) = (self.text(given)?, self.text(&[given, ids].concat())?);
        let same = before.chars().zip(whole.chars()).take_while(|(own, other)| own == other);
        let same = same.map(|(own, _)| own.len_utf8()).sum();
        Ok(whole.split_off(same))
    }

    /// The id of a token, which is named by its id or its text.
    ///
    /// # Errors
    /// There is none.
    pub fn id(&self, token: &str) -> Result<u32, Error> {
        let id = match token.parse() {
            Ok(id) => self.tokenizer.id_to_token(id).map(|_| id),
            Err(_) => self.tokenizer.token_to_id(token),
        };
        let TextCodec { path, vocabulary, .. } = self;
        id.ok_or_else(|| Error::End { token: token.into(), path: path.clone(), vocabulary: *vocabulary })
    }

    fn refuses(&self, why: &str) -> Error {
        Error::Tokenizer { path: self.path.clone(), why: format!("it refuses the text: {why}") }
    }
}

/// Runs the library of tokenizers, which panics where a file states what its parts do not do.
pub(crate) fn caught<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|why| why.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
            Err(format!("the library of tokenizers gave up: {}", text.unwrap_or("it panicked")))
        }
    }
}

/// Longer pieces are encoded one after the other, so that all cores do not take the memory of long ones at once.
const LONG: usize = 1 << 19;

/// The most bytes that a long piece may become when it is normalised: a character may become eighteen. The library takes its memory for
/// these.
const MOST_NORMALISED: usize = 1 << 23;

/// Bytes that are normalised at a time to count them.
const COUNTED: usize = 1 << 16;

/// A tokenizer for pieces of documents.
pub(crate) struct Encoder {
    pub(crate) codec: TextCodec,
    /// None if a part of the tokenizer is not understood: then no document is cut.
    cuts: Option<Cuts>,
    /// The token that ends each document.
    pub(crate) end: Option<u32>,
}

impl Encoder {
    /// Reads a tokenizer.
    pub(crate) fn open(path: &Path, end: Option<&str>) -> Result<Encoder, Error> {
        let codec = TextCodec::open(path)?;
        let end = end.map(|token| codec.id(token)).transpose()?;
        let cuts = Cuts::of(&codec.tokenizer);
        Ok(Encoder { codec, cuts, end })
    }

    pub(crate) fn record(&self) -> TokenizerRecord {
        let TextCodec { path, crc32, vocabulary, .. } = &self.codec;
        TokenizerRecord { path: path.clone(), crc32: format!("{crc32:08x}"), vocabulary: *vocabulary }
    }

    /// The first place from a byte on at which a text may be cut: see [`Cuts::find`].
    pub(crate) fn cut(&self, text: &str, from: usize, is_whole: bool) -> Option<usize> {
        self.cuts.as_ref()?.find(&self.codec.tokenizer, text, from, is_whole)
    }

    /// The ids of each piece, without those of the text before it and without the token at its end. All cores work on them.
    pub(crate) fn encode(&self, pieces: &[Piece], sources: &[Source]) -> Result<Vec<Vec<u32>>, Error> {
        let is_long = |piece: &Piece| piece.text.len() > LONG;
        let short = parallel::each(pieces, |piece| (!is_long(piece)).then(|| self.ids(piece, sources)));
        let ids = short.into_iter().zip(pieces);
        let long = |piece| self.check_long(piece, sources).and_then(|()| self.ids(piece, sources));
        ids.map(|(ids, piece)| ids.unwrap_or_else(|| long(piece))).collect()
    }

    /// Checks that a long piece stays bounded when it is normalised.
    fn check_long(&self, piece: &Piece, sources: &[Source]) -> Result<(), Error> {
        let Some(normalizer) = self.codec.tokenizer.get_normalizer() else { return Ok(()) };
        let (mut rest, mut bytes) = (piece.text.as_str(), 0);
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.floor_char_boundary(COUNTED));
            bytes += caught(|| Ok(changed(normalizer, part))).ok().flatten().map_or(0, |text| text.len());
            rest = after;
        }
        if bytes <= MOST_NORMALISED {
            return Ok(());
        }
        let (path, line) = (sources[piece.source].path.clone(), piece.line);
        let most = MOST_NORMALISED >> 20;
        let why =
            format!("text without a place to cut at becomes {} MiB when it is normalised, above {most}", bytes >> 20);
        Err(Error::TooLong { path, line, why })
    }

    /// The ids of a piece, or an error with its place.
    fn ids(&self, piece: &Piece, sources: &[Source]) -> Result<Vec<u32>, Error> {
        let ids =
            |text: &str| caught(|| self.codec.tokenizer.encode_fast(text, false).map(|all| all.get_ids().to_vec()));
        let refused = |why: String| {
            let path = sources[piece.source].path.clone();
            Error::Line { path, line: piece.line, why: format!("the tokenizer refuses the text: {why}") }
        };
        let mut all = ids(&piece.text).map_err(refused)?;
        if piece.before > 0 {
            let before = ids(&piece.text[..piece.before]).map_err(refused)?;
            if !all.starts_with(&before) {
                return Err(refused("it reads a part of it in another way than the whole".into()));
            }
            all.drain(..before.len());
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A file with a decoder that is no JSON, on which the library panics.
    #[test]
    fn a_panic_of_the_library_is_a_message() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, file(&Value::Null).to_string().replace("\"decoder\":null", "\"decoder\":NaN")).unwrap();
        let why = TextCodec::open(&path).err().expect("it is refused").to_string();
        assert!(why.contains("the library of tokenizers gave up: ") && why.contains("expected value"), "{why}");
    }

    fn codec(decoder: &Value) -> TextCodec {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), file(decoder).to_string()).unwrap();
        TextCodec::open(folder.path()).unwrap()
    }

    /// A tokenizer of single characters that marks spaces, and has bytes for other characters.
    fn file(decoder: &Value) -> Value {
        let tokens = ["<unk>", "\u{2581}", "e", "n", "o", "t", "w", "<0xC3>", "<0xA9>"];
        let vocabulary: serde_json::Map<String, Value> =
            tokens.iter().enumerate().map(|(id, token)| (token.to_string(), id.into())).collect();
        json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "pre_tokenizer": null,
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u{2581}"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}]},
            "post_processor": null, "decoder": decoder,
            "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocabulary, "merges": []}})
    }

    /// The decoders of Llama 2, and of newer files of the same kind.
    fn codecs() -> [TextCodec; 2] {
        let strip = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        let metaspace =
            json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true});
        [codec(&strip), codec(&metaspace)]
    }

    #[test]
    fn a_continuation_keeps_its_first_space() {
        for codec in codecs() {
            let ids = codec.ids("one two").unwrap();
            let (given, more) = ids.split_at(4);
            assert_eq!((codec.text(given).unwrap().as_str(), codec.text(more).unwrap().as_str()), ("one", "two"));
            assert_eq!(codec.continuation(given, more).unwrap(), " two");
            assert_eq!(codec.continuation(given, &[]).unwrap(), "");
        }
    }

    #[test]
    fn tokens_that_are_parts_of_a_character_are_joined() {
        let [codec, _] = codecs();
        let ids = codec.ids("t\u{e9}w").unwrap();
        assert_eq!(ids.len(), 5);
        assert_eq!(codec.continuation(&ids[..2], &ids[2..]).unwrap(), "\u{e9}w");
        assert_eq!(codec.continuation(&ids[..3], &ids[3..]).unwrap(), "\u{e9}w");
        assert!(codec.continuation(&ids[..2], &ids[2..3]).unwrap().contains('\u{fffd}'));
    }
}
