//! Tokenisation of files, from the request to the files that it writes.

use super::error::Error;
use super::sources::{DocumentForm, Source};
use super::work::{Delivery, Encoded, Opened, Work, WorkOrder};
use data::DataError;
use data::tokens::write::TokenWriter;
use data::tokens::{NO_LABEL, SCHEMA, TokenizerRecord};
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
    /// The key of the text in JSON lines; none is `text`, and lets lines be examples.
    pub text_key: Option<&'a str>,
    /// A file with the chat template of conversations, in place of the tokenizer's.
    pub chat_template: Option<&'a Path>,
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
    /// Tokens whose label counts, of examples; none of text, of which all count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<u64>,
    /// The files of text, in order.
    pub sources: Vec<SourceRecord>,
    /// The files that were written.
    pub files: Vec<PathBuf>,
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
        key: request.text_key.map(str::to_string),
        template: request.chat_template.map(Path::to_path_buf),
    });
    let Some(Delivery::Opened(opened)) = work.next(&mut || progress(Done::default()))? else {
        return Err(Error::Stopped);
    };
    let mut record = Tokenized::new(&opened, request.out);
    let _folders = files::make_folder_of(&record.files[0]).map_err(|source| unwritable(request.out, source))?;
    let mut answer = None;
    let written = match record.files.get(3).cloned() {
        None => write_files(&mut work, &mut record, None, progress, &mut answer),
        Some(labels) => {
            files::replace(&labels, |labels| write_files(&mut work, &mut record, Some(labels), progress, &mut answer))
        }
    };
    match (answer, written) {
        (Some(Err(why)), _) => Err(why),
        (Some(Ok(())), Ok(())) => Ok(record),
        (_, Err(source)) => Err(unwritable(request.out, source)),
        (None, Ok(())) => Err(Error::Stopped),
    }
}

/// Writes all files but that of labels, which is open. The inner file is the first to get its name, when the outer ones are complete too.
fn write_files(
    work: &mut Work,
    record: &mut Tokenized,
    mut labels: Option<&mut dyn Write>,
    progress: &mut dyn FnMut(Done) -> bool,
    answer: &mut Option<Result<(), Error>>,
) -> io::Result<()> {
    let [bin, idx, json] = [0, 1, 2].map(|number| record.files[number].clone());
    files::replace(&json, |out| {
        files::replace(&idx, |index| {
            files::replace(&bin, |ids| {
                let done = write_all(work, record, (ids, index, labels.take()), progress)
                    .and_then(|()| check_any(record))
                    .and_then(|()| write_record(out, record).map_err(|source| unwritable(&json, source)));
                let is_whole = done.is_ok();
                *answer = Some(done);
                if is_whole { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
            })
        })
    })
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
    /// A record of no documents, of files with a prefix.
    fn new(opened: &Opened, prefix: &Path) -> Tokenized {
        let is_text = opened.form == DocumentForm::Text;
        let ends = if is_text { &["bin", "idx", "json"][..] } else { &["bin", "idx", "json", "labels"] };
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
            counted: (!is_text).then_some(0),
            sources: opened.sources.iter().map(source).collect(),
            files: ends.iter().map(|end| with_end(prefix, end)).collect(),
        }
    }
}

/// A prefix with the end of a file's name.
fn with_end(prefix: &Path, end: &str) -> PathBuf {
    let mut name = prefix.as_os_str().to_os_string();
    name.push(format!(".{end}"));
    PathBuf::from(name)
}

/// Writes what the work gives, in its order.
fn write_all(
    work: &mut Work,
    record: &mut Tokenized,
    (ids, index, labels): (&mut impl Write, &mut impl Write, Option<&mut dyn Write>),
    progress: &mut dyn FnMut(Done) -> bool,
) -> Result<(), Error> {
    let writer = TokenWriter::new(ids, record.tokenizer.vocabulary);
    let mut output = Output { writer, labels, document: Size::default() };
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
    output
        .labels
        .iter_mut()
        .try_for_each(|labels| labels.flush())
        .map_err(|source| unwritable(&record.files[0], source))?;
    output.writer.finish(index).map_err(|source| unwritable(&record.files[0], source))
}

/// The size of the document that is being written.
#[derive(Default)]
struct Size {
    ids: u64,
    bytes: u64,
}

/// The files of ids and of labels.
struct Output<'a, W: Write> {
    writer: TokenWriter<W>,
    labels: Option<&'a mut dyn Write>,
    document: Size,
}

impl<W: Write> Output<'_, W> {
    fn write(&mut self, batch: Encoded, record: &mut Tokenized) -> io::Result<()> {
        for piece in batch.pieces {
            self.writer.ids(&piece.ids)?;
            self.label(&piece.labels, record)?;
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

    /// Writes labels, if there is a file of them.
    fn label(&mut self, labels: &[i32], record: &mut Tokenized) -> io::Result<()> {
        let (Some(file), Some(counted)) = (&mut self.labels, &mut record.counted) else { return Ok(()) };
        *counted += labels.iter().filter(|&&label| label != NO_LABEL).count() as u64;
        record.largest =
            labels.iter().fold(record.largest, |largest, &label| largest.max(label.max(0).cast_unsigned()));
        labels.iter().try_for_each(|label| file.write_all(&label.to_le_bytes()))
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
            self.label(&[end.cast_signed()], record)?;
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
