//! Text to files of tokens: `PREFIX.bin` and `PREFIX.idx` in Megatron's form, and `PREFIX.json`, which says what they are of.
//!
//! [`tokenize()`] reads text files and JSON lines, compressed or not, on a thread of its own, and encodes batches of documents on
//! all cores. The files get their names when all of them are complete. [`TextCodec`] goes from text to ids and back.
//!
//! ```
//! use meshwright_tokenize::text_of;
//!
//! assert_eq!(text_of(br#"{"id": 7, "text": "two\nlines"}"#, "text").as_deref(), Ok("two\nlines"));
//! assert!(text_of(b"{}", "text").unwrap_err().contains("no key `text`"));
//! ```

mod documents;
mod encoder;
mod error;
mod json_line;
mod packed;
mod request;
mod sources;

pub use encoder::TextCodec;
pub use error::Error;
pub use json_line::text_of;
pub use request::{Done, SourceRecord, Tokenize, Tokenized, tokenize};
