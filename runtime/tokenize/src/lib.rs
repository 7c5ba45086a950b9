//! Text to files of tokens: `PREFIX.bin` and `PREFIX.idx` in Megatron's form, and `PREFIX.json`, which says what they are of.
//!
//! [`tokenize()`] reads text files and JSON lines, compressed or not, on a thread of its own, and encodes batches of pieces on all cores.
//! Long documents are cut where the tokenizer treats both sides apart (`cuts`), so that memory depends on no document's length. The files
//! get their names when all of them are complete. [`TextCodec`] goes from text to ids and back.
//!
//! ```
//! use meshwright_tokenize::text_of;
//!
//! assert_eq!(text_of(br#"{"id": 7, "text": "two\nlines"}"#, "text").as_deref(), Ok("two\nlines"));
//! assert!(text_of(b"{}", "text").unwrap_err().contains("no key `text`"));
//! ```

mod added;
mod chat;
mod cuts;
mod documents;
mod encoder;
mod error;
mod example_error;
mod examples;
mod joints;
mod json_line;
mod lookahead;
mod model;
mod normal;
mod packed;
mod pieces;
mod python_json;
mod request;
mod sources;
mod text_stream;
mod words;
mod work;

pub use encoder::TextCodec;
pub use error::Error;
pub use example_error::{ExampleError, TemplateError};
pub use json_line::text_of;
pub use request::{Done, SourceRecord, Tokenize, Tokenized, tokenize};
