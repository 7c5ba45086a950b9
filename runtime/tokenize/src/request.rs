//! Tokenisation of files, from the request to the files that it writes.

use super::documents::{Batch, read};
use super::encoder::Encoder;
use super::error::Error;
use super::sources::{Source, find};
use runtime::data::DataError;
use runtime::data::tokens::write::TokenWriter;
use runtime::data::tokens::{SCHEMA, TokenizerRecord};
use serde::Serialize;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use support::files;

/// Batches that are read ahead.
const AHEAD: usize = 2;

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

/// Tokenises text. `progress` is called after each batch, and returns false to stop.
///
/// # Errors
/// Then no file has been written: all of them get their names when they are complete.
pub fn tokenize(request: &Tokenize<'_>, progress: &mut dyn FnMut(Done) -> bool) -> Result<Tokenized, Error> {
    let encoder = Encoder::open(request.tokenizer, request.append_eos)?;
    let sources = find(request.inputs)?;
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
                let mut record = Tokenized::new(&encoder, &sources, paths.clone());
                let done = encode_all(&encoder, &sources, request.text_key, &mut record, (ids, idx), progress)
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
    fn new(encoder: &Encoder, sources: &[Source], files: [PathBuf; 3]) -> Tokenized {
        let source = |source: &Source| {
            let Source { path, bytes, .. } = source;
            SourceRecord { path: path.clone(), bytes: *bytes, documents: 0, tokens: 0 }
        };
        Tokenized {
            schema: SCHEMA,
            tokenizer: encoder.record(),
            eos: encoder.end,
            documents: 0,
            empty: 0,
            tokens: 0,
            bytes: 0,
            largest: 0,
            sources: sources.iter().map(source).collect(),
            files,
        }
    }
}

/// Reads on a thread of its own, encodes on all cores, and writes in order.
fn encode_all(
    encoder: &Encoder,
    sources: &[Source],
    key: &str,
    record: &mut Tokenized,
    (ids, index): (&mut impl Write, &mut impl Write),
    progress: &mut dyn FnMut(Done) -> bool,
) -> Result<(), Error> {
    let (give, take) = sync_channel(AHEAD);
    let mut writer = TokenWriter::new(ids, record.tokenizer.vocabulary);
    thread::scope(|scope| {
        let reader = scope.spawn(move || read(sources, key, &Arc::default(), &mut |batch| give.send(batch).is_ok()));
        // The receiver is gone when this returns, and so the reader ends.
        let written = write_batches(encoder, sources, record, &mut writer, take, progress);
        let read = reader.join().unwrap_or_else(|panic| resume_unwind(panic));
        written.and(read)
    })?;
    writer.finish(index).map_err(|source| unwritable(&record.files[0], source))
}

fn write_batches<W: Write>(
    encoder: &Encoder,
    sources: &[Source],
    record: &mut Tokenized,
    writer: &mut TokenWriter<W>,
    take: Receiver<Batch>,
    progress: &mut dyn FnMut(Done) -> bool,
) -> Result<(), Error> {
    let all_bytes = sources.iter().map(|source| source.bytes).sum();
    for (batch, bytes) in take {
        for (document, mut ids) in batch.iter().zip(encoder.encode(&batch, sources)?) {
            if ids.is_empty() {
                record.empty += 1;
                continue;
            }
            ids.extend(encoder.end);
            writer.document(&ids).map_err(|source| unwritable(&record.files[0], source))?;
            record.largest = record.largest.max(ids.iter().copied().max().unwrap_or(0));
            record.bytes += document.text.len() as u64;
            let source = &mut record.sources[document.source];
            source.documents += 1;
            source.tokens += ids.len() as u64;
        }
        (record.documents, record.tokens) = writer.counts();
        if !progress(Done { bytes, all_bytes, documents: record.documents, tokens: record.tokens }) {
            return Err(Error::Stopped);
        }
    }
    Ok(())
}

fn unwritable(path: &Path, source: io::Error) -> Error {
    Error::Unwritable { path: path.to_path_buf(), source }
}
