//! Places at which a document may be cut: what a tokenizer makes of its parts is what it makes of the whole.
//!
//! A tokenizer takes its added tokens out of a text, normalises the rest, parts it into words, and gives each to its model. A place is
//! one to cut at if each of these treats its two sides apart, whatever they are; that follows from the two characters around it. Then,
//! for texts `u`, `v` and `w` that meet in such places,
//!
//! ```text
//! ids(u v w) = ids(u), ids(v), ids(w), where a part that is not the first is read behind some text of the one before
//! ```
//!
//! The text before it, whose ids are left out, keeps a tokenizer from treating a part as the start of a document. Each cut is also tried
//! on the text around it.

use super::added::AddedTokens;
use super::encoder::caught;
use super::model::Merges;
use super::normal::{Normalizers, is_anchor, is_known};
use super::words::{WordPlace, Words};
use std::collections::HashSet;
use std::sync::Mutex;
use tokenizers::Tokenizer;

/// The bytes on each side of a place that are looked at.
const AROUND: usize = 64;

/// The parts of a tokenizer, as far as they join what is on both sides of a place.
#[derive(Debug)]
pub(crate) struct Cuts {
    raw: AddedTokens,
    normalizers: Normalizers,
    normalised: AddedTokens,
    words: Words,
    merges: Merges,
    /// Neighbours that were refused.
    refused: Mutex<HashSet<(char, char)>>,
}

impl Cuts {
    /// Reads the parts of a tokenizer; none if one of them is not understood.
    pub(crate) fn of(tokenizer: &Tokenizer) -> Option<Cuts> {
        let (mut raw, mut normalised) = (AddedTokens::default(), AddedTokens::default());
        for token in tokenizer.get_added_tokens_decoder().values() {
            match token.normalized {
                true => normalised.add(token, tokenizer.get_normalizer())?,
                false => raw.add(token, None)?,
            }
        }
        Some(Cuts {
            raw,
            normalizers: Normalizers::of(tokenizer.get_normalizer())?,
            normalised,
            words: Words::of(tokenizer.get_pre_tokenizer()),
            merges: Merges::default(),
            refused: Mutex::default(),
        })
    }

    /// The first place from a byte on at which a text may be cut. If more of it comes, unless it `is_whole`, its end is left alone.
    pub(crate) fn find(&self, tokenizer: &Tokenizer, text: &str, from: usize, is_whole: bool) -> Option<usize> {
        let last = if is_whole { text.len() } else { sought(text) };
        let from = text.ceil_char_boundary(from.max(1));
        let mut x = text[..from].chars().next_back()?;
        for (at, y) in text[from..].char_indices().map(|(at, y)| (from + at, y)) {
            if at >= last {
                return None;
            }
            if is_known(x) && is_anchor(y) && self.may_cut(tokenizer, text, at, (x, y)) {
                return Some(at);
            }
            x = y;
        }
        None
    }

    fn may_cut(&self, tokenizer: &Tokenizer, text: &str, at: usize, pair: (char, char)) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if refused.contains(&pair) {
            return false;
        }
        let (before, behind) = (before(text, at), &text[at..text.ceil_char_boundary((at + AROUND).min(text.len()))]);
        let may = self.are_apart(tokenizer, before, behind, pair) && is_apart(tokenizer, before, behind);
        if !may {
            // Places with the same neighbours are not looked at again, so that a long search stays short.
            refused.insert(pair);
        }
        may
    }

    /// True if all parts of the tokenizer treat the two sides apart.
    fn are_apart(&self, tokenizer: &Tokenizer, before: &str, behind: &str, (x, y): (char, char)) -> bool {
        if self.raw.joins(x, y) {
            return false;
        }
        let Some((x, y)) = self.normalizers.apart(before, behind) else { return false };
        if self.normalised.joins(x, y) {
            return false;
        }
        match self.words.place((x, y)) {
            WordPlace::Parted => true,
            WordPlace::Joined => false,
            WordPlace::Open((x, y)) => !self.merges.join(tokenizer, x, y),
        }
    }
}

/// The bytes of a text in which places are looked for while more of it comes.
pub(crate) fn sought(text: &str) -> usize {
    text.len().saturating_sub(AROUND)
}

/// The text before a place, with which a part is read that begins there.
pub(crate) fn before(text: &str, at: usize) -> &str {
    &text[text.ceil_char_boundary(at.saturating_sub(AROUND))..at]
}

/// True if the ids of two texts that follow each other begin with those of the first one.
fn is_apart(tokenizer: &Tokenizer, before: &str, behind: &str) -> bool {
    let ids = |text: String| caught(|| tokenizer.encode_fast(text, false).map(|encoding| encoding.get_ids().to_vec()));
    match (ids(before.to_string()), ids([before, behind].concat())) {
        (Ok(first), Ok(both)) => both.starts_with(&first),
        _ => false,
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
