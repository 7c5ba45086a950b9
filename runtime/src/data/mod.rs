//! Training text: files to tokens ([`text`]), tokens to batches ([`sampler`]), and a yardstick for the loss
//! ([`bigram`]).
//!
//! ```text
//! files -> documents -> chunks -> { training part, held-out part } -> windows of seq + 1 tokens -> batches
//! ```

pub mod bigram;
pub mod sampler;
pub mod text;

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Number of distinct tokens: 256 bytes and [`END_OF_DOCUMENT`].
pub const VOCAB: usize = 257;

/// The token that follows the last byte of a document.
pub const END_OF_DOCUMENT: u16 = 256;

/// Which half of the split a [`Part`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What the model learns from.
    Training,
    /// What the model never sees; measures the validation loss.
    HeldOut,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Training => "training",
            Role::HeldOut => "held-out",
        })
    }
}

/// One side of the split: a stream of tokens cut into segments.
///
/// A segment is a run of adjacent bytes of one document, closed by [`END_OF_DOCUMENT`] where the document ends.
/// Nothing in a segment says anything about another, so neither attention nor labels cross a border.
#[derive(Clone, Debug)]
pub struct Part {
    role: Role,
    path: PathBuf,
    tokens: Vec<u16>,
    starts: Vec<usize>,
}

impl Part {
    pub(crate) fn new(role: Role, path: PathBuf) -> Self {
        Self { role, path, tokens: Vec::new(), starts: Vec::new() }
    }

    /// Opens a segment; bytes must follow.
    pub(crate) fn open(&mut self) {
        self.starts.push(self.tokens.len());
    }

    /// Appends bytes to the open segment.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.tokens.extend(bytes.iter().map(|&byte| u16::from(byte)));
    }

    /// Ends the document whose last bytes were appended.
    pub(crate) fn end_document(&mut self) {
        self.tokens.push(END_OF_DOCUMENT);
    }

    /// The whole stream, each token below [`VOCAB`].
    pub fn tokens(&self) -> &[u16] {
        &self.tokens
    }

    /// The segments in stream order, none empty.
    pub fn segments(&self) -> impl Iterator<Item = &[u16]> {
        (0..self.starts.len()).map(|i| &self.tokens[self.starts[i]..self.segment_end(i)])
    }

    /// Index of the segment that holds the token at `at`.
    fn segment_of(&self, at: usize) -> usize {
        self.starts.partition_point(|&start| start <= at) - 1
    }

    /// Place after the last token of `segment`.
    fn segment_end(&self, segment: usize) -> usize {
        self.starts.get(segment + 1).copied().unwrap_or(self.tokens.len())
    }
}

/// Why text cannot be trained on.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Nothing is at the path.
    #[error("no training text at {}: there is no such file or folder", path.display())]
    Missing {
        /// The path asked for.
        path: PathBuf,
    },
    /// A file or folder exists but cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file or folder that failed.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path is a device, a pipe or a socket.
    #[error("{} is neither a file nor a folder", path.display())]
    NotAFile {
        /// The path asked for.
        path: PathBuf,
    },
    /// The folder has no file to consider.
    #[error(
        "the folder {} has no files (hidden ones, links and folders named `target` are left out)",
        path.display()
    )]
    EmptyFolder {
        /// The folder asked for.
        path: PathBuf,
    },
    /// There are files, but all of them are binary or empty.
    #[error(
        "no text at {}: files looked at: {files}, all empty or binary (a NUL, or mostly not UTF-8)",
        path.display()
    )]
    NoText {
        /// The path asked for.
        path: PathBuf,
        /// Files looked at.
        files: usize,
    },
    /// A part is shorter than one sequence and its last label.
    #[error(
        "too little text at {}: the {role} part has {tokens} tokens, one sequence of {seq} needs {}",
        path.display(),
        .seq.saturating_add(1)
    )]
    TooLittle {
        /// Where the text came from.
        path: PathBuf,
        /// The part that is too short.
        role: Role,
        /// Tokens the part has.
        tokens: usize,
        /// Sequence length asked for, in tokens.
        seq: usize,
    },
    /// A sequence without tokens was asked for.
    #[error("a sequence of 0 tokens has nothing to learn")]
    EmptySequence,
    /// The held-out fraction is outside `[0, 1)`.
    #[error("held-out fraction {fraction} is outside [0, 1)")]
    Fraction {
        /// The fraction asked for.
        fraction: f64,
    },
}

/// One step of SplitMix64 from state `z` (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014):
/// a bijection on 64 bits that scatters neighbouring inputs.
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_is_splitmix64() {
        // First output of the reference generator seeded with 0.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn messages_say_what_and_where() {
        let error = DataError::TooLittle { path: "corpus".into(), role: Role::HeldOut, tokens: 3, seq: 8 };
        assert_eq!(
            error.to_string(),
            "too little text at corpus: the held-out part has 3 tokens, one sequence of 8 needs 9"
        );
    }
}
