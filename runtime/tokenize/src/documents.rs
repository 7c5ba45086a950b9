//! Documents of files, in batches that are encoded together.

use super::error::Error;
use super::json_line::text_of;
use super::packed::open;
use super::sources::{Documents, Source, unreadable};
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes of a document. Its tokens are in memory while it is encoded.
const MOST_BYTES: u64 = 1 << 30;

/// The bytes and the documents at which a batch is full.
const BATCH: (usize, usize) = (4 << 20, 4096);

/// A document.
pub(crate) struct Document {
    pub(crate) text: String,
    /// The number of its file.
    pub(crate) source: usize,
    /// The line that it begins in, from 1.
    pub(crate) line: u64,
}

/// Documents that are encoded together, and the bytes of files that were read up to their end.
pub(crate) type Batch = (Vec<Document>, u64);

/// Reads the documents of all files, and gives them in batches. `give` returns false to end.
pub(crate) fn read(
    sources: &[Source],
    key: &str,
    bytes_read: &Arc<AtomicU64>,
    give: &mut dyn FnMut(Batch) -> bool,
) -> Result<(), Error> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let so_far = || bytes_read.load(Ordering::Relaxed);
    let mut put = |document: Document| {
        bytes += document.text.len();
        batch.push(document);
        if bytes < BATCH.0 && batch.len() < BATCH.1 {
            return true;
        }
        bytes = 0;
        give((std::mem::take(&mut batch), so_far()))
    };
    for (number, source) in sources.iter().enumerate() {
        let file = open(&source.path, source.packing, bytes_read).map_err(|why| unreadable(&source.path, why))?;
        let is_over = match source.documents {
            Documents::Whole => !whole(file, (number, source), &mut put)?,
            Documents::Lines => !lines(file, (number, source), key, &mut put)?,
        };
        if is_over {
            return Ok(());
        }
    }
    if !batch.is_empty() {
        give((batch, so_far()));
    }
    Ok(())
}

/// Gives a file as one document.
fn whole(
    file: Box<dyn BufRead>,
    (number, source): (usize, &Source),
    put: &mut dyn FnMut(Document) -> bool,
) -> Result<bool, Error> {
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|why| unreadable(&source.path, why))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(too_large(source));
    }
    let text = String::from_utf8(bytes).map_err(|why| {
        let valid = &why.as_bytes()[..why.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|&&byte| byte == b'\n').count() as u64;
        Error::Line { path: source.path.clone(), line, why: "the text is not UTF-8".into() }
    })?;
    Ok(put(Document { text, source: number, line: 1 }))
}

/// Gives the text of each line that has one.
fn lines(
    mut file: Box<dyn BufRead>,
    (number, source): (usize, &Source),
    key: &str,
    put: &mut dyn FnMut(Document) -> bool,
) -> Result<bool, Error> {
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let mut limited = (&mut file).take(MOST_BYTES + 1);
        limited.read_until(b'\n', &mut bytes).map_err(|why| unreadable(&source.path, why))?;
        if bytes.is_empty() {
            break;
        }
        if bytes.len() as u64 > MOST_BYTES {
            return Err(too_large(source));
        }
        let object = bytes.trim_ascii();
        if object.is_empty() {
            continue;
        }
        let text = text_of(object, key).map_err(|why| Error::Line { path: source.path.clone(), line, why })?;
        if !put(Document { text, source: number, line }) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn too_large(source: &Source) -> Error {
    let why = format!("a document is larger than {} MiB: split it, or write JSON lines", MOST_BYTES >> 20);
    unreadable(&source.path, io::Error::new(io::ErrorKind::FileTooLarge, why))
}
