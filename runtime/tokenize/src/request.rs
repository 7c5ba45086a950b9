//! Tokenisation of files, from the request to the files that it writes.

use super::error::Error;
use super::sources::Source;
use super::work::{Delivery, Encoded, Opened, Work, WorkOrder};
use data::DataError;
use data::tokens::write::TokenWriter;
use data::tokens::{SCHEMA, TokenizerRecord};
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use support::files;

/// A request to tokenise text.
#[derive(Clone, Debug)]
pub struct Tokenize<'a> {
    /// Files and folders of text.
    pub inputs: &'a [PathBuf],
    /// A `tokenizer.json`, or a folder that has one.
    pub tokenizer: &'a Path,
    /// The prefix of the files that are written.
    pub out: &'a Path,
    /// The id or the text of a token that is added to each document.
    pub append_eos: Option<&'a str>,
    /// The key of the text in JSON lines.
    pub text_key: &'a str,
}

/// Progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Bytes of files that are read, compressed as they are.
    pub bytes: u64,
    /// Bytes of all files.
    pub all_bytes: u64,
    /// Documents that are encoded.
    pub documents: u64,
    /// Tokens of these.
    pub tokens: u64,
}

/// The record of what was tokenised: `PREFIX.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tokenized {
    /// The name and version of the record.
    pub schema: &'static str,
    /// The tokenizer.
    pub tokenizer: TokenizerRecord,
    /// The token that ends each document.
    pub eos: Option<u32>,
    /// Documents.
    pub documents: u64,
    /// Documents without any token, which are left out.
    pub empty: u64,
    /// Tokens, ends of documents included.
    pub tokens: u64,
    /// Bytes of their text in UTF-8.
    pub bytes: u64,
    /// The largest id.
    pub largest: u32,
    /// The files of text, in order.
    pub sources: Vec<SourceRecord>,
    /// The files that were written.
    pub files: [PathBuf; 3],
}

/// A file of text of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceRecord {
    /// The file.
    pub path: PathBuf,
    /// Its bytes, compressed as it is.
    pub bytes: u64,
    /// The documents of it that were written.
    pub documents: u64,
    /// Their tokens.
    pub tokens: u64,
}

/// Tokenises text. `progress` is called after each batch and several times a second, and returns false to stop.
///
/// # Errors
/// Then no file has been written: all of them get their names when they are complete.
pub fn tokenize(request: &Tokenize<'_>, progress: &mut dyn FnMut(Done) -> bool) -> Result<Tokenized, Error> {
    let mut work = Work::begin(WorkOrder {
        inputs: request.inputs.to_vec(),
        tokenizer: request.tokenizer.to_path_buf(),
        end: request.append_eos.map(str::to_string),
        key: request.text_key.to_string(),
    });
    let Some(Delivery::Opened(opened)) = work.next(&mut || progress(Done::default()))? else {
        return Err(Error::Stopped);
    };
    let paths = ["bin", "idx", "json"].map(|end| {
        let mut name = request.out.as_os_str().to_os_string();
        name.push(format!(".{end}"));
        PathBuf::from(name)
    });
    let [bin, idx, json] = &paths;
    let _folders = files::make_folder_of(json).map_err(|source| unwritable(request.out, source))?;
    let mut answer = None;
    // The inner file is the first to get its name, when the outer ones are complete too.
    let written = files::replace(json, |json| {
        files::replace(idx, |idx| {
            files::replace(bin, |ids| {
                let mut record = Tokenized::new(&opened, paths.clone());
                let done = write_all(&mut work, &mut record, (ids, idx), progress)
                    .and_then(|()| check_any(&record))
                    .and_then(|()| write_record(json, &record).map_err(|source| unwritable(&paths[2], source)));
                let is_whole = done.is_ok();
                answer = Some(done.map(|()| record));
                if is_whole { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
            })
        })
    });
    match (answer, written) {
        (Some(Err(why)), _) => Err(why),
        (Some(Ok(record)), Ok(())) => Ok(record),
        (_, Err(source)) => Err(unwritable(request.out, source)),
        (None, Ok(())) => Err(Error::Stopped),
    }
}

/// Checks that there is a document with tokens.
fn check_any(record: &Tokenized) -> Result<(), Error> {
    match (record.documents, record.sources.first()) {
        (0, Some(source)) => Err(DataError::NoText { path: source.path.clone(), files: record.sources.len() }.into()),
        _ => Ok(()),
    }
}

fn write_record(json: &mut impl Write, record: &Tokenized) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *json, record)?;
    json.write_all(b"\n")?;
    json.flush()
}

