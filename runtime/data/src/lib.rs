//! Training text: files to tokens ([`text`]), tokens to batches ([`sampler`], of several sets [`blend`], of examples with labels of their own
//! [`packing`], with images [`images`]), and a baseline for the loss ([`bigram`]).
//! A program may give tokens of its own instead ([`source`]).
//!
//! ```text
//! files -> documents -> chunks -> { training part, held-out part } -> windows of seq + 1 tokens -> batches
//! ```

pub mod bigram;
pub mod blend;
mod codes;
pub mod images;
pub mod packing;
pub mod sampler;
pub mod samples;
pub mod source;
pub mod text;
pub mod tokens;
mod zig_zag;

pub use zig_zag::zig_zag;

use source::SourceError;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Number of distinct tokens: 256 bytes and [`END_OF_DOCUMENT`].
pub const VOCAB: usize = 257;

/// The token that follows the last byte of a document.
pub const END_OF_DOCUMENT: u16 = 256;

/// Half of the split that a [`Part`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The training half.
    Training,
    /// The held-out half, which measures the validation loss.
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
/// Segments are independent, so neither attention nor labels cross a border. The bytes stay where
/// the documents have them: both parts together take little more memory than the text.
#[derive(Clone, Debug)]
pub struct Part {
    role: Role,
    path: PathBuf,
    documents: Arc<[Vec<u8>]>,
    segments: Vec<SegmentPlace>,
    tokens: usize,
}

/// Position of a segment.
#[derive(Clone, Debug)]
struct SegmentPlace {
    /// Its first token, in the stream.
    start: usize,
    document: usize,
    /// Its bytes, in the document.
    bytes: Range<usize>,
}

/// Tokens that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Its first token, in the stream.
    pub start: usize,
    /// The tokens but for the end of the document.
    pub bytes: &'a [u8],
    /// True if the document ends here; one more token marks the end.
    pub ends: bool,
}

impl Segment<'_> {
    /// The number of its tokens.
    pub fn tokens(&self) -> usize {
        self.bytes.len() + usize::from(self.ends)
    }

    /// The token at a place of the segment.
    pub fn token(&self, place: usize) -> Option<u16> {
        let end = (self.ends && place == self.bytes.len()).then_some(END_OF_DOCUMENT);
        self.bytes.get(place).map(|&byte| u16::from(byte)).or(end)
    }
}

impl Part {
    pub(crate) fn new(role: Role, path: PathBuf, documents: Arc<[Vec<u8>]>) -> Self {
        Self { role, path, documents, segments: Vec::new(), tokens: 0 }
    }

    /// Appends a segment: some bytes of a document.
    pub(crate) fn push(&mut self, document: usize, bytes: Range<usize>) {
        self.segments.push(SegmentPlace { start: self.tokens, document, bytes });
        self.tokens += self.segment(self.segments.len() - 1).tokens();
    }

    /// How many tokens the stream has.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The segments in stream order, none empty.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        (0..self.segments.len()).map(|number| self.segment(number))
    }

    /// The segment of this number.
    fn segment(&self, number: usize) -> Segment<'_> {
        let SegmentPlace { start, document, bytes } = &self.segments[number];
        let whole = &self.documents[*document];
        Segment { start: *start, bytes: &whole[bytes.clone()], ends: bytes.end == whole.len() }
    }

    /// Number of the segment that holds the token at `at`.
    fn segment_of(&self, at: usize) -> usize {
        self.segments.partition_point(|segment| segment.start <= at) - 1
    }

    /// Part of whole documents.
    #[cfg(test)]
    pub(crate) fn whole(documents: &[&[u8]]) -> Part {
        let documents: Arc<[Vec<u8>]> = documents.iter().map(|document| document.to_vec()).collect();
        let mut part = Part::new(Role::Training, "test".into(), documents.clone());
        documents.iter().enumerate().for_each(|(number, document)| part.push(number, 0..document.len()));
        part
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
        /// The error of the operating system.
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
    /// There is no memory for the text.
    #[error("the text at {} has {:.1} GiB, more than there is memory for ({:.1} GiB)", path.display(), gib(*bytes), gib(*free))]
    TooLarge {
        /// The path asked for.
        path: PathBuf,
        /// Bytes of all text files.
        bytes: u64,
        /// The bytes that the process may still take.
        free: u64,
    },
    /// A file of tokens is not as its own records say.
    #[error("{} {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault, as a predicate.
        why: String,
    },
    /// A file of tokens has become shorter than it was when it was opened.
    #[error("{} was cut short while it was in use: it has {now} bytes, and had {opened} when it was opened", path.display())]
    CutShort {
        /// The file.
        path: PathBuf,
        /// Its bytes now.
        now: u64,
        /// Its bytes when it was opened.
        opened: u64,
    },
    /// An id is not below the vocabulary.
    #[error("document {document} of {} has the id {id}, but the model has {vocabulary} tokens", path.display())]
    OutOfRange {
        /// The file.
        path: PathBuf,
        /// The number of the document, from 0.
        document: u64,
        /// The id.
        id: u32,
        /// The vocabulary of the model.
        vocabulary: u64,
    },
    /// The record of a file has an id that is not below the vocabulary.
    #[error("{} has ids up to {largest}, but the model has {vocabulary} tokens", path.display())]
    Vocabulary {
        /// The file.
        path: PathBuf,
        /// The largest id.
        largest: u32,
        /// The vocabulary of the model.
        vocabulary: u64,
    },
    /// A program's own source gives no sample, or one that the model cannot take.
    #[error("sample {sample} of the program's tokens: {why}")]
    Source {
        /// The number of the sample in the run.
        sample: u64,
        /// The cause.
        why: SourceError,
    },
    /// A part is shorter than one sequence and its last label.
    #[error(
        "too little text at {}: the {role} part has {tokens} tokens, one sequence of {seq} needs {}",
        path.display(),
        .seq.saturating_add(1)
    )]
    TooLittle {
        /// Path of the text.
        path: PathBuf,
        /// The part that is too short.
        role: Role,
        /// Tokens the part has.
        tokens: usize,
        /// Sequence length asked for, in tokens.
        seq: usize,
    },
    /// A part has no example of which a label counts.
    #[error("the {role} part of {} has no example with a label that counts in a window of {seq} tokens ({without_label} without)", path.display())]
    NoExample {
        /// The file.
        path: PathBuf,
        /// The part.
        role: Role,
        /// Examples of it, none of which has such a label.
        without_label: u64,
        /// Tokens of a window.
        seq: usize,
    },
    /// A folder has too few examples with images.
    #[error("{} has {files} files of examples with images, too few to train and to hold one out", path.display())]
    FewExamples {
        /// The folder.
        path: PathBuf,
        /// Its safetensors files.
        files: usize,
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

/// Gibibytes, for messages.
pub fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// One step of SplitMix64 from state `z` (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014):
/// a bijection on 64 bits that scatters neighbouring inputs.
pub fn mix(z: u64) -> u64 {
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
