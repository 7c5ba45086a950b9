//! Data of a run: sets of text, whose tokens are bytes, sets of tokenised files, examples with images, or tokens of a program's own.

use super::examples::{self, TokenSet, loss_on};
use super::image_data::{ImageSides, OpenedImages};
use super::report::{ExampleReport, SetShare};
use super::request::TrainRequest;
use super::sources::{NamedSet, sources};
use crate::error::Error;
use data::bigram::bigram_entropy;
use data::blend::Blend;
use data::images::ImageExamples;
use data::sampler::{Sampler, Stream};
use data::samples::Samples;
use data::source::{SourceSamples, TokenPiece, TokenSource, ValidationTokens};
use data::text::TextData;
use data::tokens::{Extent, Layout, TokenData, TokenPart};
use data::{DataError, VOCAB};
use ir::catalogue::Code;
use ir::models::Vision;
use std::path::{Path, PathBuf};

/// Data of a run.
pub(super) struct Data {
    kind: Kind,
    sources: Vec<NamedSet>,
    /// True if all sets hold out the same data, which the request names.
    is_apart: bool,
    /// Counts of examples with labels of their own, if there are some.
    pub(super) examples: Option<ExampleReport>,
}

/// The sets, in the order of the sources.
enum Kind {
    /// Text, whose bytes are tokens.
    Text(Vec<TextData>),
    /// Ids.
    Tokens(Vec<TokenSet>),
    /// Examples with images.
    Images(Box<ImageSides>),
    /// Ids that a program makes.
    Own { train: Box<dyn TokenSource>, valid: ValidationTokens },
}

/// Tokens of a program's own, which a run reads in place of files.
pub struct OwnTokens {
    /// The tokens to train on.
    pub train: Box<dyn TokenSource>,
    /// The documents of the validation.
    pub valid: Vec<TokenPiece>,
}

/// Data that is opened before the model is compiled; text is read later.
#[derive(Default)]
pub(super) enum OpenedData {
    #[default]
    Text,
    Tokens(Vec<TokenData>),
    Images(Box<OpenedImages>),
    Own(OwnTokens),
}

impl OpenedData {
    /// Opens the files that the request names, unless the program has tokens of its own. With an encoder they are examples with images.
    ///
    /// # Errors
    /// As [`open_tokens`]; or there are no examples for the encoder.
    pub(super) fn of(
        request: &TrainRequest,
        vision: Option<&Vision>,
        own: Option<OwnTokens>,
    ) -> Result<OpenedData, Error> {
        match (own, vision) {
            (Some(_), Some(_)) => Err(Error::input(Code::BadOption, "tokens of a program have no images".to_string())
                .help("leave `+images=` out of the model's name, or name a folder of examples with images")),
            (Some(own), None) => Ok(OpenedData::Own(own)),
            (None, Some(vision)) => Ok(OpenedData::Images(Box::new(OpenedImages::of(request, vision)?))),
            (None, None) => Ok(open_tokens(request)?.map_or(OpenedData::Text, OpenedData::Tokens)),
        }
    }

    /// The least vocabulary of the model.
    pub(super) fn least_vocabulary(&self) -> u64 {
        if let OpenedData::Text = self { VOCAB as u64 } else { 0 }
    }

    /// Checks that the model knows the tokens of files, as far as their records say.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn check_vocabulary(&self, vocabulary: u64) -> Result<(), DataError> {
        match self {
            OpenedData::Tokens(sets) => sets.iter().try_for_each(|set| set.check_vocabulary(vocabulary)),
            OpenedData::Images(images) => images.check_vocabulary(vocabulary),
            OpenedData::Text | OpenedData::Own(_) => Ok(()),
        }
    }
}

/// Samples of the training and of the held-out data.
pub(super) struct Sides<'a> {
    pub(super) train: Samples<'a>,
    pub(super) valid: Samples<'a>,
}

