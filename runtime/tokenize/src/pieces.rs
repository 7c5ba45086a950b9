//! A document in pieces, each of which a tokenizer reads as it reads the whole.

use super::cuts::{before, sought};
use super::encoder::Encoder;
use super::error::Error;
use super::sources::Source;

/// The bytes of a piece, if the document can be cut behind them: enough that what is read twice is little, and few enough that all
/// cores have one.
const PIECE: usize = 1 << 16;

/// The most bytes of a piece. The library takes up to 200 bytes of memory for each (measured), so that the longest one takes less
/// than 1 GiB.
const MOST_PIECE: usize = 1 << 22;

/// A piece of a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The text, behind some of the text before it.
    pub(crate) text: String,
    /// The bytes of the text before it, whose ids are not of this piece.
    pub(crate) before: usize,
    /// The number of its file.
    pub(crate) source: usize,
    /// The line that its document begins in, from 1.
    pub(crate) line: u64,
    /// True if its document ends with it.
    pub(crate) is_last: bool,
}

/// The origin of a document's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    File,
    Line,
}

/// A document of which pieces are taken while it is read.
pub(crate) struct Pieces {
    /// Text that is not taken yet, behind some of the text before it.
    pub(crate) text: String,
    /// The first byte that is not taken.
    begin: usize,
    /// The first byte at which a cut is to be looked for.
    sought: usize,
    /// The number of its file.
    source: usize,
    origin: Origin,
    /// The line in which the document begins.
    line: u64,
    /// Ends of lines in what is taken.
    lines: u64,
}

impl Pieces {
    /// A file that is one document, and of which nothing is read.
    pub(crate) fn of_file(source: usize) -> Pieces {
        Pieces { text: String::new(), begin: 0, sought: 0, source, origin: Origin::File, line: 1, lines: 0 }
    }

    /// The text of a line.
    pub(crate) fn of_line(text: String, source: usize, line: u64) -> Pieces {
        Pieces { text, begin: 0, sought: 0, source, origin: Origin::Line, line, lines: 0 }
    }

    /// Takes the pieces of what has been read, and all of it if that `is_whole`.
    ///
    /// # Errors
    /// There is no place to cut at for too long.
    pub(crate) fn take(&mut self, encoder: &Encoder, source: &Source, is_whole: bool) -> Result<Vec<Piece>, Error> {
        let mut pieces = Vec::new();
        while self.text.len() - self.begin > PIECE {
            let from = self.sought.max(self.begin + PIECE);
            let cut = encoder.cut(&self.text, from, is_whole);
            let end = cut.unwrap_or(self.text.len());
            if end - self.begin > MOST_PIECE {
                return Err(self.too_long(encoder, source));
            }
            if cut.is_none() {
                break;
            }
            pieces.push(self.piece(end, false));
        }
        if is_whole {
            pieces.push(self.piece(self.text.len(), true));
        }
        self.forget();
        Ok(pieces)
    }

    fn piece(&mut self, end: usize, is_last: bool) -> Piece {
        let before = before(&self.text, self.begin);
        let own = &self.text[self.begin..end];
        self.lines += ends_of_lines(own);
        let (text, before) = ([before, own].concat(), before.len());
        self.begin = end;
        Piece { text, before, source: self.source, line: self.line, is_last }
    }

    /// Forgets what no piece will need. Where no cut was found, none is looked for again.
    fn forget(&mut self) {
        let needed = self.begin - before(&self.text, self.begin).len();
        self.text.drain(..needed);
        self.begin -= needed;
        self.sought = sought(&self.text);
    }

    /// The error of a stretch without a cut, at the line of its first word.
    fn too_long(&self, encoder: &Encoder, source: &Source) -> Error {
        let mut begin = self.begin;
        while let Some(cut) = encoder.cut(&self.text, begin + 1, true).filter(|cut| cut - self.begin < PIECE) {
            begin = cut;
        }
        let word = self.text.len() - self.text[begin..].trim_start().len();
        let line = match self.origin {
            Origin::File => self.line + self.lines + ends_of_lines(&self.text[self.begin..word]),
            Origin::Line => self.line,
        };
        let most = MOST_PIECE >> 20;
        let why = format!("{most} MiB of text have no place at which a word of this tokenizer surely ends");
        Error::TooLong { path: source.path.clone(), line, why }
    }
}

fn ends_of_lines(text: &str) -> u64 {
    text.bytes().filter(|&byte| byte == b'\n').count() as u64
}
