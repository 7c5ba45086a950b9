//! Examples of an iterator, which fill samples in their order.

use super::{NO_LABEL, NextSample, SourceError, TokenPiece};

/// The examples that are still to come.
pub(super) struct Examples<I> {
    examples: I,
    /// The first example of the next sample, if it was read.
    next: Option<TokenPiece>,
}

impl<I: Iterator<Item = TokenPiece>> Examples<I> {
    pub(super) fn new(examples: I) -> Examples<I> {
        Examples { examples, next: None }
    }

    /// The next example with a label that counts, at most `tokens` inputs of it.
    fn read(&mut self, tokens: usize) -> Result<Option<TokenPiece>, SourceError> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        for mut example in self.examples.by_ref() {
            example.check()?;
            // The last id may be a label alone, which takes no place.
            example.ids.truncate(tokens + 1);
            let labels = (0..example.ids.len()).map(|at| example.label(at).unwrap_or(NO_LABEL));
            let example = TokenPiece { labels: Some(labels.collect()), ids: example.ids };
            if example.targets(tokens).any(|label| label >= 0) {
                return Ok(Some(example));
            }
        }
        Ok(None)
    }
}

impl<I: Iterator<Item = TokenPiece>> NextSample for Examples<I> {
    fn sample(&mut self, tokens: usize) -> Result<Option<Vec<TokenPiece>>, SourceError> {
        let (mut left, mut sample) = (tokens, Vec::new());
        while let Some(example) = self.read(tokens)? {
            let inputs = example.ids.len().min(tokens);
            if inputs > left {
                self.next = Some(example);
                break;
            }
            left -= inputs;
            sample.push(example);
        }
        Ok((!sample.is_empty()).then_some(sample))
    }
}
