//! Data of a run: bytes of text, or the ids of tokenised files.

use super::request::TrainRequest;
use crate::error::Error;
use ir::catalogue::Code;
use runtime::data::bigram::bigram_entropy;
use runtime::data::sampler::Stream;
use runtime::data::text::TextData;
use runtime::data::tokens::{Layout, TokenData};

/// Data of a run.
pub(super) enum Data {
    /// Text, whose bytes are tokens.
    Text(TextData),
    /// Ids.
    Tokens(TokenData),
}

/// Opens tokenised data, if the request names such.
///
/// # Errors
/// A file is damaged, or an option is for tokenised data and there is none.
pub(super) fn open_tokens(request: &TrainRequest) -> Result<Option<TokenData>, Error> {
    let layout = match request.data_format.as_deref() {
        None => None,
        Some("raw-u16") => Some(Layout::Raw16),
        Some("raw-u32") => Some(Layout::Raw32),
        Some(other) => {
            return Err(Error::input(Code::BadOption, format!("there is no format `{other}` of data"))
                .help("--data-format is raw-u16 or raw-u32; other forms are recognised by their files"));
        }
    };
    let (valid, fraction) = (request.valid.as_deref(), request.valid_fraction);
    let tokens = TokenData::open(&request.data, valid, (layout, request.eos), fraction)?;
    let data = request.data.display();
    let refused = |what: String, help: &str| Err(Error::input(Code::BadOption, what).help(help));
    match (&tokens, valid, request.eos) {
        (None, Some(valid), _) => refused(
            format!("{} is tokenised data for validation, but {data} is text", valid.display()),
            "leave --valid out: --valid-fraction holds out a part of the text",
        ),
        (None, None, Some(eos)) => refused(
            format!("{eos} is to end documents of tokens, but {data} is text"),
            "leave --eos out: the end of a document of text is a token of its own",
        ),
        (Some(tokens), _, Some(eos)) if tokens.is_indexed() => {
            refused(format!("{eos} is to end documents, but the index of {data} has their ends"), "leave --eos out")
        }
        _ => Ok(tokens),
    }
}

impl Data {
    /// The data of a request: what has been opened, or text.
    ///
    /// # Errors
    /// The text cannot be read.
    pub(super) fn load(request: &TrainRequest, tokens: Option<TokenData>, free: u64) -> Result<Data, Error> {
        match tokens {
            Some(tokens) => Ok(Data::Tokens(tokens)),
            None => Ok(Data::Text(TextData::load(&request.data, request.valid_fraction, free)?)),
        }
    }

    pub(super) fn train(&self) -> Stream<'_> {
        match self {
            Data::Text(text) => (&text.train).into(),
            Data::Tokens(tokens) => (&tokens.train).into(),
        }
    }

    pub(super) fn valid(&self) -> Stream<'_> {
        match self {
            Data::Text(text) => (&text.valid).into(),
            Data::Tokens(tokens) => (&tokens.valid).into(),
        }
    }

    /// Files of text, or documents of both sides.
    pub(super) fn documents(&self) -> u64 {
        match self {
            Data::Text(text) => text.documents as u64,
            Data::Tokens(tokens) => (tokens.train.documents() + tokens.valid.documents()) as u64,
        }
    }

    /// Bytes of memory. Files of ids are mapped, and only the places of documents take some.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Data::Text(text) => text.bytes(),
            Data::Tokens(tokens) => tokens.bytes(),
        }
    }

    /// The name of a token, in the plural.
    pub(super) fn unit(&self) -> &'static str {
        if let Data::Text(_) = self { "bytes" } else { "tokens" }
    }

    /// Identity of the data, wherever the files are.
    pub(super) fn checksum(&self) -> u32 {
        match self {
            Data::Text(text) => text.checksum(),
            Data::Tokens(tokens) => tokens.checksum(),
        }
    }

    /// The baseline of text, in nats per byte.
    pub(super) fn bigram_entropy(&self) -> Option<f64> {
        if let Data::Text(text) = self { bigram_entropy(&text.train, &text.valid) } else { None }
    }
}
