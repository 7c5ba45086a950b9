//! Errors of tokenisation, with their codes.

use super::example_error::ExampleError;
use data::DataError;
use ir::catalogue::Code;
use ir::diag::Coded;
use std::io;
use std::path::PathBuf;

/// Why text is not tokenised. No file has been written then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text cannot be found or read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A document is no text.
    #[error("{}:{line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// The fault.
        why: String,
    },
    /// A document is too long to be read in bounded memory.
    #[error("{}:{line}: {why}", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The number of the line in which the part begins that is too long, from 1.
        line: u64,
        /// The excess.
        why: String,
    },
    /// A tokenizer is not understood.
    #[error("{} is no tokenizer: {why}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// A chat template is not understood.
    #[error("{} has no chat template that can be read: {why}", path.display())]
    Template {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// An example is not of the form that it must have.
    #[error("{}:{line}: {why}", path.display())]
    Example {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// The fault.
        why: ExampleError,
    },
    /// A source is of text, and others are of examples.
    #[error("{} is text, but {} has examples with labels of their own", text.display(), examples.display())]
    Mixed {
        /// The file of text.
        text: PathBuf,
        /// The file of examples.
        examples: PathBuf,
    },
    /// The token that is to end documents is none of the tokenizer.
    #[error("`{token}` is no token of {}, whose ids are below {vocabulary}", path.display())]
    End {
        /// The token, or its id.
        token: String,
        /// The file of the tokenizer.
        path: PathBuf,
        /// The size of the vocabulary.
        vocabulary: u64,
    },
    /// The files cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The caller has asked for the end.
    #[error("tokenisation was stopped")]
    Stopped,
}

impl Coded for Error {
    fn code(&self) -> Option<Code> {
        match self {
            Error::Data(error) => error.code(),
            Error::Line { .. } | Error::TooLong { .. } | Error::Example { .. } => Some(Code::DocumentUnreadable),
            Error::Tokenizer { .. } | Error::Template { .. } => Some(Code::TokenizerUnreadable),
            Error::Unwritable { .. } => Some(Code::FileUnreadable),
            Error::End { .. } | Error::Mixed { .. } => Some(Code::BadOption),
            Error::Stopped => Some(Code::RunEnded),
        }
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            Error::Data(error) => return error.help(),
            Error::Line { .. } => "correct the line, name the key with --text-key, or leave the file out",
            Error::Example { .. } => {
                "correct the line or leave it out; `messages`, `prompt` with `completion`, and `input_ids` with `labels` make an example, and \
                 --chat-template names a template"
            }
            Error::Template { .. } => "name a template of Jinja with --chat-template",
            Error::Mixed { .. } => "tokenise text and examples apart, and train on both with --blend",
            Error::TooLong { .. } => "split the document, by spaces or line ends if it has none, or leave it out",
            Error::Tokenizer { .. } => "name the tokenizer.json of a model, or its folder",
            Error::End { .. } => "name a token as tokenizer.json has it, such as '<|endoftext|>', or its id",
            Error::Unwritable { .. } => "check the folder of --out and its free space",
            Error::Stopped => "run the command again",
        };
        Some(help.to_string())
    }
}
