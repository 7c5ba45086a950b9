//! Documents of files in pieces, and pieces in batches that are encoded together.

use super::encoder::Encoder;
use super::error::Error;
use super::examples::Line;
use super::json_line::text_of;
use super::packed::open;
use super::pieces::{Piece, Pieces};
use super::sources::{DocumentForm, Documents, Source, unreadable};
use super::text_stream::TextStream;
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes of a line of JSON. It is in memory as it is written, and as its text.
const MOST_LINE: u64 = 1 << 27;

/// The memory of a line that is kept for the next ones.
const KEPT: usize = 1 << 20;

/// The bytes and the pieces at which a batch is full.
const BATCH: (usize, usize) = (4 << 20, 4096);

/// Pieces that are encoded together, and the bytes of files that were read up to their end.
pub(crate) struct Batch {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) examples: Vec<Example>,
    pub(crate) bytes_read: u64,
}

/// An example and its place.
pub(crate) struct Example {
    pub(crate) line: Line,
    /// The number of its file.
    pub(crate) source: usize,
    /// The number of its line, from 1.
    pub(crate) number: u64,
}

/// The form of the documents of some files, which the first line of all says unless a key of text is named.
///
/// # Errors
/// A file cannot be read, or some are text and others have examples.
pub(crate) fn form_of(sources: &[Source], key: Option<&str>) -> Result<DocumentForm, Error> {
    let Some(first) = sources.iter().find(|source| source.documents == Documents::Lines).filter(|_| key.is_none())
    else {
        return Ok(DocumentForm::Text);
    };
    let bytes = first_line(first).map_err(|why| unreadable(&first.path, why))?;
    if !Line::of(&bytes).is_ok_and(|line| line.is_example()) {
        return Ok(DocumentForm::Text);
    }
    match sources.iter().find(|source| source.documents == Documents::Whole) {
        Some(text) => Err(Error::Mixed { text: text.path.clone(), examples: first.path.clone() }),
        None => Ok(DocumentForm::Examples),
    }
}

/// The first line of a file that is not empty.
fn first_line(source: &Source) -> io::Result<Vec<u8>> {
    let mut file = open(&source.path, source.packing, &Arc::default())?.take(MOST_LINE);
    let mut line = Vec::new();
    while line.trim_ascii().is_empty() && file.read_until(b'\n', &mut line)? > 0 {}
    Ok(line)
}

/// A reader of files, which gives their documents in batches. `give` returns false to end.
pub(crate) struct Reader<'a> {
    encoder: &'a Encoder,
    key: &'a str,
    form: DocumentForm,
    give: &'a mut dyn FnMut(Batch) -> bool,
    bytes_read: Arc<AtomicU64>,
    batch: Vec<Piece>,
    examples: Vec<Example>,
    /// The bytes of the batch.
    bytes: usize,
}

impl<'a> Reader<'a> {
    /// A reader of documents, of which text in JSON lines is under a key.
    pub(crate) fn new(
        encoder: &'a Encoder,
        key: &'a str,
        form: DocumentForm,
        give: &'a mut dyn FnMut(Batch) -> bool,
    ) -> Reader<'a> {
        let (batch, examples) = (Vec::new(), Vec::new());
        Reader { encoder, key, form, give, bytes_read: Arc::default(), batch, examples, bytes: 0 }
    }

    /// Reads all files.
    ///
    /// # Errors
    /// A file cannot be read, or a document is no text or too long.
    pub(crate) fn read(mut self, sources: &[Source]) -> Result<(), Error> {
        for (number, source) in sources.iter().enumerate() {
            let file = open(&source.path, source.packing, &self.bytes_read);
            let file = file.map_err(|why| unreadable(&source.path, why))?;
            let goes_on = match source.documents {
                Documents::Whole => self.whole(file, number, source)?,
                Documents::Lines => self.lines(file, number, source)?,
            };
            if !goes_on {
                return Ok(());
            }
        }
        self.hand_over();
        Ok(())
    }

    /// Reads a file that is one document.
    fn whole(&mut self, file: Box<dyn BufRead>, number: usize, source: &Source) -> Result<bool, Error> {
        let (mut stream, mut document) = (TextStream::new(file, source), Pieces::of_file(number));
        loop {
            let is_over = stream.read(&mut document.text)?;
            let pieces = document.take(self.encoder, source, is_over)?;
            if !self.put(pieces) {
                return Ok(false);
            }
            if is_over {
                return Ok(true);
            }
        }
    }

    /// Reads the text or the example of each line that has one.
    fn lines(&mut self, mut file: Box<dyn BufRead>, number: usize, source: &Source) -> Result<bool, Error> {
        let mut bytes = Vec::new();
        for line in 1.. {
            bytes.clear();
            bytes.shrink_to(KEPT);
            let mut limited = (&mut file).take(MOST_LINE + 1);
            limited.read_until(b'\n', &mut bytes).map_err(|why| unreadable(&source.path, why))?;
            if bytes.is_empty() {
                break;
            }
            if bytes.len() as u64 > MOST_LINE {
                let why = format!("the line has more than {} MiB", MOST_LINE >> 20);
                return Err(Error::TooLong { path: source.path.clone(), line, why });
            }
            let object = bytes.trim_ascii();
            if object.is_empty() {
                continue;
            }
            let goes_on = match self.form {
                DocumentForm::Examples => self.put_example(object, number, line, source)?,
                DocumentForm::Text => {
                    let text = text_of(object, self.key);
                    let text = text.map_err(|why| Error::Line { path: source.path.clone(), line, why })?;
                    self.put(Pieces::of_line(text, number, line).take(self.encoder, source, true)?)
                }
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds pieces to the batch. Returns false to end.
    fn put(&mut self, pieces: Vec<Piece>) -> bool {
        pieces.into_iter().all(|piece| {
            self.bytes += piece.text.len();
            self.batch.push(piece);
            (self.bytes < BATCH.0 && self.batch.len() < BATCH.1) || self.hand_over()
        })
    }

    /// Adds the example of a line of a file to the batch. Returns false to end.
    fn put_example(&mut self, object: &[u8], file: usize, number: u64, source: &Source) -> Result<bool, Error> {
        let line = Line::of(object).map_err(|why| Error::Example { path: source.path.clone(), line: number, why })?;
        self.bytes += object.len();
        self.examples.push(Example { line, source: file, number });
        Ok((self.bytes < BATCH.0 && self.examples.len() < BATCH.1) || self.hand_over())
    }

    /// Gives the batch, if there is anything in it. Returns false to end.
    fn hand_over(&mut self) -> bool {
        self.bytes = 0;
        let (pieces, examples) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.examples));
        let bytes_read = self.bytes_read.load(Ordering::Relaxed);
        pieces.is_empty() && examples.is_empty() || (self.give)(Batch { pieces, examples, bytes_read })
    }
}
