//! Tokens that are found in a text before it is parted into words.

use std::collections::HashSet;
use tokenizers::{AddedToken, NormalizedString, Normalizer, NormalizerWrapper};

/// Neighbours that added tokens may join.
#[derive(Debug, Default)]
pub(crate) struct AddedTokens {
    /// Neighbours within a token.
    pairs: HashSet<(char, char)>,
    /// The last characters of tokens that look at what follows: they take spaces, or are words of their own.
    ends: HashSet<char>,
    /// True if a token takes the spaces before or behind it.
    strips: bool,
}

impl AddedTokens {
    /// Adds a token, as it is in a text that a normalizer has changed if there is one. None if the normalizer refuses it.
    pub(crate) fn add(&mut self, token: &AddedToken, normalizer: Option<&NormalizerWrapper>) -> Option<()> {
        let mut content = NormalizedString::from(token.content.as_str());
        normalizer.map_or(Ok(()), |normalizer| normalizer.normalize(&mut content)).ok()?;
        let chars: Vec<char> = content.get().chars().collect();
        self.pairs.extend(chars.windows(2).map(|pair| (pair[0], pair[1])));
        if token.rstrip || token.single_word {
            self.ends.extend(chars.last());
        }
        self.strips |= token.lstrip || token.rstrip;
        Some(())
    }

    /// True if a token may have both characters, or depend on what is on the other side of the place between them.
    pub(crate) fn joins(&self, x: char, y: char) -> bool {
        self.pairs.contains(&(x, y)) || self.ends.contains(&x) || self.strips && x.is_whitespace()
    }
}
