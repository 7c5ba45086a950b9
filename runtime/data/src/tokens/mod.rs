//! Tokenised data: ids that stay in their files, and are read document by document.
//!
//! | form | files |
//! |---|---|
//! | Megatron | `PREFIX.bin` with ids, `PREFIX.idx` with their width and the documents |
//! | datatrove | `NAME.ds` with ids of 16 or 32 bits, `NAME.ds.index` with the end of each document |
//! | with labels | the same as Megatron's, `PREFIX.json` with a count of labels, and `PREFIX.labels` with the label of each id |
//! | llm.c | `NAME.bin` with a header of 1024 bytes and ids of 16 bits; the token `eos` ends a document |
//! | raw | ids of 16 or 32 bits and nothing else; the token `eos` ends a document |

mod file;
mod fingerprint;
mod forms;
mod labels;
mod part;
mod record;
pub mod write;

pub use file::{Layout, TokenFile};
pub use fingerprint::Extent;
pub use labels::NO_LABEL;
pub use part::{TokenData, TokenPart};
pub use record::{SCHEMA, TokenRecord, TokenizerRecord};
