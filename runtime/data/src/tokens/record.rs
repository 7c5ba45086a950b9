//! The record next to files of tokens, `PREFIX.json`: the tokenizer that wrote them, and counts.

use super::super::DataError;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use support::files;

/// The name and version of a record.
pub const SCHEMA: &str = "meshwright.tokens/1";

/// The text that a record has among its first bytes, whatever its version.
const MARK: &[u8] = b"\"meshwright.tokens/";

/// The bytes in which that text must be.
const HEAD: u64 = 256;

/// No record is larger: each file of text takes some 100 bytes.
const MOST_BYTES: u64 = 1 << 30;

/// The record of what files of tokens are of.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TokenRecord {
    schema: String,
    /// The tokenizer.
    pub tokenizer: TokenizerRecord,
    /// Tokens, ends of documents included.
    pub tokens: u64,
    /// Bytes of their text in UTF-8.
    pub bytes: u64,
    /// The largest id.
    pub largest: u32,
    /// Labels that count; none of documents all of whose tokens count.
    #[serde(default)]
    pub counted: Option<u64>,
}

/// The tokenizer of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerRecord {
    /// Its file.
    pub path: PathBuf,
    /// The CRC-32 of the file, in eight digits.
    pub crc32: String,
    /// All ids are below.
    pub vocabulary: u64,
}

impl TokenRecord {
    /// Reads the record of a file of `count` ids. None where there is none, or where another program wrote the file.
    ///
    /// # Errors
    /// It cannot be read, or is the record of other files.
    pub(super) fn read(ids: &Path, count: u64) -> Result<Option<TokenRecord>, DataError> {
        let path = ids.with_extension("json");
        let bytes = match read_marked(&path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(DataError::Unreadable { path, source }),
        };
        let why = match serde_json::from_slice::<TokenRecord>(&bytes) {
            Err(why) => format!("is no whole record of tokens: {why}"),
            Ok(record) if record.schema != SCHEMA => {
                format!("is a record of the version {}; only {SCHEMA} is known", record.schema)
            }
            Ok(record) if record.tokens != count => {
                format!("counts {} tokens, but {} has {count}", record.tokens, ids.display())
            }
            Ok(record) => return Ok(Some(record)),
        };
        Err(DataError::Damaged { path, why })
    }
}

/// The bytes of a file whose head has the mark of a record; none of another file.
fn read_marked(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    files::open(path)?.take(HEAD).read_to_end(&mut head)?;
    let is_record = head.windows(MARK.len()).any(|part| part == MARK);
    is_record.then(|| files::read(path, MOST_BYTES)).transpose()
}
