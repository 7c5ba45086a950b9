//! Reading and writing whole text files of the user.

use crate::error::Error;
use std::io::{self, Write};
use std::path::Path;
use support::files;

/// No text that is read whole is larger: a level of Llama 3.1 405B on a large mesh prints as some megabytes. The readers of
/// all formats stay below 2 GiB of memory for any text of this size.
pub const MOST_TEXT: u64 = 1 << 26;

/// The same of what people write: options, requests, clusters, stacks and configurations, which have some kilobytes.
pub const MOST_SETTINGS: u64 = 1 << 22;

/// The text of a file that the program has printed, or may have; `-` is standard input.
///
/// # Errors
/// It cannot be read, is no regular file, no UTF-8, or too large.
pub fn read_text(path: &Path) -> Result<String, Error> {
    read(path, MOST_TEXT)
}

/// The text of a file that someone has written; `-` is standard input.
///
/// # Errors
/// It cannot be read, is no regular file, no UTF-8, or too large.
pub fn read_settings(path: &Path) -> Result<String, Error> {
    read(path, MOST_SETTINGS)
}

fn read(path: &Path, limit: u64) -> Result<String, Error> {
    let standard = path == Path::new("-");
    let bytes = if standard { files::read_all(io::stdin().lock(), limit) } else { files::read(path, limit) };
    let text = bytes.and_then(|bytes| {
        String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
    });
    text.map_err(|why| Error::file("read", path, &why))
}

/// Writes a file atomically. A path that is no regular file, such as a pipe, is written to directly.
///
/// # Errors
/// It cannot be written.
pub fn write_text(path: &Path, text: &str) -> Result<(), Error> {
    files::write(path, |out| out.write_all(text.as_bytes())).map_err(|why| Error::file("write", path, &why))
}

/// Finds out before long work whether [`write_text`] could write there.
///
/// # Errors
/// It could not.
pub fn check_writable(path: &Path) -> Result<(), Error> {
    files::check_writable(path).map_err(|why| Error::file("write", path, &why))
}