/// Opens the sets of tokenised data, if the request names such.
///
/// # Errors
/// A file is damaged, sets are of different tokens, or an option is for tokenised data and there is none.
fn open_tokens(request: &TrainRequest) -> Result<Option<Vec<TokenData>>, Error> {
    let layout = match request.data_format.as_deref() {
        None => None,
        Some("raw-u16") => Some(Layout::Raw16),
        Some("raw-u32") => Some(Layout::Raw32),
        Some(other) => {
            return Err(Error::input(Code::BadOption, format!("there is no format `{other}` of data"))
                .help("--data-format is raw-u16 or raw-u32; other forms are recognised by their files"));
        }
    };
    let (mut tokens, mut text): (Vec<(TokenData, NamedSet)>, Option<NamedSet>) = (Vec::new(), None);
    for source in sources(request)? {
        match open_set(request, &source, layout)? {
            Some(set) => tokens.push((set, source)),
            None if request.blend.is_some() && !source.path.exists() => {
                return Err(DataError::Missing { path: source.path }.into());
            }
            None => {
                examples::check_text(&source.path)?;
                text = text.or(Some(source));
            }
        }
    }
    if let (Some((_, tokens)), Some(text)) = (tokens.first(), &text) {
        let what = format!("{} has tokens, but {} is text", tokens.path.display(), text.path.display());
        return Err(Error::input(Code::BadOption, what).help("tokenise all sets of a blend with one tokenizer"));
    }
    same_tokenizer(&tokens)?;
    Ok(text.is_none().then(|| tokens.into_iter().map(|(set, _)| set).collect()))
}

/// Checks that the sets and the held-out data are of one tokenizer, as far as they have records of it.
fn same_tokenizer(sets: &[(TokenData, NamedSet)]) -> Result<(), Error> {
    let parts = sets.iter().flat_map(|(set, _)| [&set.train, &set.valid]);
    let mut recorded = parts.filter_map(|part| part.record().map(|record| (part.path(), &record.tokenizer)));
    let Some((first, tokenizer)) = recorded.next() else { return Ok(()) };
    let Some((path, other)) = recorded.find(|(_, other)| other.crc32 != tokenizer.crc32) else { return Ok(()) };
    let [first, path] = [first, path].map(Path::display);
    let [tokenizer, other] = [tokenizer, other].map(|tokenizer| tokenizer.path.display());
    let what = format!("{first} has tokens of {tokenizer}, but {path} those of another tokenizer, {other}");
    Err(Error::input(Code::BadOption, what).help("tokenise all sets with the tokenizer of the model"))
}

/// Opens a set of tokenised data; none if it is text.
fn open_set(request: &TrainRequest, source: &NamedSet, layout: Option<Layout>) -> Result<Option<TokenData>, Error> {
    let (valid, fraction) = (request.valid.as_deref(), request.valid_fraction);
    let set = TokenData::open(&source.path, valid, layout, request.eos, fraction)?;
    let data = source.path.display();
    let (message, help) = match (&set, valid, request.eos) {
        (None, Some(valid), _) => (
            format!("{} is tokenised data for validation, but {data} is text", valid.display()),
            "leave --valid out: --valid-fraction holds out a part of the text",
        ),
        (None, None, Some(eos)) => (
            format!("{eos} is to end documents of tokens, but {data} is text"),
            "leave --eos out: the end of a document of text is a token of its own",
        ),
        (Some(tokens), _, Some(eos)) if tokens.is_indexed() => {
            (format!("{eos} is to end documents, but the index of {data} has their ends"), "leave --eos out")
        }
        _ => return Ok(set),
    };
    Err(Error::input(Code::BadOption, message).help(help))
}

impl Data {
    /// The data of a request: what has been opened, or text.
    ///
    /// # Errors
    /// The text cannot be read, or the program's held-out documents have no sample of the request's tokens.
    pub(super) fn load(request: &TrainRequest, opened: OpenedData, free: u64) -> Result<Data, Error> {
        let sources = if let OpenedData::Own(_) = opened { Vec::new() } else { sources(request)? };
        let kind = match opened {
            OpenedData::Tokens(tokens) => {
                let (seq, loss_on) = (request.seq as usize, loss_on(request)?);
                let sets = tokens.into_iter().map(|set| TokenSet::of(set, seq, loss_on));
                Kind::Tokens(sets.collect::<Result<_, DataError>>()?)
            }
            OpenedData::Images(images) => Kind::Images(Box::new(images.windows(request.seq as usize)?)),
            OpenedData::Own(OwnTokens { train, valid }) => {
                Kind::Own { train, valid: ValidationTokens::cut(valid, request.seq as usize)? }
            }
            OpenedData::Text => {
                let (mut sets, mut free) = (Vec::new(), free);
                for source in &sources {
                    let set = TextData::load(&source.path, request.valid_fraction, free)?;
                    free = free.saturating_sub(set.bytes());
                    sets.push(set);
                }
                Kind::Text(sets)
            }
        };
        let mut data = Data { kind, sources, is_apart: request.valid.is_some(), examples: None };
        let sets = if let Kind::Tokens(sets) = &data.kind { sets.as_slice() } else { &[] };
        data.examples = examples::report(request, sets, data.held_out())?;
        Ok(data)
    }

