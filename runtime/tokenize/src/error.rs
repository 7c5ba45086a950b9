//! Errors of tokenisation, with their codes.

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
            Error::Line { .. } | Error::TooLong { .. } => Some(Code::DocumentUnreadable),
            Error::Tokenizer { .. } => Some(Code::TokenizerUnreadable),
            Error::Unwritable { .. } => Some(Code::FileUnreadable),
            Error::End { .. } => Some(Code::BadOption),
            Error::Stopped => Some(Code::RunEnded),
        }
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            Error::Data(error) => return error.help(),
            Error::Line { .. } => "correct the line, name the key with --text-key, or leave the file out",
            Error::TooLong { .. } => "split the document, by spaces or line ends if it has none, or leave it out",
            Error::Tokenizer { .. } => "name the tokenizer.json of a model, or its folder",
            Error::End { .. } => "name a token as tokenizer.json has it, such as '<|endoftext|>', or its id",
            Error::Unwritable { .. } => "check the folder of --out and its free space",
            Error::Stopped => "run the command again",
        };
        Some(help.to_string())
    }
}
