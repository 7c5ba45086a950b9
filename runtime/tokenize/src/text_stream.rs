//! A file of UTF-8, read piece by piece.

use super::error::Error;
use super::sources::{Source, unreadable};
use std::io::{BufRead, Read};

/// Bytes that are read at a time.
const READ: u64 = 1 << 18;

/// The text of a file.
pub(crate) struct TextStream<'a> {
    file: Box<dyn BufRead>,
    source: &'a Source,
    /// The bytes of a character that is not whole yet, and then what is read behind them.
    bytes: Vec<u8>,
    /// Ends of lines so far.
    lines: u64,
}

impl<'a> TextStream<'a> {
    /// The text of an open file.
    pub(crate) fn new(file: Box<dyn BufRead>, source: &'a Source) -> TextStream<'a> {
        TextStream { file, source, bytes: Vec::new(), lines: 0 }
    }

    /// Appends some text. Returns true at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read, or is not UTF-8.
    pub(crate) fn read(&mut self, into: &mut String) -> Result<bool, Error> {
        let read = (&mut self.file).take(READ).read_to_end(&mut self.bytes);
        let is_over = read.map_err(|why| unreadable(&self.source.path, why))? == 0;
        let (valid, is_whole) = match std::str::from_utf8(&self.bytes) {
            Ok(text) => (text.len(), true),
            Err(why) => (why.valid_up_to(), why.error_len().is_none() && !is_over),
        };
        let text = std::str::from_utf8(&self.bytes[..valid]).unwrap_or_default();
        self.lines += text.bytes().filter(|&byte| byte == b'\n').count() as u64;
        if !is_whole {
            let path = self.source.path.clone();
            return Err(Error::Line { path, line: self.lines + 1, why: "the text is not UTF-8".into() });
        }
        into.push_str(text);
        self.bytes.drain(..valid);
        Ok(is_over)
    }
}
