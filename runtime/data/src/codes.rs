//! Error codes of this crate: one catalogue entry each, with the fix.

use crate::{DataError, Role};
use ir::catalogue::Code;
use ir::diag::Coded;

impl Coded for DataError {
    fn code(&self) -> Option<Code> {
        Some(match self {
            DataError::Missing { .. } | DataError::Unreadable { .. } | DataError::NotAFile { .. } => Code::DataMissing,
            DataError::EmptyFolder { .. } | DataError::NoText { .. } => Code::DataEmpty,
            DataError::TooLittle { .. } | DataError::NoExample { .. } | DataError::FewExamples { .. } => {
                Code::DataTooSmall
            }
            DataError::TooLarge { .. } => Code::TooLittleMemory,
            DataError::Damaged { .. } | DataError::CutShort { .. } => Code::TokensDamaged,
            DataError::OutOfRange { .. } | DataError::Vocabulary { .. } => Code::TokenOutOfRange,
            DataError::Source { .. } => Code::TokensDamaged,
            DataError::EmptySequence | DataError::Fraction { .. } => Code::BadOption,
        })
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            DataError::Missing { .. } => "check the path",
            DataError::Unreadable { .. } => "check its permissions, or move it out of the data folder",
            DataError::NotAFile { .. } => "name a text file or a folder of text files",
            DataError::EmptyFolder { .. } => "put text files in it",
            DataError::NoText { .. } => "give UTF-8 text",
            DataError::TooLarge { .. } => "name a part of it",
            DataError::TooLittle { role: Role::HeldOut, tokens: 0, .. } => {
                "add text; of token files without an index, end documents with --eos, or name others with --valid"
            }
            DataError::TooLittle { .. } => "add text, shorten the sequence or change the held-out fraction",
            DataError::NoExample { without_label: 0, .. } => {
                "add examples, hold out a larger share with --valid-fraction, or name others with --valid"
            }
            DataError::NoExample { .. } => "lengthen the window with --seq, or train on all tokens with --loss-on all",
            DataError::FewExamples { .. } => {
                "write a safetensors file for each example, with input_ids and pixel_values as the model's processor gives them"
            }
            DataError::CutShort { .. } => "copy the file again from where it is whole",
            DataError::Damaged { .. } => "write or copy the files again, or say what they are with --data-format",
            DataError::OutOfRange { .. } | DataError::Vocabulary { .. } => {
                "train the model whose tokenizer wrote the data"
            }
            DataError::Source { .. } => "give ids below the vocabulary, and a sample for each sequence of the run",
            DataError::EmptySequence => "ask for a sequence length of at least 1",
            DataError::Fraction { .. } => "0.1 holds out a tenth of the text",
        };
        Some(help.to_string())
    }
}