impl Tokenized {
    /// A record of no documents.
    fn new(opened: &Opened, files: [PathBuf; 3]) -> Tokenized {
        let source = |source: &Source| {
            let Source { path, bytes, .. } = source;
            SourceRecord { path: path.clone(), bytes: *bytes, documents: 0, tokens: 0 }
        };
        Tokenized {
            schema: SCHEMA,
            tokenizer: opened.tokenizer.clone(),
            eos: opened.end,
            documents: 0,
            empty: 0,
            tokens: 0,
            bytes: 0,
            largest: 0,
            sources: opened.sources.iter().map(source).collect(),
            files,
        }
    }
}

/// Writes what the work gives, in its order.
fn write_all(
    work: &mut Work,
    record: &mut Tokenized,
    (ids, index): (&mut impl Write, &mut impl Write),
    progress: &mut dyn FnMut(Done) -> bool,
) -> Result<(), Error> {
    let mut output = Output { writer: TokenWriter::new(ids, record.tokenizer.vocabulary), document: Size::default() };
    let mut done = Done { all_bytes: record.sources.iter().map(|source| source.bytes).sum(), ..Done::default() };
    while let Some(delivery) = work.next(&mut || progress(done))? {
        if let Delivery::Encoded(batch) = delivery {
            done.bytes = batch.bytes_read;
            output.write(batch, record).map_err(|source| unwritable(&record.files[0], source))?;
            (done.documents, done.tokens) = (record.documents, record.tokens);
            if !progress(done) {
                return Err(Error::Stopped);
            }
        }
    }
    output.writer.finish(index).map_err(|source| unwritable(&record.files[0], source))
}

/// The size of the document that is being written.
#[derive(Default)]
struct Size {
    ids: u64,
    bytes: u64,
}

/// The file of ids.
struct Output<W: Write> {
    writer: TokenWriter<W>,
    document: Size,
}

impl<W: Write> Output<W> {
    fn write(&mut self, batch: Encoded, record: &mut Tokenized) -> io::Result<()> {
        for piece in batch.pieces {
            self.writer.ids(&piece.ids)?;
            record.largest = record.largest.max(piece.ids.iter().copied().max().unwrap_or(0));
            self.document.ids += piece.ids.len() as u64;
            self.document.bytes += piece.bytes as u64;
            if piece.is_last {
                self.end(piece.source, record)?;
            }
        }
        (record.documents, record.tokens) = self.writer.counts();
        Ok(())
    }

    /// Ends a document. One without ids is left out.
    fn end(&mut self, source: usize, record: &mut Tokenized) -> io::Result<()> {
        let Size { mut ids, bytes } = std::mem::take(&mut self.document);
        if ids == 0 {
            record.empty += 1;
            return Ok(());
        }
        if let Some(end) = record.eos {
            self.writer.ids(&[end])?;
            record.largest = record.largest.max(end);
            ids += 1;
        }
        self.writer.end()?;
        record.bytes += bytes;
        let source = &mut record.sources[source];
        source.documents += 1;
        source.tokens += ids;
        Ok(())
    }
}

fn unwritable(path: &Path, source: io::Error) -> Error {
    Error::Unwritable { path: path.to_path_buf(), source }
}