    /// Samples of sequences of `seq` tokens below `vocabulary`. Each set has an order of its own.
    ///
    /// # Errors
    /// A set is too small for one.
    pub(super) fn samples(&self, seq: usize, vocabulary: u64, seed: u64) -> Result<Sides<'_>, Error> {
        if let Kind::Own { train, valid } = &self.kind {
            let train = SourceSamples { source: &**train, seq, vocabulary, windows: None };
            let valid = SourceSamples { source: valid, seq, vocabulary, windows: Some(valid.samples()) };
            return Ok(Sides { train: Samples::Source(train), valid: Samples::Source(valid) });
        }
        if let Kind::Images(images) = &self.kind {
            let (train, valid) = (images.train.samples(Some(seed)), images.valid.samples(None));
            return Ok(Sides { train: Samples::Images(train), valid: Samples::Images(valid) });
        }
        let (mut train, mut valid) = (Vec::new(), Vec::new());
        for number in 0..self.train().len() {
            train.push(self.train_samples(number, seq, seed.wrapping_add(number as u64))?.within(vocabulary));
        }
        for number in 0..self.valid().len() {
            valid.push(self.valid_samples(number, seq)?.within(vocabulary));
        }
        let (train, valid) = (Blend::by_turns(train, &self.shares()), Blend::in_order(valid));
        Ok(Sides { train: Samples::Files(train), valid: Samples::Files(valid) })
    }

    /// Training samples of a set.
    fn train_samples(&self, number: usize, seq: usize, seed: u64) -> Result<Sampler<'_>, DataError> {
        match &self.kind {
            Kind::Tokens(sets) => sets[number].train(seq, seed),
            _ => Sampler::new(self.train()[number], seq, seed),
        }
    }

    /// Held-out samples of a set.
    fn valid_samples(&self, number: usize, seq: usize) -> Result<Sampler<'_>, DataError> {
        match &self.kind {
            Kind::Tokens(sets) => sets[number].valid(seq),
            _ => Sampler::in_order(self.valid()[number], seq),
        }
    }

    fn train(&self) -> Vec<Stream<'_>> {
        match &self.kind {
            Kind::Own { .. } | Kind::Images(_) => Vec::new(),
            Kind::Text(sets) => sets.iter().map(|set| (&set.train).into()).collect(),
            Kind::Tokens(sets) => sets.iter().map(|set| (&set.data.train).into()).collect(),
        }
    }

    fn valid(&self) -> Vec<Stream<'_>> {
        let mut sets: Vec<Stream<'_>> = match &self.kind {
            Kind::Own { .. } | Kind::Images(_) => Vec::new(),
            Kind::Text(sets) => sets.iter().map(|set| (&set.valid).into()).collect(),
            Kind::Tokens(sets) => sets.iter().map(|set| (&set.data.valid).into()).collect(),
        };
        sets.truncate(self.held_out());
        sets
    }

    /// The most sets whose held-out data counts: the same data of all sets counts once.
    fn held_out(&self) -> usize {
        if self.is_apart { 1 } else { usize::MAX }
    }

    /// The number of training tokens; 0 if it is not known.
    pub(super) fn train_tokens(&self) -> u64 {
        if let Kind::Images(images) = &self.kind {
            return images.train.examples().tokens() as u64;
        }
        self.train().into_iter().map(|set| set.tokens() as u64).sum()
    }

    /// The number of held-out tokens.
    pub(super) fn valid_tokens(&self) -> u64 {
        match &self.kind {
            Kind::Own { valid, .. } => return valid.tokens(),
            Kind::Images(images) => return images.valid.examples().tokens() as u64,
            Kind::Text(_) | Kind::Tokens(_) => {}
        }
        self.valid().into_iter().map(|set| set.tokens() as u64).sum()
    }

    /// The shares of the sets, relative to each other.
    pub(super) fn shares(&self) -> Vec<f64> {
        self.sources.iter().map(|source| source.share).collect()
    }

    /// The sets of a blend; none of a single one.
    pub(super) fn shared(&self) -> Vec<SetShare> {
        let all: f64 = self.shares().iter().sum();
        let sets = self.sources.iter().zip(self.train()).map(|(source, set)| SetShare {
            data: source.path.clone(),
            share: source.share / all,
            train_tokens: set.tokens() as u64,
        });
        if self.sources.len() > 1 { sets.collect() } else { Vec::new() }
    }

    /// The path of the data, or of the first set.
    pub(super) fn path(&self) -> PathBuf {
        self.sources.first().map(|source| source.path.clone()).unwrap_or_default()
    }

    /// Files of text, or documents of both sides as far as they are known.
    pub(super) fn documents(&self) -> u64 {
        match &self.kind {
            Kind::Own { .. } => 0,
            Kind::Images(images) => images.halves().map(|half| half.examples() as u64).sum(),
            Kind::Text(sets) => sets.iter().map(|set| set.documents as u64).sum(),
            Kind::Tokens(sets) => {
                let train: usize = sets.iter().map(|set| set.data.train.documents()).sum();
                let valid: usize = sets.iter().take(self.held_out()).map(|set| set.data.valid.documents()).sum();
                (train + valid) as u64
            }
        }
    }

    /// Bytes of memory. Ids stay in their files; places of documents and windows of examples take some.
    pub(super) fn bytes(&self) -> u64 {
        match &self.kind {
            Kind::Own { valid, .. } => 4 * valid.tokens(),
            // Pixels stay in their files.
            Kind::Images(images) => images.halves().map(|half| 8 * half.tokens() as u64).sum(),
            Kind::Text(sets) => sets.iter().map(TextData::bytes).sum(),
            Kind::Tokens(sets) => sets.iter().map(TokenSet::bytes).sum(),
        }
    }

    /// The name of a token, in the plural.
    pub(super) fn unit(&self) -> &'static str {
        if let Kind::Text(_) = self.kind { "bytes" } else { "tokens" }
    }

    /// Bytes of held-out text for each token, by the records of files of tokens. A record counts all documents of its file, so that it gives
    /// the mean of these if only some are held out.
    pub(super) fn bytes_per_token(&self) -> Option<f64> {
        let bytes: Option<f64> = match &self.kind {
            Kind::Own { .. } | Kind::Images(_) => None,
            Kind::Text(sets) => {
                let segments = sets.iter().flat_map(|set| set.valid.segments());
                Some(segments.map(|segment| segment.bytes.len() as f64).sum())
            }
            // The loss of examples is of a part of their tokens.
            Kind::Tokens(sets) if sets.iter().any(TokenSet::has_labels) => None,
            Kind::Tokens(sets) => sets.iter().take(self.held_out()).map(|set| bytes_of(&set.data.valid)).sum(),
        };
        bytes.map(|bytes| bytes / self.valid_tokens().max(1) as f64).filter(|&ratio| ratio > 0.0)
    }

    /// Identity of each set, wherever the files are.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn checksum(&self) -> Result<String, DataError> {
        let sums: Vec<u32> = match &self.kind {
            Kind::Own { .. } => Vec::new(),
            Kind::Images(images) => images.halves().map(ImageExamples::checksum).collect(),
            Kind::Text(sets) => sets.iter().map(TextData::checksum).collect(),
            Kind::Tokens(sets) => sets.iter().map(|set| set.data.checksum()).collect::<Result<_, _>>()?,
        };
        Ok(hexadecimal(&sums))
    }

    /// Identity of each set for other processes, by all of it or by a part.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn fingerprint(&self, extent: Extent) -> Result<String, DataError> {
        let sums: Vec<u32> = match &self.kind {
            Kind::Own { .. } => Vec::new(),
            Kind::Images(images) => images.halves().map(ImageExamples::checksum).collect(),
            Kind::Text(sets) => sets.iter().map(TextData::checksum).collect(),
            Kind::Tokens(sets) => sets.iter().map(|set| set.data.fingerprint(extent)).collect::<Result<_, _>>()?,
        };
        Ok(hexadecimal(&sums))
    }

    /// The baseline of a single text, in nats per byte.
    pub(super) fn bigram_entropy(&self) -> Option<f64> {
        match &self.kind {
            Kind::Text(sets) if sets.len() == 1 => bigram_entropy(&sets[0].train, &sets[0].valid),
            _ => None,
        }
    }
}

/// Bytes of the text of a part, by the record of its file.
fn bytes_of(part: &TokenPart) -> Option<f64> {
    let record = part.record()?;
    Some(part.tokens() as f64 * record.bytes as f64 / record.tokens.max(1) as f64)
}

fn hexadecimal(sums: &[u32]) -> String {
    sums.iter().map(|sum| format!("{sum:08x}")).collect::<Vec<_>>().join(" ")
}
