//! The work of a tokenisation on threads of its own, so that who waits for it can stop at any time. Threads that nobody waits for end by
//! themselves, after what they are at.

use super::chat::ChatTemplate;
use super::documents::{Batch, Example, Reader, form_of};
use super::encoder::Encoder;
use super::error::Error;
use super::examples::{ExampleEncoder, LabelledIds};
use super::pieces::Piece;
use super::sources::{DocumentForm, Source, find};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use support::parallel;

/// Batches that are read ahead, and that are encoded ahead.
const AHEAD: usize = 2;

/// The time after which who waits is asked whether to go on.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// The work that is asked for.
pub(crate) struct WorkOrder {
    /// Files and folders of text.
    pub(crate) inputs: Vec<PathBuf>,
    /// The file of the tokenizer, or its folder.
    pub(crate) tokenizer: PathBuf,
    /// The token that ends documents.
    pub(crate) end: Option<String>,
    /// The key of the text in JSON lines, if one is named.
    pub(crate) key: Option<String>,
    /// The file of the chat template, if it is not the tokenizer's.
    pub(crate) template: Option<PathBuf>,
}

/// The key of the text in JSON lines where none is named.
const TEXT_KEY: &str = "text";

/// A result of the work: first what it has opened, then batches.
pub(crate) enum Delivery {
    Opened(Opened),
    Encoded(Encoded),
    Failed(Error),
}

/// The tokenizer and the files of the work.
pub(crate) struct Opened {
    pub(crate) tokenizer: data::tokens::TokenizerRecord,
    /// The token that ends each document.
    pub(crate) end: Option<u32>,
    pub(crate) sources: Vec<Source>,
    pub(crate) form: DocumentForm,
}

/// A batch that is encoded.
pub(crate) struct Encoded {
    pub(crate) pieces: Vec<EncodedPiece>,
    pub(crate) bytes_read: u64,
}

/// A piece of a document that is encoded, or an example.
pub(crate) struct EncodedPiece {
    pub(crate) ids: Vec<u32>,
    /// The label of each id of an example; none of text.
    pub(crate) labels: Vec<i32>,
    /// Bytes of its text.
    pub(crate) bytes: usize,
    /// The number of its file.
    pub(crate) source: usize,
    /// True if its document ends with it.
    pub(crate) is_last: bool,
}

/// Work that is going on.
pub(crate) struct Work {
    deliveries: Receiver<Delivery>,
    thread: Option<JoinHandle<()>>,
}

impl Work {
    /// Begins it.
    pub(crate) fn begin(order: WorkOrder) -> Work {
        let (give, deliveries) = sync_channel(AHEAD);
        let work = move || {
            if let Err(why) = order.carry_out(&give) {
                // Who is gone needs no reason.
                let _ = give.send(Delivery::Failed(why));
            }
        };
        Work { deliveries, thread: Some(thread::spawn(work)) }
    }

    /// Waits for the next delivery; none is the end. `goes_on` is asked now and then, and returns false to stop.
    ///
    /// # Errors
    /// The work has failed, or is stopped.
    pub(crate) fn next(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Result<Option<Delivery>, Error> {
        loop {
            match self.deliveries.recv_timeout(ASKED_EVERY) {
                Ok(Delivery::Failed(why)) => return Err(why),
                Ok(delivery) => return Ok(Some(delivery)),
                Err(RecvTimeoutError::Timeout) if goes_on() => {}
                Err(RecvTimeoutError::Timeout) => return Err(Error::Stopped),
                Err(RecvTimeoutError::Disconnected) => {
                    let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
                    ended.unwrap_or_else(|panic| resume_unwind(panic));
                    return Ok(None);
                }
            }
        }
    }
}

impl WorkOrder {
    /// Opens tokenizer and files, reads on one more thread, and encodes on all cores.
    fn carry_out(&self, give: &SyncSender<Delivery>) -> Result<(), Error> {
        let encoder = Encoder::open(&self.tokenizer, self.end.as_deref())?;
        let sources = find(&self.inputs)?;
        let form = form_of(&sources, self.key.as_deref())?;
        let template = match form {
            DocumentForm::Examples => ChatTemplate::open(self.template.as_deref(), &self.tokenizer)?,
            DocumentForm::Text => None,
        };
        let opened = Opened { tokenizer: encoder.record(), end: encoder.end, sources: sources.clone(), form };
        if give.send(Delivery::Opened(opened)).is_err() {
            return Ok(());
        }
        let (read, take) = sync_channel::<Batch>(AHEAD);
        thread::scope(|scope| {
            let (encoder, sources) = (&encoder, &sources);
            let key = self.key.as_deref().unwrap_or(TEXT_KEY);
            let reader = scope
                .spawn(move || Reader::new(encoder, key, form, &mut |batch| read.send(batch).is_ok()).read(sources));
            // The receiver is gone when this returns, and so the reader ends.
            let encoded = encode_all(encoder, template.as_ref(), sources, take, give);
            let read = reader.join().unwrap_or_else(|panic| resume_unwind(panic));
            encoded.and(read)
        })
    }
}

fn encode_all(
    encoder: &Encoder,
    template: Option<&ChatTemplate>,
    sources: &[Source],
    take: Receiver<Batch>,
    give: &SyncSender<Delivery>,
) -> Result<(), Error> {
    let examples_of = ExampleEncoder { codec: &encoder.codec, template };
    for Batch { pieces, examples, bytes_read } in take {
        let ids = encoder.encode(&pieces, sources)?;
        let of = |(piece, ids): (Piece, Vec<u32>)| {
            let Piece { text, before, source, is_last, .. } = piece;
            EncodedPiece { ids, labels: Vec::new(), bytes: text.len() - before, source, is_last }
        };
        let mut pieces: Vec<EncodedPiece> = pieces.into_iter().zip(ids).map(of).collect();
        let examples = parallel::each(&examples, |example| encoded(example, &examples_of, sources));
        pieces.extend(examples.into_iter().collect::<Result<Vec<_>, Error>>()?);
        if give.send(Delivery::Encoded(Encoded { pieces, bytes_read })).is_err() {
            break;
        }
    }
    Ok(())
}

/// The tokens of an example, or an error with its place.
fn encoded(example: &Example, encoder: &ExampleEncoder<'_>, sources: &[Source]) -> Result<EncodedPiece, Error> {
    let Example { line, source, number } = example;
    let path = &sources[*source].path;
    let labelled = encoder.encode(line);
    let LabelledIds { ids, labels, bytes } =
        labelled.map_err(|why| Error::Example { path: path.clone(), line: *number, why })?;
    Ok(EncodedPiece { ids, labels, bytes, source: *source, is_last: true })
}
